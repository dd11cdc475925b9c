package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/router/breaker"
	"github.com/ringrift/ringlog/router/sinks"
)

// A failed attempt is made again after 1, 2 and 4 s, then the delivery has failed and comes
// again after the next wait, and after the group's last delivery the event is dead. The failures
// of one event do not open the breaker, however many.
func TestAttemptsDeliveriesAndTheDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("", 1), progress("", 2)), newTranscript()
		g.maxDeliver = 2
		sum := react(
			t.Context(),
			t,
			g,
			sinks.Options{Retries: 3, Settled: g.settled, Record: true,
				OnOutcome: tr.outcome, Publish: tr.publish,
				Sink: sinkFunc(func(_ context.Context, d client.Delivery) error {
					if d.Offset == 1 {
						return errBoom
					}
					return nil
				})},
		)
		tr.check(t, `
   0 s  event 1 delivery 1 attempt 1: retried, again in 1s: boom
   1 s  event 1 delivery 1 attempt 2: retried, again in 2s: boom
   3 s  event 1 delivery 1 attempt 3: retried, again in 4s: boom
   7 s  event 1 delivery 1 attempt 4: failed, again in 8s: boom
   7 s  event 2 delivery 1 attempt 1: handled
   7 s  HANDLER_FAILED handler=trainers event=TRAINING_PROGRESS offset=1 delivery=1 attempts=4 dead_letter=false
        error=boom
  15 s  event 1 delivery 2 attempt 1: retried, again in 1s: boom
  16 s  event 1 delivery 2 attempt 2: retried, again in 2s: boom
  18 s  event 1 delivery 2 attempt 3: retried, again in 4s: boom
  22 s  event 1 delivery 2 attempt 4: dead: boom
  22 s  HANDLER_FAILED handler=trainers event=TRAINING_PROGRESS offset=1 delivery=2 attempts=4 dead_letter=true
        error=boom
`)
		if sum.Handled != 1 || sum.Failed != 1 || sum.Dead != 1 || sum.Retried != 6 || sum.Attempts != 9 ||
			!slices.Equal(g.letters, []uint64{1}) {
			t.Errorf("%+v, letters %v", sum, g.letters)
		}
	})
}

// While the breaker is open the process is no member of the group and nothing is taken or
// given back: one event decides when its time is over. A retry that succeeds begins the count again.
func TestTheBreakerTakesTheProcessOutOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("", 1), progress("", 2), progress("", 3), progress("", 4)), newTranscript()
		g.say = tr.say
		var calls atomic.Int32
		sum := react(
			t.Context(),
			t,
			g,
			sinks.Options{Retries: 1, Concurrency: 2, Settled: g.settled, OnOutcome: tr.outcome, Publish: tr.publish,
				Sink: sinkFunc(func(_ context.Context, d client.Delivery) error {
					n := calls.Add(1)
					if d.Offset == 2 {
						time.Sleep(100 * time.Millisecond) // after the first
					}
					if n <= 7 && n != 3 {
						return errBoom
					}
					return nil
				})},
		)
		tr.check(t, `
   0 s  joined
   0 s  event 1 delivery 1 attempt 1: retried, again in 1s: boom
   0 s  event 2 delivery 1 attempt 1: retried, again in 1s: boom
   0 s  CIRCUIT_BREAKER_THRESHOLD handler=trainers failures=2
        error=boom
   1 s  event 1 delivery 1 attempt 2: handled
   1 s  event 2 delivery 1 attempt 2: failed, again in 2s: boom
   1 s  event 3 delivery 1 attempt 1: failed, again in 1s: boom
   1 s  event 3 delivery 1 attempt 1: retried, again in 1s: boom
   1 s  event 4 delivery 1 attempt 1: failed, again in 1s: boom
   1 s  left
   1 s  CIRCUIT_BREAKER_THRESHOLD handler=trainers failures=2
        error=boom
   1 s  CIRCUIT_BREAKER_OPENED handler=trainers failures=3 previous=closed
        error=boom
 301 s  joined
 301 s  event 2 delivery 2 attempt 1: failed, again in 1s: boom
 301 s  left
 301 s  CIRCUIT_BREAKER_HALF_OPEN handler=trainers failures=0 previous=open
 301 s  CIRCUIT_BREAKER_OPENED handler=trainers failures=0 previous=half-open
        error=boom
 601 s  joined
 601 s  event 2 delivery 3 attempt 1: handled
 601 s  event 3 delivery 2 attempt 1: handled
 601 s  event 4 delivery 2 attempt 1: handled
 601 s  left
 601 s  CIRCUIT_BREAKER_HALF_OPEN handler=trainers failures=0 previous=open
 601 s  CIRCUIT_BREAKER_CLOSED handler=trainers failures=0 previous=half-open
`)
		if calls.Load() != 10 || sum.Attempts != 10 || sum.Handled != 4 {
			t.Errorf("%d calls, %+v", calls.Load(), sum)
		}
	})
}

// Attempts that run when the process ends may finish; those that take too long are cut off
// and given back as they came; what failed meanwhile has failed.
func TestTheEndDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("", 1), progress("", 2), progress("", 3), progress("", 4)), newTranscript()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		sum := react(
			ctx,
			t,
			g,
			sinks.Options{Concurrency: 3, Retries: 3, Timeout: time.Hour, Drain: 10 * time.Second, OnOutcome: tr.outcome,
				Backoff: time.Minute,
				Sink: sinkFunc(func(ctx context.Context, d client.Delivery) error {
					switch d.Offset {
					case 1:
						time.Sleep(5 * time.Second)
						return nil
					case 2:
						<-ctx.Done()
						return ctx.Err()
					default:
						return errBoom
					}
				})},
		)
		tr.check(t, `
   0 s  event 3 delivery 1 attempt 1: retried, again in 1m0s: boom
   1 s  event 3 delivery 1 attempt 1: failed, again in 1m0s: boom
   5 s  event 1 delivery 1 attempt 1: handled
  11 s  event 2 delivery 1 attempt 1: released: cut off: the process ends: context canceled
`)
		if sum.Handled != 1 || sum.Failed != 1 || sum.Released != 1 || len(g.open) != 3 || g.open[0].deliveries != 0 ||
			g.open[1].deliveries != 1 {
			t.Errorf("%+v, %d open", sum, len(g.open))
		}
	})
}

// An attempt that runs out of time is reported as timed out.
func TestAnAttemptRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("k", 1)), newTranscript()
		sum := react(
			t.Context(),
			t,
			g,
			sinks.Options{
				Timeout:   5 * time.Second,
				Retries:   1,
				Settled:   g.settled,
				Record:    true,
				OnOutcome: tr.outcome,
				Publish:   tr.publish,
				Sink: sinkFunc(func(ctx context.Context, d client.Delivery) error {
					if time.Since(tr.began) < 3*time.Second {
						<-ctx.Done()
						return errBoom
					}
					return nil
				}),
			},
		)
		tr.check(t, `
   5 s  event 1 delivery 1 attempt 1: retried, again in 1s: timed out after 5s: boom
   5 s  HANDLER_TIMEOUT handler=trainers event=TRAINING_PROGRESS offset=1 delivery=1 attempt=1
   6 s  event 1 delivery 1 attempt 2: handled
`)
		if sum.TimedOut != 1 || sum.Longest < 5*time.Second || sum.Median >= 5*time.Second {
			t.Errorf("%+v", sum)
		}
	})
}

// A sink's wish to be left alone is kept: within the delivery if it is short, else the
// event is redelivered after it. One that cannot be repaired is dead at once, and only what
// is the sink's fault moves the breaker.
func TestWhatAFailureSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("", 1), progress("", 2), progress("", 3), progress("", 4)), newTranscript()
		sum := react(
			t.Context(),
			t,
			g,
			sinks.Options{
				Retries:   1,
				Breaker:   breaker.Config{Failures: 4},
				Settled:   g.settled,
				OnOutcome: tr.outcome,
				Publish:   tr.publish,
				Sink: sinkFunc(func(_ context.Context, d client.Delivery) error {
					switch {
					case d.Offset == 1 && d.Count == 1:
						return &sinks.Error{Err: errBoom, After: 30 * time.Second}
					case d.Offset == 2:
						return &sinks.Error{Err: errBoom, Dead: true, Event: true}
					case d.Offset == 3:
						return &sinks.Error{Err: errBoom, Dead: true}
					case d.Offset == 4 && d.Count == 1:
						return &sinks.Error{Err: errBoom, After: 10 * time.Minute}
					}
					return nil
				}),
			},
		)
		tr.check(t, `
   0 s  event 1 delivery 1 attempt 1: retried, again in 30s: boom
  30 s  event 1 delivery 1 attempt 2: failed, again in 30s: boom
  30 s  event 2 delivery 1 attempt 1: dead: boom
  30 s  event 3 delivery 1 attempt 1: dead: boom
  30 s  event 4 delivery 1 attempt 1: failed, again in 10m0s: boom
  60 s  event 1 delivery 2 attempt 1: handled
 630 s  event 4 delivery 2 attempt 1: handled
`)
		if sum.Dead != 2 || !slices.Equal(g.letters, []uint64{2, 3}) {
			t.Errorf("%+v, letters %v", sum, g.letters)
		}
	})
}

// Concurrency is a bound, and used; a key's events are one after the other.
func TestConcurrencyAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newMemGroup()
		for i := range 30 {
			ev := progress(fmt.Sprint("k", i%5), i)
			ev.Offset = uint64(i + 1)
			g.open = append(g.open, &memEvent{Event: ev})
		}
		var mu sync.Mutex
		running, most, last := 0, 0, map[string]uint64{}
		sum := react(t.Context(), t, g, sinks.Options{Concurrency: 3, Settled: g.settled,
			Sink: sinkFunc(func(_ context.Context, d client.Delivery) error {
				mu.Lock()
				running++
				most = max(most, running)
				if d.Offset <= last[d.Key] {
					t.Errorf("%d of %s after %d", d.Offset, d.Key, last[d.Key])
				}
				last[d.Key] = d.Offset
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
				return nil
			})})
		if sum.Handled != 30 || most != 3 {
			t.Errorf("%+v, %d at once", sum, most)
		}
	})
}

// A run ends after that many deliveries, without taking more; what does not meet the
// condition is passed, and counts for nothing.
func TestCountAndCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newMemGroup(progress("", 1), progress("", 2), progress("", 3), progress("", 4), progress("", 5))
		condition, err := where.Compile("payload.n != 2")
		if err != nil {
			t.Fatal(err)
		}
		sum := react(t.Context(), t, g, sinks.Options{Concurrency: 4, Count: 3, Where: condition,
			Sink: sinkFunc(func(_ context.Context, d client.Delivery) error { time.Sleep(time.Second); return nil })})
		if sum.Handled != 3 || sum.Filtered != 1 || len(g.open) != 1 || g.open[0].Offset != 5 || g.open[0].deliveries != 0 {
			t.Errorf("%+v, %d open", sum, len(g.open))
		}
	})
}

// A group that cannot be joined at first is an error; later it is waited for.
func TestJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ok := sinkFunc(func(context.Context, client.Delivery) error { return nil })
		r, err := sinks.NewReactor(
			sinks.Options{Group: "g", Sink: ok, Join: func(context.Context, int) (sinks.Member, error) { return nil, errBoom }},
		)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("%v", err)
		}

		g, joins, calls := newMemGroup(progress("", 1)), 0, 0
		r, err = sinks.NewReactor(sinks.Options{Group: "g", Settled: g.settled, Breaker: breaker.Config{Failures: 1},
			Join: func(ctx context.Context, hold int) (sinks.Member, error) {
				if joins++; joins == 2 {
					return nil, errBoom
				}
				return g.join(ctx, hold)
			},
			Sink: sinkFunc(func(context.Context, client.Delivery) error {
				if calls++; calls == 1 {
					return errBoom
				}
				return nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := r.Run(t.Context()); err != nil || sum.Handled != 1 || joins != 3 {
			t.Errorf("%+v, %d joins, %v", sum, joins, err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	ok := sinkFunc(func(context.Context, client.Delivery) error { return nil })
	for name, o := range map[string]sinks.Options{
		"nothing":  {},
		"negative": {Group: "g", Sink: ok, Join: newMemGroup().join, Retries: -1},
		"breaker":  {Group: "g", Sink: ok, Join: newMemGroup().join, Breaker: breaker.Config{Failures: -1}},
	} {
		if _, err := sinks.NewReactor(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
