package attempt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	errLate = errors.New("late")
	errCut  = errors.New("cut off")
)

// script is a task whose handler does one thing in each attempt.
type script struct {
	handler []func(ctx context.Context) error
	log     []string
	mu      sync.Mutex
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *script) Enter() (func(error), error) {
	s.note("enter")
	return func(err error) { s.note("leave %v", err) }, nil
}

func (s *script) Attempt(ctx context.Context, n int) error { return s.handler[n-1](ctx) }

func (s *script) Failed(n int, err error) (time.Duration, error) {
	s.note("failed %d", n)
	if n == len(s.handler) {
		return 0, err
	}
	return time.Duration(n) * time.Minute, nil
}

func (s *script) Pause(wait time.Duration) error {
	s.note("pause %s", wait)
	return nil
}

func TestEveryAttemptEntersAndLeaves(t *testing.T) {
	fault := errors.New("fault")
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, test := range map[string]struct {
		handler []func(context.Context) error
		log     []string
		err     error
	}{
		"retried": {[]func(context.Context) error{
			func(context.Context) error { return fault }, func(context.Context) error { return nil }},
			[]string{"enter", "leave fault", "failed 1", "pause 1m0s", "enter", "leave <nil>"}, nil},
		"out of time": {[]func(context.Context) error{hang},
			[]string{"enter", "leave late after 1ms: context deadline exceeded", "failed 1"}, errLate},
		"cut off": {[]func(context.Context) error{func(context.Context) error { return errCut }},
			[]string{"enter", "failed 1"}, errCut},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{handler: test.handler}
			err := Run(t.Context(), Limits{Timeout: time.Millisecond, TimedOut: errLate, CutOff: errCut}, s)
			if !errors.Is(err, test.err) || !slices.Equal(s.log, test.log) {
				t.Errorf("%v, %q", err, s.log)
			}
		})
	}
}

func TestTheBreakerLearnsOfAHandlerThatEndsItsGoroutine(t *testing.T) {
	s := &script{handler: []func(context.Context) error{func(context.Context) error { runtime.Goexit(); return nil }}}
	var wg sync.WaitGroup
	wg.Go(func() { _ = Run(t.Context(), Limits{Timeout: time.Minute, TimedOut: errLate}, s) })
	wg.Wait()
	if want := []string{"enter", "leave " + ErrGoexit.Error()}; !slices.Equal(s.log, want) {
		t.Errorf("%q", s.log)
	}
}
