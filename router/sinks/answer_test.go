package sinks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

// What no repetition can publish is not repeated, and neither is the handler: the event is a dead letter.
func TestARefusedAnswerMakesADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("k", 1)), newTranscript()
		sum := react(t.Context(), t, g, sinks.Options{
			Settled: g.settled, OnOutcome: tr.outcome,
			Answer:  func(event.Type, bool) event.Type { return event.TrainingCompleted },
			Publish: func(context.Context, event.Event) error { return &api.Error{Code: api.InvalidArgument, Message: "no"} },
			Sink:    sinkFunc(func(context.Context, client.Delivery) error { return nil }),
		})
		tr.check(t, `
   0 s  event 1 delivery 1 attempt 1: dead: handled, but not answered: invalid_argument: no
`)
		if len(g.letters) != 1 || sum.Dead != 1 {
			t.Errorf("%+v, letters %v", sum, g.letters)
		}
	})
}

// An event that waits for its answer goes back to the group when the reactor ends, as nobody handled it.
func TestAnEventWithoutItsAnswerIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("k", 1)), newTranscript()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		sum := react(ctx, t, g, sinks.Options{
			OnOutcome: tr.outcome,
			Answer:    func(event.Type, bool) event.Type { return event.TrainingCompleted },
			Publish:   func(context.Context, event.Event) error { return errors.New("no quorum") },
			Sink:      sinkFunc(func(context.Context, client.Delivery) error { return nil }),
		})
		tr.check(t, `
  10 s  event 1 delivery 1 attempt 1: released: handled, but not answered: no quorum
`)
		if sum.Handled != 0 || sum.Released != 1 || sum.Attempts != 1 {
			t.Errorf("%+v", sum)
		}
	})
}

// An event is acknowledged only once its answer is in the log; a failure is answered when it is final.
func TestOutcomesAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tr := newMemGroup(progress("k", 1), progress("k", 2)), newTranscript()
		var answers []event.Event
		refused := map[string]bool{} // by DedupID
		sum := react(t.Context(), t, g, sinks.Options{
			Settled: g.settled, OnOutcome: tr.outcome,
			Answer: func(_ event.Type, success bool) event.Type {
				if success {
					return event.TrainingCompleted
				}
				return event.HandlerFailed
			},
			Publish: func(_ context.Context, ev event.Event) error {
				if !refused[ev.DedupID] {
					refused[ev.DedupID] = true
					return errors.New("no quorum")
				}
				answers = append(answers, ev)
				return nil
			},
			Sink: sinkFunc(func(_ context.Context, d client.Delivery) error {
				time.Sleep(time.Second)
				if d.Offset == 2 {
					return &sinks.Error{Err: errBoom, Dead: true, Event: true}
				}
				return nil
			}),
		})
		tr.check(t, `
   2 s  event 1 delivery 1 attempt 1: handled
   4 s  event 2 delivery 1 attempt 1: dead: boom
`)
		if len(answers) != 2 || sum.Handled != 1 || sum.Dead != 1 {
			t.Fatalf("%+v, answers %v", sum, answers)
		}
		for i, want := range []string{`"success":true`, `"answer":true`} {
			a := answers[i]
			if !strings.Contains(string(a.Payload), want) || a.Key != "k" || a.DedupID == "" ||
				a.CausationID != []string{"1", "2"}[i] {
				t.Errorf("answer %d: %+v %s", i+1, a, a.Payload)
			}
		}
	})
}
