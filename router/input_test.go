package router_test

import (
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
		"the limit is 251":        {Name: strings.Repeat("x", 252), Handler: handler},
		"Handler":                 {Name: "x"},
		"Direct and Durable":      {Name: "x", Handler: handler, Direct: true, Durable: true},
		"Direct and From":         {Name: "x", Handler: handler, Direct: true, From: client.FromStart()},
		"types[1]":                {Name: "x", Handler: handler, Types: []string{"A", "A B"}},
		"Queue is 1":              {Name: "x", Handler: handler, Queue: 1, Concurrency: 2},
		"Timeout is -1s":          {Name: "x", Handler: handler, Timeout: -time.Second},
		"MaxOutage is -1s":        {Name: "x", Handler: handler, MaxOutage: -time.Second},
		"Retries[1] is -1s":       {Name: "x", Handler: handler, Retries: []time.Duration{0, -time.Second}},
		"Breaker is":              {Name: "x", Handler: handler, Breaker: &router.Breaker{Failures: -1}},
		"line 1, column 1: undec": {Name: "x", Handler: handler, Where: "payloadd.epoch > 3"},
	} {
		if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	subscribe(t, r, router.Subscription{Name: strings.Repeat("x", 251), Handler: handler})
	if n := len(r.Subscribers()); n != 1 {
		t.Errorf("%d subscriptions", n)
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
		if _, err := router.New(newMemLog(), router.Options{}); err == nil ||
			!strings.Contains(err.Error(), router.TimeoutVariable) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	t.Setenv(router.TimeoutVariable, "")
	for want, o := range map[string]router.Options{
		"Recent is -1": {Recent: -1},
		"types[0]":     {LocalTypes: []string{"a b"}},
		"sources[0]":   {Source: "\n"},
		"Queue is -1":  {Queue: -1},
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
