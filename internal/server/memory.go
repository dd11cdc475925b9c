package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// What requests take in memory is counted before it is taken, in bytes, by two counts:
//
//	memory.held   of all requests: received bodies, and what they are decoded into
//	share.held    of the bodies from one caller: one token, or one address without a token
//
// A request counts in a hold, which knows its part of both. It reserves for what it is about to build, after an
// estimate by weigh.go, and releases everything at its end. What does not fit is refused with Overloaded, or with
// TooLarge where it would not fit alone either. Nodes count in a memory of their own, so callers do not keep them
// from each other.

// memory bounds what requests hold at the same time: their bodies as they arrive, and what these are decoded into.
// Room is made before anything is built. It is safe for concurrent use.
type memory struct {
	most int64 // of all requests
	each int64 // of the bodies from one caller
	held atomic.Int64

	mu sync.Mutex
	// A caller is in the map while it has a hold, so strangers leave nothing here.
	from map[string]*share // of the callers that have a hold now, see payer
}

// share is what the bodies from one caller hold. It exists while users is above zero.
type share struct {
	held  atomic.Int64
	users int // guarded by memory.mu
}

// newMemory returns a memory of that many bytes, a quarter of which the bodies from one caller may hold.
func newMemory(most int64) *memory {
	// A quarter each lets four callers use all of it.
	return &memory{most: most, each: max(most/4, 1), from: map[string]*share{}}
}

// hold is one request's part of a memory, or one publish stream's. It is for one goroutine.
type hold struct {
	// A hold belongs to one memory, and counts in the share of one caller.
	memory *memory
	payer  string // "" for callers of the same process, who share nothing
	share  *share
	bytes  int64 // counted in memory.held
	body   int64 // of bytes: received of the body
	shared int64 // of bytes: counted in share.held
}

// openHold returns an empty hold for a caller, see payer. The caller must close it.
func (m *memory) openHold(payer string) *hold {
	h := &hold{memory: m, payer: payer}
	if payer == "" {
		return h
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.share = m.from[payer]
	if h.share == nil {
		h.share = &share{}
		m.from[payer] = h.share
	}
	h.share.users++
	return h
}

// receiveBody counts n bytes of a body that have arrived, for the memory and for the caller. They stay counted until
// release, also with an error.
func (h *hold) receiveBody(n int) error {
	h.body += int64(n)
	err := h.reserve(int64(n))
	switch {
	case err != nil || h.share == nil:
		return err
	// Alone too large for one caller: a retry cannot succeed.
	case h.body > h.memory.each:
		return api.Refuse(api.TooLarge, "body",
			fmt.Sprintf("the body is larger than %d bytes, which is what this node has for one caller", h.memory.each),
			"send several requests")
	// Added first and compared then: of two bodies that meet at the bound both may be refused, and none passes it.
	case h.share.held.Add(int64(n)) > h.memory.each:
		// Refused bytes are in share.held too, from which release takes shared.
		h.shared += int64(n)
		return api.Refuse(api.Overloaded, "body",
			"the bodies of this caller's requests take all the memory there is for one",
			"retry later, with fewer requests at the same time")
	}
	h.shared += int64(n)
	return nil
}

// reserve counts n bytes that are about to be used. They stay counted until release, also with an error. A nil hold
// counts nothing.
func (h *hold) reserve(n int64) error {
	if h == nil {
		return nil
	}
	// Adding before comparing needs no lock: requests that meet at the bound may all be refused, but none passes
	// it.
	h.bytes += n
	held := h.memory.held.Add(n)
	switch {
	// It would not fit even if it were alone, so a retry cannot succeed.
	case h.bytes > h.memory.most:
		return api.Refuse(api.TooLarge, "body",
			fmt.Sprintf("the request would take %d bytes of memory, this node has %d for all", h.bytes, h.memory.most),
			"send several requests")
	case held > h.memory.most:
		return errBodies()
	}
	return nil
}

// errBodies refuses a request for which there is no room at the moment.
func errBodies() *api.Error {
	return api.Refuse(api.Overloaded, "body",
		"the requests under way take all the memory there is for them",
		"retry later, with fewer requests at the same time")
}

// release returns all that was counted; the hold may be used again.
func (h *hold) release() {
	// All counts fall at once: what they stood for is not used any more.
	h.memory.held.Add(-h.bytes)
	if h.share != nil {
		h.share.held.Add(-h.shared)
	}
	h.bytes, h.body, h.shared = 0, 0, 0
}

// close releases the hold for the last time, and forgets a caller that has no other hold.
func (h *hold) close() {
	h.release()
	if h.share == nil {
		return
	}
	// The last hold of a caller takes its share along, so the map has no more entries than there are callers.
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	h.share.users--
	if h.share.users == 0 {
		delete(h.memory.from, h.payer)
	}
}

// holdKey is the key of a hold in a context.
type holdKey struct{}

// withHold returns a context with the hold of a request.
func withHold(ctx context.Context, h *hold) context.Context {
	return context.WithValue(ctx, holdKey{}, h)
}

// holdOf returns the hold of a context's request; nil, which counts nothing, where there is none.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// minBodyRate is how many bytes of a body must arrive in a second, on average.
const minBodyRate = 64 << 10

// pace bounds how slowly a body may arrive: no bytes may be missing for longer than idle, and the whole must come
// at minBodyRate or faster.
type pace struct {
	idle time.Duration
	// Time runs from the first read, not from when the request came.
	began time.Time // zero before the first deadline
	got   int64     // bytes that have arrived; kept by the reader
}

// deadline returns until when the next bytes must arrive. The first call starts the clock of the whole body.
func (p *pace) deadline() time.Time {
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	// The more has arrived, the later the whole has to be complete.
	whole := p.began.Add(p.idle + time.Duration(p.got)*time.Second/minBodyRate)
	if next := now.Add(p.idle); next.Before(whole) {
		return next
	}
	return whole
}
