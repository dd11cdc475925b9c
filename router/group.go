package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/router/breaker"
)

// Groups is a Log whose groups can be joined, for Subscription.Group. OnClient is one.
type Groups interface {
	// JoinGroup joins a group as client.Client.JoinGroup does.
	JoinGroup(ctx context.Context, group string, o client.GroupOptions) (Member, error)
}

// Member is a membership of a group, as *client.GroupMember is one. One goroutine calls Next, any calls Close.
type Member interface {
	// Next waits for an event that may be handled now, or returns a *client.GapError, after which it may be called
	// again. Any other error but one of ctx is the end.
	Next(ctx context.Context) (client.Delivery, error)
	// Close makes the acks durable and releases everything else.
	Close(ctx context.Context) error
}

// JoinGroup implements Groups.
func (l clientLog) JoinGroup(ctx context.Context, group string, o client.GroupOptions) (Member, error) {
	m, err := l.c.JoinGroup(ctx, group, o)
	if err != nil {
		return nil, markFinal(err)
	}
	return clientMember{m}, nil
}

// clientMember is a client's member whose errors are marked final.
type clientMember struct{ *client.GroupMember }

// Next implements Member.
func (m clientMember) Next(ctx context.Context) (client.Delivery, error) {
	d, err := m.GroupMember.Next(ctx)
	return d, markFinal(err)
}

// membership is a subscription's place in its group.
//
// inFlight counts the deliveries that were taken and are not settled: no more are taken than run at once, so the
// rest is with other members, and a member leaves only when it is 0.
type membership struct {
	s        *subscriber
	inFlight atomic.Int64
	changed  chan struct{} // holds one token when inFlight or the breaker has changed
	breaker  atomic.Int32  // a gobreaker.State

	mu     sync.Mutex
	member Member             // nil while it has not joined
	end    context.CancelFunc // ends taking
}

// leaveWithin bounds the last exchange with a group.
const leaveWithin = 10 * time.Second

// maxRedelivery is the longest delay before the group delivers an event again.
const maxRedelivery = 5 * time.Minute

// attach joins the subscription's group, making it if it does not exist.
func (m *membership) attach(ctx context.Context) error {
	o := client.GroupOptions{From: m.s.spec.From, Filter: m.s.spec.filter(), Policy: m.s.spec.Policy,
		MaxDeliver: m.s.spec.MaxDeliver, Prefetch: m.s.spec.Concurrency, AutoProgress: true}
	member, err := m.s.r.log.(Groups).JoinGroup(ctx, m.s.spec.Group, o) // Subscribe has seen that it is one
	if err != nil {
		return err
	}

	// It is a member from here on, and leave closes it.
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member = member
	return nil
}

// leave makes the acks durable and releases what is held. No delivery is in flight, or those that are have been
// cut off.
func (m *membership) leave() {
	// Taken under the lock, so that each member is closed once.
	m.mu.Lock()
	member := m.member
	m.member = nil
	m.mu.Unlock()
	if member == nil {
		return
	}

	// Without the last acks events are redelivered, which is no loss.
	ctx, cancel := context.WithTimeout(m.s.base, leaveWithin)
	defer cancel()
	if err := member.Close(ctx); err != nil {
		m.s.r.options.Logger.Warn("leaving a group: what was handled last may be redelivered",
			"subscription", m.s.spec.Name, "group", m.s.spec.Group, "error", err)
	}
}

// read takes events until the membership ends, the breaker opens, which ends it, or ctx is done. Then it stays a
// member, as handlers still have to settle theirs.
func (m *membership) read(ctx context.Context) error {
	// followBreaker calls m.end, from the goroutine that turns the breaker.
	taking, end := context.WithCancel(ctx)
	defer end()
	m.mu.Lock()
	member := m.member
	m.end = end
	m.mu.Unlock()
	err := m.takeAll(taking, member)

	// If the subscription closes, commitAndRelease leaves the group once the handlers have returned.
	if ctx.Err() != nil {
		return err
	}

	// While ctx lasts nothing but an open breaker ends taking.
	if taking.Err() != nil {
		err = ErrBreakerOpen
	}

	// While the breaker is open this process is no member: others get the events.
	for m.inFlight.Load() > 0 {
		select {
		case <-m.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	m.leave()
	return err
}

// takeAll hands deliveries to the lanes until ctx is done.
func (m *membership) takeAll(ctx context.Context, member Member) error {
	for {
		if err := m.waitForSlot(ctx); err != nil {
			return err
		}

		// Only once there is room: what the member was handed out is kept from the others until it is settled.
		d, err := member.Next(ctx)
		if err == nil {
			err = m.take(ctx, d)
		} else {
			err = m.passGap(err)
		}
		if err != nil {
			return err
		}
	}
}

// waitForSlot waits until another delivery may be taken: as many as may run at once are in flight, or while the
// breaker is half open its probes.
func (m *membership) waitForSlot(ctx context.Context) error {
	for {
		most := m.s.spec.Concurrency
		switch gobreaker.State(m.breaker.Load()) {
		case gobreaker.StateOpen:
			return ErrBreakerOpen
		case gobreaker.StateHalfOpen:
			most = min(most, m.s.spec.Breaker.Probes)
		}
		// A change after this look leaves a token in changed, so the wait below misses none.
		if m.inFlight.Load() < int64(most) {
			return nil
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take gives a delivery to the handler, or settles it if it does not meet the condition.
func (m *membership) take(ctx context.Context, d client.Delivery) error {
	m.s.r.recent.note(&d.Event)
	if !m.s.meets(&d.Event) {
		m.s.count(func(c *Counts) { c.Filtered++ })
		m.noteSettling(d, d.Ack())
		return nil
	}
	m.s.count(func(c *Counts) { c.Received++ })

	// It is in flight before a worker has it, which may settle it at once.
	t := m.s.task(d.Event, fromLog)
	t.delivery = &d
	m.inFlight.Add(1)
	// If ctx ends before there is room it goes back to the group, and is not in flight any more.
	if err := m.s.lanes.push(ctx, t, 0); err != nil {
		m.s.leaveTask(t)
		return err
	}
	return nil
}

// passGap reports events that are gone; any other error is returned.
func (m *membership) passGap(err error) error {
	gap, ok := errors.AsType[*client.GapError](err)
	if !ok {
		return err
	}
	m.s.reportGap(gap.Gap)
	return nil
}

// settle reports to the group how a delivery ended. One that failed is redelivered after a delay, until the last that
// the group allows: then it is a dead letter, as it is at once after a Permanent error.
func (m *membership) settle(t *task, err error) {
	defer m.makeRoom()
	if err == nil {
		m.noteSettling(*t.delivery, t.delivery.Ack())
		return
	}

	// The attempts of this delivery have used all waits, so the next delivery comes after twice the last of them.
	delay := time.Second
	if n := len(m.s.spec.Retries); n > 0 {
		delay = min(2*m.s.spec.Retries[n-1], maxRedelivery)
	}
	o := client.NackOptions{
		Delay: delay, Err: breaker.Bounded(err.Error()), Dead: isPermanent(err), Handler: m.s.spec.Name}

	// The group decides whether this makes a dead letter. The count is this process's view of it.
	if m.s.spec.lastDelivery(t, err) {
		m.s.count(func(c *Counts) { c.DeadLettered++ })
	}
	m.noteSettling(*t.delivery, t.delivery.Nack(o))
}

// lastDelivery reports whether a delivery that failed with err makes the event a dead letter, as far as the
// subscription says when that is.
func (s *Subscription) lastDelivery(t *task, err error) bool {
	return t.delivery != nil &&
		(isPermanent(err) || (s.MaxDeliver > 0 && t.delivery.Count >= s.MaxDeliver))
}

// release gives an event back to the group unhandled.
func (m *membership) release(t *task) {
	defer m.makeRoom()
	m.noteSettling(*t.delivery, t.delivery.Nack(client.NackOptions{Released: true}))
}

// makeRoom makes room for another delivery.
func (m *membership) makeRoom() {
	m.inFlight.Add(-1)
	signal(m.changed)
}

// noteSettling notes a delivery that the group has taken back meanwhile: it is redelivered, which handlers must expect.
func (m *membership) noteSettling(d client.Delivery, err error) {
	if err != nil {
		m.s.r.options.Logger.Debug("the group has taken an event back", "subscription", m.s.spec.Name,
			"group", m.s.spec.Group, "offset", d.Offset, "error", err)
	}
}

// followBreaker ends taking when the breaker opens, in whose lock it runs.
func (m *membership) followBreaker(ch breaker.Change) {
	// One failure before it opens is reported as a change from closed to closed.
	if ch.From == ch.To {
		return
	}
	m.breaker.Store(int32(ch.To))
	if ch.To == gobreaker.StateOpen {
		// Next may wait for events: ending its context brings read back.
		m.mu.Lock()
		if m.end != nil {
			m.end()
		}
		m.mu.Unlock()
	}
	signal(m.changed)
}

// checkGroup refuses what a subscription with a Group cannot be.
func (s *Subscription) checkGroup() error {
	switch {
	case s.Group == "":
		return nil
	case s.Durable, s.Direct:
		return fmt.Errorf("both Group and Durable or Direct: the group %s remembers what is handled", s.Group)
	case s.Sync:
		return fmt.Errorf("both Group and Sync: another member of the group %s may get the event", s.Group)
	case s.Flow != "" || s.Lane != nil:
		return fmt.Errorf("both Group and Flow or Lane: the group %s orders events by their keys", s.Group)
	case s.Change:
		return fmt.Errorf("both Group and Change: the filter of the group %s does not change", s.Group)
	}

	// Events that wait in this process would be kept from the other members.
	s.Queue = s.Concurrency
	return nil
}

// joinable returns an error if a subscription has a Group and the log has none.
func joinable(log Log, s *Subscription) error {
	if _, ok := log.(Groups); s.Group != "" && !ok {
		return fmt.Errorf("option Group: a %T has no groups", log)
	}
	return nil
}

// deliveryOf is which delivery of a group a task is, 0 for none.
func deliveryOf(t *task) uint64 {
	if t.delivery == nil {
		return 0
	}
	return t.delivery.Count
}
