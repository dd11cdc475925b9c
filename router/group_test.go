package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// TestProcessesShareAGroup has two routers, as of two processes, handle the events of a group: each event goes to one
// of them, events of a key in their order.
func TestProcessesShareAGroup(t *testing.T) {
	n := node(t)
	const keys, each = 8, 25
	var all seen
	var busy [2]atomic.Int64
	for i := range busy {
		r := open(t, router.OnClient(n.Client()), router.Options{})
		subscribe(t, r, router.Subscription{Name: "trainer", Group: "trainers", Concurrency: 4,
			Types: []string{"TRAINING_PROGRESS"},
			Handler: func(ctx context.Context, ev event.Event) error {
				if a, _ := router.AttemptOf(ctx); a.Delivery == 0 {
					t.Error("a delivery of a group has no number")
				}
				busy[i].Add(1)
				eventually(t, "the other member to have work", func() bool { return busy[1-i].Load() > 0 })
				return all.handle(ctx, ev)
			}})
	}
	for number := range each {
		for key := range keys {
			ev := progress(fmt.Sprint("k", key, "-"), number)
			ev.NoDedup = true
			if _, err := n.Client().Publish(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "all events to be handled", func() bool { return len(all.all()) >= keys*each })

	// Of each key every event was handled once, in order.
	for key := range keys {
		prefix := fmt.Sprint("k", key, "-")
		last := -1
		for _, ev := range all.all() {
			if ev.Key != prefix {
				continue
			}
			if number(ev) != last+1 {
				t.Errorf("%s: event %d after %d", prefix, number(ev), last)
			}
			last = number(ev)
		}
		if last != each-1 {
			t.Errorf("%s: %d events were handled", prefix, last+1)
		}
	}
}

// TestAGroupHandlersFailures sees a failed delivery redelivered with its attempts, and dead letters after the last
// delivery and after a permanent error.
func TestAGroupHandlersFailures(t *testing.T) {
	n := node(t)
	r := open(t, router.OnClient(n.Client()), router.Options{Breaker: router.Breaker{Off: true}})
	var mu sync.Mutex
	var story []string
	sub := subscribe(t, r, router.Subscription{Name: "trainer", Group: "trainers", MaxDeliver: 2,
		Types: []string{"TRAINING_PROGRESS"}, Retries: []time.Duration{time.Millisecond},
		Handler: func(ctx context.Context, ev event.Event) error {
			a, _ := router.AttemptOf(ctx)
			mu.Lock()
			defer mu.Unlock()
			story = append(story, fmt.Sprintf("%s delivery %d attempt %d", ev.Key, a.Delivery, a.Number))
			switch ev.Key {
			case "bad":
				return errBoom
			case "hopeless":
				return router.Permanent(errBoom)
			}
			return nil
		}})
	for _, key := range []string{"bad", "hopeless", "good"} {
		publish(t, r, progress(key, 1))
	}
	eventually(t, "two dead letters", func() bool {
		return len(lettersOf(t, n.Client(), client.LetterFilter{Cursor: "trainers"})) == 2
	})
	eventually(t, "the good event", func() bool { return sub.Status().Handled == 1 })
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(story)
	want := []string{
		"bad delivery 1 attempt 1", "bad delivery 1 attempt 2", "bad delivery 2 attempt 1", "bad delivery 2 attempt 2",
		"good delivery 1 attempt 1", "hopeless delivery 1 attempt 1",
	}
	if !slices.Equal(story, want) {
		t.Errorf("it went\n%s\nwant\n%s", strings.Join(story, "\n"), strings.Join(want, "\n"))
	}
	if s := sub.Status(); s.DeadLettered != 2 || s.Failed != 3 || s.Group != "trainers" {
		t.Errorf("status %+v", s)
	}
}

// TestAnOpenBreakerLeavesTheGroup gives a group's events to the member whose handler works: one with an open breaker
// takes none and holds none.
func TestAnOpenBreakerLeavesTheGroup(t *testing.T) {
	n := node(t)
	sick := open(t, router.OnClient(n.Client()), router.Options{})
	var calls atomic.Int64
	sickSub := subscribe(t, sick, router.Subscription{Name: "sick", Group: "trainers", MaxDeliver: 9, Concurrency: 3,
		Retries: []time.Duration{}, Breaker: &router.Breaker{Failures: 1, OpenFor: time.Hour},
		Types: []string{"TRAINING_PROGRESS"},
		Handler: func(context.Context, event.Event) error {
			calls.Add(1)
			return errBoom
		}})
	publish(t, sick, progress("k", 0))
	eventually(t, "the breaker to open", func() bool { return sickSub.Status().Breaker.State == "open" })

	// From here on the healthy one gets all, the event that failed too.
	var got seen
	healthy := open(t, router.OnClient(n.Client()), router.Options{})
	subscribe(t, healthy, router.Subscription{Name: "healthy", Group: "trainers", Handler: got.handle})
	for i := range 20 {
		publish(t, healthy, progress(fmt.Sprint("k", i), i+1))
	}
	eventually(t, "all events to be handled", func() bool { return len(got.all()) == 21 })
	if calls.Load() != 1 {
		t.Errorf("the handler with the open breaker was called %d times", calls.Load())
	}

	// Closed by hand, it takes part again.
	if err := sick.ResetBreaker("sick", "a test"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handler to be called again", func() bool {
		publish(t, sick, progress(fmt.Sprint("again", calls.Load()), int(calls.Load())))
		return calls.Load() > 1
	})
}

// TestACloseReleasesAGroupsEvents closes a router whose handler is stuck: the event goes to another member at once, and
// what was handled is not redelivered.
func TestACloseReleasesAGroupsEvents(t *testing.T) {
	n := node(t)
	r, err := router.New(router.OnClient(n.Client()), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, r, router.Subscription{Name: "trainer", Group: "trainers", Types: []string{"TRAINING_PROGRESS"},
		Handler: func(ctx context.Context, ev event.Event) error {
			if number(ev) == 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}})
	publish(t, r, progress("a", 1))
	publish(t, r, progress("b", 2))
	eventually(t, "the first to be handled", func() bool {
		s := r.Subscribers()[0]
		return s.Handled == 1 && s.Running == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the close says %v", err)
	}
	var got seen
	next := open(t, router.OnClient(n.Client()), router.Options{})
	subscribe(t, next, router.Subscription{Name: "trainer", Group: "trainers", Handler: got.handle})
	publish(t, next, progress("c", 3))
	eventually(t, "the rest to be handled", func() bool { return len(got.all()) >= 2 })
	if text := got.numbers(); strings.Contains(text, "a1") || !strings.Contains(text, "b2") {
		t.Errorf("the next member got %s", text)
	}
}

// TestAGroupExcludesOtherKinds refuses what a subscription with a group cannot be.
func TestAGroupExcludesOtherKinds(t *testing.T) {
	r := open(t, newMemLog(), router.Options{})
	handle := func(context.Context, event.Event) error { return nil }
	for want, s := range map[string]router.Subscription{
		"Durable":       {Durable: true},
		"Direct":        {Direct: true},
		"Sync":          {Sync: true},
		"Lane":          {Lane: func(*event.Event) string { return "" }},
		"Change":        {Change: true},
		"has no groups": {},
	} {
		s.Name, s.Group, s.Handler = "trainer", "trainers", handle
		if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
