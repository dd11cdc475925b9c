package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/prefetch"
	"github.com/ringrift/ringlog/event"
)

// Delivery is an event that a member of a group is to handle, and then to settle with Ack or Nack. Its methods may be
// called from any goroutine. Their error is ErrNotHeld, ErrClosed or what ended the membership.
type Delivery struct {
	event.Event
	Count uint64 // which delivery it is, from 1; perhaps one more than handlers have seen

	from Settler
}

// Settler takes in what becomes of deliveries, named by their offsets. Delivery.Ack, Nack and Progress call it.
type Settler interface {
	Ack(offset uint64) error
	Nack(offset uint64, o NackOptions) error
	Progress(offset uint64) error
}

// NewDelivery returns a delivery that another than a GroupMember hands out, such as a test of a handler.
func NewDelivery(ev event.Event, count uint64, from Settler) Delivery {
	return Delivery{ev, count, from}
}

// Ack says that the event is handled. It is sent in a moment, and durable once GroupMember.Flush or
// GroupMember.Close has returned.
func (d Delivery) Ack() error { return d.from.Ack(d.Offset) }

// Nack says that the event could not be handled: it is redelivered, unless this was the last delivery that the group
// allows. It is sent as an Ack is.
func (d Delivery) Nack(o NackOptions) error { return d.from.Nack(d.Offset, o) }

// Progress says that the event is still worked on: its ack deadline is extended.
func (d Delivery) Progress() error { return d.from.Progress(d.Offset) }

// settler is a member as the Settler of its deliveries.
type settler GroupMember

// Next returns the next event that may be handled, or a *GapError for events of the group
// that are not kept any more, which is reported to one member. Any other error but one of ctx
// is the end of the membership. Payloads in a batch share a buffer: copy one before retaining
// it.
func (m *GroupMember) Next(ctx context.Context) (Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.waitFirst(ctx)
	if err != nil {
		return Delivery{}, err
	}
	m.fetchIfRoom()
	return Delivery{h.Event, h.Count, (*settler)(m)}, nil
}

// NextBatch returns all events that may be handled now, at least one: of each key the
// first. It waits and fails as Next does.
func (m *GroupMember) NextBatch(ctx context.Context) ([]Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.waitFirst(ctx)
	if err != nil {
		return nil, err
	}

	// Of each key only the first is ready, so no two of one batch have the same key.
	deliveries := make([]Delivery, 0, 1+m.buffer.Ready())
	for first := h; h != nil; h = m.buffer.Next() {
		if m.c.events != nil && h != first {
			m.c.showReceived("group "+m.group, &h.Event)
		}
		deliveries = append(deliveries, Delivery{h.Event, h.Count, (*settler)(m)})
	}
	m.fetchIfRoom()
	return deliveries, nil
}

// waitFirst waits for the first event. The caller holds mu.
func (m *GroupMember) waitFirst(ctx context.Context) (*prefetch.Held, error) {
	m.handlers.waiting++
	defer func() { m.handlers.waiting-- }()

	// A handler asks again: events that were released since nobody did are fetched again.
	m.handlers.active = true
	if m.handlers.stuck {
		m.handlers.stuck = false
		m.fetchIfRoom()
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

		// Without contact for the session's time the group may have given it all to others.
		if time.Since(m.session.heard) < m.session.timeout {
			if h := m.buffer.Next(); h != nil {
				if m.c.events != nil {
					m.c.showReceived("group "+m.group, &h.Event)
				}
				return h, nil
			}
		}
		if err := m.waitNews(ctx); err != nil {
			return nil, err
		}
	}
}

// Ack implements Settler.
func (s *settler) Ack(offset uint64) error {
	m := (*GroupMember)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.noteHandler(); err != nil {
		return err
	}
	return m.noteSettled(offset, m.acks.Ack(offset))
}

// NackOptions say why an event could not be handled and what becomes of it.
type NackOptions struct {
	Delay    time.Duration // before it is redelivered, to whichever member; at most 24 h
	Err      string        // kept with the event; nodes cut what is longer than they keep
	Dead     bool          // to the dead letters at once
	Handler  string        // "" is the member's name
	Released bool          // given back unhandled: it is redelivered without counting as a delivery; not with Dead
}

// Bounds of NackOptions, as the nodes have them.
const (
	maxNackDelay = 24 * time.Hour
	maxErrorText = 4 << 10
)

// validate refuses what every node would refuse.
func (o *NackOptions) validate() error {
	switch {
	case o.Delay < 0 || o.Delay > maxNackDelay:
		return fmt.Errorf("a nack's Delay is %s, not between 0 and %s", o.Delay, maxNackDelay)
	case o.Dead && o.Released:
		return errors.New("a nack is Dead and Released, choose one")
	}
	return nil
}

// Nack implements Settler.
func (s *settler) Nack(offset uint64, o NackOptions) error {
	m := (*GroupMember)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.noteHandler(); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return m.named(err)
	}

	// Values that nodes would refuse were refused above; texts are cut to the limit of the wire.
	return m.noteSettled(offset, m.acks.Nack(&ringlogv1.Nack{Offset: offset, Delivery: m.buffer.Delivery(offset),
		DelayMs: uint64(o.Delay.Milliseconds()),
		Error:   cutText(o.Err), Dead: o.Dead, Handler: cutText(o.Handler), Released: o.Released}))
}

// cutText is a text as the wire takes it.
func cutText(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "") }

// Progress implements Settler.
func (s *settler) Progress(offset uint64) error {
	m := (*GroupMember)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.noteHandler(); err != nil {
		return err
	}

	// The next batch of acks carries it.
	if !m.buffer.Progress(offset) {
		return m.errNotHeld(offset)
	}
	signal(m.ackDue)
	return nil
}

// noteHandler notes that a handler did something, and reports why it may not. The caller
// holds mu.
func (m *GroupMember) noteHandler() error {
	m.handlers.active = true
	switch {
	case m.closing:
		return m.named(ErrClosed)
	case m.failed != nil:
		return m.failed
	}
	return nil
}

// noteSettled has an ack or a nack sent. held says whether the event was held. The caller
// holds mu.
func (m *GroupMember) noteSettled(offset uint64, held bool) error {
	if !held {
		return m.errNotHeld(offset)
	}
	signal(m.ackDue)
	if m.buffer.Ready() > 0 {
		m.wakeAll() // the next of its key may be handled
	}
	return nil
}

// errNotHeld says that an event is not with the member: it was settled, or the group has taken
// it back.
func (m *GroupMember) errNotHeld(offset uint64) error {
	return fmt.Errorf("client: group %s: offset %d: %w", m.group, offset, ErrNotHeld)
}

// Flush waits until all acks and nacks given before are durable. A *RefusedError lists,
// once, those that came too late since the last Flush.
func (m *GroupMember) Flush(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	// Acks that are given while it waits are not waited for.
	for upTo := m.acks.Given(); m.acks.Confirmed() < upTo; {
		if m.failed != nil {
			return m.failed
		}
		if err := m.waitNews(ctx); err != nil {
			return err
		}
	}
	return m.takeRefused()
}

// takeRefused returns the refusals that were not reported yet. The caller holds mu.
func (m *GroupMember) takeRefused() error {
	refused := m.acks.TakeRefused()
	if len(refused.Offsets) == 0 {
		return nil
	}
	return &RefusedError{Group: m.group, Offsets: refused.Offsets, More: refused.More}
}
