package health

import (
	"sync"

	"github.com/ringrift/ringlog/internal/frame"
)

// maxRefusals bounds the requests that refusals distinguishes.
const maxRefusals = 4096

// refusals counts the requests that were refused for want of a leader. Retries of a producer count as one request,
// by producer and sequence, as long as this node remembers them.
type refusals struct {
	mu    sync.Mutex
	count uint64
	seen  map[frame.Publish]bool
}

// add counts a request, unless it is a retry of one that was counted.
func (r *refusals) add(c frame.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A request without a producer cannot be recognized when it is retried.
	if p, ok := c.(frame.Publish); ok && p.Producer != "" {
		if r.seen[p] {
			return
		}
		// Memory is bounded: what is forgotten here counts again when it is retried.
		if r.seen == nil || len(r.seen) >= maxRefusals {
			r.seen = make(map[frame.Publish]bool)
		}
		r.seen[p] = true
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
