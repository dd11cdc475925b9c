package health

import (
	"sync"

	"github.com/ringrift/ringlog/internal/frame"
)

// maxRefusals bounds the requests that refusals distinguishes, at about 40 bytes each.
const maxRefusals = 1 << 16

// refusals counts the requests that were refused for want of a leader. Attempts of one request count once.
type refusals struct {
	mu    sync.Mutex
	count uint64             // since the last reset, with what that began at
	seen  map[frame.Key]bool // requests that were counted, up to maxRefusals
}

// add counts a request, unless an equal one was counted before: that is a retry of it.
func (r *refusals) add(request frame.Request) {
	// Without an id of its own a request cannot be distinguished from a retry, and each attempt counts.
	id, own := request.ID()
	r.mu.Lock()
	defer r.mu.Unlock()
	if own {
		if r.seen[id] {
			return
		}
		// Memory is bounded: what is forgotten here counts again when it is retried.
		if r.seen == nil || len(r.seen) >= maxRefusals {
			r.seen = make(map[frame.Key]bool)
		}
		r.seen[id] = true
	}
	r.count++
}

// reset begins a new count at count.
func (r *refusals) reset(count uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.seen = count, nil
}

// load returns the count.
func (r *refusals) load() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
