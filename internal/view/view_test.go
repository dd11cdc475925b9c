package view_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// step is an event after some time, with a payload.
type step struct {
	after   time.Duration
	payload string
}

func TestFields(t *testing.T) {
	ones := []step{{0, `{"x": 1}`}, {time.Minute, `{"x": 4}`}, {time.Minute, `{"x": 2.5}`}}
	for _, c := range []struct {
		field string
		steps []step
		want  string
	}{
		{`{"kind": "last", "of": "payload.x"}`, ones, `2.5`},
		{`{"kind": "last", "of": "payload"}`, []step{{0, `{"b": [1, {"c": null}], "a": "é<"}`}},
			`{"a":"é<","b":[1,{"c":null}]}`},
		{`{"kind": "last", "of": "appended_at"}`, ones, `"2026-03-01T00:02:00Z"`},
		{`{"kind": "last", "of": "payload.x > 2"}`, ones, `true`},
		{`{"kind": "last", "of": "payload.x"}`, []step{{0, `{"x": 7}`}, {0, `{"x": null}`}}, `7`},
		{`{"kind": "count"}`, ones, `3`},
		{`{"kind": "count", "where": "payload.x > 2"}`, ones, `2`},
		{`{"kind": "count", "reset": "payload.x == 4"}`, ones, `2`},
		{`{"kind": "sum", "of": "payload.x", "where": "payload.x < 4", "reset": "payload.x == 4"}`, ones[:2], `0`},
		{`{"kind": "count", "window": "1m"}`, ones, `1`},
		{`{"kind": "sum", "of": "payload.x"}`, ones, `7.5`},
		{`{"kind": "sum", "of": "payload.x", "window": "90s"}`, ones, `6.5`},
		{`{"kind": "min", "of": "payload.x"}`, ones, `1`},
		{`{"kind": "min", "of": "payload.x", "window": "90s"}`, ones, `2.5`},
		{`{"kind": "max", "of": "-payload.x"}`, ones, `-1`},
		{`{"kind": "mean", "of": "payload.x / 2"}`, ones, `1.25`},
		{`{"kind": "mean", "of": "payload.x"}`, []step{{0, `{}`}}, `null`},
		{`{"kind": "mean", "of": "payload.x ? 1 : 0"}`, []step{{0, `{"x": true}`}, {0, `{"x": false}`}}, `0.5`},
		// The window of 60 s covers the 59 s before the one that has begun.
		{`{"kind": "rate", "window": "60s", "per": "minute"}`, []step{{500 * time.Millisecond, `{}`}, {0, `{}`}},
			`2.0168067226890756`},
		{`{"kind": "rate", "of": "payload.x", "window": "1h", "per": "hour"}`, ones, `7.627118644067797`},
		// Half of the weight is left after a half-life: (1/2 + 4) / (1/2 + 1), and so on.
		{`{"kind": "ewma", "of": "payload.x", "half_life": "1m"}`, ones[:2], `3`},
		{`{"kind": "ewma", "of": "payload.x", "half_life": "1m"}`, []step{{0, `{"x": 1}`}, {0, `{"x": 4}`}}, `2.5`},
		{`{"kind": "slope", "of": "payload.x", "per": "minute"}`, ones[:2], `3`},
		{`{"kind": "slope", "of": "payload.x"}`, ones, `45`},
		{`{"kind": "slope", "of": "payload.x", "points": 2}`, ones, `-90`},
		{`{"kind": "slope", "of": "payload.x", "window": "1m"}`, ones, `null`},
		{`{"kind": "slope", "of": "payload.x"}`, []step{{0, `{"x": 1}`}, {0, `{"x": 4}`}}, `null`},
		{`{"kind": "distinct", "of": "payload.x"}`, append(ones, ones...), `3`},
		{`{"kind": "distinct", "of": "payload.x", "limit": 2}`, append(ones, ones...), `{"more_than":2}`},
	} {
		v := compile(t, `{"name": "v", "fields": {"f": `+c.field+`}}`)
		rows, s := newMemory(), newSeries()
		for _, step := range c.steps {
			apply(t, v, rows, s.next(step.after, "X", "k", step.payload))
		}
		var shown struct{ Fields map[string]json.RawMessage }
		if err := json.Unmarshal([]byte(show(t, v, rows, "k")), &shown); err != nil {
			t.Fatal(err)
		}
		if got := string(shown.Fields["f"]); got != c.want {
			t.Errorf("%s: %s, want %s", c.field, got, c.want)
		}
	}
}

func TestARuleFiresOnceAndEndsOnce(t *testing.T) {
	v := compile(t, `{"name": "losses", "types": ["TRAINING_PROGRESS"],
		"fields": {"loss": {"kind": "last", "of": "payload.loss"}},
		"computed": {"percent": "loss * 100"},
		"rules": [{"name": "high", "when": "loss > 2", "until": "loss < 1", "min_hold": "1m",
			"emit": "training_loss_anomaly", "payload": {"loss": "loss", "epoch": "payload.epoch"},
			"ended": "MY_END", "ended_payload": {"seconds": "updated_at - began_at"}}]}`)
	rows, s := newMemory(), newSeries()
	var all []view.Firing
	for _, step := range []step{
		{0, `{"loss": 1.5}`},                          // below
		{time.Second, `{"loss": 3, "epoch": 7}`},      // begins
		{time.Second, `{"loss": 4}`},                  // holds
		{time.Second, `{"loss": 0.5}`},                // too early to end
		{time.Minute, `{"loss": 1.5}`},                // not below the lower threshold
		{time.Second, `{"loss": "x"}`},                // no answer
		{time.Second, `{"loss": 0.5}`},                // ends
		{time.Second, `{"loss": 1.5}`},                // between both
		{time.Second, `{"loss": 2.5, "epoch": null}`}, // begins again
	} {
		ev := s.next(step.after, event.TrainingProgress, "hex8", step.payload)
		all = append(all, apply(t, v, rows, ev)...)
		if again := apply(t, v, rows, ev); again != nil {
			t.Fatalf("an event that the row has fired %v", again)
		}
	}
	var got []string
	for _, f := range all {
		e := f.Event
		got = append(got, fmt.Sprintln(e.Type, e.Key, e.Source, e.CausationID, e.DedupID, string(e.Payload)))
		if _, _, err := (&event.Policy{}).Normalize(&e); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`TRAINING_LOSS_ANOMALY hex8 view/losses 2 losses/high/hex8/2 ` +
			`{"epoch":7,"fields":{"loss":3,"percent":300},"key":"hex8",` +
			`"loss":3,"offset":2,"rule":"high","view":"losses"}` + "\n",
		`MY_END hex8 view/losses 7 losses/high/hex8/7 ` +
			`{"began_offset":2,"fields":{"loss":0.5,"percent":50},"key":"hex8",` +
			`"offset":7,"rule":"high","seconds":64,"view":"losses"}` + "\n",
		`TRAINING_LOSS_ANOMALY hex8 view/losses 9 losses/high/hex8/9 ` +
			`{"epoch":null,"fields":{"loss":2.5,"percent":250},"key":"hex8",` +
			`"loss":2.5,"offset":9,"rule":"high","view":"losses"}` + "\n",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "     "), strings.Join(want, "     "))
	}
	row := `{"key":"hex8","offset":9,"at":"2026-03-01T00:01:07Z","fields":{"loss":2.5,"percent":250},` +
		`"rules":{"high":{"holds":true,"since":"2026-03-01T00:01:07Z","offset":9}}}`
	if got := show(t, v, rows, "hex8"); got != row {
		t.Errorf("row %s\nwant %s", got, row)
	}
}

func TestAConditionWithoutAnswerChangesNothing(t *testing.T) {
	v := compile(t, `{"name": "v", "types": ["X"], "fields": {"loss": {"kind": "last", "of": "payload.loss"},
		"trend": {"kind": "slope", "of": "payload.loss", "window": "1m"}},
		"rules": [{"name": "high", "when": "loss > 2", "emit": "BEGUN", "ended": "OVER"},
			{"name": "down", "when": "trend < 0", "emit": "BEGUN", "ended": "OVER"}]}`)
	rows, s := newMemory(), newSeries()
	var got []string
	for _, step := range []step{
		{0, `{"loss": "x"}`},
		{time.Second, `{"loss": 3}`}, // high begins; one point has no slope
		{time.Second, `{"loss": "x"}`},
		{time.Second, `{"loss": 2.5}`}, // down begins
		{time.Hour, `{}`},              // no point is left
		{time.Second, `{"loss": 1}`},   // high ends
		{time.Second, `{"loss": 1}`},   // down ends
	} {
		for _, f := range apply(t, v, rows, s.next(step.after, "X", "k", step.payload)) {
			got = append(got, f.Event.CausationID+" "+f.Rule+" "+string(f.Event.Type))
		}
	}
	if want := []string{"2 high BEGUN", "4 down BEGUN", "6 high OVER", "7 down OVER"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The examples of docs/views.md are declarations.
func TestTheDocumentsExamplesCompile(t *testing.T) {
	text, err := os.ReadFile("../../docs/views.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(?:json|toml)\n(.*?)^```$").FindAllSubmatch(text, -1)
	for _, block := range blocks {
		compile(t, string(block[1]))
	}
	if len(blocks) < 2 {
		t.Errorf("%d examples", len(blocks))
	}
}
