package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of an exchange.
const (
	maxMemberCalls = 8                      // exchanges of one member at the same time
	answerReserve  = 500 * time.Millisecond // left of a call's time for its answer, half of a shorter one
	pollWait       = 2 * time.Second        // how long an exchange with Wait 0 waits until available events are reserved
)

// Request is what a member reports and wants. Ranges ascend and do not overlap; offsets that the member does not
// hold are answered as refused.
type Request struct {
	Group, Member           string        // the cursor's name, and the member's in it
	Session                 uint64        // 0 joins
	Holding, Acks, Progress []frame.Range // Holding is used only when joining
	Nacks                   []group.Nack
	Want                    int             // events; with 0 the call does not wait for any
	Wait                    time.Duration   // for events; 0 takes what there is now
	Ahead                   bool            // see group.Demand
	Leave                   bool            // ends the session
	Lease                   frame.RoleLease // of a role, without which the call is refused; Role is empty for none
}

// Answer is what a member gets.
type Answer struct {
	Session          uint64        // of which the member's next calls are
	Events           []event.Event // in order of their offsets; shared with other readers
	Counts           []uint64      // which delivery each of them is
	Revoked, Refused []frame.Range // what it must not handle any more; what it reported and does not hold
	Gap              *log.Gap      // nil is none
	AckWait          time.Duration // how long it may hold an event without progress
	Silence          time.Duration // its session timeout: how long it may be silent
	Committed, Last  uint64        // the group's commit, and the log's last offset
}

// Exchange settles what a member holds and delivers more to it. It returns once the log has what was settled.
func (k *Engine) Exchange(ctx context.Context, r Request) (Answer, error) {
	g, err := k.groupFor(ctx, r.Group)
	if err != nil {
		return Answer{}, err
	}
	select {
	// Until the group is loaded, a member's claims cannot be checked.
	case <-g.loaded:
	case <-g.ctx.Done():
		return Answer{}, g.endCause()
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	// A call that is over must not touch the session: the member may have joined with another call since.
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	// The call's reports are settled and committed first: events that they free may be delivered in the
	// answer.
	e, err := g.beginExchange(&r)
	if err != nil {
		return Answer{}, err
	}
	defer e.endCall()

	// First wait until the log has what is settled, as the answer promises; then wait for events.
	if err := e.waitDurable(ctx); err != nil {
		return Answer{}, err
	}
	t, err := e.waitEvents(ctx)
	if err != nil {
		return Answer{}, err
	}
	return e.buildAnswer(t)
}

// exchange is a call of a member that is being answered.
type exchange struct {
	group   *liveGroup
	request *Request
	member  *group.Member
	session uint64        // the member's when the call began
	refused []frame.Range // what the call has reported and its member does not hold
	batch   *pendingBatch // that its acks and nacks go into; nil if it has none
	leased  *leasedBatch  // in place of it where the call has a lease
	dead    bool          // one of its nacks is final
}

// beginExchange gives the coordinator what a member reports, and counts what it wants until exchange.endCall.
func (g *liveGroup) beginExchange(r *Request) (*exchange, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, g.endCause()
	}
	if err := g.refuseLease(r); err != nil {
		return nil, err
	}
	now := g.now()
	m, err := g.findMember(now, r)
	if err != nil {
		return nil, err
	}
	// Until exchange.endCall the member is not silent, however long the call waits.
	g.lastUsed = now
	g.coordinator.Begin(m)
	e := &exchange{group: g, request: r, member: m, session: m.Session}
	// Progress of what the member does not hold any more is ignored.
	for _, one := range r.Progress {
		g.coordinator.Progress(now, m, one, nil)
	}
	switch {
	case len(r.Acks)+len(r.Nacks) == 0:
	case r.Lease.Role != "":
		g.settleLeased(e)
	default:
		g.settle(e)
	}
	// Events that the member does not hold any more are refused; the rest of the call counts nevertheless.
	e.refused = frame.JoinRanges(e.refused)
	// Only after its acks and nacks: what the member still holds goes to others.
	if r.Leave && e.leased == nil {
		g.coordinator.Leave(m)
	}
	// Counted whether the call gets to wait or not: endCall takes it off.
	g.wanted += r.Want
	g.serveWaiters()
	return e, nil
}

// settle gives the coordinator the acks and nacks of an exchange. g.mu is held.
func (g *liveGroup) settle(e *exchange) {
	for _, one := range e.request.Acks {
		e.refused = g.coordinator.Ack(e.member, one, e.refused)
	}
	for _, one := range e.request.Nacks {
		// Whoever nacks an event for good is answered once its letter is stored.
		e.dead = e.dead || one.Dead
		if !g.coordinator.Nack(g.now(), e.member, one) {
			e.refused = append(e.refused, frame.Range{From: one.Offset, To: one.Offset})
		}
	}
	// While g.mu is held, all of it goes into the batch that gathers now: the call is durable once that one is.
	e.batch = g.gathering
	signal(g.toCommit)
}

// findMember returns the member that a request comes from, which joins if it has no session. g.mu is held.
func (g *liveGroup) findMember(now time.Time, r *Request) (m *group.Member, err error) {
	if r.Session == 0 {
		m, err = g.coordinator.Join(now, r.Member, r.joinClaims(), r.Nacks)
	} else {
		m, err = g.coordinator.Enter(now, r.Member, r.Session)
	}
	switch {
	case errors.Is(err, group.ErrFull):
		return nil, &api.Error{
			Code:    api.Overloaded,
			Field:   "member",
			Message: fmt.Sprintf("group %q has %d members, the limit", g.name, group.MaxMembers),
			Remedy:  "let fewer members do more at a time, or use another group",
		}
	case err != nil:
		return nil, errSessionOver(g.name, r.Member, r.Session)
	// One that has just joined has no calls yet.
	case m.Calls() >= maxMemberCalls:
		return nil, &api.Error{
			Code:    api.Overloaded,
			Field:   "member",
			Message: fmt.Sprintf("member %q has %d exchanges under way, the limit", r.Member, maxMemberCalls),
			Remedy:  "wait for one of them, or give each process a name of its own",
		}
	}
	return m, nil
}

// joinClaims is what a member that joins was given before: what it says it holds, and what it
// settles. So a call that failed may be repeated as it is, with session 0.
func (r *Request) joinClaims() []frame.Range {
	// Each of them says that the member holds the event; JoinRanges makes one list of them.
	list := slices.Concat(r.Holding, r.Acks, r.Progress)
	for _, n := range r.Nacks {
		list = append(list, frame.Range{From: n.Offset, To: n.Offset})
	}
	return frame.JoinRanges(list)
}

// endCall lets the coordinator know that the call is over: from now on the member may be silent, and its wants do
// not count.
func (e *exchange) endCall() {
	g := e.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted -= e.request.Want
	g.coordinator.End(g.now(), e.member, e.session)
}

// waitDurable waits until the log has what the exchange settles. Without acks and nacks it returns at once. What
// the log refuses since a lease is over is returned as it is, as long as the group lives.
func (e *exchange) waitDurable(ctx context.Context) error {
	if e.batch == nil {
		return nil
	}
	select {
	case <-e.batch.done:
		switch {
		case e.leased != nil && e.batch.err != nil && e.group.ctx.Err() == nil:
			return e.batch.err
		case e.batch.err != nil:
			return e.endCause()
		// Any nack may have ended the last delivery of its event: if a dead letter's outcome is unknown, every
		// call with a nack gets that error.
		case e.dead || (len(e.request.Nacks) > 0 && errors.Is(e.batch.lettersErr, raftnode.ErrOutcomeUnknown)):
			return e.batch.lettersErr
		}
		return nil
	case <-e.group.ctx.Done():
		return e.endCause()
	// The batch is under way, so the log may still get it.
	case <-ctx.Done():
		return fmt.Errorf("group %s: settle: %w: %w", e.group.name, raftnode.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// endCause is the error of an exchange that meets the group's end. The log may have what it settles, in part or
// in whole, unless the group is gone.
func (e *exchange) endCause() error {
	err := e.group.endCause()
	if known, ok := errors.AsType[*api.Error](err); e.batch == nil || (ok && known.Code == api.NotFound) {
		return err
	}
	return fmt.Errorf("group %s: settle: %w: %v", e.group.name, raftnode.ErrOutcomeUnknown, err)
}

// waitEvents waits for events as long as the member does.
func (e *exchange) waitEvents(ctx context.Context) (received, error) {
	g := e.group
	// A call that wants no events does not wait, but still learns what the member has lost.
	if e.request.Want == 0 || e.request.Leave {
		g.mu.Lock()
		defer g.mu.Unlock()
		// Serve waiting calls first: they report what is lost.
		g.serveWaiters()
		if !e.request.Leave && !e.member.Live(e.session) {
			// Events that are lost now are reported to the session that followed.
			return received{}, errSessionOver(g.name, e.member.Name, e.session)
		}
		return received{revoked: e.member.Lost()}, nil
	}
	w := &waiter{
		member:  e.member,
		session: e.session,
		want:    e.request.Want,
		ahead:   e.request.Ahead,
		poll:    e.request.Wait == 0,
		got:     make(chan received, 1),
	}
	// Join the waiting, and see whether there is something already.
	timer := time.NewTimer(e.waitTime(ctx))
	defer timer.Stop()
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.serveWaiters()
	g.mu.Unlock()
	select {
	case t := <-w.got:
		return t, t.err
	case <-timer.C:
	case <-ctx.Done():
	case <-g.ctx.Done():
	}
	return e.abandonWait(ctx, w)
}

// waitTime is how long the exchange waits for events: as long as the member asks for, and pollWait for a call
// that takes what there is, since that may have to be reserved first.
func (e *exchange) waitTime(ctx context.Context) time.Duration {
	wait := e.request.Wait
	if wait == 0 {
		wait = pollWait
	}
	// The answer has to be read and sent before the caller's time is over. A short time is not all kept for that: without
	// a wait the events would never be read that the call asks for.
	if end, bounded := ctx.Deadline(); bounded {
		left := time.Until(end)
		wait = min(wait, left-min(answerReserve, left/2))
	}
	return max(0, wait)
}

// abandonWait ends a wait. What came at the last moment is returned if the caller is still there, and released
// to others if not.
func (e *exchange) abandonWait(ctx context.Context, w *waiter) (t received, err error) {
	g := e.group
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(other *waiter) bool { return other == w })
	// serveWaiters may have answered before the lock was taken.
	select {
	case t = <-w.got:
	default:
	}
	// With the group all of its sessions are over, so there is nobody to release anything from.
	if g.ctx.Err() != nil {
		return t, e.endCause()
	}
	if ctx.Err() != nil {
		g.releaseUndelivered(e, t)
		return t, context.Cause(ctx)
	}
	return t, t.err
}

// buildAnswer reads the events that were delivered, and releases them if that fails. Events that were trimmed
// since are left out.
func (e *exchange) buildAnswer(t received) (Answer, error) {
	g := e.group
	// Take delivers key by key; readEvents and the member go by offset.
	slices.SortFunc(t.deliveries, func(a, b group.Delivery) int { return int(int64(a.Offset - b.Offset)) })
	out := Answer{Session: e.session, Refused: e.refused, Revoked: t.revoked, Gap: t.gap}
	var err error
	out.Events, out.Counts, err = g.readEvents(t.deliveries)
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.releaseUndelivered(e, t)
		return Answer{}, err
	}
	// Some were trimmed after they were delivered: the coordinator has to settle them.
	if len(out.Events) < len(t.deliveries) {
		g.mu.Lock()
		g.skipTrimmed()
		g.mu.Unlock()
	}
	c, there := g.host.Machine().Cursor(g.name)
	if !there || c.Group == nil {
		return Answer{}, NoGroup(g.host.Machine(), g.name)
	}
	// By the settings of this moment: the member takes its times from each answer.
	policy := g.engine.Policy(c.Group.Policy)
	out.AckWait, out.Silence, out.Committed = policy.AckWait, policy.Session, c.Committed
	_, out.Last = g.host.Machine().Log().Bounds()
	return out, nil
}
