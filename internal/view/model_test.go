package view_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// drawField returns a field of any kind.
func drawField(t *rapid.T) view.Field {
	number := rapid.SampledFrom([]string{"payload.x", "payload.y", "payload.x * 2 - 1", "payload.x > 3 ? 1 : 0", "offset"})
	window := rapid.SampledFrom([]string{"1s", "7s", "60s", "1h"})
	f := view.Field{
		Kind: rapid.SampledFrom([]string{
			"last", "count", "sum", "min", "max", "mean", "rate", "ewma", "slope", "distinct"}).Draw(t, "kind"),
		Where: rapid.SampledFrom([]string{"", "", "payload.x > 2", "type == 'A'", "has(payload.y)"}).Draw(t, "where"),
		Reset: rapid.SampledFrom([]string{"", "", "type == 'C'"}).Draw(t, "reset"),
	}
	if f.Kind != "count" {
		f.Of = number.Draw(t, "of")
	}
	switch f.Kind {
	case "last":
		f.Of = rapid.SampledFrom([]string{"payload", "payload.x", "appended_at", "source", "payload.list"}).Draw(t, "value")
	case "count", "sum", "min", "max", "mean":
		if rapid.Bool().Draw(t, "windowed") {
			f.Window = window.Draw(t, "window")
		}
	case "rate":
		f.Window, f.Per = window.Draw(t, "window"), rapid.SampledFrom([]string{"", "minute", "day"}).Draw(t, "per")
	case "ewma":
		f.HalfLife = window.Draw(t, "half-life")
	case "slope":
		f.Window = rapid.SampledFrom([]string{"", "7s", "1h"}).Draw(t, "window")
		f.Points = rapid.IntRange(2, 9).Draw(t, "points")
	case "distinct":
		f.Limit = rapid.IntRange(1, 5).Draw(t, "limit")
	}
	return f
}

// drawDeclaration returns a view of a few fields, with rules on them.
func drawDeclaration(t *rapid.T) view.Declaration {
	d := view.Declaration{Name: "model", Fields: map[string]view.Field{}, Computed: map[string]string{}}
	d.Types = []string{"A", "B", "C"}
	d.Where = rapid.SampledFrom([]string{"", "payload.x < 9"}).Draw(t, "where")
	d.Key = rapid.SampledFrom([]string{"", "payload.key", "source + '/' + key"}).Draw(t, "key")
	for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
		d.Fields[fmt.Sprintf("f%d", i)] = drawField(t)
	}
	d.Computed["c"] = rapid.SampledFrom([]string{"f0 * 2", "f0 == null ? 0 : 1", "updated_at"}).Draw(t, "computed")
	for i := range rapid.IntRange(0, 3).Draw(t, "rules") {
		d.Rules = append(d.Rules, view.Rule{
			Name:         fmt.Sprintf("r%d", i),
			When:         rapid.SampledFrom([]string{"f0 > 2", "c > 3 || f0 < 0", "f0 != null"}).Draw(t, "when"),
			Until:        rapid.SampledFrom([]string{"", "f0 < 1", "f0 < 5", "true"}).Draw(t, "until"),
			MinHold:      rapid.SampledFrom([]string{"", "3s"}).Draw(t, "hold"),
			Emit:         "BEGUN",
			Payload:      map[string]string{"c": "c", "x": "payload.x"},
			Ended:        "OVER",
			EndedPayload: map[string]string{"seconds": "updated_at - began_at"},
		})
	}
	return d
}

// drawEvents returns events of a few keys, some of which a declaration cannot evaluate.
func drawEvents(t *rapid.T) []*event.Event {
	s := newSeries()
	var events []*event.Event
	for range rapid.IntRange(1, 40).Draw(t, "events") {
		ev := s.next(time.Duration(rapid.Int64Range(-1e9, 20e9).Draw(t, "after")),
			rapid.SampledFrom([]event.Type{"A", "A", "B", "C"}).Draw(t, "type"),
			rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "key"),
			rapid.SampledFrom([]string{`{"key": "a", "x": 1}`, `{"key": "a", "x": 4, "y": -2.5}`,
				`{"key": "b", "x": 9.5, "y": 1}`, `{"key": "b", "x": null}`, `{"x": "4"}`,
				`{"key": "a", "x": 7, "list": [1, {"b": null, "a": "é"}]}`, `{}`,
				`{"key": "a", "x": 1e308, "y": 1e308}`, `{"key": "b", "x": -3}`}).Draw(t, "payload"))
		ev.Source = rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "source")
		events = append(events, ev)
	}
	return events
}

// reopened returns the view of a declaration that was stored, and a copy of the rows.
func reopened(t *rapid.T, d view.Declaration, rows *memory) (*view.View, *memory) {
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := view.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	v, err := view.Compile(stored)
	if err != nil {
		t.Fatal(err)
	}
	again := newMemory()
	for key, value := range rows.rows {
		again.rows[key] = append([]byte(nil), value...)
	}
	return v, again
}

func TestHoweverItIsFoldedTheRowsAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, events := drawDeclaration(t), drawEvents(t)
		v, whole := reopened(t, d, newMemory())
		stopped, parts := v, newMemory()
		reads := v.Filter().Compile(event.Builtin())
		begun := map[string]bool{}
		for _, e := range events {
			if !reads.Match(e) {
				t.Fatalf("%s is not read", e)
			}
			if rapid.IntRange(0, 4).Draw(t, "stop") == 0 {
				stopped, parts = reopened(t, d, parts)
			}
			want := apply(t, v, whole, e)
			if got := apply(t, stopped, parts, e); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("after a stop it fires %v, without %v", got, want)
			}
			if got := apply(t, stopped, parts, e); len(got) > 0 {
				t.Fatalf("folded again, it fires %v", got)
			}
			if whole.dump() != parts.dump() {
				t.Fatalf("rows\n%safter stops\n%s", whole.dump(), parts.dump())
			}
			alternate(t, want, begun)
		}
		// What is shown is a function of the rows, and a state that the rows say holds has begun.
		again, copied := reopened(t, d, whole)
		keys, err := v.Keys(whole, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		holds := map[string]bool{}
		for _, key := range keys {
			text := show(t, v, whole, key)
			if other := show(t, again, copied, key); other != text {
				t.Fatalf("%s, and from equal rows %s", text, other)
			}
			var row struct {
				Rules map[string]struct{ Holds bool }
			}
			if err := json.Unmarshal([]byte(text), &row); err != nil {
				t.Fatal(err)
			}
			for name, rule := range row.Rules {
				if rule.Holds {
					holds[name+" "+key] = true
				}
			}
		}
		if !maps.Equal(holds, begun) {
			t.Fatalf("rows hold %v, fired were %v", holds, begun)
		}
	})
}

// alternate checks that each rule of a key begins and ends by turns, and that what it publishes passes the gate.
func alternate(t *rapid.T, firings []view.Firing, begun map[string]bool) {
	for _, f := range firings {
		rule := f.Rule + " " + f.Key
		if begun[rule] != f.Ended {
			t.Fatalf("%s: ended %v, begun before %v", rule, f.Ended, begun[rule])
		}
		if begun[rule] = true; f.Ended {
			delete(begun, rule)
		}
		if _, _, err := (&event.Policy{}).Normalize(&f.Event); err != nil {
			t.Fatalf("%s: %v", f.Event, err)
		}
	}
}
