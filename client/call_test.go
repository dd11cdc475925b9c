package client_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// outcome is what Call returns.
type outcome struct {
	client.CallResult
	err error
}

// callOf starts a call that ends with the test.
func callOf(t *testing.T, c *client.Client, ev event.Event, o client.CallOptions) <-chan outcome {
	done := make(chan outcome, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	go func() {
		r, err := c.Call(ctx, ev, o)
		done <- outcome{r, err}
	}()
	return done
}

// inRun is an event of a run that no other is like.
func inRun(kind event.Type, run string, payload any) event.Event {
	ev := event.New(kind, payload)
	ev.CorrelationID, ev.NoDedup = run, true
	return ev
}

func publishOK(t *testing.T, c *client.Client, ev event.Event) client.Result {
	t.Helper()
	r, err := c.Publish(t.Context(), ev)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestACallGetsTheOutcomeOfItsRun(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	started := map[string]string{"config_key": "hex8_2p"}
	for _, test := range []struct {
		name    string
		reply   event.Event
		options client.CallOptions
		success bool
		why     string
	}{
		{"success", inRun(event.TrainingCompleted, "", nil), client.CallOptions{}, true, ""},
		{"failure", inRun(event.TrainingFailed, "", map[string]any{"error": "no gpu"}), client.CallOptions{},
			false, "no gpu"},
		{"reason", inRun(event.TrainingFailed, "", map[string]any{"reason": "late", "error": 7}), client.CallOptions{},
			false, "late"},
		{"nameless", inRun(event.TrainingFailed, "", nil), client.CallOptions{}, false, "TRAINING_FAILED"},
		{"unsuccessful", inRun(event.TrainingCompleted, "", map[string]any{"success": false, "message": "nan"}),
			client.CallOptions{}, false, "nan"},
		{"own", inRun("CALL_DONE", "", nil), client.CallOptions{Replies: []event.Type{"call.done"}}, true, ""},
		{"turned", inRun(event.TrainingFailed, "", nil),
			client.CallOptions{Replies: []event.Type{event.TrainingFailed}}, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := "run-" + test.name
			// What is in the log before, of another run, or about another event, answers nothing.
			test.reply.CorrelationID = run
			before := publishOK(t, c, test.reply)
			done := callOf(t, c, inRun(event.TrainingStarted, run, started), test.options)
			until(t, "the event is in the log", func() bool {
				ev, err := c.Get(t.Context(), before.Offset+1)
				return err == nil && ev.Type == event.TrainingStarted
			})
			other := test.reply
			other.CorrelationID = "another"
			publishOK(t, c, other)
			for _, p := range []map[string]any{{"offset": before.Offset + 1, "dead_letter": true},
				{"offset": before.Offset, "answer": true}} {
				publishOK(t, c, inRun(event.HandlerFailed, run, p))
			}
			reply := publishOK(t, c, test.reply)

			got := <-done
			if got.err != nil || got.Success != test.success || got.Error != test.why || got.CorrelationID != run ||
				got.Offset != before.Offset+1 || got.Reply.Offset != reply.Offset || got.Duplicate || got.Duration < 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestADuplicateCallGetsTheOutcomeOfTheOriginal(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	// Its id is in the payload alone, as old daemons send it.
	original := event.New(event.TrainingStarted, map[string]string{"correlation_id": "original"})
	first := publishOK(t, c, original)
	reply := publishOK(t, c, inRun(event.TrainingCompleted, "original", nil))
	got := <-callOf(t, c, original, client.CallOptions{})
	if got.err != nil || !got.Success || !got.Duplicate || got.Offset != first.Offset ||
		got.CorrelationID != "original" || got.Reply.Offset != reply.Offset {
		t.Errorf("%+v", got)
	}
	// A run without an id has no outcome that could be found.
	lone := event.New(event.TrainingStarted, map[string]string{"config_key": "lone"})
	publishOK(t, c, lone)
	got = <-callOf(t, c, lone, client.CallOptions{})
	if got.err == nil || !strings.Contains(got.err.Error(), "no correlation id") {
		t.Errorf("%+v", got)
	}
}

// As the platform sends them: without correlation ids, the run in the payload.
func TestACallFollowsARunByPayloadFields(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	if _, err := c.Admin().RegisterFlows(t.Context(), event.Flow{Name: "training_pipeline",
		RunBy: []string{"config_key", "iteration"}}); err != nil {
		t.Fatal(err)
	}
	type run = map[string]any
	completed := func(payload run) event.Event { return inRun(event.TrainingCompleted, "", payload) }
	for i, test := range []struct {
		name    string
		reply   event.Event
		success bool
	}{
		{"a stage of the run", completed(run{"config_key": "hex8", "iteration": 7}), true},
		{"a failure that is no stage", inRun(event.TrainingFailed, "", run{"config_key": "hex8", "iteration": "7"}), false},
		{"another correlation id", inRun(event.TrainingCompleted, "other", run{"config_key": "hex8", "iteration": 7}), true},
		{"the correlation id without the fields", inRun(event.TrainingCompleted, "run", run{"config_key": "hex8"}), true},
		{"the cause without the fields",
			event.Event{Type: event.TrainingCompleted, CausationID: "caused", NoDedup: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			begins := inRun(event.TrainingStarted, "", run{"config_key": "hex8", "iteration": 7})
			if test.reply.CorrelationID == "run" {
				begins.CorrelationID = "run"
			}
			before := publishOK(t, c, test.reply).Offset
			done := callOf(t, c, begins, client.CallOptions{})
			until(t, "the event is in the log", func() bool {
				ev, err := c.Get(t.Context(), before+1)
				return err == nil && ev.Type == event.TrainingStarted
			})
			// Other runs, one of them with the correlation id of this one.
			publishOK(t, c, completed(run{"config_key": "hex8", "iteration": 8}))
			publishOK(t, c, completed(run{"config_key": "hex8"}))
			publishOK(t, c, inRun(event.TrainingCompleted, begins.CorrelationID, run{"config_key": "sq8", "iteration": 7}))
			if test.reply.CausationID != "" {
				test.reply.CausationID = strconv.FormatUint(before+1, 10)
			}
			reply := publishOK(t, c, test.reply).Offset
			got := <-done
			if got.err != nil || got.Success != test.success || got.Offset != before+1 || got.Reply.Offset != reply {
				t.Errorf("%d: %+v, want the reply %d", i, got, reply)
			}
		})
	}

	// The outcome of an event that was published without a correlation id, and the error without one.
	original := event.New(event.TrainingStarted, run{"config_key": "hex8", "iteration": 9})
	publishOK(t, c, original)
	reply := publishOK(t, c, completed(run{"config_key": "hex8", "iteration": 9}))
	got := <-callOf(t, c, original, client.CallOptions{})
	if got.err != nil || !got.Success || !got.Duplicate || got.CorrelationID != "" || got.Reply.Offset != reply.Offset {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	alone := inRun(event.TrainingStarted, "", run{"config_key": "hex8", "iteration": 10})
	_, err := c.Call(ctx, alone, client.CallOptions{})
	if err == nil || !strings.Contains(err.Error(), "run config_key=hex8,iteration=10 or ") {
		t.Error(err)
	}
}

func TestACallOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	answering, dead := openDoor(t, n.server.Handler()), openDoor(t, n.server.Handler())
	dead.faults(func(*http.Request) fault { return fault{cutBefore: true} })
	const timeout = 600 * time.Millisecond
	c := dial(t, client.Config{Timeout: timeout}, dead, answering)
	// Reads find no leader for longer than the client repeats a call.
	var since atomic.Int64
	answering.faults(func(r *http.Request) fault {
		if !isStream(r) {
			return fault{}
		}
		now := time.Now().UnixNano()
		since.CompareAndSwap(0, now)
		if time.Duration(now-since.Load()) < 2*timeout {
			return fault{answer: &api.Error{Code: api.NoLeader, Message: "test"}}
		}
		return fault{}
	})
	done := callOf(t, c, inRun(event.TrainingStarted, "outage", nil), client.CallOptions{})
	until(t, "the call reads", func() bool { return since.Load() > 0 })
	patient := dial(t, client.Config{}, answering)
	publishOK(t, patient, inRun(event.TrainingCompleted, "outage", nil))
	if got := <-done; got.err != nil || !got.Success {
		t.Errorf("%+v", got)
	}
}

func TestACallWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	c := dial(t, client.Config{}, openDoor(t, n.server.Handler()))
	unknown := event.New("CALL_ASKED", nil)
	if _, err := c.Call(t.Context(), unknown, client.CallOptions{}); !errors.Is(err, client.ErrNoReply) {
		t.Errorf("a type without a reply: %v", err)
	}
	both := client.CallOptions{Replies: []event.Type{"A_DONE"}, Failures: []event.Type{"a.done"}}
	if _, err := c.Call(t.Context(), unknown, both); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("a type that is both: %v", err)
	}
	for ev, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true, Consistency: client.Linearizable,
		Filter: event.Filter{Types: []string{"CALL_ASKED"}}}) {
		t.Errorf("a refused call has published %d: %v", ev.Offset, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got, err := c.Call(ctx, event.New(event.TrainingStarted, nil), client.CallOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || got.Offset == 0 || got.CorrelationID == "" ||
		!strings.Contains(err.Error(), got.CorrelationID) {
		t.Errorf("%+v: %v", got, err)
	}
}
