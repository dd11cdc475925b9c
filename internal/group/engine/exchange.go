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
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of an exchange.
const (
	memberCalls = 8                      // exchanges of one member at the same time
	answerTime  = 500 * time.Millisecond // left of a call's time for its answer
	pollTime    = 2 * time.Second        // how long one that waits for nothing waits for what is there
)

// Request is what a member says and wants.
type Request struct {
	Group, Member           string
	Session                 uint64
	Holding, Acks, Progress []frame.Range
	Nacks                   []group.Nack
	Want                    int
	Wait                    time.Duration
	Ahead                   bool // see group.Demand
	Leave                   bool
}

// Answer is the answer.
type Answer struct {
	Session          uint64
	Events           []event.Event // in order of their offsets; shared with other readers
	Counts           []uint64      // which delivery each of them is
	Revoked, Refused []frame.Range
	Gap              *log.Gap // nil is none
	AckWait, Silence time.Duration
	Committed, Last  uint64
}

// Exchange settles what a member was given and gives it more. It answers once what was
// settled is in the log.
func (k *Engine) Exchange(ctx context.Context, r Request) (Answer, error) {
	g, err := k.get(ctx, r.Group)
	if err != nil {
		return Answer{}, err
	}
	select {
	case <-g.loaded:
	case <-g.ctx.Done():
		return Answer{}, g.cause()
	case <-ctx.Done():
		return Answer{}, context.Cause(ctx)
	}
	if ctx.Err() != nil { // and the member may have joined with another call since
		return Answer{}, context.Cause(ctx)
	}
	e, err := g.enter(&r)
	if err != nil {
		return Answer{}, err
	}
	defer e.exit()
	if err := e.durable(ctx); err != nil {
		return Answer{}, err
	}
	t, err := e.receive(ctx)
	if err != nil {
		return Answer{}, err
	}
	return e.answer(t)
}

// call is one exchange under way.
type call struct {
	g       *liveGroup
	r       *Request
	m       *group.Member
	session uint64
	refused []frame.Range
	settled *round // that its acks and nacks go into; nil where it has none
	dead    bool   // it gives an event up
}

// enter takes in what a member says.
func (g *liveGroup) enter(r *Request) (*call, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return nil, g.cause()
	}
	now := g.now()
	m, err := g.member(now, r)
	if err != nil {
		return nil, err
	}
	g.seen = now
	g.c.Begin(m)
	e := &call{g: g, r: r, m: m, session: m.Session}
	for _, one := range r.Progress {
		g.c.Progress(now, m, one, nil)
	}
	for _, one := range r.Acks {
		e.refused = g.c.Ack(m, one, e.refused)
	}
	for _, one := range r.Nacks {
		e.dead = e.dead || one.Dead
		if !g.c.Nack(now, m, one) {
			e.refused = append(e.refused, frame.Range{From: one.Offset, To: one.Offset})
		}
	}
	e.refused = frame.JoinRanges(e.refused)
	if len(r.Acks)+len(r.Nacks) > 0 {
		e.settled = g.round
		signal(g.kick)
	}
	if r.Leave {
		g.c.Leave(m)
	}
	g.wanted += r.Want
	g.share()
	return e, nil
}

// member finds who speaks, or lets it join.
func (g *liveGroup) member(now time.Time, r *Request) (m *group.Member, err error) {
	if r.Session == 0 {
		m, err = g.c.Join(now, r.Member, r.claims(), r.Nacks)
	} else {
		m, err = g.c.Enter(now, r.Member, r.Session)
	}
	switch {
	case errors.Is(err, group.ErrFull):
		return nil, &api.Error{Code: api.Overloaded, Field: "member", Message: fmt.Sprintf("group %q has %d members, the limit", g.name, group.MaxMembers),
			Remedy: "let fewer members do more at a time, or use another group"}
	case err != nil:
		return nil, errSessionOver(g.name, r.Member, r.Session)
	case m.Calls() >= memberCalls:
		return nil, &api.Error{Code: api.Overloaded, Field: "member", Message: fmt.Sprintf("member %q has %d exchanges under way, the limit", r.Member, memberCalls),
			Remedy: "wait for one of them, or give each process a name of its own"}
	}
	return m, nil
}

// claims is what a member that joins was given before: what it says it holds, and what it
// settles. So a call that failed may be repeated as it is, with session 0.
func (r *Request) claims() []frame.Range {
	list := slices.Concat(r.Holding, r.Acks, r.Progress)
	for _, n := range r.Nacks {
		list = append(list, frame.Range{From: n.Offset, To: n.Offset})
	}
	return frame.JoinRanges(list)
}

func (e *call) exit() {
	g := e.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted -= e.r.Want
	g.c.End(g.now(), e.m, e.session)
}

// durable waits until what was settled is in the log.
func (e *call) durable(ctx context.Context) error {
	if e.settled == nil {
		return nil
	}
	select {
	case <-e.settled.done:
		switch {
		case e.settled.err != nil:
			return e.cause()
		case e.dead || len(e.r.Nacks) > 0 && errors.Is(e.settled.letters, raftnode.ErrOutcomeUnknown):
			return e.settled.letters
		}
		return nil
	case <-e.g.ctx.Done():
		return e.cause()
	case <-ctx.Done():
		return fmt.Errorf("server: group %s: settle: %w: %w", e.g.name, raftnode.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// cause is what a call that meets the group's end is told. The log may have what it settles,
// in part or in whole, unless the group is gone.
func (e *call) cause() error {
	err := e.g.cause()
	if told, ok := errors.AsType[*api.Error](err); e.settled == nil || ok && told.Code == api.NotFound {
		return err
	}
	return fmt.Errorf("server: group %s: settle: %w: %v", e.g.name, raftnode.ErrOutcomeUnknown, err)
}

// waiter is an exchange that waits for events. Its one answer goes into got.
type waiter struct {
	m       *group.Member
	session uint64
	want    int
	ahead   bool
	poll    bool // it takes what is there now
	got     chan taken
}

// taken is what a waiter gets.
type taken struct {
	deliveries []group.Delivery
	revoked    []frame.Range
	gap        *log.Gap
	err        error
}

// receive waits for events as long as the member does.
func (e *call) receive(ctx context.Context) (taken, error) {
	g := e.g
	if e.r.Want == 0 || e.r.Leave {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.share() // one that waits for events tells first what is lost
		if !e.r.Leave && !e.m.Live(e.session) {
			return taken{}, errSessionOver(g.name, e.m.Name, e.session) // what is lost now, the session that followed is told
		}
		return taken{revoked: e.m.Lost()}, nil
	}
	w := &waiter{m: e.m, session: e.session, want: e.r.Want, ahead: e.r.Ahead, poll: e.r.Wait == 0, got: make(chan taken, 1)}
	timer := time.NewTimer(e.patience(ctx))
	defer timer.Stop()
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.share()
	g.mu.Unlock()
	select {
	case t := <-w.got:
		return t, t.err
	case <-timer.C:
	case <-ctx.Done():
	case <-g.ctx.Done():
	}
	return e.giveUp(ctx, w)
}

// patience is how long the exchange waits for events.
func (e *call) patience(ctx context.Context) time.Duration {
	wait := e.r.Wait
	if wait == 0 {
		wait = pollTime
	}
	if end, bounded := ctx.Deadline(); bounded {
		wait = min(wait, time.Until(end)-answerTime)
	}
	return max(0, wait)
}

// giveUp ends a wait. What came at the last moment is taken if there still is somebody,
// or handed to others.
func (e *call) giveUp(ctx context.Context, w *waiter) (t taken, err error) {
	g := e.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(other *waiter) bool { return other == w })
	select {
	case t = <-w.got:
	default:
	}
	if g.ctx.Err() != nil {
		return t, e.cause()
	}
	if ctx.Err() != nil {
		g.giveBack(e, t)
		return t, context.Cause(ctx)
	}
	return t, t.err
}

// giveBack hands what a member never got in an exchange to others, and keeps what it was
// not told, unless it has joined anew: then it has said itself what it holds. g.mu is held.
func (g *liveGroup) giveBack(e *call, t taken) {
	if g.gap == nil {
		g.gap = t.gap
	}
	if !e.m.Live(e.session) {
		return
	}
	e.m.RestoreLost(t.revoked)
	for _, d := range slices.Backward(t.deliveries) { // so that no later one of a key is revoked
		g.c.Nack(g.now(), e.m, group.Nack{Offset: d.Offset, Released: true})
	}
	g.share()
}

// share answers those who wait as far as there is something for them: in turn, each its
// part of what anyone may get. g.mu is held.
func (g *liveGroup) share() {
	rest := g.waiting[:0]
	for i, w := range g.waiting {
		if t, some := g.takeFor(w, len(g.waiting)-i); some {
			w.got <- t
		} else {
			rest = append(rest, w)
		}
	}
	clear(g.waiting[len(rest):])
	g.waiting = rest
	g.stir()
}

func (g *liveGroup) takeFor(w *waiter, waiting int) (t taken, some bool) {
	if !w.m.Live(w.session) {
		return taken{err: errSessionOver(g.name, w.m.Name, w.session)}, true
	}
	demand := group.Demand{Events: w.want, Bytes: tail.BatchBytes, Units: (g.c.Ready() + waiting - 1) / waiting, Ahead: w.ahead}
	t.revoked = w.m.Lost()
	t.deliveries = g.c.Take(g.now(), w.m, demand, nil)
	t.gap, g.gap = g.gap, nil
	some = len(t.deliveries)+len(t.revoked) > 0 || t.gap != nil
	return t, some || w.poll && g.drained()
}

// drained reports that there is nothing more to be had at the moment.
func (g *liveGroup) drained() bool {
	_, last := g.host.Machine().Log().Bounds()
	return g.c.Unopened() == 0 && (g.c.Next() > last || g.c.Room() == 0)
}

// answer reads the events that were handed out.
func (e *call) answer(t taken) (Answer, error) {
	g := e.g
	slices.SortFunc(t.deliveries, func(a, b group.Delivery) int { return int(int64(a.Offset - b.Offset)) })
	out := Answer{Session: e.session, Refused: e.refused, Revoked: t.revoked, Gap: t.gap}
	var err error
	if out.Events, out.Counts, err = g.read(t.deliveries); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.giveBack(e, t)
		return Answer{}, err
	}
	if len(out.Events) < len(t.deliveries) {
		g.mu.Lock()
		g.trim()
		g.mu.Unlock()
	}
	c, there := g.host.Machine().Cursor(g.name)
	if !there || c.Group == nil {
		return Answer{}, NoGroup(g.host.Machine(), g.name)
	}
	policy := g.engine.Policy(c.Group.Policy)
	out.AckWait, out.Silence, out.Committed = policy.AckWait, policy.Session, c.Committed
	_, out.Last = g.host.Machine().Log().Bounds()
	return out, nil
}

// read returns the events of deliveries, whose offsets rise; those that were trimmed in
// the meantime are left out.
func (g *liveGroup) read(list []group.Delivery) (events []event.Event, counts []uint64, err error) {
	l := g.host.Machine().Log()
	events, counts = make([]event.Event, 0, len(list)), make([]uint64, 0, len(list))
	for len(list) > 0 {
		// What was handed out is read whatever the filter is by now, at least each second event of
		// a read being one of these.
		from, span := list[0].Offset, uint64(1)
		for i := 1; i < len(list) && list[i].Offset-from < 2*uint64(i+1); i++ {
			span = list[i].Offset - from + 1
		}
		chunk, err := l.ReadFor(g.name, from, &event.Matcher{}, int(span))
		if err != nil {
			return nil, nil, err
		}
		for i := range chunk.Events {
			e := &chunk.Events[i]
			for len(list) > 0 && list[0].Offset < e.Offset {
				list = list[1:]
			}
			if len(list) > 0 && list[0].Offset == e.Offset {
				events, counts = append(events, *e), append(counts, list[0].Count)
				list = list[1:]
			}
		}
		if chunk.Next <= from {
			return nil, nil, api.BeyondTail("offset", from, from-1, "join again: session 0, with holding") // of what was handed out, all is there
		}
		for len(list) > 0 && list[0].Offset < chunk.Next {
			list = list[1:] // not in the log any more
		}
	}
	return events, counts, nil
}
