package router_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// timeoutOf returns the time that a registered handler may take.
func timeoutOf(s client.SubscriptionInfo) time.Duration {
	return time.Duration(s.TimeoutSeconds * float64(time.Second))
}

// registering is a log in memory that notes who listens.
type registering struct {
	*memLog
	mu   sync.Mutex
	last string
	as   string // the coordinator
}

func (l *registering) Register(_ context.Context, r client.Registration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, s := range r.Subscriptions {
		parts = append(parts, fmt.Sprintf("%s %s %s %s", s.Name, s.Mode, s.State, timeoutOf(s)))
	}
	l.last, l.as = strings.Join(parts, ", "), r.Coordinator
	return nil
}

func (l *registering) registered() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// The router registers its subscriptions and each change of them, and removes them in the
// end.
func TestARouterRegistersItsSubscriptions(t *testing.T) {
	l := &registering{memLog: newMemLog()}
	r, err := router.New(l, router.Options{Register: true, Source: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, event.Event) error { return nil }
	registers := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return l.registered() == want })
	}
	loss := subscribe(t, r, router.Subscription{Name: "loss", Durable: true, Handler: nothing, Timeout: time.Second})
	subscribe(t, r, router.Subscription{Name: "local", Direct: true, Handler: nothing})
	registers("loss durable attached 1s, local direct attached 30s")
	l.setAway(errAway)
	registers("loss durable connecting 1s, local direct attached 30s")
	l.setAway(nil)
	registers("loss durable attached 1s, local direct attached 30s")
	if err := loss.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	registers("local direct attached 30s")
	shut(t, r)
	if got := l.registered(); got != "" {
		t.Errorf("still %s", got)
	}
	if _, err := router.New(newMemLog(), router.Options{Register: true}); err == nil ||
		!strings.Contains(err.Error(), "Register") {
		t.Errorf("a log without registrations: %v", err)
	}
}

// The real one shows them as a client's.
func TestARegisteredRouterIsListed(t *testing.T) {
	n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	r, err := router.New(router.OnClient(n.Client()), router.Options{Register: true, Source: "p1"})
	if err != nil {
		t.Fatal(err)
	}
	subscribe(
		t,
		r,
		router.Subscription{Name: "loss", Types: []string{"training.*"}, Where: "payload.n > 1", Critical: true,
			Handler: func(context.Context, event.Event) error { return nil }},
	)
	listed := func() (ids []string) {
		for c, err := range n.Client().Admin().RegisteredClients(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			s := c.Subscriptions[0]
			ids = append(ids, fmt.Sprint(c.ID, s.Name, s.Filter.Types, s.Where, s.Critical, s.State, timeoutOf(s)))
		}
		return ids
	}
	want := fmt.Sprint("p1", "loss", []string{"training.*"}, "payload.n > 1", true, "attached", 30*time.Second)
	eventually(t, "it is listed", func() bool { return slices.Equal(listed(), []string{want}) })
	shut(t, r)
	if ids := listed(); len(ids) != 0 {
		t.Error(ids)
	}
}

// A subscription by coordinator gets what the registry's entry declares, and the process is registered as it. Types of
// its own that differ are logged.
func TestASubscriptionByCoordinator(t *testing.T) {
	l := &registering{memLog: newMemLog()}
	var logged bytes.Buffer
	r, err := router.New(l, router.Options{
		Register: true, Source: "p1", Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan event.Type, 10)
	take := func(_ context.Context, ev event.Event) error {
		got <- ev.Type
		return nil
	}
	subscribe(t, r, router.Subscription{Name: "all", Coordinator: "UnifiedHealthManager", Handler: take})
	eventually(t, "the registration", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.as == "health_manager"
	})
	for _, kind := range []event.Type{event.HealthAlert, event.ModelPromoted, event.HostOffline} {
		if _, err := r.Publish(t.Context(), event.New(kind, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	// What comes before the declared type is declared, too.
	if kind := <-got; kind != event.HostOffline {
		t.Errorf("got %s, which is not declared", kind)
	}
	if logged.Len() > 0 {
		t.Errorf("logged: %s", &logged)
	}

	subscribe(t, r, router.Subscription{
		Name: "some", Coordinator: "health_manager", Types: []string{"HOST_*", "MODEL_PROMOTED"}, Handler: take,
	})
	for _, part := range []string{"level=WARN", "coordinator=health_manager", "REGRESSION_CRITICAL",
		"undeclared=MODEL_PROMOTED"} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("%q is not in: %s", part, &logged)
		}
	}
	for says, s := range map[string]router.Subscription{
		"is health_manager's already": {Coordinator: "training_coordinator"},
		"no coordinator":              {Coordinator: "nobody"},
		"give Types":                  {Coordinator: "cache_orchestrator"},
		"a Flow":                      {Coordinator: "health_manager", Flow: "health_recovery"},
	} {
		s.Name, s.Handler = "bad", take
		if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	shut(t, r)
}
