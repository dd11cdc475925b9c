package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/attempt"
)

// errLeft ends a task that was not settled: the router closes, or the cursor is lost.
var errLeft = errors.New("left for the next to read the log")

// trial is a task's way through its attempts.
type trial struct {
	s        *subscriber
	task     *task
	attempts int       // that the breaker let through
	tally    tally     // which of them count against Retries, see outage.go
	first    time.Time // when the first failed
	err      error     // of the last
}

// handle takes a task through its attempts and settles it. It reports whether what follows it
// in its lane may run.
func (s *subscriber) handle(t *task) (proceed bool) {
	tr := &trial{s: s, task: t}
	returned := false
	defer func() {
		if !returned { // the handler has ended this goroutine
			tr.noteFailure(attempt.ErrGoexit)
			s.abandonTask(t, tr)
		}
	}()

	// Attempts follow each other until one succeeds, or none may follow.
	err := s.prepareTask(t)
	if err == nil {
		err = attempt.Run(s.base, attempt.Limits{Timeout: s.spec.Timeout, TimedOut: ErrTimeout}, tr)
	}
	returned = true
	switch {
	case err == nil:
		s.finishTask(t)
	case errors.Is(err, errLeft):
		s.leaveTask(t)
		return t.delivery != nil // a group keeps the order of a key by itself
	default:
		tr.err = err
		s.abandonTask(t, tr)
	}
	return true
}

// prepareTask gets what an attempt needs beside the event.
func (s *subscriber) prepareTask(t *task) error {
	if s.runs == nil {
		return nil
	}
	return s.followRun(t)
}

// redelivers reports whether the log delivers the task again if it is left.
func (s *subscriber) redelivers(t *task) bool {
	return t.origin == redriven || (t.origin == fromLog && (s.spec.Durable || t.delivery != nil))
}

// Enter implements attempt.Task. An event of the log waits until the breaker lets it through; one of a group goes
// back to the others. Whoever publishes or replays an event has the error of an open breaker at once.
func (tr *trial) Enter() (leave func(error), err error) {
	s, redelivered := tr.s, tr.s.redelivers(tr.task)
	if redelivered && s.lost.Load() { // another has the cursor now
		return nil, errLeft
	}
	wait := (tr.task.origin == fromLog || tr.task.origin == redriven) && tr.task.delivery == nil
	leave, err = s.breaker.Enter(s.base, tr.identity(), wait, s.closing)

	// An event of a durable subscription stays in the log and is left there. Others end with
	// the error of the breaker, and with that of the last attempt if there was one.
	switch {
	case err == nil:
		tr.attempts++
		if s.r.events != nil {
			s.show("delivered", tr.task, "attempt", tr.attempts)
		}
		// Begun only here: the wait for the breaker is no part of the attempt.
		number := tr.tally.begin(&s.successes)
		toBreaker := leave
		return func(err error) {
			if err == nil {
				s.successes.note(number)
			}
			toBreaker(err)
		}, nil
	case redelivered && (tr.task.delivery == nil || tr.err == nil):
		return nil, errLeft
	case tr.err != nil:
		return nil, fmt.Errorf("%w: %w", err, tr.err)
	}
	return nil, err
}

// Attempt implements attempt.Task. A handler that runs out of time is reported at once,
// however long it takes to return.
func (tr *trial) Attempt(ctx context.Context, n int) (err error) {
	s, t := tr.s, tr.task
	late := sync.OnceFunc(func() {
		if context.Cause(ctx) == ErrTimeout {
			s.noteTimeout(t, n)
		}
	})
	stop := context.AfterFunc(ctx, late)
	defer func() {
		stop() // it may succeed on a context that has just ended, whose Done is closed first
		late() // before anything that follows from it
	}()

	// The handler's context names the attempt, for AttemptOf, the subscriber, so what it publishes does not wait for
	// itself, and the event, from which that inherits.
	this := Attempt{Subscription: s.spec.Name, Number: n, Delivery: deliveryOf(t), Replay: t.origin == replayed}
	handlerCtx := context.WithValue(context.WithValue(ctx, attemptKey{}, this), insideKey{}, s)
	handlerCtx = event.CausedBy(handlerCtx, &t.ev)
	if s.r.options.Observe == nil {
		return s.callHandler(handlerCtx, t)
	}

	// ended is deferred, so that it is called after a panic or Goexit of the handler as well.
	handlerCtx, ended := s.r.options.Observe(handlerCtx, this, &t.ev)
	err = attempt.ErrGoexit // unless the handler returns
	defer func() { ended(err) }()
	err = s.callHandler(handlerCtx, t)
	return err
}

// callHandler calls the handler and makes a panic an error.
func (s *subscriber) callHandler(ctx context.Context, t *task) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{r, debug.Stack()}
		}
	}()

	// A subscription to a flow has OnStage in place of Handler.
	if s.runs != nil {
		return s.spec.OnStage(ctx, Stage{Event: t.ev, Chain: t.chain})
	}
	return s.spec.Handler(ctx, t.ev)
}

// Failed implements attempt.Task.
func (tr *trial) Failed(n int, err error) (wait time.Duration, end error) {
	tr.noteFailure(err)
	// The tally counts the attempt before exhausted asks how many have counted.
	tr.tally.fail(&tr.s.successes)
	switch {
	case tr.s.base.Err() != nil && tr.s.redelivers(tr.task):
		return 0, errLeft // cut off, which is not a fault of the event
	case isPermanent(err), tr.exhausted(n):
		return 0, err
	}
	return tr.wait(n), nil
}

// Pause implements attempt.Task.
func (tr *trial) Pause(wait time.Duration) error {
	if err := tr.s.pause(tr.task, wait); err != nil {
		return errors.Join(err, tr.err)
	}
	return nil
}

// pause waits between two attempts. When the subscription closes, a task that is redelivered
// is left, and another one is tried for as long as there is time.
func (s *subscriber) pause(t *task, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()

	// A nil channel never is ready: only what is redelivered is left at once.
	var closing <-chan struct{}
	if s.redelivers(t) {
		closing = s.closing
	}
	select {
	case <-timer.C:
		return nil
	case <-closing:
		return errLeft
	case <-s.base.Done():
		if s.redelivers(t) {
			return errLeft
		}
		return ErrClosed
	}
}
