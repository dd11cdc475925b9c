package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// errLeft ends a task that was not settled: the router closes, or the cursor is lost.
var errLeft = errors.New("left for the next to read the log")

// trial is a task's way through its attempts.
type trial struct {
	attempts int
	first    time.Time // when the first failed
	err      error     // of the last
	gone     bool      // a handler has ended the goroutine
}

// handle takes a task through its attempts and settles it. It reports whether what comes
// behind it in its lane may run.
func (s *subscriber) handle(t *task) (goOn bool) {
	var tr trial
	defer func() {
		if tr.gone {
			s.failedOnce(t, &tr, errGoexit)
			s.giveUp(t, &tr)
		}
	}()
	err := s.prepared(t)
	if err == nil {
		err = s.try(t, &tr)
	}
	switch {
	case err == nil:
		s.handled(t)
	case errors.Is(err, errLeft):
		s.leave(t)
		return false
	default:
		tr.err = err
		s.giveUp(t, &tr)
	}
	return true
}

// prepared gets what an attempt needs beside the event.
func (s *subscriber) prepared(t *task) error {
	if s.runs == nil {
		return nil
	}
	return s.followed(t)
}

// try makes attempts until one succeeds, or no more are due. Every one of them goes
// through the breaker.
func (s *subscriber) try(t *task, tr *trial) error {
	for {
		if s.mustLeave(t) {
			return errLeft
		}
		leave, err := s.breaker.Enter(s.base, t.origin == fromLog, s.closing)
		if err != nil {
			return s.notEntered(t, tr, err)
		}
		tr.attempts++
		err = s.attempt(t, tr, leave)
		if err == nil {
			return nil
		}
		s.failedOnce(t, tr, err)
		if s.base.Err() != nil && s.returns(t) {
			return errLeft // cut off, which is not a fault of the event
		}
		if isPermanent(err) || tr.attempts > len(s.spec.Retries) {
			return err
		}
		if err := s.pause(t, s.spec.Retries[tr.attempts-1]); err != nil {
			return errors.Join(err, tr.err)
		}
	}
}

// notEntered is what becomes of a task that the breaker did not let through.
func (s *subscriber) notEntered(t *task, tr *trial, err error) error {
	switch {
	case s.returns(t):
		return errLeft
	case tr.err != nil:
		return fmt.Errorf("%w: %w", err, tr.err)
	}
	return err
}

// returns reports whether the log brings the task again if it is left.
func (s *subscriber) returns(t *task) bool { return t.origin == fromLog && s.spec.Durable }

// mustLeave reports whether the task is not to be begun, as another has the cursor now.
func (s *subscriber) mustLeave(t *task) bool { return s.returns(t) && s.lost.Load() }

// pause waits between two attempts. When the subscription closes, what comes again is
// left, and what does not is tried for as long as there is time.
func (s *subscriber) pause(t *task, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var closing <-chan struct{}
	if s.returns(t) {
		closing = s.closing
	}
	select {
	case <-timer.C:
		return nil
	case <-closing:
		return errLeft
	case <-s.base.Done():
		if s.returns(t) {
			return errLeft
		}
		return ErrClosed
	}
}

// attempt calls the handler once.
func (s *subscriber) attempt(t *task, tr *trial, leave func(error)) error {
	ctx := context.WithValue(s.base, deliveryKey{}, Delivery{Subscription: s.spec.Name, Attempt: tr.attempts, Replay: t.origin == replayed})
	ctx = context.WithValue(ctx, insideKey{}, s)
	ctx, cancel := context.WithTimeoutCause(ctx, s.spec.Timeout, ErrTimeout)
	defer cancel()
	attempt := tr.attempts
	late := sync.OnceFunc(func() {
		if context.Cause(ctx) == ErrTimeout {
			s.timedOut(t, attempt)
		}
	})
	stop := context.AfterFunc(ctx, late) // at once, however long the handler goes on
	returned := false
	defer func() {
		if !stop() {
			late() // before anything that follows from it
		}
		if !returned { // by Goexit: the frames above end too
			tr.gone = true
			leave(errGoexit)
		}
	}()
	err := s.call(ctx, t)
	returned = true
	if err != nil && context.Cause(ctx) == ErrTimeout {
		err = fmt.Errorf("%w after %s: %w", ErrTimeout, s.spec.Timeout, err)
	}
	leave(err)
	return err
}

// call calls the handler and makes a panic an error.
func (s *subscriber) call(ctx context.Context, t *task) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{r, debug.Stack()}
		}
	}()
	if s.runs != nil {
		return s.spec.OnStage(ctx, Stage{Event: t.ev, Chain: t.chain})
	}
	return s.spec.Handler(ctx, t.ev)
}
