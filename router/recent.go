package router

import (
	"bytes"
	"sync"

	"github.com/ringrift/ringlog/event"
)

// recent remembers the last events that this process published or was delivered, each once.
type recent struct {
	mu      sync.Mutex
	ring    []event.Event   // of a fixed length; a zero event where none was noted yet
	next    int             // where the next one goes
	full    bool            // next has passed the end of the ring once
	offsets map[uint64]bool // of those in the ring
}

// newRecent returns a memory of n events, of none if n is 0.
func newRecent(n int) *recent {
	return &recent{ring: make([]event.Event, n), offsets: make(map[uint64]bool, n)}
}

// note remembers an event, with a payload of its own.
func (r *recent) note(ev *event.Event) {
	if len(r.ring) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	// The same event may be published here and come back from the log.
	if ev.Offset > 0 {
		if r.offsets[ev.Offset] {
			return
		}
		r.offsets[ev.Offset] = true
	}

	// The oldest event makes room.
	slot := &r.ring[r.next]
	delete(r.offsets, slot.Offset)
	*slot = *ev
	slot.Payload = bytes.Clone(ev.Payload)
	r.next = (r.next + 1) % len(r.ring)
	r.full = r.full || r.next == 0
}

// last returns up to n events, the newest last.
func (r *recent) last(n int) []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.next
	if r.full {
		have = len(r.ring)
	}

	// Payloads are copied out: the slots are used again.
	n = max(0, min(n, have))
	out := make([]event.Event, 0, n)
	for i := range n {
		ev := r.ring[(r.next-n+i+len(r.ring))%len(r.ring)]
		ev.Payload = bytes.Clone(ev.Payload)
		out = append(out, ev)
	}
	return out
}
