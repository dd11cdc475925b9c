package client

import (
	"context"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Delivery is an event that a member of a group is to handle.
type Delivery struct {
	event.Event
	Count uint64 // which delivery it is, from 1; perhaps one more than handlers have seen
}

// Next returns the next event that may be handled, or a *GapError for events of the group
// that are not kept any more, which one member is told. Any other error but one of ctx is
// the end of the membership. Payloads of events that came together share their memory.
func (m *GroupMember) Next(ctx context.Context) (Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sh, err := m.first(ctx)
	if err != nil {
		return Delivery{}, err
	}
	m.askForMore()
	return sh.Delivery, nil
}

// NextBatch returns all events that may be handled now, at least one: of each key the
// first. It waits and fails as Next does.
func (m *GroupMember) NextBatch(ctx context.Context) ([]Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sh, err := m.first(ctx)
	if err != nil {
		return nil, err
	}
	batch := make([]Delivery, 0, 1+len(m.stock.ready))
	for ; sh != nil; sh = m.stock.next() {
		batch = append(batch, sh.Delivery)
	}
	m.askForMore()
	return batch, nil
}

// first waits for the first event. The caller holds mu.
func (m *GroupMember) first(ctx context.Context) (*share, error) {
	m.takers++
	defer func() { m.takers-- }()
	m.moved = true
	if m.stuck {
		m.stuck = false
		m.askForMore()
	}
	for {
		switch {
		case m.closing:
			return nil, m.named(ErrClosed)
		case m.failed != nil:
			return nil, m.failed
		case len(m.gaps) > 0:
			gap := m.gaps[0]
			m.gaps = m.gaps[1:]
			return nil, &GapError{gap}
		}
		if time.Since(m.heard) < m.timeout { // else the group may have given it all to others
			if sh := m.stock.next(); sh != nil {
				return sh, nil
			}
		}
		if err := m.await(ctx); err != nil {
			return nil, err
		}
	}
}

// askForMore wakes the fetching goroutine when there is room for a good part. The caller
// holds mu.
func (m *GroupMember) askForMore() {
	if m.fetchIdle && m.wanted() > 0 {
		m.fetchIdle = false
		signal(m.room)
	}
}

// wanted is how many events to fetch: as many as there is room for, none while there is
// room for few, so that each call brings a part worth it. The caller holds mu.
func (m *GroupMember) wanted() int {
	if m.stuck || m.returning() {
		return 0
	}
	events, room := m.o.Prefetch-m.stock.waiting, maxStockBytes-m.stock.bytes
	if m.stock.waiting > 0 && (events < (m.o.Prefetch+3)/4 || room < maxStockBytes/4) {
		return 0
	}
	return min(events, max(1, room/m.meanBytes()))
}

// returning reports whether the group does not know yet what was given back: it would give
// out what stands behind that in a key. The caller holds mu.
func (m *GroupMember) returning() bool {
	return slices.ContainsFunc(m.unanswered(), func(s *settlement) bool { return len(s.returned) > 0 })
}

// meanBytes is what an event takes on average, or before any came so much that as many as
// may be fetched have room.
func (m *GroupMember) meanBytes() int {
	if m.taken == 0 {
		return max(1, maxStockBytes/m.o.Prefetch)
	}
	return int(m.size/m.taken) + 1
}
