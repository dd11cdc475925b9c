package raftnode

import (
	"sync"

	"github.com/ringrift/ringlog/internal/frame"
)

// maxRefusals bounds the requests that refusals distinguishes.
const maxRefusals = 4096

// refusals counts the requests that found no leader. A producer's retries are one request,
// by producer and sequence, as far as this node remembers them.
type refusals struct {
	mu    sync.Mutex
	count uint64
	seen  map[frame.Publish]bool
}

func (r *refusals) add(c frame.Command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := c.(frame.Publish); ok && p.Producer != "" {
		if r.seen[p] {
			return
		}
		if r.seen == nil || len(r.seen) >= maxRefusals {
			r.seen = make(map[frame.Publish]bool)
		}
		r.seen[p] = true
	}
	r.count++
}

// reset begins a new count.
func (r *refusals) reset(count uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.seen = count, nil
}

func (r *refusals) load() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
