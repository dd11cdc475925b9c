package where_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// compiled returns an expression of the language and the scope of an event for it.
func compiled(t *testing.T, expression string, ev *event.Event) (*where.Expression, *where.Scope) {
	t.Helper()
	l, err := where.NewLanguage(true)
	if err != nil {
		t.Fatal(err)
	}
	x, err := l.Compile("of", expression, where.Any)
	if err != nil {
		t.Fatal(err)
	}
	var used where.Members
	used.Add(x)
	s := where.NewScope(&used)
	s.Reset(ev)
	return x, s
}

func TestExpressionsGiveValues(t *testing.T) {
	ev := event.New("X", []byte(`{"n": 7, "half": 0.5, "big": 12345678901234567890, "s": "a\u00e9\"",
		"list": [1, [2], {"k": null}],
		"o": {"p": {"q": "deep"}}, "none": null, "yes": true, "n": 8}`))
	ev.Source, ev.Offset, ev.AppendedAt = "w", 12, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for expression, want := range map[string]string{
		`payload.n`:                             "float64 8",
		`payload.n / 5`:                         "float64 1.6",
		`1 / 2 * payload.n`:                     "float64 4",
		`-payload.n + 1`:                        "float64 -7",
		`(payload.yes ? 1 : 0) * payload.half`:  "float64 0.5",
		`payload.big`:                           "float64 1.2345678901234567e+19",
		`int(payload.n) % 3`:                    "float64 2",
		`size(payload.list) + 1`:                "float64 4",
		`size(payload.list) == 3`:               "bool true",
		`payload.list[0] == 1`:                  "bool true",
		`offset + 1`:                            "float64 13",
		`payload.s`:                             `string aé"`,
		`payload.o.p.q`:                         "string deep",
		`payload.o`:                             "map[string]interface {} map[p:map[q:deep]]",
		`payload.list`:                          "[]interface {} [1 [2] map[k:<nil>]]",
		`{"a": payload.n, "b": [payload.none]}`: "map[string]interface {} map[a:8 b:[<nil>]]",
		`payload.none`:                          "<nil> <nil>",
		`has(payload.none) && !has(payload.no)`: "bool true",
		`payload["n"]`:                          "float64 8",
		`"yes" in payload`:                      "bool true",
		`payload.map(k, k).size()`:              "float64 8",
		`payload.map(k, k)`:                     "[]interface {} [big half list n none o s yes]",
		`payload.o.map(k, payload.o[k].q)`:      "[]interface {} [deep]",
		`{"b": 1, "d": 2, "a": 3, "c": 4}.map(k, k + "!")`:    "[]interface {} [a! b! c! d!]",
		`{3: "x", 1: "y"}.filter(k, k > 0)`:                   "[]interface {} [1 3]",
		`[3, 1, 2].filter(n, n > 1).map(n, n / 2)`:            "[]interface {} [1.5 1]",
		`[[1, 2], [3]].map(l, l.map(n, n + 1))`:               "[]interface {} [[2 3] [4]]",
		`appended_at.getHours("+02:30") + 1`:                  "float64 3",
		`appended_at.getDayOfYear("UTC")`:                     "float64 59",
		`[1, 2, 3].exists_one(n, n > 2)`:                      "bool true",
		`[1, 2, 3].exists_one(n, n > 1)`:                      "bool false",
		`payload.s.matches("^a.\"$") && matches(source, "w")`: "bool true",
		`payload.n in [1, 8]`:                                 "bool true",
		`source == "w"`:                                       "bool true",
		`payload.o.p.q == "shallow"`:                          "bool false",
		`payload.n == "8"`:                                    "bool false",
		`appended_at`:                                         "time.Time 2026-03-01 00:00:00 +0000 UTC",
		`appended_at - timestamp("2026-02-28T23:59:00Z")`:     "float64 60",

		`payload.no`:            "error no such key: no",
		`payload.o.no`:          "error no such key: no",
		`payload.no.o`:          "error no such key: no",
		`payload.n.x`:           "error no such",
		`payload.no == "x"`:     "error no such key: no",
		`payload.s + payload.n`: "error no such overload",
		`{1: 2}`:                "error it gives a map with a key that is int, not string",
		`type(payload)`:         "error it gives",
		`b"bytes"`:              "error it gives bytes",
	} {
		x, s := compiled(t, expression, &ev)
		v, err := x.Eval(s)
		got := fmt.Sprintf("%T %v", v, v)
		if err != nil {
			got = "error " + err.Error()
		}
		if !strings.HasPrefix(got, want) || (err == nil && got != want) {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

// Go goes through a map in another order each time, so one evaluation shows nothing.
func TestLoopsGoThroughKeysInOrder(t *testing.T) {
	ev := event.New("X", []byte(`{"e": 1, "d": 2, "c": 3, "b": 4, "a": {"z": 1, "y": 2, "x": 3}}`))
	for expression, want := range map[string]string{
		`payload.map(k, k)`:                          "[a b c d e]",
		`payload.a.filter(k, payload.a[k] > 1)`:      "[x y]",
		`{"r": 1, "q": payload.e, "p": 3}.map(k, k)`: "[p q r]",
	} {
		x, s := compiled(t, expression, &ev)
		for range 40 {
			if v, err := x.Eval(s); err != nil || fmt.Sprint(v) != want {
				t.Fatalf("%s: %v, want %s, %v", expression, v, want, err)
			}
		}
	}
}

func TestAPayloadThatIsNoObjectIsAnError(t *testing.T) {
	for _, payload := range []string{``, `[1]`, `7`, `{"a": `, `{"a": tru}`, `{"b": {"c"}, "a": 1}`,
		`{"a": ` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		`{"b": ` + strings.Repeat("[", 1<<20) + `}`} {
		ev := event.New("X", []byte(payload))
		for _, expression := range []string{`payload.a`, `payload.a == 1`} {
			x, s := compiled(t, expression, &ev)
			if v, err := x.Eval(s); err == nil {
				t.Errorf("%.20s: %s gives %v", payload, expression, v)
			}
		}
	}
}

func TestTheWorkOfAnExpressionIsBounded(t *testing.T) {
	ev := event.New("X", map[string]any{"long": strings.Repeat("a", 4097), "short": strings.Repeat("a", 4096)})
	loops := "a+b+c+d+e+f > 0"
	for _, variable := range "fedcba" {
		loops = fmt.Sprintf("[1,2,3,4,5,6,7,8].all(%c, %s)", variable, loops)
	}
	x, s := compiled(t, loops, &ev)
	if _, err := x.Eval(s); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Error(err)
	}
	// A long text would make other expressions costly.
	x, s = compiled(t, "payload.long == null && size(payload.short) == 4096", &ev)
	if v, err := x.Eval(s); v != true || err != nil {
		t.Error(v, err)
	}
}

func TestAnErrorHasItsPlace(t *testing.T) {
	l, err := where.NewLanguage(false, "elo", "key")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		expression string
		want       where.Want
		text       string
	}{
		{"elo +\n nobody", where.Any, "rules[0].when: line 2, column 2: undeclared reference to 'nobody'"},
		{"payload.x", where.Any, "rules[0].when: line 1, column 1: undeclared reference to 'payload'"},
		{"'a' + key", where.Number, "rules[0].when: line 1, column 1: it gives string, not a number"},
		{"[1].all(x,\n y > 1)", where.Any, "rules[0].when: line 2, column 2: undeclared reference to 'y'"},
		{"nobody.all(x, x)", where.Any, "rules[0].when: line 1, column 1: undeclared reference to 'nobody'"},
		{"[1].all(x, x == 'a')", where.Any, "rules[0].when: line 1, column 14: found no matching overload"},
		{"elo.getHours('Europe/Berlin')", where.Any, "rules[0].when: line 1, column 14: a time zone is 'UTC'"},
		{"key.matches(elo)", where.Any, "rules[0].when: line 1, column 13: a pattern is a text in the expression"},
		{"matches(key, '" + strings.Repeat("a", 257) + "')", where.Any,
			"rules[0].when: line 1, column 14: a pattern is a text in the expression, of up to 256 bytes"},
		{"elo.getHours(key)", where.Any, "rules[0].when: line 1, column 14: a time zone is 'UTC'"},
		{"elo > 3", where.String, "rules[0].when: line 1, column 1: it gives bool, not string"},
		{"elo * 3", where.Bool, "rules[0].when: line 1, column 1: it gives double, not bool"},
	} {
		_, err := l.Compile("rules[0].when", c.expression, c.want)
		var at *where.Error
		if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), c.text) {
			t.Errorf("%s: %v, want %s", c.expression, err, c.text)
		}
	}
}
