package client

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// handlerActivity shows whether a member's handlers work. Events that wait for handlers that
// do not are released.
type handlerActivity struct {
	waiting  int       // in Next
	active   bool      // since the last tick
	activeAt time.Time // the last tick that saw a handler work
	stuck    bool      // nothing is fetched until a handler calls
}

// ackLoop sends acks, keeps the session alive and begins a new one if it must, until
// ctx is done, or the member is closed and everything is answered.
func (m *GroupMember) ackLoop(ctx context.Context) {
	pauses := calls.NewPauses()

	// A failure is retried with growing pauses; acks that come meanwhile gather in the next
	// batch.
	for m.waitAckDue(ctx) {
		over, err := m.runAckStep(ctx)
		switch {
		case over:
			return
		case err == nil:
			pauses.Reset()
		case endsMembership(err):
			m.fail(err)
			return
		default:
			m.c.cfg.Logger.Debug("group", "group", m.group, "member", m.member, "error", err)
			calls.Sleep(ctx, pauses.NextBackOff())
		}
	}
	m.fail(m.named(ErrClosed))
}

// waitAckDue waits until there is something to do, and at most until the next tick. It reports
// whether ctx allows more.
func (m *GroupMember) waitAckDue(ctx context.Context) bool {
	m.mu.Lock()
	untilTick := m.tick()
	due := m.session.id == 0 || !m.acks.Empty() || m.closing
	m.mu.Unlock()

	// Work that is there is done at once, else when it comes, or at the tick.
	if due {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(untilTick)
	defer timer.Stop()
	select {
	case <-m.ackDue:
	case <-timer.C:
		m.mu.Lock()
		m.tick()
		m.mu.Unlock()
	case <-ctx.Done():
		return false
	}
	return true
}

// tick ticks if it is time, and returns how long it is to the next tick: a session is kept
// alive as often at least, and the ack deadline of what waits is extended after two ticks. The
// caller holds mu.
func (m *GroupMember) tick() time.Duration {
	every := max(time.Millisecond, min(m.session.timeout/3, m.session.ackWait/8))
	if left := every - time.Since(m.ticked); left > 0 {
		return left
	}
	m.ticked = time.Now()

	// Events that wait for stuck handlers are released, but not while a fetch is in flight,
	// which brings what follows them in their keys.
	if m.handlers.active || m.handlers.waiting > 0 {
		m.handlers.active, m.handlers.activeAt = false, m.ticked
	}
	m.handlers.stuck = m.ticked.Sub(m.handlers.activeAt) > m.session.ackWait
	if m.handlers.stuck && !m.buffer.Fetching() {
		m.acks.ReleaseWaiting()
	}
	m.buffer.Tick(m.o.AutoProgress)
	return every
}

// runAckStep does what is due: it joins if there is no session, and else sends acks. over
// reports that there is nothing more to do.
func (m *GroupMember) runAckStep(ctx context.Context) (over bool, err error) {
	m.mu.Lock()
	away := m.session.id == 0
	last := m.closing && m.acks.Empty()
	m.mu.Unlock()

	// The last step leaves the group, which makes what is still held redeliverable at once.
	switch {
	case last && !away:
		m.leave(ctx)
		return true, nil
	case last:
		return true, nil
	case away:
		return false, m.join(ctx)
	}
	return false, m.sendAcks(ctx)
}

// fetchLoop keeps the buffer filled. Its pauses also keep two members of one name, each of
// which ends the other's session, from doing that all the time.
func (m *GroupMember) fetchLoop(ctx context.Context) {
	pauses := calls.NewPauses()
	for ctx.Err() == nil {
		m.mu.Lock()
		over := m.closing || m.failed != nil
		m.fetchIdle = true
		m.mu.Unlock()
		if over {
			return
		}

		// Without room or a session it waits until there is one.
		did, err := m.fetch(ctx)
		switch {
		case err != nil:
			calls.Sleep(ctx, pauses.NextBackOff())
		case did:
			pauses.Reset()
		default:
			select {
			case <-m.room:
			case <-ctx.Done():
			}
		}
	}
}

// fetchIfRoom wakes the fetching goroutine when there is room for a good part. The caller
// holds mu.
func (m *GroupMember) fetchIfRoom() {
	if m.fetchIdle && m.wantedEvents() > 0 {
		m.fetchIdle = false
		signal(m.room)
	}
}

// wantedEvents is how many events to fetch: as many as there is room for, none while there is
// room for few, so each call brings enough to be worth it. The caller holds mu.
func (m *GroupMember) wantedEvents() int {
	if m.handlers.stuck || m.acks.Releasing() {
		return 0
	}
	waiting, bytes := m.buffer.Waiting()
	events, room := m.o.Prefetch-waiting, maxPrefetchBytes-bytes
	if waiting > 0 && (events < (m.o.Prefetch+3)/4 || room < maxPrefetchBytes/4) {
		return 0
	}

	// Before the first event came, the room is divided evenly among the events to prefetch.
	mean := max(1, maxPrefetchBytes/m.o.Prefetch)
	if m.fetched.events > 0 {
		mean = int(m.fetched.bytes/m.fetched.events) + 1
	}
	return min(events, max(1, room/mean))
}
