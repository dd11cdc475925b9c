package router

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/router/breaker"
)

// subscriber is a subscription at work: feed reads the log for it, lanes runs its handler,
// committer moves its cursor.
type subscriber struct {
	r       *Router
	spec    Subscription     // complete
	where   *where.Condition // nil allows all
	runs    *runs            // nil if it has no flow
	matcher event.Matcher    // of what the subscription is for; feedFilter may let more be read
	lanes   *lanes
	tracker *tracker   // nil if it is direct or of a group
	group   membership // zero but for its channel where it is not of a group
	breaker *breaker.Breaker
	busy    busy // its workers

	successes successes // for MaxOutage, see outage.go

	committer
	lifecycle
	redrives redrives // of letters that are not of its cursor
	record
}

// lifecycle is what the parts of a subscriber end by, in this order: reading, waiting for what
// is redelivered, committing, and at last the handlers.
type lifecycle struct {
	feeding  context.Context // of reading
	stopFeed context.CancelFunc
	fed      chan struct{} // closed when reading has ended
	closing  chan struct{} // closed then: nothing waits any more for what is redelivered
	begin    sync.Once     // closes closing
	flush    chan struct{} // closed when all handlers have returned: commit and end
	finish   sync.Once     // closes flush
	flushed  chan struct{}
	base     context.Context // of handlers; ended when a close runs out of time
	cut      context.CancelFunc
	lost     atomic.Bool // the cursor is another's, or gone
	shut     atomic.Bool // takes no event any more
}

// init makes the channels and contexts. Reading ends with the handlers' context as well.
func (l *lifecycle) init() {
	l.fed, l.closing = make(chan struct{}), make(chan struct{})
	l.flush, l.flushed = make(chan struct{}), make(chan struct{})
	l.base, l.cut = context.WithCancel(context.Background())
	l.feeding, l.stopFeed = context.WithCancel(l.base)
}

// stopWaiting ends all waiting for what is redelivered.
func (l *lifecycle) stopWaiting() { l.begin.Do(func() { close(l.closing) }) }

// stopReading ends reading, and then all waiting for what is redelivered.
func (l *lifecycle) stopReading() {
	l.stopFeed()
	<-l.fed
	l.stopWaiting()
}

// stopCommitting commits what was settled and ends committing.
func (l *lifecycle) stopCommitting() {
	l.finish.Do(func() { close(l.flush) })
	<-l.flushed
}

// newSubscriber returns a subscriber that start sets off.
func newSubscriber(r *Router, spec Subscription, condition *where.Condition) *subscriber {
	s := &subscriber{r: r, spec: spec, where: condition, matcher: spec.filter().Compile(r.options.Catalogue),
		record: record{state: Connecting}}
	s.lifecycle.init()
	s.committer.s, s.group.s, s.redrives.s = s, s, s

	// A worker counts for the subscription and for the router: each waits for its own when it closes.
	s.lanes = newLanes(spec.Concurrency, spec.Queue, s.handle, s.leaveTask, &s.busy, &r.busy)
	s.breaker = breaker.New(breaker.Config(*spec.Breaker), isPermanent, s.breakerTurned)
	s.group.changed = make(chan struct{}, 1)
	if !spec.Direct && spec.Group == "" {
		s.tracker = newTracker(spec.Queue * aheadOfQueue)
	}
	return s
}

// start sets the goroutines off.
func (s *subscriber) start() {
	s.redrives.resume()
	// Nothing is read or committed for a direct one: both are over from the start.
	if s.spec.Direct {
		close(s.fed)
		close(s.flushed)
		s.setState(Attached, nil)
		return
	}

	// stopReading joins the first of these goroutines, stopCommitting the second.
	go func() {
		defer close(s.fed)
		s.feed(s.feeding)
	}()
	go func() {
		defer close(s.flushed)
		s.commitSettled()
	}()
}

// feedFilter is what is read from the log for it: of a flow all stages, to know the runs.
func (s *subscriber) feedFilter() event.Filter {
	if s.runs != nil {
		return event.Filter{Types: s.runs.types}
	}
	return s.spec.filter()
}

// matches reports whether an event that did not come through the log is for it.
func (s *subscriber) matches(ev *event.Event) bool {
	return s.matcher.Match(ev) && s.meets(ev)
}

// meets applies the condition. An event for which it cannot be evaluated does not meet it.
func (s *subscriber) meets(ev *event.Event) bool {
	if s.where == nil {
		return true
	}
	met, err := s.where.Match(ev)
	if err != nil {
		s.count(func(c *Counts) { c.NotEvaluated++ })
	}
	return met
}

// task returns a task for an event, in the lane that the subscription chooses.
func (s *subscriber) task(ev event.Event, o origin) *task {
	t := &task{ev: ev, lane: ev.Key, origin: o}
	if s.runs != nil {
		t.run = s.runs.of(&t.ev)
	}
	switch {
	case s.spec.Lane != nil:
		t.lane = s.spec.Lane(&t.ev)
	case t.run != nil:
		t.lane = t.run.lane
	}
	return t
}

// handOver hands over an event that was published here, or is replayed. It waits for room as
// lanes.push does.
func (s *subscriber) handOver(ctx context.Context, ev event.Event, o origin, result chan<- error,
	maxWait time.Duration) error {
	if s.shut.Load() {
		return ErrClosed
	}

	// A refused event is counted, and the error is the caller's.
	t := s.task(ev, o)
	t.result = result
	if err := s.lanes.push(ctx, t, maxWait); err != nil {
		s.count(func(c *Counts) { c.Refused++ })
		return err
	}
	s.count(func(c *Counts) { c.Received++ })
	return nil
}

// finishTask settles a task whose handler succeeded.
func (s *subscriber) finishTask(t *task) {
	s.noteHandled(t.ev.Offset)
	if s.r.events != nil {
		s.show("handled", t)
	}
	s.settleTask(t, nil, nil)
}

// noteFailure notes an attempt that failed.
func (tr *trial) noteFailure(err error) {
	if tr.first.IsZero() {
		tr.first = time.Now()
	}
	tr.err = err
	tr.s.noteFailed(err)
	if tr.s.r.events != nil {
		tr.s.show("failed", tr.task, "attempt", tr.attempts, "error", err)
	}
}

// abandonTask settles a task that no attempt is due for any more.
func (s *subscriber) abandonTask(t *task, tr *trial) {
	if tr.attempts == 0 { // the breaker let none through
		s.count(func(c *Counts) { c.Refused++ })
		s.settleTask(t, tr.err, nil)
		return
	}

	// The committer stores the letter of a cursor once everything before it is settled.
	var letter *DeadLetter
	if s.deadLetters(t) {
		letter = &DeadLetter{Cursor: s.spec.Name, Handler: s.spec.Name, Source: s.r.options.Source, Event: t.ev,
			Error: breaker.Bounded(tr.err.Error()), Attempts: tr.attempts, First: tr.first, Last: time.Now()}
	}
	s.count(func(c *Counts) { c.Failed++ })
	if s.r.events != nil {
		s.show("abandoned", t, "attempts", tr.attempts, "dead_letter", letter != nil, "error", tr.err)
	}
	s.r.notices.handlerFailed(s, t, tr, letter != nil || s.spec.lastDelivery(t, tr.err))

	// The letter of an event that the subscription's cursor does not pass goes to the cursor live.NAME.
	if letter != nil && (!s.spec.Durable || t.origin != fromLog) {
		letter.Cursor = s.lettersCursor()
		t.letter, letter = letter, nil
		if t.origin != redriven { // whose reader stores the letter
			s.r.letters.put(s, *t.letter)
		}
	}
	s.settleTask(t, tr.err, letter)
}

// show logs an event and what has become of it here.
func (s *subscriber) show(what string, t *task, args ...any) {
	s.r.events.Show(what, &t.ev, append([]any{"subscription", s.spec.Name}, args...)...)
}

// deadLetters reports whether an abandoned task becomes a dead letter by this process. A group does that itself, and
// who replays has the error.
func (s *subscriber) deadLetters(t *task) bool {
	if s.spec.Durable && t.origin == fromLog {
		return s.r.options.DeadLetters != nil
	}
	return s.r.letters != nil && t.delivery == nil && t.origin != replayed
}

// settleTask answers whoever waits for a task and notes in the tracker that it is settled. err is
// why it failed.
func (s *subscriber) settleTask(t *task, err error, letter *DeadLetter) {
	// result has room for its one answer. Whoever gets it may read t.letter, which is set by then.
	if t.result != nil {
		t.result <- err
	}

	if t.delivery != nil {
		s.group.settle(t, err)
		return
	}

	// An event that was not read from the log has no entry.
	if t.entry == nil {
		return
	}

	// Without a cursor nobody commits: what is settled is passed here, which makes room for
	// more.
	s.tracker.settleEntry(t.entry, err, letter)
	if !s.spec.Durable {
		s.tracker.takeSettled()
	}
}

// leaveTask ends a task that is redelivered, or at least was not handled.
func (s *subscriber) leaveTask(t *task) {
	s.count(func(c *Counts) { c.Left++ })
	if s.r.events != nil {
		s.show("left", t)
	}

	// Whoever waits learns that it was not handled here; who has the event next decides what becomes of it.
	if t.result != nil {
		t.result <- ErrClosed
	}
	if t.delivery != nil {
		s.group.release(t)
	}
	if t.entry != nil {
		s.tracker.abandonEntry(t.entry)
	}
}

// noteTimeout counts and reports an attempt that ran out of time.
func (s *subscriber) noteTimeout(t *task, attempt int) {
	s.count(func(c *Counts) { c.TimedOut++ })
	s.r.notices.handlerTimeout(s, t, attempt)
}

// breakerTurned reports a change of the breaker, in whose lock it runs.
func (s *subscriber) breakerTurned(ch breaker.Change) {
	s.group.followBreaker(ch)
	s.r.notices.breaker(s, ch)
}

// endRefused ends a subscription that the log has refused.
func (s *subscriber) endRefused(state State, err error) {
	// Handlers that run may finish. Nothing more is read, and what waits is left.
	s.lost.Store(true)
	s.setState(state, err)
	s.r.options.Logger.Error("subscription ended", "subscription", s.spec.Name, "state", state, "error", err)
	s.stopFeed()
	s.stopWaiting()
}

// setState notes the state and wakes those that wait for one.
func (s *subscriber) setState(state State, err error) {
	s.noteState(state, err)
	s.r.stateChanged()
}

// commitAndRelease commits what was settled and releases everything. No handler runs any more, or those
// that do have been cut off.
func (s *subscriber) commitAndRelease() {
	// Commit first: the cursor must be open for it.
	s.shut.Store(true)
	s.stopCommitting()
	s.redrives.wait()
	s.group.leave()

	// The last commits and the exchange with the group have used base. What still runs is cut off with it.
	s.cut()
	s.breaker.Close()
	if cursor := s.openCursor(); cursor != nil {
		if err := cursor.Close(); err != nil {
			s.r.options.Logger.Warn("closing a cursor", "subscription", s.spec.Name, "error", err)
		}
	}
	s.setState(Closed, nil)
}

// close ends one subscription, draining it for as long as ctx allows.
func (s *subscriber) close(ctx context.Context) error {
	// When ctx is done, handlers are cut off.
	defer context.AfterFunc(ctx, s.cut)()
	s.shut.Store(true)
	s.stopReading()
	err := s.drained(ctx)
	s.commitAndRelease()
	return err
}

// drained waits until no handler runs.
func (s *subscriber) drained(ctx context.Context) error {
	switch overBefore(ctx, &s.busy) {
	case inTime:
		return nil
	case cutOff:
		return fmt.Errorf("router: close %s: the handler was cut off: %w", s.spec.Name, context.Cause(ctx))
	}
	return fmt.Errorf("router: close %s: the handler has not returned: %w", s.spec.Name, context.Cause(ctx))
}
