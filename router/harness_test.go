package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// embedded is the log of a node inside the process.
func embedded(t testing.TB) router.Log {
	t.Helper()
	return router.OnClient(node(t).Client())
}

func node(t testing.TB) *ringlog.Node {
	t.Helper()
	n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// open returns a router that is closed with the test.
func open(t testing.TB, log router.Log, o router.Options) *router.Router {
	t.Helper()
	r, err := router.New(log, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, r) })
	return r
}

func shut(t testing.TB, r *router.Router) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
}

func subscribe(t testing.TB, r *router.Router, s router.Subscription) *router.Subscriber {
	t.Helper()
	sub, err := r.Subscribe(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func publish(t testing.TB, r *router.Router, ev event.Event, opts ...router.PublishOption) router.Result {
	t.Helper()
	ev.NoDedup = ev.DedupID == ""
	res, err := r.Publish(t.Context(), ev, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// progress is an event of a key with a number.
func progress(key string, n int) event.Event {
	ev := event.New(event.TrainingProgress, map[string]any{"n": n})
	ev.Key = key
	return ev
}

func number(ev event.Event) int {
	var p struct{ N int }
	if err := json.Unmarshal(ev.Payload, &p); err != nil {
		panic(err)
	}
	return p.N
}

func fields(t testing.TB, ev event.Event) map[string]any {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal(ev.Payload, &p); err != nil {
		t.Error(err) // handlers call this, in goroutines of the router
	}
	return p
}

// seen collects what a handler gets.
type seen struct {
	mu     sync.Mutex
	events []event.Event
}

func (s *seen) handle(_ context.Context, ev event.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, ev)
	return nil
}

func (s *seen) all() []event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]event.Event(nil), s.events...)
}

// numbers lists key and number of what was seen.
func (s *seen) numbers() string {
	var out []string
	for _, ev := range s.all() {
		out = append(out, fmt.Sprintf("%s%d", ev.Key, number(ev)))
	}
	return strings.Join(out, " ")
}

// eventually polls a condition that others bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

var errBoom = errors.New("boom")
