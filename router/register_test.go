package router_test

import (
	"context"
	"fmt"
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
}

func (l *registering) Register(_ context.Context, r client.Registration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, s := range r.Subscriptions {
		parts = append(parts, fmt.Sprintf("%s %s %s %s", s.Name, s.Mode, s.State, timeoutOf(s)))
	}
	l.last = strings.Join(parts, ", ")
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
