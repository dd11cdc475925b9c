package server

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// memory bounds what requests hold at the same time: their bodies as they come in, and what
// becomes of them once they are decoded. Nothing is built before there is room for it.
type memory struct {
	most int64 // of all requests
	each int64 // of the bodies from one address
	held atomic.Int64

	mu   sync.Mutex
	from map[netip.Addr]*share
}

// share is what the bodies from one address hold.
type share struct {
	held  atomic.Int64
	users int // guarded by memory.mu
}

func newMemory(most int64) *memory {
	return &memory{most: most, each: max(most/4, 1), from: map[netip.Addr]*share{}}
}

// hold is one request's part of a memory, or one publishing line's. It is for one goroutine.
type hold struct {
	memory *memory
	addr   netip.Addr // not valid for callers of the same process, who share nothing
	share  *share
	bytes  int64
	body   int64 // of those, received
	shared int64 // of those, counted in share
}

func (m *memory) open(remote string) *hold {
	h := &hold{memory: m}
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return h
	}
	h.addr = at.Addr().Unmap()
	m.mu.Lock()
	defer m.mu.Unlock()
	h.share = m.from[h.addr]
	if h.share == nil {
		h.share = &share{}
		m.from[h.addr] = h.share
	}
	h.share.users++
	return h
}

// receive counts bytes of a body that are there.
func (h *hold) receive(n int) error {
	h.body += int64(n)
	err := h.take(int64(n))
	switch {
	case err != nil || h.share == nil:
		return err
	case h.body > h.memory.each:
		return &api.Error{Code: api.TooLarge, Field: "body", Message: fmt.Sprintf("the body is larger than %d bytes, which is what this node has for one address", h.memory.each),
			Remedy: "send several requests"}
	case h.share.held.Add(int64(n)) > h.memory.each:
		h.shared += int64(n)
		return &api.Error{Code: api.Overloaded, Message: "the bodies of requests from this address take all the memory there is for one", Field: "body",
			Remedy: "retry later, with fewer requests at the same time"}
	}
	h.shared += int64(n)
	return nil
}

// take counts bytes that are about to be used. What was taken stays counted until release,
// also with an error.
func (h *hold) take(n int64) error {
	if h == nil {
		return nil
	}
	h.bytes += n
	held := h.memory.held.Add(n)
	switch {
	case h.bytes > h.memory.most:
		return &api.Error{Code: api.TooLarge, Field: "body", Message: fmt.Sprintf("the request would take %d bytes of memory, this node has %d for all", h.bytes, h.memory.most),
			Remedy: "send several requests"}
	case held > h.memory.most:
		return errBodies()
	}
	return nil
}

func errBodies() *api.Error {
	return &api.Error{Code: api.Overloaded, Message: "the requests under way take all the memory there is for them", Field: "body",
		Remedy: "retry later, with fewer requests at the same time"}
}

// release ends what was taken; the hold may be used again.
func (h *hold) release() {
	h.memory.held.Add(-h.bytes)
	if h.share != nil {
		h.share.held.Add(-h.shared)
	}
	h.bytes, h.body, h.shared = 0, 0, 0
}

// close is release for the last time.
func (h *hold) close() {
	h.release()
	if h.share == nil {
		return
	}
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if h.share.users--; h.share.users == 0 {
		delete(h.memory.from, h.addr)
	}
}

type holdKey struct{}

func withHold(ctx context.Context, h *hold) context.Context {
	return context.WithValue(ctx, holdKey{}, h)
}

// holdOf returns the hold of the request that a context is of; nil takes everything.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// minBodyRate is how many bytes of a body must come in a second, on the whole.
const minBodyRate = 64 << 10

// pace says until when the next bytes of a body must be there: none may be missing for idle,
// and all of them come at minBodyRate.
type pace struct {
	idle  time.Duration
	began time.Time
	got   int64
}

func (p *pace) deadline() time.Time {
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	whole := p.began.Add(p.idle + time.Duration(p.got)*time.Second/minBodyRate)
	if next := now.Add(p.idle); next.Before(whole) {
		return next
	}
	return whole
}
