package router_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

func TestBadSubscriptionsAreRefused(t *testing.T) {
	r := open(t, newMemLog(), router.Options{})
	handler := new(seen).handle
	for want, s := range map[string]router.Subscription{
		"Name":                    {Handler: handler},
		"Handler":                 {Name: "x"},
		"Direct and Durable":      {Name: "x", Handler: handler, Direct: true, Durable: true},
		"Direct and From":         {Name: "x", Handler: handler, Direct: true, From: client.FromStart()},
		"types[1]":                {Name: "x", Handler: handler, Types: []string{"A", "A B"}},
		"Queue is 1":              {Name: "x", Handler: handler, Queue: 1, Concurrency: 2},
		"Timeout is -1s":          {Name: "x", Handler: handler, Timeout: -time.Second},
		"Retries[1] is -1s":       {Name: "x", Handler: handler, Retries: []time.Duration{0, -time.Second}},
		"Breaker is":              {Name: "x", Handler: handler, Breaker: &router.Breaker{Failures: -1}},
		"line 1, column 1: undec": {Name: "x", Handler: handler, Where: "payloadd.epoch > 3"},
	} {
		if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n := len(r.Subscribers()); n != 0 {
		t.Errorf("%d subscriptions", n)
	}
}

func TestWhere(t *testing.T) {
	ev := event.New("training.completed", []byte(`{"epoch": 7, "loss": 0.25, "big": 1e300, "tags": ["a", "b"], "host": {"name": "h1"}}`))
	ev.Type, ev.Source, ev.Key, ev.Offset = event.TrainingCompleted, "trainer-3", "hex8", 12
	ev.AppendedAt = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	for expression, want := range map[string]string{
		`payload.epoch > 3`:                             "true",
		`payload.epoch + 1 == 8 && payload.loss < 1`:    "true",
		`payload.epoch == 7.0`:                          "true",
		`payload.big > 5`:                               "true",
		`"b" in payload.tags && payload.tags[0] == "a"`: "true",
		`payload.host.name.startsWith("h")`:             "true",
		`has(payload.missing)`:                          "false",
		`payload.missing > 3`:                           "false, no such key: missing",
		`payload.host > 3`:                              "false, no such overload",
		`type == "TRAINING_COMPLETED" && value == "training_completed" && source.matches("^trainer-[0-9]$") && key == "hex8"`: "true",
		`offset == 12 && term == 0 && correlation_id == "" && appended_at > timestamp("2026-01-01T00:00:00Z")`:                "true",
		`payload.tags`: "false, it gives list",
		`[1,2,3,4,5,6,7,8].all(a, [1,2,3,4,5,6,7,8].all(b, [1,2,3,4,5,6,7,8].all(c, [1,2,3,4,5,6,7,8].all(d, [1,2,3,4,5,6,7,8].all(e, [1,2,3,4,5,6,7,8].all(f, a+b+c+d+e+f > 0))))))`: "false, operation cancelled: actual cost limit exceeded",
	} {
		w, err := router.CompileWhere(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		met, err := w.Match(&ev)
		got := map[bool]string{true: "true", false: "false"}[met]
		if err != nil {
			got += ", " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

func TestWhereNamesThePosition(t *testing.T) {
	for _, c := range []struct {
		expression   string
		line, column int
		message      string
	}{
		{"payload.epoch >", 1, 16, "mismatched input"},
		{"payload.epoch > 3 &&\n  nobody == 4", 2, 3, "undeclared reference to 'nobody'"},
		{"source > 3", 1, 8, "no matching overload"},
		{"source + key", 1, 1, "it gives string, not bool"},
		{"", 1, 1, "mismatched input"},
	} {
		_, err := router.CompileWhere(c.expression)
		var at *router.WhereError
		if !errors.As(err, &at) || at.Line != c.line || at.Column != c.column || !strings.Contains(at.Message, c.message) {
			t.Errorf("%q: %v", c.expression, err)
			continue
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != 3 || len(lines[2]) != len(" | ")+c.column {
			t.Errorf("the place is not marked: %q", err.Error())
		}
	}
}

func TestOptions(t *testing.T) {
	timeout := func() time.Duration {
		r := open(t, newMemLog(), router.Options{})
		return subscribe(t, r, router.Subscription{Name: "x", Direct: true, Handler: new(seen).handle}).Status().Timeout
	}
	if got := timeout(); got != 30*time.Second {
		t.Errorf("the default is %s", got)
	}
	t.Setenv(router.TimeoutVariable, "600")
	if got := timeout(); got != 10*time.Minute {
		t.Errorf("of the environment: %s", got)
	}
	for _, bad := range []string{"0", "-1", "NaN", "1e300", "ten"} {
		t.Setenv(router.TimeoutVariable, bad)
		if _, err := router.New(newMemLog(), router.Options{}); err == nil || !strings.Contains(err.Error(), router.TimeoutVariable) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	t.Setenv(router.TimeoutVariable, "")
	for want, o := range map[string]router.Options{
		"Recent is -1": {Recent: -1}, "types[0]": {LocalTypes: []string{"a b"}}, "sources[0]": {Source: "\n"}, "Queue is -1": {Queue: -1},
	} {
		if _, err := router.New(newMemLog(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Reserved types come from the cluster alone, locally too; a batch is refused whole.
func TestBadEventsAreRefused(t *testing.T) {
	log := newMemLog()
	r := open(t, log, router.Options{})
	var all seen
	subscribe(t, r, router.Subscription{Name: "x", Direct: true, Handler: all.handle})
	if _, err := r.Publish(t.Context(), event.New(event.LeaderElected, nil), router.Local()); err == nil {
		t.Error("a leader was elected locally")
	}
	bad := []event.Event{progress("k", 1), event.New("X", "not an object")}
	if _, err := r.PublishBatch(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "event 2 of 2") {
		t.Errorf("%v", err)
	}
	results, err := r.PublishBatch(t.Context(), []event.Event{progress("k", 1), progress("k", 2)})
	if err != nil || len(results) != 2 || results[1].Offset != 2 {
		t.Errorf("%+v, %v", results, err)
	}
	shut(t, r)
	if all.numbers() != "k1 k2" || len(log.of(event.TrainingProgress)) != 2 {
		t.Error(all.numbers())
	}
}
