package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/attempt"
)

// Pauses between tries to reach the log.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// newPauses returns the growing pauses between tries.
func newPauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = firstPause, maxPause
	return b
}

// feed reads the log until ctx is done, or the log has refused it for good.
func (s *subscriber) feed(ctx context.Context) {
	from, pauses := s.newSource(), newPauses()
	for ctx.Err() == nil {
		// Attach and read until something fails, for as long as the log does not refuse.
		err := from.attach(ctx)
		if err == nil {
			s.setState(Attached, nil)
			pauses.Reset()
			err = from.read(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrBreakerOpen): // of a member of a group, which has left it
			_ = s.breaker.Await(ctx) // an error is the end of ctx
		case errors.Is(err, ErrFenced):
			s.endRefused(Fenced, err)
		case errors.Is(err, ErrRefused):
			s.endRefused(Refused, err)
		default:
			s.setState(Connecting, err)
			s.r.options.Logger.Warn("not attached to the log", "subscription", s.spec.Name, "error", err)
			attempt.Sleep(ctx, pauses.NextBackOff())
		}
	}
}

// source is where the events of a subscription come from.
type source interface {
	attach(ctx context.Context) error // find out where to read on
	read(ctx context.Context) error   // until it fails
}

// newSource returns the source of a subscription that is not direct.
func (s *subscriber) newSource() source {
	switch {
	case s.spec.Durable:
		return cursorSource{s}
	case s.spec.Group != "":
		return &s.group
	}
	return tailSource{s}
}

// tailSource reads the log without a cursor.
type tailSource struct{ *subscriber }

// attach begins at the end of the log as it is now; after a failure reading resumes where it was.
func (s tailSource) attach(ctx context.Context) error {
	// The end is asked for each time, also where it is not needed: an answer is what makes the subscription attached.
	last, err := s.r.log.Last(ctx)
	if err == nil {
		err = s.probeFilter(ctx)
	}
	// Only the first time it begins there. Later the tracker knows what was read.
	if err == nil && !s.wasAttached() && s.fromEnd() {
		s.tracker.restart(last)
	}
	return err
}

// probeFilter has the log refuse a filter that it would refuse only once there is something to
// read: a category may be one that was registered there, so it cannot be judged here.
func (s tailSource) probeFilter(ctx context.Context) error {
	if len(s.spec.Categories) == 0 {
		return nil
	}
	// A read from the end that does not follow is the cheapest that has the log judge the filter.
	o := client.TailOptions{From: client.FromEnd(), Filter: s.feedFilter(), NoFollow: true}
	for _, err := range s.r.log.Tail(ctx, o) {
		if errors.Is(err, ErrRefused) {
			return err
		}
		break
	}
	return nil
}

// fromEnd reports whether the subscription begins after the last event.
func (s tailSource) fromEnd() bool {
	return s.spec.From == client.Position{} || s.spec.From == client.FromEnd()
}

// read follows the log until it fails.
func (s tailSource) read(ctx context.Context) error {
	// The node asked must have what was read here before.
	seen := s.tracker.position()
	o := client.TailOptions{From: client.FromOffset(seen + 1), MinOffset: seen, Filter: s.feedFilter()}

	// Before anything was read it begins where the subscription says, for which no node has to have anything.
	if seen == 0 && !s.fromEnd() {
		o.From, o.MinOffset = s.spec.From, 0
	}
	for ev, err := range s.r.log.Tail(ctx, o) {
		if err := s.accept(ctx, ev, err); err != nil {
			return err
		}
	}
	return errors.New("the log has ended a tail")
}

// cursorSource reads the cursor of a durable subscription.
type cursorSource struct{ *subscriber }

// attach opens the cursor, which fences off whoever had it before.
func (s cursorSource) attach(ctx context.Context) error {
	// The lock is held until resume has returned: no commit comes between the opening and the restart of the tracker.
	s.link.Lock()
	defer s.link.Unlock()
	if s.link.cursor != nil {
		s.link.cursor.Close() // it has failed: the error of Close says nothing more
		s.link.cursor = nil
	}

	// From counts only if the cursor does not exist yet.
	o := client.CursorOptions{From: s.spec.From, Filter: s.feedFilter(), Policy: s.spec.Policy, Change: s.spec.Change}
	cursor, err := s.r.log.OpenCursor(ctx, s.spec.Name, o)
	if err != nil {
		return err
	}

	// Another reader may have moved the cursor: runs are read again from the log.
	s.link.cursor = cursor
	if s.runs != nil {
		s.runs.forget()
	}

	// OpenCursor without a filter opens a cursor that has one, which would leave out events that the subscription is
	// for.
	info := cursor.Info()
	if o.Filter.Empty() && !info.Filter.Empty() {
		return fmt.Errorf("its cursor has a filter, %+v, and the subscription none (Subscription.Change gives it that): %w",
			info.Filter, ErrRefused)
	}
	return s.resume(ctx, info.Committed)
}

// resume reads on after what the cursor has committed. If that was moved back on purpose, what
// follows is handled again.
func (s cursorSource) resume(ctx context.Context, committed uint64) error {
	// Handlers of what was read before must have returned, so an event never runs twice at
	// once.
	before := s.committed.Load()
	// With the first cursor of this process nothing was read before.
	if !s.wasAttached() {
		s.tracker.restart(committed)
	} else if committed < before {
		select {
		case <-s.busy.over():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.tracker.restart(committed)
	}
	s.committed.Store(committed)
	return nil
}

// read reads batches of the open cursor until it fails.
func (s cursorSource) read(ctx context.Context) error {
	cursor := s.openCursor()
	for {
		events, err := cursor.NextBatch(ctx)

		// A gap is an error of the cursor, after which it reads on.
		if err != nil {
			if err := s.accept(ctx, event.Event{}, err); err != nil {
				return err
			}
			continue
		}
		for _, ev := range events {
			if err := s.accept(ctx, ev, nil); err != nil {
				return err
			}
		}
	}
}

// accept takes in what was read: an event, a gap, or an error, which it returns.
func (s *subscriber) accept(ctx context.Context, ev event.Event, err error) error {
	if gap, ok := errors.AsType[*client.GapError](err); ok {
		return s.skipGap(ctx, gap.Gap)
	}
	if err != nil {
		return err
	}

	// Before the event is tracked: if the runs cannot be read, it is read again.
	if s.runs != nil {
		if err := s.runs.begin(ctx, ev.Offset); err != nil {
			return err
		}
	}

	// After a reconnect an event may be read a second time: it is skipped.
	e, err := s.tracker.track(ctx, ev.Offset)
	if e == nil || err != nil {
		return err
	}
	s.r.recent.note(&ev)
	if s.runs != nil {
		s.runs.note(&ev)
	}

	// A stage that the subscription does not name is read for its run alone.
	if (s.runs != nil && !s.matcher.Match(&ev)) || !s.meets(&ev) {
		s.count(func(c *Counts) { c.Filtered++ })
		s.settleTask(&task{entry: e}, nil, nil)
		return nil
	}
	s.count(func(c *Counts) { c.Received++ })
	t := s.task(ev, fromLog)
	t.entry = e
	return s.lanes.push(ctx, t, 0)
}

// skipGap reports events that are not kept any more, and passes them.
func (s *subscriber) skipGap(ctx context.Context, gap client.Gap) error {
	e, err := s.tracker.track(ctx, gap.To)
	if e == nil || err != nil {
		return err
	}

	// The gap is settled as one event at its last offset, so the cursor moves past it in
	// its turn.
	s.reportGap(gap)
	s.settleTask(&task{entry: e}, nil, nil)
	return nil
}

// reportGap counts a gap, logs it and calls OnGap.
func (s *subscriber) reportGap(gap client.Gap) {
	s.noteGap(&gap)
	s.r.options.Logger.Warn("events are not kept any more", "subscription", s.spec.Name,
		"from", gap.From, "to", gap.To, "reason", gap.Reason)
	if s.spec.OnGap != nil {
		s.callOnGap(gap)
	}
}

// callOnGap calls the subscription's OnGap within the time of one attempt. A panic is logged.
func (s *subscriber) callOnGap(gap client.Gap) {
	ctx, cancel := context.WithTimeoutCause(context.WithValue(s.base, insideKey{}, s), s.spec.Timeout, ErrTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			s.r.options.Logger.Error("OnGap", "subscription", s.spec.Name, "error", &PanicError{r, debug.Stack()})
		}
	}()

	// It runs in the reading goroutine: what it publishes does not wait for this subscription, which reads nothing
	// meanwhile.
	s.spec.OnGap(ctx, gap)
}
