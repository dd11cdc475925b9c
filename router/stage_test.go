package router_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/router"
)

// pipeline is one run through the flow training_pipeline, without its branch.
var pipeline = []event.Type{
	event.SelfplayComplete,
	event.NewGamesAvailable,
	event.DataSyncCompleted,
	event.TrainingThresholdReached,
	event.TrainingStarted,
	event.TrainingCompleted,
	event.EvaluationStarted,
	event.EvaluationCompleted,
	event.PromotionCandidate,
	event.ModelPromoted,
}

func stage(id string, t event.Type) event.Event {
	ev := event.New(t, map[string]any{"config_key": id})
	ev.CorrelationID = id
	return ev
}

// arrivals collects what a stage handler is called with: by run, in order.
type arrivals struct {
	mu  sync.Mutex
	all map[string][]router.Stage
}

func (a *arrivals) arrive(_ context.Context, at router.Stage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string][]router.Stage{}
	}
	a.all[at.Event.CorrelationID] = append(a.all[at.Event.CorrelationID], at)
	return nil
}

func (a *arrivals) of(id string) []router.Stage {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]router.Stage(nil), a.all[id]...)
}

func (a *arrivals) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, list := range a.all {
		n += len(list)
	}
	return n
}

// course describes a run's stages in short.
func course(at router.Stage) string {
	var types []string
	for _, e := range at.Chain.Events {
		types = append(types, string(e.Type))
	}
	return strings.Join(types, " ")
}

// courseOf is what course is to be after n stages of the pipeline.
func courseOf(n int) string {
	var types []string
	for _, t := range pipeline[:n] {
		types = append(types, string(t))
	}
	return strings.Join(types, " ")
}

// A subscription to stages of a flow gets each with the run so far, whatever process
// published it and however many runs are under way, also what was before it subscribed,
// and in a process that begins in the middle.
func TestStagesComeWithTheirRun(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		const ids = 6
		var all, some arrivals
		evaluator := router.Subscription{
			Name:        "evaluator",
			Durable:     true,
			From:        client.FromEnd(),
			Flow:        "training_pipeline",
			Stages:      []string{"training.*", "promotion_candidate"},
			OnStage:     some.arrive,
			Runs:        2,
			Concurrency: 3,
		}
		var routers [2]*router.Router
		for i := range routers {
			routers[i] = open(t, log, router.Options{Source: fmt.Sprintf("p%d", i)})
		}
		const mark = 4 // stages before anybody listens
		upTo := func(from, to int) {
			for n := from; n < to; n++ {
				for id := range ids {
					publish(t, routers[n%2], stage(fmt.Sprint("run-", id), pipeline[n]))
					publish(t, routers[n%2], stage(fmt.Sprint("run-", id), event.TrainingProgress))
				}
			}
		}
		upTo(0, mark)
		subscribe(t, routers[0], router.Subscription{Name: "all", Flow: "training_pipeline", OnStage: all.arrive})
		second := subscribe(t, routers[1], evaluator)
		upTo(mark, 6)
		eventually(t, "the first half", func() bool { return all.count() == 2*ids && some.count() == 2*ids })
		if err := second.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		third := subscribe(t, routers[0], evaluator)
		upTo(6, len(pipeline))
		eventually(t, "the rest", func() bool { return all.count() == (len(pipeline)-mark)*ids && some.count() == 3*ids })
		for id := range ids {
			name := fmt.Sprint("run-", id)
			for i, at := range all.of(name) {
				if got, want := course(at), courseOf(mark+i+1); got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
				via := at.Via()
				if len(via) != 1 || via[0].From != pipeline[mark+i-1] || via[0].State != stages.Taken || via[0].Seconds < 0 {
					t.Errorf("%s: via %+v", name, via)
				}
			}
			got := some.of(name)
			for i, n := range []int{5, 6, 9} {
				if course(got[i]) != courseOf(n) || got[i].Event.Type != pipeline[n-1] {
					t.Errorf("%s: %s, want %s", name, course(got[i]), courseOf(n))
				}
			}
			if next := got[2].Run().Next; len(next) != 2 || next[0].To != event.ModelPromoted {
				t.Errorf("%s: next %+v", name, next)
			}
		}
		if st := third.Status(); st.Flow != "training_pipeline" ||
			strings.Join(st.Types, " ") != "PROMOTION_CANDIDATE TRAINING_COMPLETED TRAINING_STARTED TRAINING_THRESHOLD_REACHED" {
			t.Errorf("%+v", st)
		}
	})
}

// How long each stage took, and what was skipped, follows from when they were appended.
func TestAStageTellsHowItWasReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, newMemLog(), router.Options{})
		var all arrivals
		subscribe(t, r, router.Subscription{Name: "recovery", Flow: "health_recovery", OnStage: all.arrive})
		publish(t, r, stage("a", event.NodeUnhealthy))
		time.Sleep(90 * time.Second)
		publish(t, r, stage("a", event.RecoveryInitiated))
		time.Sleep(10 * time.Second)
		publish(t, r, stage("a", event.NodeRecovered))
		synctest.Wait()
		publish(t, r, stage("a", event.RecoveryInitiated), router.Local())
		publish(t, r, stage("", event.NodeUnhealthy))
		synctest.Wait()
		at := all.of("a")
		if via := at[1].Via(); len(via) != 1 || via[0].Seconds != 90 || at[1].Chain.Seconds != 90 {
			t.Errorf("%+v", at[1])
		}
		if via := at[2].Via(); len(via) != 1 || via[0].State != stages.Skipped || via[0].From != event.RecoveryCompleted {
			t.Errorf("%+v", via)
		}
		if course(at[3]) != "NODE_UNHEALTHY RECOVERY_INITIATED NODE_RECOVERED RECOVERY_INITIATED" || at[3].Event.Offset != 0 {
			t.Errorf("a local one: %s", course(at[3]))
		}
		if alone := all.of(""); len(alone) != 1 || course(alone[0]) != "NODE_UNHEALTHY" || len(alone[0].Via()) != 0 {
			t.Errorf("%+v", alone)
		}
		rep, err := r.Replay(t.Context(), "recovery", router.Query{})
		if again := all.of("a"); err != nil || rep.Handled != 4 || course(again[5]) != course(at[1]) {
			t.Errorf("%+v, %v: %s", rep, err, course(again[5]))
		}
	})
}

// slowTail is a log that takes a second to find a run's events.
type slowTail struct{ *memLog }

func (l slowTail) Tail(ctx context.Context, o client.TailOptions) iter.Seq2[event.Event, error] {
	if len(o.Filter.CorrelationIDs) > 0 {
		time.Sleep(time.Second)
	}
	return l.memLog.Tail(ctx, o)
}

// A run of any length takes bounded memory: the newest stages are reported, and how many were
// left out, whether they were read now or remembered.
func TestALongRunIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, slowTail{newMemLog()}, router.Options{})
		const before, after, most = 300, 800, 256
		long := func(n int, typ event.Type) {
			for range n {
				publish(t, r, stage("long", typ))
			}
		}
		long(before, event.SelfplayComplete)
		var early, late arrivals
		waiting := make(chan struct{})
		subscribe(t, r, router.Subscription{Name: "early", Flow: "training_pipeline", OnStage: early.arrive, Queue: 100})
		subscribe(
			t,
			r,
			router.Subscription{Name: "late", Flow: "training_pipeline", Stages: []string{"NEW_GAMES_AVAILABLE"}, Queue: 100,
				OnStage: func(ctx context.Context, at router.Stage) error { <-waiting; return late.arrive(ctx, at) }},
		)
		publish(t, r, stage("", event.NewGamesAvailable)) // what comes next waits for it
		long(1, event.NewGamesAvailable)
		long(after/4, event.SelfplayComplete)
		time.Sleep(time.Minute)
		close(waiting)
		time.Sleep(500 * time.Millisecond)
		long(after*3/4, event.SelfplayComplete) // while the run is read
		long(1, event.NewGamesAvailable)
		time.Sleep(time.Hour)
		all := early.of("long")
		for i, at := range all {
			stands := before + i + 1
			if reported := len(at.Chain.Events); reported != most+1 ||
				uint64(reported)+at.Chain.Scope.LeftOut != uint64(stands) {
				t.Fatalf("stage %d of the run: %d reported, %d left out", stands, reported, at.Chain.Scope.LeftOut)
			}
		}
		ends := late.of("long")
		if len(all) != after+2 || len(ends) != 2 {
			t.Fatalf("%d stages, and %d", len(all), len(ends))
		}
		for i, want := range []router.Stage{all[0], all[after+1]} {
			if diff := cmp.Diff(want.Chain, ends[i].Chain); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// While the log cannot be read back, the stage waits: that is no failure of
// its handler.
func TestAStageWaitsForItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{})
		var all arrivals
		first := true
		publish(t, r, stage("a", event.SelfplayComplete))
		sub := subscribe(
			t,
			r,
			router.Subscription{
				Name:    "s",
				Flow:    "training_pipeline",
				Durable: true,
				From:    client.FromEnd(),
				OnStage: func(ctx context.Context, at router.Stage) error {
					if first { // while it runs, the next are read and the log goes away
						first = false
						time.Sleep(time.Second)
					}
					return all.arrive(ctx, at)
				},
			},
		)
		publish(t, r, stage("b", event.SelfplayComplete))
		publish(t, r, stage("a", event.NewGamesAvailable))
		synctest.Wait()
		log.setAway(errAway)
		time.Sleep(time.Minute)
		if st := sub.Status(); st.Handled != 1 || st.FailedAttempts != 0 || st.Running != 1 {
			t.Errorf("%+v", st)
		}
		log.setAway(nil)
		time.Sleep(time.Minute)
		if at := all.of("a"); len(at) != 1 || course(at[0]) != courseOf(2) {
			t.Errorf("%+v", at)
		}
	})
}

func TestASubscriptionToStagesIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, newMemLog(), router.Options{})
		ok := func(context.Context, router.Stage) error { return nil }
		for want, s := range map[string]router.Subscription{
			"there are training_pipeline": {Flow: "training", OnStage: ok},
			"has no stage \"HEARTBEAT\"":  {Flow: "training_pipeline", Stages: []string{"HEARTBEAT"}, OnStage: ok},
			"no OnStage":                  {Flow: "training_pipeline"},
			"without a Flow":              {OnStage: ok},
			"Types or a Handler beside":   {Flow: "training_pipeline", OnStage: ok, Types: []string{"TRAINING_STARTED"}},
			"both Direct and a Flow":      {Flow: "training_pipeline", OnStage: ok, Direct: true},
			"Runs is -1":                  {Flow: "training_pipeline", OnStage: ok, Runs: -1},
			"Stages: ":                    {Flow: "training_pipeline", OnStage: ok, Stages: []string{""}},
			"both Direct and From":        {Direct: true, From: client.FromStart(), Handler: new(seen).handle},
		} {
			s.Name = "s"
			if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}

// The stages of a flow that is registered, of runs that their payloads name, come with their run, also in a process
// that begins in the middle.
func TestStagesOfARunByPayloadFields(t *testing.T) {
	n := node(t)
	flow := event.Flow{Name: "labels", RunBy: []string{"batch"},
		Edges: [][2]event.Type{{"LABELS_REQUESTED", "LABELS_READY"}, {"LABELS_READY", "LABELS_USED"}}}
	if _, err := n.Client().Admin().RegisterFlows(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	r := open(t, router.OnClient(n.Client()), router.Options{})
	label := func(batch int, kind event.Type) {
		ev := event.New(kind, map[string]any{"batch": batch})
		ev.NoDedup = true
		publish(t, r, ev)
	}
	label(7, "LABELS_REQUESTED")
	label(8, "LABELS_REQUESTED")
	var first, second arrivals
	subscribe(t, r, router.Subscription{Name: "first", Flow: "labels", OnStage: first.arrive})
	label(7, "LABELS_READY")
	eventually(t, "the middle", func() bool { return first.count() == 1 })
	subscribe(t, r, router.Subscription{Name: "second", Flow: "labels", Stages: []string{"labels_used"},
		OnStage: second.arrive})
	label(8, "LABELS_READY")
	label(7, "LABELS_USED")
	eventually(t, "the end", func() bool { return first.count() == 3 && second.count() == 1 })
	const whole = "LABELS_REQUESTED LABELS_READY LABELS_USED"
	for _, at := range append(first.of("")[1:], second.of("")...) {
		want, id := whole, "batch=7"
		if at.Event.Type == "LABELS_READY" {
			want, id = "LABELS_REQUESTED LABELS_READY", "batch=8"
		}
		if course(at) != want || at.Chain.CorrelationID != id || at.Run().Complete != (want == whole) {
			t.Errorf("%s: %s, want %s: %s", at.Chain.CorrelationID, course(at), id, want)
		}
	}
}

// countedTail counts how often the past is read, and what it shows.
type countedTail struct {
	*memLog
	reads, events int
}

func (l *countedTail) Tail(ctx context.Context, o client.TailOptions) iter.Seq2[event.Event, error] {
	if !o.NoFollow {
		return l.memLog.Tail(ctx, o)
	}
	l.reads++
	return func(yield func(event.Event, error) bool) {
		for ev, err := range l.memLog.Tail(ctx, o) {
			if l.events++; !yield(ev, err) {
				return
			}
		}
	}
}

// byKey returns a router on a log, and the flow A, B, C whose runs have a key.
func byKey(t *testing.T, log router.Log) *router.Router {
	t.Helper()
	c, err := event.Builtin().WithFlows(event.Flow{Name: "by_key", RunBy: []string{"key"},
		Edges: [][2]event.Type{{"A", "B"}, {"B", "C"}}})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, log, router.Options{Catalogue: c})
}

// However many runs begin, the past is read once, and again only for a run that was forgotten for others.
func TestThePastIsReadOnceForAllRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &countedTail{memLog: newMemLog()}
		r := byKey(t, log)
		send := func(kind event.Type, key int) {
			publish(t, r, event.New(kind, map[string]any{"key": key}))
		}
		const before, most = 5, 50
		for key := range before {
			send("A", key)
		}
		var all arrivals
		subscribe(t, r, router.Subscription{Name: "s", Flow: "by_key", Runs: most, OnStage: all.arrive})
		for key := range most {
			if key >= before {
				send("A", key)
			}
			send("B", key)
		}
		synctest.Wait()
		for _, at := range all.of("") {
			if at.Event.Type == "B" && course(at) != "A B" {
				t.Errorf("%s: %s", at.Chain.CorrelationID, course(at))
			}
		}
		if log.reads != 1 || log.events > before+1 {
			t.Errorf("%d events in %d reads", log.events, log.reads)
		}
		// One run more than are remembered.
		send("A", most)
		send("C", 0)
		synctest.Wait()
		if list := all.of(""); course(list[len(list)-1]) != "A B C" || log.reads != 2 {
			t.Errorf("%s after %d reads", course(list[len(list)-1]), log.reads)
		}
	})
}

// Whatever a stage has of its run, its key or only the correlation id of one that has it, it comes with all stages
// before it, whether they were read, remembered or forgotten.
func TestAStageComesWithItsRunByKeyAndCorrelationID(t *testing.T) {
	type sent struct {
		kind               event.Type
		correlationID, key string
	}
	for _, test := range []struct {
		name string
		sent []sent
		want string // of the last one
	}{
		{"an effect inherits a correlation id", []sent{{"A", "", "k"}, {"B", "x", "k"}}, "key=k: A B"},
		{"a cause has one", []sent{{"A", "x", "k"}, {"B", "", "k"}}, "key=k: A B"},
		{"an effect has it alone", []sent{{"A", "x", "k"}, {"B", "x", ""}, {"C", "", "k"}}, "key=k: A B C"},
		{"a cause has it alone", []sent{{"A", "x", ""}, {"B", "x", "k"}}, "key=k: A B"},
		{"two runs share it", []sent{{"A", "x", "k"}, {"A", "x", "l"}, {"B", "x", ""}, {"C", "", "k"}}, "key=k: A C"},
		{"the newest one counts", []sent{{"A", "x", "k"}, {"A", "x", "l"}, {"B", "x", ""}, {"C", "", "l"}}, "key=l: A B C"},
		{"nothing names a run", []sent{{"A", "x", ""}, {"B", "x", ""}}, "x: A B"},
		{"an id that looks like one", []sent{{"A", "", "k"}, {"B", "key=k", ""}}, "key=k: B"},
	} {
		for subscribed := range test.sent {
			for _, forgotten := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					r := byKey(t, newMemLog())
					var all arrivals
					for i, s := range test.sent {
						if i == subscribed {
							subscribe(t, r, router.Subscription{Name: "s", Flow: "by_key", Runs: 1, OnStage: all.arrive})
						}
						payload := map[string]any{"n": i}
						if s.key != "" {
							payload["key"] = s.key
						}
						ev := event.New(s.kind, payload)
						ev.CorrelationID = s.correlationID
						publish(t, r, ev)
						// Another run takes the only place.
						if forgotten && i < len(test.sent)-1 {
							publish(t, r, event.New("A", map[string]any{"key": fmt.Sprint("other", i)}))
						}
					}
					synctest.Wait()
					list := append(all.of(""), append(all.of("x"), all.of("key=k")...)...)
					last := list[0]
					for _, at := range list {
						if at.Event.Offset > last.Event.Offset {
							last = at
						}
					}
					if got := last.Chain.CorrelationID + ": " + course(last); got != test.want {
						t.Errorf("%s, subscribed before %d, forgotten %v: %s, want %s", test.name, subscribed, forgotten, got,
							test.want)
					}
				})
			}
		}
	}
}
