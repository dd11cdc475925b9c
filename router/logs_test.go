package router_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// bothLogs runs a test on the log in memory and on that of a node.
func bothLogs(t *testing.T, test func(t *testing.T, log router.Log)) {
	t.Run("memory", func(t *testing.T) { test(t, newMemLog()) })
	t.Run("node", func(t *testing.T) { test(t, embedded(t)) })
}

// The log that the other tests use behaves as the real one.
func TestLogs(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		ctx := t.Context()
		before, err := log.Last(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ev := progress("k", 1)
		ev.DedupID = "once"
		first, err := log.Publish(ctx, []event.Event{ev})
		if err != nil || first[0].Offset <= before || first[0].Duplicate {
			t.Fatalf("%+v, %v, the last was %d", first, err, before)
		}
		again, err := log.Publish(ctx, []event.Event{ev})
		if err != nil || again[0].Offset != first[0].Offset || !again[0].Duplicate {
			t.Fatalf("%+v, %v", again, err)
		}
		rows, err := log.Publish(ctx, []event.Event{progress("k", 2), event.New("training.completed", nil)})
		if err != nil || rows[1].Offset != rows[0].Offset+1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		if _, err := log.Publish(ctx, []event.Event{progress("k", 3), event.New("A B", nil)}); !errors.Is(
			err,
			router.ErrRefused,
		) {
			t.Fatalf("a bad event: %v", err)
		}
		last, err := log.Last(ctx)
		if err != nil || last != rows[1].Offset {
			t.Fatalf("last %d, %v", last, err)
		}
		var tailed []uint64
		for ev, err := range log.Tail(ctx, client.TailOptions{From: client.FromOffset(first[0].Offset), NoFollow: true,
			Filter: event.Filter{Types: []string{"TRAINING_PROGRESS"}}}) {
			if err != nil {
				t.Fatal(err)
			}
			tailed = append(tailed, ev.Offset)
		}
		if diff := cmp.Diff([]uint64{first[0].Offset, rows[0].Offset}, tailed); diff != "" {
			t.Error(diff)
		}
		checkCursor(t, log, rows)
	})
}

func checkCursor(t *testing.T, log router.Log, rows []client.Result) {
	ctx := t.Context()
	o := client.CursorOptions{From: client.FromOffset(rows[0].Offset), Filter: event.Filter{Types: []string{"training.*"}}}
	cur, err := log.OpenCursor(ctx, "c", o)
	if err != nil || cur.Info().Committed != rows[0].Offset-1 || cur.Info().Generation != 1 {
		t.Fatalf("%+v, %v", cur.Info(), err)
	}
	defer cur.Close()
	events, err := cur.NextBatch(ctx)
	if err != nil || len(events) != 2 || events[1].Type != event.TrainingCompleted {
		t.Fatalf("%+v, %v", events, err)
	}
	if err := cur.Commit(ctx, rows[0].Offset); err != nil {
		t.Fatal(err)
	}
	if _, err := log.OpenCursor(ctx, "c", client.CursorOptions{Filter: event.Filter{Types: []string{"X"}}}); !errors.Is(
		err,
		router.ErrRefused,
	) {
		t.Fatalf("another filter: %v", err)
	}
	second, err := log.OpenCursor(ctx, "c", o)
	if err != nil || second.Info().Committed != rows[0].Offset || second.Info().Generation != 2 {
		t.Fatalf("%+v, %v", second.Info(), err)
	}
	defer second.Close()
	if err := cur.Commit(ctx, rows[1].Offset); !errors.Is(err, router.ErrFenced) {
		t.Fatalf("a commit of the first opening: %v", err)
	}
	if _, err := cur.NextBatch(ctx); !errors.Is(err, router.ErrFenced) {
		t.Fatalf("a read of the first opening: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if events, err := second.NextBatch(ctx); err != nil || len(events) != 1 {
		t.Fatalf("%+v, %v", events, err)
	}
	if _, err := second.NextBatch(done); !errors.Is(err, context.Canceled) {
		t.Fatalf("a read without time: %v", err)
	}
}

// A subscription without From begins at the start of the log if the log keeps its place, and else at the end.
func TestWhereSubscriptionsBegin(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		r := open(t, log, router.Options{})
		publish(t, r, progress("k", 0))
		var live, durable, shared seen
		types := []string{"TRAINING_PROGRESS"}
		subscribe(t, r, router.Subscription{Name: "live", Types: types, Handler: live.handle})
		subscribe(t, r, router.Subscription{Name: "durable", Types: types, Durable: true, Handler: durable.handle})
		want := map[*seen]string{&live: "k1", &durable: "k0 k1"}
		if _, ok := log.(router.Groups); ok {
			subscribe(t, r, router.Subscription{Name: "shared", Types: types, Group: "trainers", Handler: shared.handle})
			want[&shared] = "k0 k1"
		}
		publish(t, r, progress("k", 1))
		for got, numbers := range want {
			eventually(t, numbers, func() bool { return strings.HasSuffix(got.numbers(), "k1") })
			if got.numbers() != numbers {
				t.Errorf("%s was handled, want %s", got.numbers(), numbers)
			}
		}
	})
}

// Events that one process publishes come to the handlers of another through the log, exactly as
// to its own, once each; a direct one sees its own process's only, and a local event stays
// in the process.
func TestEventsReachHandlersOfAllProcessesOnce(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		const each = 50
		var durable, passing, direct [2]seen
		var routers [2]*router.Router
		for i := range routers {
			r := open(t, log, router.Options{Source: fmt.Sprintf("p%d", i)})
			routers[i] = r
			types := []string{"training.*"}
			subscribe(
				t,
				r,
				router.Subscription{Name: fmt.Sprintf("durable-%d", i), Types: types, Durable: true, Handler: durable[i].handle},
			)
			subscribe(t, r, router.Subscription{Name: "passing", Types: types, Handler: passing[i].handle})
			subscribe(t, r, router.Subscription{Name: "direct", Types: types, Direct: true, Handler: direct[i].handle})
		}
		var once event.Event
		for n := range each {
			for i, r := range routers {
				ev := progress(fmt.Sprintf("p%d-", i), n)
				if res := publish(t, r, ev); res.Local || res.Duplicate {
					t.Fatalf("%+v", res)
				}
			}
		}
		once = progress("dup", 0)
		once.DedupID = "once"
		publish(t, routers[0], once)
		if res := publish(t, routers[1], once); !res.Duplicate {
			t.Fatalf("%+v", res)
		}
		publish(t, routers[0], progress("local", 0), router.Local())
		const logged = 2*each + 1
		eventually(t, "all handlers have all", func() bool {
			return len(durable[0].all()) == logged+1 && len(passing[0].all()) == logged+1 && len(direct[0].all()) == each+2 &&
				len(durable[1].all()) == logged && len(passing[1].all()) == logged && len(direct[1].all()) == each
		})
		for _, r := range routers {
			shut(t, r)
		}
		fromLog := func(s *seen) (out []event.Event) {
			for _, ev := range s.all() {
				if ev.Offset > 0 {
					out = append(out, ev)
				}
			}
			return out
		}
		want := fromLog(&durable[0])
		for _, s := range []*seen{&durable[1], &passing[0], &passing[1]} {
			if diff := cmp.Diff(want, fromLog(s), cmpopts.IgnoreUnexported(event.Event{})); diff != "" {
				t.Fatalf("handlers differ: %s", diff)
			}
		}
		if len(want) != logged || want[0].Term == 0 || want[0].AppendedAt.IsZero() {
			t.Errorf("%d events, the first is %+v", len(want), want[0])
		}
		for _, ev := range direct[1].all() {
			if ev.Key != "p1-" || ev.Offset == 0 {
				t.Errorf("the direct handler of p1 got %+v", ev)
			}
		}
		if last := durable[1].all(); last[len(last)-1].Key == "local" {
			t.Error("a local event left its process")
		}
	})
}

// A durable subscription resumes where the process before it was, and the same handler
// in a second process fences the first off.
func TestADurableSubscriptionGoesOn(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		var all seen
		trainer := router.Subscription{
			Name:    "trainer",
			Types:   []string{"TRAINING_PROGRESS"},
			Durable: true,
			Handler: all.handle,
		}
		for life := range 3 {
			r := open(t, log, router.Options{})
			sub := subscribe(t, r, trainer)
			for n := range 10 {
				publish(t, r, progress("k", 10*life+n))
			}
			eventually(t, "its events are handled", func() bool { return len(all.all()) == 10*(life+1) })
			shut(t, r)
			if st := sub.Status(); st.State != router.Closed || st.Committed != st.LastOffset || st.Uncommitted != 0 {
				t.Errorf("%+v", st)
			}
		}
		for i, ev := range all.all() {
			if number(ev) != i {
				t.Fatalf("event %d is %d", i, number(ev))
			}
		}
		first, second := open(t, log, router.Options{}), open(t, log, router.Options{})
		trainer.Critical = true
		fenced := subscribe(t, first, trainer)
		subscribe(t, second, trainer)
		publish(t, first, progress("k", 30))
		eventually(t, "the first is fenced", func() bool { return fenced.Status().State == router.Fenced })
		if err := first.Ready(t.Context()); !errors.Is(err, router.ErrFenced) {
			t.Errorf("ready: %v", err)
		}
		eventually(t, "the second has it", func() bool { return second.Subscribers()[0].Handled == 1 })
	})
}

// A durable subscription whose filter has changed is refused, unless it says that its
// cursor is to change too: then it resumes where it was, with the new filter.
func TestAFilterChangesWhereTheCursorStands(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		var all seen
		r := open(t, log, router.Options{})
		narrow := router.Subscription{
			Name:    "trainer",
			Types:   []string{"TRAINING_PROGRESS"},
			Durable: true,
			Handler: all.handle,
		}
		wide := narrow
		wide.Types = []string{"training.*"}
		sub := subscribe(t, r, narrow)
		before := publish(t, r, event.New(event.TrainingStarted, nil)).Offset
		publish(t, r, progress("k", 1))
		eventually(t, "the first is committed", func() bool { return sub.Status().Committed > before })
		if err := sub.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, r, event.New(event.TrainingCompleted, nil))
		publish(t, r, progress("k", 2))
		if _, err := r.Subscribe(t.Context(), wide); !errors.Is(err, router.ErrRefused) ||
			strings.Contains(err.Error(), "\n") {
			t.Fatalf("another filter: %v", err)
		}
		for range 2 { // the second time it is the cursor's own
			wide.Change = true
			sub = subscribe(t, r, wide)
			eventually(t, "all is committed", func() bool { return sub.Status().Committed >= before+3 })
			if err := sub.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var types []string
		for _, ev := range all.all() {
			types = append(types, string(ev.Type))
		}
		if diff := cmp.Diff([]string{"TRAINING_PROGRESS", "TRAINING_COMPLETED", "TRAINING_PROGRESS"}, types); diff != "" {
			t.Error(diff)
		}
		wide.Types = nil
		sub = subscribe(t, r, wide)
		publish(t, r, event.New("HEARTBEAT", nil))
		eventually(t, "every event", func() bool { got := all.all(); return got[len(got)-1].Type == "HEARTBEAT" })
	})
}

// What a handler publishes, with the router or with a client of its own, belongs to the run of its event.
func TestWhatAHandlerPublishesInherits(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		r := open(t, log, router.Options{})
		published := make(chan router.Result, 1)
		_, err := r.Subscribe(t.Context(), router.Subscription{Name: "heir", Types: []string{"TRAINING_STARTED"},
			Handler: func(ctx context.Context, _ event.Event) error {
				res, err := r.Publish(ctx, event.New("TRAINING_COMPLETED", nil))
				published <- res
				return err
			}})
		if err != nil {
			t.Fatal(err)
		}
		started := event.New("TRAINING_STARTED", nil)
		started.CorrelationID = "run-7"
		cause, err := r.Publish(t.Context(), started)
		if err != nil {
			t.Fatal(err)
		}
		got := (<-published).Offset
		for ev, err := range log.Tail(t.Context(), client.TailOptions{From: client.FromOffset(got), NoFollow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.CorrelationID != "run-7" || ev.CausationID != fmt.Sprint(cause.Offset) {
				t.Errorf("run %q, cause %q; the cause is %d", ev.CorrelationID, ev.CausationID, cause.Offset)
			}
		}
	})
}
