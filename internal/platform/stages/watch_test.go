package stages

import (
	"fmt"
	"slices"
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
	if n := len(w.runs[run{&w.all, "a"}].Value.(*watched).events); n != runEvents {
		t.Errorf("%d events of one run", n)
	}
}

// Without a correlation id an event is of the run that its payload names, for the flows that say so. An event with one
// is of that run alone.
func TestAWatchFindsRunsByPayloadFields(t *testing.T) {
	flows := []event.Flow{
		{Name: "by_config", Edges: [][2]event.Type{{"A", "B"}}, RunBy: []string{"config_key"}},
		{Name: "by_both", Edges: [][2]event.Type{{"A", "C"}}, RunBy: []string{"config_key", "iteration"}},
		{Name: "by_id", Edges: [][2]event.Type{{"A", "D"}}},
	}
	d := Deadlines{{"by_config", "A", "B"}: time.Second, {"by_both", "A", "C"}: time.Second,
		{"by_id", "A", "D"}: time.Second}
	w, offset := NewWatch(flows, d, 100), uint64(0)
	see := func(kind event.Type, correlationID, payload string) {
		offset++
		w.See(&event.Event{Offset: offset, Type: kind, AppendedAt: beginning(), CorrelationID: correlationID,
			Payload: []byte(payload)})
	}
	see("A", "", `{"config_key": "hex8", "iteration": 7}`)   // two runs, of which one is
	see("B", "", `{"config_key": "hex8"}`)                   // over
	see("A", "", `{"config_key": "sq8", "iteration": null}`) // one run
	see("B", "run-1", `{"config_key": "sq8"}`)               // not of it
	see("A", "", `{"config_key": "sq9"}`)                    // one that is over,
	see("B", "config_key=sq9", `{}`)                         // since this is of it
	see("A", "run-2", `{"config_key": "hex8"}`)              // by its id, in all three flows
	see("A", "", `{"config_key": {"a": 1}}`)                 // no run
	see("D", "", `{"config_key": "sq8", "iteration": 1}`)    // no stage of a flow that looks at payloads
	var got []string
	for _, o := range w.Overdue(beginning().Add(time.Hour)) {
		got = append(got, fmt.Sprintf("%s %s %d->%s", o.CorrelationID, o.Flow, o.FromOffset, o.To))
	}
	want := []string{"config_key=hex8,iteration=7 by_both 1->C", "config_key=sq8 by_config 3->B",
		"run-2 by_config 7->B", "run-2 by_both 7->C", "run-2 by_id 7->D"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A correlation id may look like a run by fields. A flow that goes by other ids sees its whole run all the same.
func TestARunByFieldsTakesNoEventsFromOtherFlows(t *testing.T) {
	flows, err := event.ParseFlows([]byte(`[{"name":"by_field","edges":[["A","B"]],"run_by":["config_key"]},
		{"name":"by_id","edges":[["C","A"]]}]`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := event.Builtin().WithFlows(flows...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDeadlines(c, []string{"by_id:C->A=1m", "by_field:A->B=1m"})
	if err != nil {
		t.Fatal(err)
	}
	const id = "config_key=hex8_2p"
	w := NewWatch(c.Flows(), d, 10)
	for i, kind := range []event.Type{"C", "A"} {
		w.See(&event.Event{Offset: uint64(i + 1), Type: kind, AppendedAt: beginning(), CorrelationID: id})
	}
	// Its effect has no correlation id, and is found by the field alone.
	b := event.New("B", []byte(`{"config_key": "hex8_2p"}`))
	b.Offset, b.AppendedAt = 3, beginning()
	w.See(&b)
	if late := w.Overdue(beginning().Add(time.Hour)); len(late) > 0 {
		t.Errorf("%+v", late)
	}
}
