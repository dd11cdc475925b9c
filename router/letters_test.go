package router_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

func lettersOf(t *testing.T, c *client.Client, f client.LetterFilter) (list []client.Letter) {
	t.Helper()
	for l, err := range c.Admin().DeadLetters(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, l)
	}
	return list
}

func cursorOf(t *testing.T, c *client.Client, name string) client.CursorInfo {
	t.Helper()
	info, err := c.Cursor(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// compact removes all events before an offset, also those that cursors hold. It needs an
// event after them.
func compact(t *testing.T, c *client.Client, before uint64) {
	t.Helper()
	done, err := c.Admin().Compact(t.Context(), client.Compaction{Before: &before, Force: true})
	if err != nil || done.First != before {
		t.Fatalf("%+v, %v", done, err)
	}
}

// An event that a handler cannot handle after all retries is a dead letter of the cluster, and
// its cursor moves past it; redriven it comes to that handler again, once, and to no other.
func TestWhatIsGivenUpIsADeadLetterOfTheCluster(t *testing.T) {
	n := node(t)
	var healed atomic.Bool
	var trainer, other seen
	var mu sync.Mutex
	attempts := map[int]int{}
	r := open(
		t,
		router.OnClient(n.Client()),
		router.Options{Source: "p1", Retries: router.Backoff(2, time.Millisecond), Breaker: router.Breaker{Off: true}},
	)
	progressOf := router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			mu.Lock()
			attempts[number(ev)]++
			mu.Unlock()
			if number(ev)%2 == 1 && !healed.Load() {
				return errBoom
			}
			return trainer.handle(ctx, ev)
		}}
	sub := subscribe(t, r, progressOf)
	subscribe(
		t,
		r,
		router.Subscription{Name: "other", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Handler: other.handle},
	)
	var offsets []uint64
	for i := range 4 {
		offsets = append(offsets, publish(t, r, progress("k", i)).Offset)
	}
	c := n.Client()
	eventually(
		t,
		"the cursor is past all",
		func() bool { return sub.Status().Committed >= offsets[3] && sub.Status().DeadLettered == 2 },
	)
	if committed := cursorOf(t, c, "trainer").Committed; committed < offsets[3] {
		t.Errorf("it is at %d", committed)
	}
	letters := lettersOf(t, c, client.LetterFilter{Cursor: "trainer"})
	if len(letters) != 2 || letters[0].Offset != offsets[1] || letters[1].Offset != offsets[3] ||
		letters[0].Attempts != 3 || letters[0].Handler != "trainer" || letters[0].Error != "boom" ||
		letters[0].FirstFailed.IsZero() {
		t.Fatalf("%+v", letters)
	}
	if st := sub.Status(); st.DeadLettered != 2 || st.Failed != 2 || st.Handled != 2 || st.Held != "" ||
		st.State != router.Attached {
		t.Errorf("%+v", st)
	}
	if got := trainer.numbers(); got != "k0 k2" || attempts[1] != 3 || attempts[3] != 3 {
		t.Errorf("%s, %v", got, attempts)
	}
	healed.Store(true)
	done, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: "trainer"}, "")
	if err != nil || done.Done != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	eventually(
		t,
		"they are handled",
		func() bool { return len(lettersOf(t, c, client.LetterFilter{Cursor: "trainer"})) == 0 },
	)
	publish(t, r, progress("k", 4))
	eventually(t, "what follows too", func() bool { return len(trainer.all()) == 5 && len(other.all()) == 5 })
	if got := trainer.numbers() + "|" + other.numbers(); got != "k0 k2 k1 k3 k4|k0 k1 k2 k3 k4" {
		t.Error(got)
	}
}

// An event whose dead letter cannot be kept any more, as its cursor was moved past it or
// it was trimmed meanwhile, is counted as lost and holds nothing up.
func TestALetterOfWhatIsGoneHoldsNothingUp(t *testing.T) {
	n := node(t)
	c := n.Client()
	var all seen
	failing, release := make(chan struct{}, 2), make(chan struct{})
	r := open(t, router.OnClient(c), router.Options{Retries: []time.Duration{}})
	sub := subscribe(t, r, router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
		Handler: func(ctx context.Context, ev event.Event) error {
			if ev.Key == "bad" {
				failing <- struct{}{}
				<-release
				return errBoom
			}
			return all.handle(ctx, ev)
		}})
	bad := publish(t, r, progress("bad", 0)).Offset
	<-failing
	if _, err := c.SeekCursor(t.Context(), "trainer", client.FromOffset(bad+1)); err != nil {
		t.Fatal(err)
	}
	release <- struct{}{}
	publish(t, r, progress("good", 1))
	eventually(t, "it continues", func() bool { return len(all.all()) == 1 })
	bad = publish(t, r, progress("bad", 2)).Offset
	<-failing
	last := publish(t, r, progress("good", 3)).Offset
	compact(t, c, last)
	release <- struct{}{}
	eventually(t, "it continues", func() bool { return len(all.all()) == 2 })
	eventually(t, "the cursor is past it", func() bool { return cursorOf(t, c, "trainer").Committed >= last })
	if st := sub.Status(); st.Lost != 2 || st.DeadLettered != 0 || st.Failed != 2 || st.State != router.Attached {
		t.Errorf("%d was trimmed: %+v", bad, st)
	}
}
