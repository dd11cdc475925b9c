package client

import (
	"context"
	"time"
)

// settleLoop settles, keeps the session alive and begins a new one where it must, until
// ctx is done, or the member is closed and all is settled.
func (m *GroupMember) settleLoop(ctx context.Context) {
	pauses := m.c.newTries("", reading).backoff
	for m.awaitDue(ctx) {
		over, err := m.step(ctx)
		switch {
		case over:
			return
		case err == nil:
			pauses.Reset()
		case ends(err):
			m.fail(err)
			return
		default:
			m.c.cfg.Logger.Debug("group", "group", m.group, "member", m.member, "error", err)
			pause(ctx, pauses.NextBackOff())
		}
	}
	m.fail(m.named(ErrClosed))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// awaitDue waits until there is something to do, and at most until the next tick.
func (m *GroupMember) awaitDue(ctx context.Context) bool {
	m.mu.Lock()
	wait := m.tick()
	if m.session == 0 || m.resend || !m.open.empty() || m.closing {
		wait = 0
	}
	m.mu.Unlock()
	if wait == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-m.due:
	case <-timer.C:
		m.mu.Lock()
		m.tick()
		m.mu.Unlock()
	case <-ctx.Done():
		return false
	}
	return true
}

// tick lets the stock's time go on where it is time, and returns how long it is to the
// next tick: a session is kept alive as often at least, and what waits is without a word
// for two ticks at most. The caller holds mu.
func (m *GroupMember) tick() time.Duration {
	every := max(time.Millisecond, min(m.timeout/3, m.ackWait/8))
	left := every - time.Since(m.ticked)
	if left > 0 {
		return left
	}
	m.ticked = time.Now()
	if m.moved || m.takers > 0 {
		m.moved, m.movedAt = false, m.ticked
	}
	if m.stuck = m.ticked.Sub(m.movedAt) > m.ackWait; m.stuck && !m.stock.fetching { // else it brings what stands behind in a key
		m.open.returned = append(m.open.returned, m.stock.giveBack()...)
	}
	m.stock.tick(m.o.AutoProgress)
	return every
}

// step does what is due: it joins where there is no session, and else settles. over says
// that there is nothing more to do.
func (m *GroupMember) step(ctx context.Context) (over bool, err error) {
	m.mu.Lock()
	away := m.session == 0
	last := m.closing && !m.resend && m.open.empty()
	m.mu.Unlock()
	switch {
	case last && !away:
		m.leave(ctx)
		return true, nil
	case last:
		return true, nil
	case away:
		return false, m.join(ctx)
	}
	return false, m.settle(ctx)
}

// fetchLoop keeps the stock filled. Its pauses also keep two members of one name, each of
// which ends the other's session, from doing that all the time.
func (m *GroupMember) fetchLoop(ctx context.Context) {
	pauses := m.c.newTries("", reading).backoff
	for ctx.Err() == nil {
		m.mu.Lock()
		over := m.closing || m.failed != nil
		m.fetchIdle = true
		m.mu.Unlock()
		if over {
			return
		}
		did, err := m.fetch(ctx)
		switch {
		case err != nil:
			pause(ctx, pauses.NextBackOff())
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
