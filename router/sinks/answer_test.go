package sinks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

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
   1 s  event 1 delivery 1 attempt 1: failed: handled, but not answered: no quorum
   2 s  event 1 delivery 1 attempt 1: handled
   3 s  event 2 delivery 1 attempt 1: failed: boom, but not answered: no quorum
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
