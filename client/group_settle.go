package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/internal/frame"
)

// NackOptions say why an event could not be handled and what becomes of it.
type NackOptions struct {
	Delay    time.Duration // before it comes again, to whichever member; at most 24 h
	Err      string        // kept with the event; bounded by the node: what is longer is cut
	Dead     bool          // to the dead letters at once
	Handler  string        // "" is the member's name
	Released bool          // given back unhandled: it comes again without counting as a delivery; not with Dead
}

func (o *NackOptions) validate() error {
	switch {
	case o.Delay < 0 || o.Delay > maxNackDelay:
		return fmt.Errorf("a nack's Delay is %s, not between 0 and %s", o.Delay, maxNackDelay)
	case o.Dead && o.Released:
		return errors.New("a nack is Dead and Released, choose one")
	}
	return nil
}

// Bounds of one settling call. What is more goes with the next.
const (
	maxSettleRanges = 8192
	maxSettleNacks  = 1024
	maxNackDelay    = 24 * time.Hour
	maxErrorText    = 4 << 10
)

// settlement is acks and nacks of one call.
type settlement struct {
	acks     []frame.Range
	nacks    []failure
	returned []uint64 // given back by the member itself; refused or not is all the same
	progress []frame.Range
	given    uint64 // acks and nacks up to this one are answered with it

	lost bool // it was sent, and the answer did not come
	away bool // and for so long that the group may have given up the member
}

// failure is a nack, the key whose line it stopped, and its number.
type failure struct {
	wire   *ringlogv1.Nack
	key    string
	number uint64
}

func (s *settlement) empty() bool { return len(s.acks)+len(s.nacks)+len(s.returned) == 0 }

// covers reports whether an offset is settled by it.
func (s *settlement) covers(offset uint64) bool {
	for _, f := range s.nacks {
		if f.wire.Offset == offset {
			return true
		}
	}
	return covers(s.acks, offset)
}

// tells reports whether an offset is the subject of it in any way.
func (s *settlement) tells(offset uint64) bool {
	return slices.Contains(s.returned, offset) || s.covers(offset)
}

// Ack says that an event is handled. It is sent in a moment, and durable once Flush or
// Close has returned. The error is ErrNotHeld, ErrClosed or what ended the membership.
func (m *GroupMember) Ack(offset uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayTell(); err != nil {
		return err
	}
	if !m.stock.settle(offset) {
		return m.errNotHeld(offset)
	}
	m.open.acks = addOffset(m.open.acks, offset)
	m.told()
	return nil
}

// Nack says that an event could not be handled: it comes again, unless this was the last
// delivery that the group allows. It is sent as an Ack is, with the same errors.
func (m *GroupMember) Nack(offset uint64, o NackOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayTell(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return m.named(err)
	}
	var f failure
	var ok bool
	if o.Dead {
		ok = m.stock.settle(offset)
	} else {
		f, ok = m.stock.nack(offset)
	}
	if !ok {
		return m.errNotHeld(offset)
	}
	f.wire = &ringlogv1.Nack{Offset: offset, DelayMs: uint64(o.Delay.Milliseconds()),
		Error: bounded(o.Err), Dead: o.Dead, Handler: bounded(o.Handler), Released: o.Released}
	m.open.nacks = append(m.open.nacks, f)
	m.told()
	return nil
}

// bounded is a text as the wire takes it.
func bounded(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "") }

// Progress says that an event is still worked on: its time to settle begins anew. The
// errors are those of Ack.
func (m *GroupMember) Progress(offset uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayTell(); err != nil {
		return err
	}
	if sh := m.stock.held[offset]; sh == nil || sh.state != handedOut {
		return m.errNotHeld(offset)
	}
	m.stock.progress = append(m.stock.progress, offset)
	signal(m.due)
	return nil
}

func (m *GroupMember) mayTell() error {
	m.moved = true
	switch {
	case m.closing:
		return m.named(ErrClosed)
	case m.failed != nil:
		return m.failed
	}
	return nil
}

func (m *GroupMember) errNotHeld(offset uint64) error {
	return fmt.Errorf("client: group %s: offset %d: %w", m.group, offset, ErrNotHeld)
}

// told notes that one more was settled. The caller holds mu.
func (m *GroupMember) told() {
	m.given++
	signal(m.due)
	if len(m.stock.ready) > 0 {
		m.wakeAll() // the next of its key came forward
	}
}

// Flush waits until all acks and nacks given before are durable. A *RefusedError tells,
// once, which since the last Flush came too late.
func (m *GroupMember) Flush(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for upTo := m.given; m.confirmed < upTo; {
		if m.failed != nil {
			return m.failed
		}
		if err := m.await(ctx); err != nil {
			return err
		}
	}
	return m.takeRefused()
}

// takeRefused returns the refusals that were not told yet. The caller holds mu.
func (m *GroupMember) takeRefused() error {
	if len(m.refused.Offsets) == 0 {
		return nil
	}
	told := m.refused
	m.refused = RefusedError{Group: m.group}
	return &told
}

// collect returns what to send now: what must be sent again, else what has gathered. The
// caller holds mu.
func (m *GroupMember) collect() *settlement {
	if !m.resend {
		m.sent = m.open.cut()
		m.sent.given = m.confirmed
		if m.open.empty() {
			m.sent.given = m.given
		}
	}
	m.sent.progress = m.stock.refreshed(m.sent.progress)
	return m.sent
}

// cut takes as much as one call may carry.
func (s *settlement) cut() *settlement {
	s.acks = compact(s.acks)
	acks, nacks := min(len(s.acks), maxSettleRanges), min(len(s.nacks), maxSettleNacks)
	returned := min(len(s.returned), maxSettleRanges)
	out := &settlement{acks: s.acks[:acks:acks], nacks: s.nacks[:nacks:nacks], returned: s.returned[:returned:returned]}
	s.acks, s.nacks, s.returned = s.acks[acks:], s.nacks[nacks:], s.returned[returned:]
	return out
}

func (s *settlement) fill(req *ringlogv1.ExchangeRequest) {
	req.Acks, req.Progress = append(req.Acks, rangesToWire(s.acks)...), append(req.Progress, rangesToWire(s.progress)...)
	for _, f := range s.nacks {
		req.Nacks = append(req.Nacks, f.wire)
	}
	for _, offset := range s.returned {
		req.Nacks = append(req.Nacks, &ringlogv1.Nack{Offset: offset, Released: true})
	}
}

// confirm takes in the answer to a settlement. The caller holds mu.
func (m *GroupMember) confirm(s *settlement, resp *ringlogv1.ExchangeResponse) {
	m.confirmed = s.given
	eachOffset(resp.GetRefused(), func(offset uint64) {
		// What was sent before and is refused now was settled then, unless the group had
		// time to give it to others.
		if !s.covers(offset) || s.lost && (!s.away || offset <= resp.GetCommitted()) {
			return
		}
		if len(m.refused.Offsets) < maxRefused {
			m.refused.Offsets = append(m.refused.Offsets, offset)
		} else {
			m.refused.More++
		}
	})
	for _, f := range s.nacks {
		if (m.stock.fetching || m.session == 0) && m.stock.crowded(f) {
			m.held = append(m.held, f)
		} else {
			m.stock.release(f)
		}
	}
	m.wakeAll()
}
