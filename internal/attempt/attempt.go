// Package attempt takes an event through the attempts of its handler: each of bounded time and
// through the circuit breaker, with a wait between two. The router's handlers and the sinks of
// a group share it.
//
// It promises that every attempt, retries included, asks the breaker first, and that the
// breaker learns how it ended, even if the handler ended its goroutine.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits bound the attempts of a handler.
type Limits struct {
	Timeout time.Duration // of one attempt
	// TimedOut ends the context of an attempt after Timeout, and is wrapped by the attempt's error.
	TimedOut error
	// CutOff marks the error of an attempt that was ended for reasons of the process, of which
	// the breaker learns nothing; nil marks none.
	CutOff error
}

// Task is an event and what its owner decides about it. Run calls one method at a time.
type Task interface {
	// Enter lets the next attempt through the breaker, and returns what to call with its
	// error. With an error of Enter there is no attempt.
	Enter() (leave func(error), err error)
	// Attempt calls the handler; n counts from 1.
	Attempt(ctx context.Context, n int) error
	// Failed records that an attempt failed. It returns nil and how long to wait for another
	// one, or the error that Run ends with.
	Failed(n int, err error) (wait time.Duration, end error)
	// Pause waits between two attempts. An error ends Run.
	Pause(wait time.Duration) error
}

// ErrGoexit is the error of a handler that ended the goroutine it was called on.
var ErrGoexit = errors.New("the handler called runtime.Goexit")

// Run makes attempts until one succeeds or the task says that no more are due. Contexts of
// attempts end with base.
func Run(base context.Context, l Limits, t Task) error {
	for n := 1; ; n++ {
		leave, err := t.Enter()
		if err != nil {
			return err
		}
		err = once(base, l, t, n, leave)
		if err == nil {
			return nil
		}
		wait, end := t.Failed(n, err)
		if end != nil {
			return end
		}
		if err := t.Pause(wait); err != nil {
			return err
		}
	}
}

// once makes one attempt.
func once(base context.Context, l Limits, t Task, n int, leave func(error)) error {
	ctx, cancel := context.WithTimeoutCause(base, l.Timeout, l.TimedOut)
	defer cancel()
	returned := false
	defer func() {
		if !returned { // by Goexit: the frames above end too
			leave(ErrGoexit)
		}
	}()
	err := t.Attempt(ctx, n)
	returned = true
	if err != nil && context.Cause(ctx) == l.TimedOut {
		err = fmt.Errorf("%w after %s: %w", l.TimedOut, l.Timeout, err)
	}
	if l.CutOff == nil || !errors.Is(err, l.CutOff) {
		leave(err)
	}
	return err
}

// Sleep waits, and reports whether ctx let it.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
