package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

func deadlinesOf(t interface{ Fatal(...any) }, texts ...string) Deadlines {
	d, err := ParseDeadlines(event.Builtin(), texts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// However runs are mixed, a watch with a limit above their number reports what following each
// by itself does.
func TestAWatchReportsWhatTheChainsReport(t *testing.T) {
	d := deadlinesOf(
		t,
		"training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=10s",
		"training_pipeline:NEW_GAMES_AVAILABLE->DATA_SYNC_COMPLETED=3s",
		"training_pipeline:TRAINING_THRESHOLD_REACHED->TRAINING_STARTED=1s",
		"training_pipeline:PROMOTION_CANDIDATE->MODEL_PROMOTED=2s",
		"training_pipeline:PROMOTION_CANDIDATE->CURRICULUM_REBALANCED=3s",
	)
	flows, found := event.Builtin().Flows(), 0
	rapid.Check(t, func(t *rapid.T) {
		w, runs, now := NewWatch(flows, d, 10), map[string][]Event{}, beginning()
		for i := range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 4 * time.Second}).Draw(t, "wait"))
			id := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "run")
			e := Event{Offset: uint64(i + 1), Type: event.Type(rapid.SampledFrom(w.Types()).Draw(t, "type")), At: now}
			w.See(&event.Event{Offset: e.Offset, Type: e.Type, AppendedAt: now, CorrelationID: id})
			if id != "" {
				runs[id] = append(runs[id], e)
			}
			var want []string
			for id, events := range runs {
				for _, f := range Follow(flows, id, slices.Clone(events), Options{Now: now, Deadlines: d}).Flows {
					for _, n := range f.Next {
						if n.Overdue {
							want = append(want, fmt.Sprint(id, f.Flow, n.FromOffset, n.To))
						}
					}
				}
			}
			var got []string
			for _, o := range w.Overdue(now) {
				if now.Sub(o.Since) <= o.Deadline {
					t.Fatalf("%+v is not overdue at %s", o, now)
				}
				got = append(got, fmt.Sprint(o.CorrelationID, o.Flow, o.FromOffset, o.To))
			}
			slices.Sort(want)
			slices.Sort(got)
			if found += len(got); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
	if found == 0 {
		t.Error("nothing was ever overdue")
	}
}

func TestAWatchIsBounded(t *testing.T) {
	w := NewWatch(event.Builtin().Flows(), deadlinesOf(t, "training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=10s"), 3)
	see := func(id string, offset uint64, after time.Duration) {
		w.See(&event.Event{Offset: offset, Type: event.TrainingStarted, AppendedAt: beginning().Add(after),
			CorrelationID: id})
	}
	for i, id := range []string{"a", "b", "c", "a", "d"} {
		see(id, uint64(i+1), time.Duration(i)*time.Second)
	}
	ids := []string{}
	for _, o := range w.Overdue(beginning().Add(time.Hour)) {
		ids = append(ids, o.CorrelationID)
	}
	if !slices.Equal(ids, []string{"c", "a", "d"}) || w.Runs() != 3 || w.Dropped() != 1 {
		t.Errorf("%v, %d runs, %d dropped", ids, w.Runs(), w.Dropped())
	}
	w.Forget(beginning().Add(3 * time.Second))
	if w.Runs() != 2 {
		t.Errorf("%d runs", w.Runs())
	}
	for i := range uint64(2 * runEvents) {
		see("a", 100+i, time.Minute)
	}
	if n := len(w.runs[run{w.groups[0], "a", false}].Value.(*watched).events); n != runEvents {
		t.Errorf("%d events of one run", n)
	}
}

// A stage is of the run that its payload names, with a correlation id as well, for the flows that say so. One that
// names none goes by the stages that have its correlation id.
func TestAWatchFindsRunsByPayloadFields(t *testing.T) {
	flows := []event.Flow{
		{Name: "by_config", Edges: [][2]event.Type{{"A", "B"}}, RunBy: []string{"config_key"}},
		{Name: "by_both", Edges: [][2]event.Type{{"A", "C"}}, RunBy: []string{"config_key", "iteration"}},
		{Name: "by_id", Edges: [][2]event.Type{{"A", "D"}}},
	}
	d := Deadlines{{"by_config", "A", "B"}: time.Second, {"by_both", "A", "C"}: time.Second,
		{"by_id", "A", "D"}: time.Second}
	type stage struct {
		kind, correlationID, payload string
	}
	for _, test := range []struct {
		name   string
		stages []stage
		want   string
	}{
		{"two flows, two runs, of which one is over", []stage{{"A", "", `{"config_key": "hex8", "iteration": 7}`},
			{"B", "", `{"config_key": "hex8"}`}}, "config_key=hex8,iteration=7 by_both 1->C"},
		{"null names nothing", []stage{{"A", "", `{"config_key": "sq8", "iteration": null}`}},
			"config_key=sq8 by_config 1->B"},
		{"an object names nothing", []stage{{"A", "", `{"config_key": {"a": 1}}`}}, ""},
		{"an effect that inherits a correlation id", []stage{{"A", "", `{"config_key": "sq8"}`},
			{"B", "run-1", `{"config_key": "sq8"}`}}, ""},
		{"a cause that has a correlation id", []stage{{"A", "run-1", `{"config_key": "sq8"}`},
			{"B", "", `{"config_key": "sq8"}`}, {"D", "run-1", `{}`}}, "run-1 by_both 1->C"},
		{"an effect without the field", []stage{{"A", "run-1", `{"config_key": "sq8"}`}, {"B", "run-1", `{}`},
			{"D", "run-1", `{}`}}, "run-1 by_both 1->C"},
		{"a cause without the field", []stage{{"A", "run-1", `{}`}, {"B", "run-1", `{"config_key": "sq8"}`},
			{"C", "run-1", `{}`}, {"D", "run-1", `{}`}}, ""},
		{"the newest stage counts", []stage{{"A", "x", `{"config_key": "a"}`}, {"A", "x", `{"config_key": "b"}`},
			{"B", "x", `{}`}, {"D", "x", `{}`}}, "config_key=a by_config 1->B,x by_both 2->C"},
		{"no stage names a run", []stage{{"A", "run-2", `{}`}},
			"run-2 by_both 1->C,run-2 by_config 1->B,run-2 by_id 1->D"},
		{"an id that looks like one of fields", []stage{{"A", "", `{"config_key": "sq9"}`},
			{"B", "config_key=sq9", `{}`}}, "config_key=sq9 by_config 1->B"},
		{"no stage of the flow that looks at it", []stage{{"D", "", `{"config_key": "sq8", "iteration": 1}`}}, ""},
	} {
		w := NewWatch(flows, d, 100)
		for i, s := range test.stages {
			w.See(&event.Event{Offset: uint64(i + 1), Type: event.Type(s.kind), AppendedAt: beginning(),
				CorrelationID: s.correlationID, Payload: []byte(s.payload)})
		}
		var got []string
		for _, o := range w.Overdue(beginning().Add(time.Hour)) {
			got = append(got, fmt.Sprintf("%s %s %d->%s", o.CorrelationID, o.Flow, o.FromOffset, o.To))
		}
		slices.Sort(got)
		if got := strings.Join(got, ","); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// runAt is the rule of event.Flow.RunOf, word by word: the run of the i-th of the stages of flows with the same RunBy.
func runAt(f *event.Flow, all []event.Event, i int) (id string, named bool) {
	if id := f.RunOf(all[i].Payload); id != "" || all[i].CorrelationID == "" {
		return id, id != ""
	}
	same := func(e event.Event) bool { return e.CorrelationID == all[i].CorrelationID && f.RunOf(e.Payload) != "" }
	for n := i - 1; n >= 0; n-- {
		if same(all[n]) {
			return f.RunOf(all[n].Payload), true
		}
	}
	if n := slices.IndexFunc(all[i:], same); n >= 0 {
		return f.RunOf(all[i+n].Payload), true
	}
	return all[i].CorrelationID, false
}

// Whatever stages carry of fields and of correlation ids, in whatever order, a watch has each in the run that the rule
// says, and reports what following each run by itself does.
func TestAWatchAgreesWithTheRule(t *testing.T) {
	flows := []event.Flow{
		{Name: "by_key", Edges: [][2]event.Type{{"A", "B"}, {"B", "C"}}, RunBy: []string{"key"}},
		{Name: "by_key_too", Edges: [][2]event.Type{{"A", "D"}}, RunBy: []string{"key"}},
		{Name: "by_both", Edges: [][2]event.Type{{"A", "C"}}, RunBy: []string{"key", "n"}},
		{Name: "by_id", Edges: [][2]event.Type{{"A", "B"}, {"C", "D"}}},
	}
	d := Deadlines{}
	for _, f := range flows {
		for _, e := range f.Edges {
			d[edgeOf{f.Name, e[0], e[1]}] = 2 * time.Second
		}
	}
	groups := [][]event.Flow{flows[:2], flows[2:3], flows[3:]}
	met := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w, now := NewWatch(flows, d, 1000), beginning()
		var all []event.Event
		for i := range rapid.IntRange(1, 30).Draw(t, "events") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second}).Draw(t, "wait"))
			all = append(all, event.Event{
				Offset:        uint64(i + 1),
				Type:          event.Type(rapid.SampledFrom([]string{"A", "B", "C", "D"}).Draw(t, "type")),
				AppendedAt:    now,
				CorrelationID: rapid.SampledFrom([]string{"", "x", "y", "key=1"}).Draw(t, "correlation id"),
				Payload: []byte(rapid.SampledFrom([]string{`{}`, `{"key": 1}`, `{"key": 2}`, `{"key": 1, "n": 1}`,
					`{"key": "1,n=1"}`}).Draw(t, "payload")),
			})
			w.See(&all[i])

			// What each run of each group is missing, by the rule.
			var want []string
			for _, group := range groups {
				var stagesOf []event.Event
				for _, e := range all {
					if slices.ContainsFunc(group, func(f event.Flow) bool { return isStage(f, e.Type) }) {
						stagesOf = append(stagesOf, e)
					}
				}
				type key struct {
					id    string
					named bool
				}
				runs := map[key][]Event{}
				for n, e := range stagesOf {
					if id, named := runAt(&group[0], stagesOf, n); id != "" {
						runs[key{id, named}] = append(runs[key{id, named}], EventOf(&e))
					}
				}
				for k, events := range runs {
					for _, f := range Follow(group, k.id, events, Options{Now: now, Deadlines: d}).Flows {
						for _, n := range f.Next {
							if n.Overdue {
								want = append(want, fmt.Sprint(k.id, f.Flow, n.FromOffset, n.To))
								met[f.Flow]++
							}
						}
					}
				}
			}
			var got []string
			for _, o := range w.Overdue(now) {
				got = append(got, fmt.Sprint(o.CorrelationID, o.Flow, o.FromOffset, o.To))
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
	if len(met) < len(flows) {
		t.Errorf("overdue were edges of %v alone", met)
	}
}

// However many correlation ids lead to a run, and runs to a correlation id, what a watch keeps of them is bounded.
func TestCorrelationIDsOfAWatchAreBounded(t *testing.T) {
	f := event.Flow{Name: "f", Edges: [][2]event.Type{{"A", "B"}}, RunBy: []string{"key"}}
	w := NewWatch([]event.Flow{f}, Deadlines{{"f", "A", "B"}: time.Second}, 2)
	for i := range 5 * runEvents {
		w.See(&event.Event{Offset: uint64(i + 1), Type: "A", AppendedAt: beginning(),
			CorrelationID: fmt.Sprint("id-", i/2), Payload: fmt.Appendf(nil, `{"key": %d}`, i%2)})
	}
	if len(w.carriers) != runEvents {
		t.Errorf("%d correlation ids are kept", len(w.carriers))
	}
	for _, at := range w.runs {
		if r := at.Value.(*watched); len(r.carried) > runEvents {
			t.Errorf("%d correlation ids of the run %s", len(r.carried), r.id)
		}
	}
	w.Forget(beginning().Add(time.Second))
	if len(w.carriers) != 0 {
		t.Errorf("%d correlation ids are kept of no run", len(w.carriers))
	}
}

// A payload is read once, however many ways to find runs there are.
func BenchmarkSeeALargePayloadByManyFields(b *testing.B) {
	var flows []event.Flow
	for i := range 64 {
		flows = append(flows, event.Flow{Name: fmt.Sprint("f", i), Edges: [][2]event.Type{{"A", "B"}},
			RunBy: []string{fmt.Sprint("key", i)}})
	}
	w := NewWatch(flows, nil, 1000)
	e := event.Event{Type: "A", CorrelationID: "run-1",
		Payload: []byte(`{"key1": 1, "large": [` + strings.Repeat(`"some text", `, 80_000) + `1]}`)}
	b.SetBytes(int64(len(e.Payload)))
	for b.Loop() {
		e.Offset++
		w.See(&e)
	}
}
