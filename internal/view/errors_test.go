package view_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/internal/view"
)

// declared returns a declaration with other members in place of those of a good one.
func declared(members string) string {
	return `{"name": "v", "types": ["X"], "fields": {"f": {"kind": "count"}}` + members + `}`
}

func TestErrorsNameThePlace(t *testing.T) {
	rule := func(members string) string {
		return declared(`, "rules": [{"name": "r", "when": "f > 3", "emit": "Y"` + members + `}]`)
	}
	slope := `{"kind": "slope", "of": "payload.x", "points": 1000}`
	field := func(f string) string { return `{"name": "v", "types": ["X"], "fields": {"f": ` + f + `}}` }
	for _, c := range [][2]string{
		{`{"name": "v", "fields": {}}`, "view: fields: none; declare at least one"},
		{`{"name": "a/b", "fields": {}}`, `view: name: "a/b" is not a name`},
		{`{"nam": "v"}`, `view: declaration: it has no member "nam"`},
		{`{"name": "v", "name": "w"}`, "view: name: line 1, column 15: the key occurs twice"},
		{`{"name": 7}`, "view: name: a string is expected, not a number"},
		{"{\"name\": \"v\",\n oops", "view: declaration: "},
		{"name = \"v\"\nfields = [", "view: declaration: line 2"},
		{"name = \"v\"\nwhen = 3", `view: declaration: it has no member "when"`},
		{strings.Repeat(" ", 1<<17), "view: declaration: 131072 bytes, the limit is 65536"},
		{declared(`, "types": ["é"]`), "view: types: line 1, column 67: the key occurs twice"},
		{declared(`, "keys": [""]`), "view: keys[0]: empty"},
		{declared(`, "key": "payload.x +"`), "key: line 1, column 12: "},
		{declared(`, "key": "1 + 2"`), "key: line 1, column 1: it gives double, not string"},
		{declared(`, "where": "type"`), "where: line 1, column 1: it gives string, not bool"},
		{declared(`, "where": "` + strings.Repeat("(", 5000) + `"`), "view: where: 5000 bytes, the limit is 4096"},
		{declared(`, "computed": {"f": "1"}`), "view: computed.f: a field has the name already"},
		{declared(`, "computed": {"g": ""}`), "view: computed.g: empty"},
		{declared(`, "computed": {"g": "nobody"}`), "computed.g: line 1, column 1: undeclared reference to 'nobody'"},
		{declared(`, "computed": {"g": "payload.x"}`), "computed.g: line 1, column 1: undeclared reference to 'payload'"},
		{declared(`, "computed": {"a": "b + 1", "b": "c", "c": "a"}`), "view: computed.a: it is computed of itself"},
		{declared(`, "computed": {"key": "1"}`), "view: computed.key: the name has a meaning in expressions already"},
		{declared(`, "computed": {"Elo": "1"}`), `view: computed.Elo: "Elo" is not a name`},

		{field(`{"kind": "mode"}`), `view: fields.f.kind: "mode" is none of last, count`},
		{field(`{"kind": "sum"}`), "view: fields.f.of: missing; a sum needs it"},
		{field(`{"kind": "count", "of": "payload.x"}`), "view: fields.f.of: a count has none"},
		{field(`{"kind": "sum", "of": "payload.x >"}`), "fields.f.of: line 1, column 12: "},
		{field(`{"kind": "sum", "of": "\n source"}`), "fields.f.of: line 1, column 1: it gives string, not a number"},
		{field(`{"kind": "sum", "of": "payload.x", "wher": "true"}`), `it has no member "wher"`},
		{field(`{"kind": "sum", "of": "payload.x", "where": "pay"}`),
			"fields.f.where: line 1, column 1: undeclared reference to 'pay'"},
		{field(`{"kind": "count", "reset": "3"}`), "fields.f.reset: line 1, column 1: it gives int, not bool"},
		{field(`{"kind": "rate"}`), "view: fields.f.window: missing; a rate needs it"},
		{field(`{"kind": "rate", "window": "10"}`), `view: fields.f.window: "10" is not a duration`},
		{field(`{"kind": "rate", "window": "1ms"}`), "view: fields.f.window: 1ms is not between 1s and 366d"},
		{field(`{"kind": "rate", "window": "1h", "per": "week"}`), `view: fields.f.per: "week" is none of second`},
		{field(`{"kind": "ewma", "of": "payload.x", "half_life": "400d"}`),
			"view: fields.f.half_life: 400d is not between"},
		{field(`{"kind": "slope", "of": "payload.x", "points": 1}`), "view: fields.f.points: 1 is not between 2 and 1000"},
		{field(`{"kind": "distinct", "of": "payload.x", "limit": -1}`),
			"view: fields.f.limit: -1 is not between 1 and 1000"},
		{field(slope + `, "g": ` + slope + `, "h": ` + slope), "view: fields.h: a row may take 48000 bytes"},

		{rule(`, "until": "f <"`), "rules[0].until: line 1, column 4: "},
		{rule(`, "min_hold": "soon"`), "view: rules[0].min_hold: "},
		{rule(`, "ended_payload": {"a": "1"}`), "view: rules[0].ended_payload: without ended nothing is published"},
		{rule(`, "payload": {"a": "payload.("}`), "rules[0].payload.a: line 1, column 9: "},
		{rule(`, "payload": {"view": "1"}`), "view: rules[0].payload.view: every firing has the member already"},
		{rule(`, "ended": "x"`), "view: rules[0].ended: the view reads X itself"},
		{rule(`, "ended": "LEADER_ELECTED"`), "view: rules[0].ended: only the cluster emits LEADER_ELECTED"},
		{declared(`, "rules": [{"name": "r", "when": "f > 3"}]`), "view: rules[0].emit: missing"},
		{declared(`, "rules": [{"name": "r", "emit": "Y"}]`), "view: rules[0].when: missing"},
		{declared(`, "rules": [{"name": "r", "when": "f", "emit": "Y"}, {"name": "r", "when": "f", "emit": "Y"}]`),
			"view: rules[1].name: another rule is called r"},
		{`{"name": "v", "fields": {"f": {"kind": "count"}}, "rules": [{"name": "r", "when": "f > 3", "emit": "Y"}]}`,
			"view: rules[0].emit: the view reads Y itself"},
		{`{"name": "v", "types": ["model.*"], "fields": {"f": {"kind": "count"}},
			"rules": [{"name": "r", "when": "f > 3", "emit": "MODEL_PROMOTED"}]}`,
			"view: rules[0].emit: the view reads MODEL_PROMOTED itself"},
	} {
		d, err := view.Parse([]byte(c[0]))
		if err == nil {
			_, err = view.Compile(d)
		}
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.200s\n got %v\nwant %s", c[0], err, c[1])
		}
	}
}

func TestTOMLIsTheSame(t *testing.T) {
	d, err := view.Parse([]byte(`
		name = "progress"
		types = ["TRAINING_PROGRESS"]
		[fields.loss]
		kind = "ewma"
		of = "payload.loss"
		half_life = "10m"
		[[rules]]
		name = "high"
		when = "loss > 2"
		emit = "TRAINING_LOSS_ANOMALY"
	`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{progress  {[TRAINING_PROGRESS] [] [] [] []}   0 map[loss:{ewma payload.loss    10m  0 0}] map[] ` +
		`[{high loss > 2   TRAINING_LOSS_ANOMALY map[]  map[]}]}`
	if got := fmt.Sprint(d); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestWhatCannotBeFoldedIsCounted(t *testing.T) {
	v := compile(t, `{"name": "v", "where": "payload.x > 0", "key": "payload.host",
		"fields": {"f": {"kind": "sum", "of": "payload.y"}}}`)
	rows, s := newMemory(), newSeries()
	for _, payload := range []string{
		`{"x": 1, "host": "h", "y": 2}`, `{"x": 1, "host": "h"}`, `{"x": 1, "host": "h", "y": "2"}`, // a row with two faults
		`{"host": "h", "y": 2}`, `{"x": 0}`, `{"x": 1, "y": 2}`, `{"x": 1, "host": 7}`, `{"x": 1, "host": ""}`, // no row
		`{"x": 1, "host": "a\u0000b"}`, `[1]`, `{"x": 1, "host": "` + strings.Repeat("h", 257) + `"}`,
		`{"x": 1e999, "host": "h", "y": 1e999}`,
	} {
		ev := s.next(0, "X", "", payload)
		apply(t, v, rows, ev)
		apply(t, v, rows, ev) // once more changes nothing
	}
	skipped, err := v.Skipped(rows)
	if want := (view.Skipped{Events: 7, Last: 11, Place: "key"}); skipped != want || err != nil {
		t.Errorf("%+v, want %+v, %v", skipped, want, err)
	}
	row := `{"key":"h","offset":12,"at":"2026-03-01T00:00:00Z","fields":{"f":2},"skipped":3}`
	if got := show(t, v, rows, "h"); got != row {
		t.Errorf("%s, want %s", got, row)
	}
}

// Once there are as many keys as a view may have, events of others are skipped. Those of the keys that it has are not.
func TestKeysAreBounded(t *testing.T) {
	v := compile(t, `{"name": "v", "max_keys": 2, "fields": {"n": {"kind": "count"}}}`)
	rows, s := newMemory(), newSeries()
	for _, key := range []string{"a", "b", "c", "a", "d", "b", "c"} {
		ev := s.next(0, "X", key, `{}`)
		apply(t, v, rows, ev)
		apply(t, v, rows, ev) // once more changes nothing
	}
	skipped, err := v.Skipped(rows)
	if want := (view.Skipped{Events: 3, Last: 7, Place: "max_keys", BeyondKeys: 3}); skipped != want || err != nil {
		t.Errorf("%+v, want %+v, %v", skipped, want, err)
	}
	if keys, err := v.Keys(rows, "", 10); err != nil || !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("%v, %v", keys, err)
	}
	if got := show(t, v, rows, "b"); !strings.Contains(got, `"n":2`) {
		t.Error(got)
	}
	for _, d := range []string{`{"name": "v", "max_keys": -1, "fields": {"n": {"kind": "count"}}}`,
		`{"name": "v", "max_keys": 10000001, "fields": {"n": {"kind": "count"}}}`} {
		parsed, err := view.Parse([]byte(d))
		if err == nil {
			_, err = view.Compile(parsed)
		}
		if err == nil || !strings.Contains(err.Error(), "view: max_keys: ") {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestADamagedRowIsAnError(t *testing.T) {
	v := compile(t, `{"name": "v", "types": ["X"], "fields": {
		"a": {"kind": "last", "of": "payload"}, "b": {"kind": "count"}, "c": {"kind": "mean", "of": "payload.x"},
		"d": {"kind": "rate", "window": "1h"}, "e": {"kind": "ewma", "of": "payload.x", "half_life": "1h"},
		"f": {"kind": "slope", "of": "payload.x"}, "g": {"kind": "distinct", "of": "payload.x"},
		"h": {"kind": "min", "of": "payload.x", "window": "1h"}},
		"rules": [{"name": "r", "when": "b > 0", "emit": "Y"}]}`)
	rows, s := newMemory(), newSeries()
	for range 3 {
		apply(t, v, rows, s.next(1e9, "X", "k", `{"x": 1}`))
	}
	whole := rows.rows["kk"]
	// Each prefix is refused. Each changed byte is refused or read as another row; nothing panics.
	for i := range whole {
		rows.rows["kk"] = whole[:i]
		if _, _, err := v.Show(rows, "k"); err == nil {
			t.Errorf("a row of %d bytes passes as one of %d", i, len(whole))
		}
		for bit := range 8 {
			damaged := append([]byte(nil), whole...)
			damaged[i] ^= 1 << bit
			rows.rows["kk"] = damaged
			if _, _, err := v.Show(rows, "k"); err == nil {
				_, err = v.Apply(rows, s.next(1e9, "X", "k", `{"x": 1}`))
				if err != nil {
					t.Errorf("bit %d of byte %d: shown, and not folded: %v", bit, i, err)
				}
			}
		}
	}
	failing := errors.New("the disk is gone")
	if _, err := v.Apply(broken{rows, failing}, s.next(0, "X", "k", `{}`)); !errors.Is(err, failing) {
		t.Errorf("a failure of the rows became %v", err)
	}
}

// broken is rows that cannot be read.
type broken struct {
	*memory
	err error
}

func (b broken) Get(string) ([]byte, bool, error) { return nil, false, b.err }
