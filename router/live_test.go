package router_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// What live, direct and local handlers abandon are dead letters of the cluster, which move no cursor. Redriven they
// come to that handler alone, also in a later process, and are resolved only once it has handled them.
func TestHandlersWithoutACursorHaveDeadLetters(t *testing.T) {
	n := node(t)
	c := n.Client()
	var healed atomic.Bool
	var live, direct, other seen
	options := router.Options{Source: "p1", Retries: router.Backoff(1, 0), Breaker: router.Breaker{Off: true}}
	failing := func(s *seen) router.Handler {
		return func(ctx context.Context, ev event.Event) error {
			if !healed.Load() {
				return errBoom
			}
			return s.handle(ctx, ev)
		}
	}
	liveOne := router.Subscription{Name: "live-one", Types: []string{"TRAINING_PROGRESS"}, Handler: failing(&live)}
	r := open(t, router.OnClient(c), options)
	sub := subscribe(t, r, liveOne)
	subscribe(t, r, router.Subscription{Name: "other", Types: []string{"TRAINING_PROGRESS"}, Handler: other.handle})
	subscribe(t, r, router.Subscription{Name: "direct-one", Types: []string{"TRAINING_STARTED"}, Direct: true,
		Handler: failing(&direct)})
	first := progress("k", 0)
	first.CorrelationID = "run-1"
	offset := publish(t, r, first).Offset
	if _, err := r.Publish(t.Context(), event.New("TRAINING_STARTED", map[string]any{"n": 1})); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Publish(t.Context(), progress("k", 2), router.Local()); err != nil {
		t.Fatal(err)
	}
	all := func() int { return len(lettersOf(t, c, client.LetterFilter{})) }
	eventually(t, "three letters", func() bool { return all() == 3 })
	eventually(t, "they are counted", func() bool { return sub.Status().DeadLettered == 2 })
	for _, l := range lettersOf(t, c, client.LetterFilter{Cursor: "live.live-one"}) {
		isLocal := len(l.Lineage) == 0
		if l.Handler != "live-one" || l.Error != "boom" || l.Attempts != 2 || l.Key != "k" || l.Origin != "p1" ||
			(!isLocal && (l.Lineage[0] != offset || l.CorrelationID != "run-1")) {
			t.Errorf("%+v", l)
		}
	}

	// A redriven letter that fails again is the same letter.
	waitForCursor(t, c, "live.live-one")
	redrive := func(cursor string, want int) {
		t.Helper()
		done, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: cursor}, "")
		if err != nil || done.Done != want {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	redrive("live.live-one", 2)
	eventually(t, "they are dead again", func() bool {
		list := lettersOf(t, c, client.LetterFilter{Cursor: "live.live-one", State: "dead"})
		return len(list) == 2 && list[0].Attempts == 4 && list[1].Attempts == 4 && list[0].Redrives == 1
	})
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// What is redriven while no process has the handler waits for the next one.
	redrive("live.live-one", 2)
	healed.Store(true)
	r = open(t, router.OnClient(c), options)
	subscribe(t, r, liveOne)
	subscribe(t, r, router.Subscription{Name: "other", Types: []string{"TRAINING_PROGRESS"}, Handler: other.handle})
	eventually(t, "they are handled", func() bool { return all() == 1 })
	publish(t, r, progress("k", 3))
	eventually(t, "what follows too", func() bool { return len(live.all()) == 3 && len(other.all()) == 3 })
	if got := live.numbers() + "|" + other.numbers(); strings.Count(got, "k0") != 2 || strings.Count(got, "k2") != 2 {
		t.Error(got)
	}
}

// A live event that fails while redriven letters wait resolves none of them.
func TestALiveLetterResolvesNoOther(t *testing.T) {
	n := node(t)
	c := n.Client()
	var fail atomic.Bool
	fail.Store(true)
	entered, release := make(chan int, 10), make(chan struct{})
	r := open(t, router.OnClient(c), router.Options{Retries: router.Backoff(0, 0), Breaker: router.Breaker{Off: true}})
	subscribe(t, r, router.Subscription{Name: "one", Types: []string{"TRAINING_PROGRESS"}, Concurrency: 2,
		Handler: func(_ context.Context, ev event.Event) error {
			if fail.Load() || ev.Key == "bad" {
				return errBoom
			}
			entered <- number(ev)
			<-release
			return nil
		}})
	publish(t, r, progress("k", 0))
	publish(t, r, progress("k", 1))
	dead := func(state string) int { return len(lettersOf(t, c, client.LetterFilter{State: state})) }
	eventually(t, "two letters", func() bool { return dead("dead") == 2 })
	waitForCursor(t, c, "live.one")
	fail.Store(false)
	done, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: "live.one"}, "")
	if err != nil || done.Done != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	<-entered
	publish(t, r, progress("bad", 9))
	eventually(t, "a third letter", func() bool { return dead("dead") == 1 })
	if n := dead("redriven"); n != 2 {
		t.Errorf("%d letters are under way", n)
	}
	close(release)
	eventually(t, "both are handled", func() bool { return dead("redriven") == 0 && dead("dead") == 1 })
}

// waitForCursor waits until a subscription reads what is redriven to it.
func waitForCursor(t *testing.T, c *client.Client, name string) {
	t.Helper()
	eventually(t, "the cursor "+name, func() bool {
		info, err := c.Cursor(t.Context(), name)
		return err == nil && info.Generation > 0
	})
}

// A local event has no place in the log, so that of a durable handler is kept as those of live ones are.
func TestALocalEventOfADurableHandlerHasADeadLetter(t *testing.T) {
	n := node(t)
	c := n.Client()
	var healed atomic.Bool
	var handled seen
	options := router.Options{Retries: router.Backoff(0, 0), Breaker: router.Breaker{Off: true}}
	durable := router.Subscription{Name: "one", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			if !healed.Load() {
				return errBoom
			}
			return handled.handle(ctx, ev)
		}}
	r := open(t, router.OnClient(c), options)
	subscribe(t, r, durable)
	if _, err := r.Publish(t.Context(), progress("k", 1), router.Local()); err != nil {
		t.Fatal(err)
	}
	kept := func() int { return len(lettersOf(t, c, client.LetterFilter{Cursor: "live.one"})) }
	eventually(t, "a letter", func() bool { return kept() == 1 })
	waitForCursor(t, c, "live.one")
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A later process gets it back.
	healed.Store(true)
	subscribe(t, open(t, router.OnClient(c), options), durable)
	if _, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: "live.one"}, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is handled", func() bool { return handled.numbers() == "k1" && kept() == 0 })
}

// The cursor of redriven letters is the one that a handler of ringlog.compat of the same name has, and that of earlier
// versions is taken over.
func TestTheCursorOfLettersIsThatOfCompat(t *testing.T) {
	source, err := os.ReadFile("../python/ringlog/compat/_subscription.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{"ringlog.compat/none", "ringlog.router/none"} {
		n := node(t)
		c := n.Client()
		spec := client.CursorSpec{Filter: event.Filter{Sources: []string{filter}}}
		if _, err := c.CreateCursor(t.Context(), "live.one", spec); err != nil {
			t.Fatal(err)
		}
		var failed atomic.Bool
		var handled seen
		r := open(t, router.OnClient(c), router.Options{Retries: router.Backoff(0, 0), Breaker: router.Breaker{Off: true}})
		subscribe(t, r, router.Subscription{Name: "one", Types: []string{"TRAINING_PROGRESS"},
			Handler: func(ctx context.Context, ev event.Event) error {
				if !failed.Swap(true) {
					return errBoom
				}
				return handled.handle(ctx, ev)
			}})
		publish(t, r, progress("k", 1))
		eventually(t, "a letter", func() bool { return len(lettersOf(t, c, client.LetterFilter{Cursor: "live.one"})) == 1 })
		waitForCursor(t, c, "live.one")
		if _, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: "live.one"}, ""); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is handled", func() bool { return handled.numbers() == "k1" })
		got := cursorOf(t, c, "live.one").Filter.Sources
		if len(got) != 1 || !strings.Contains(string(source), fmt.Sprintf("sources=[%q]", got[0])) {
			t.Errorf("compat has another filter than %q", got)
		}
	}
}
