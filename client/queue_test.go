package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/event"
)

// queueOf is a queue with that many single events waiting.
func queueOf(t *testing.T, waiting int) *queue {
	q := newQueue(&Config{MaxBatchEvents: 100, MaxBatchBytes: 1 << 20, MaxBuffered: 1 << 20})
	q.gathers = true
	addEvents(t, q, waiting)
	return q
}

func addEvents(t *testing.T, q *queue, n int) {
	for range n {
		if err := q.add(t.Context(), &pending{events: make([]event.Event, 1), done: make(chan struct{})}); err != nil {
			t.Error(err)
		}
	}
}

// taken has a lane take a batch, and returns a function that tells its size once the
// lane has one, 0 before.
func taken(q *queue, into **batch) func() int {
	done := make(chan struct{})
	go func() {
		*into = q.take(context.Background(), time.Minute)
		close(done)
	}()
	return func() int {
		synctest.Wait()
		select {
		case <-done:
			return len((*into).all)
		default:
			return 0
		}
	}
}

func addAlone(t *testing.T, q *queue) {
	if err := q.add(t.Context(), &pending{alone: true, events: make([]event.Event, 1), done: make(chan struct{})}); err != nil {
		t.Error(err)
	}
}

// A lane that is free takes what is due, whoever made it so: a request that is not
// shared goes out beside others, also from behind one that waits or has left, and
// nobody waits for long beside a request that hangs.
func TestAFreeLaneTakesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 8)
		var lanes [4]*batch
		if n := taken(q, &lanes[0])(); n != 8 {
			t.Fatal(n)
		}
		second, third := taken(q, &lanes[1]), taken(q, &lanes[2])
		second()
		third()
		addEvents(t, q, 1)
		addAlone(t, q)
		if a, b := second(), third(); a != 1 || b != 1 {
			t.Errorf("the lanes have %d and %d", a, b)
		}
		fourth := taken(q, &lanes[3])
		fourth()
		addEvents(t, q, 3)
		if n := fourth(); n != 0 {
			t.Errorf("%d go out at once beside 9", n)
		}
		time.Sleep(patientFor)
		if n := fourth(); n != 3 {
			t.Errorf("%d go out after all patience", n)
		}
		for _, b := range lanes {
			b.cancel(nil)
		}
	})
}

// While a request is under way, the next goes out when it has as many events; and
// callers who were answered are waited for, though not for long.
func TestCallersShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 8)
		var first, second, third *batch
		if n := taken(q, &first)(); n != 8 {
			t.Fatalf("an idle lane takes %d of 8", n)
		}
		addEvents(t, q, 7)
		size := taken(q, &second)
		if n := size(); n != 0 {
			t.Fatalf("beside 8 under way a request of %d goes out", n)
		}
		addEvents(t, q, 1)
		if n := size(); n != 8 {
			t.Fatalf("beside 8 under way a request of %d goes out, not 8", n)
		}
		q.finish(first.all)
		q.finish(second.all)
		addEvents(t, q, 3)
		size = taken(q, &third)
		if n := size(); n != 0 {
			t.Fatalf("%d go out while 13 more are expected", n)
		}
		addEvents(t, q, 13)
		if n := size(); n != 16 {
			t.Fatalf("%d go out when all 16 are back", n)
		}
		q.finish(third.all)
		addEvents(t, q, 1)
		size = taken(q, &first)
		began := time.Now()
		if n := size(); n != 0 {
			t.Fatalf("%d go out while 15 more are expected", n)
		}
		time.Sleep(gatherFor)
		if n := size(); n != 1 || time.Since(began) > gatherFor {
			t.Fatalf("%d go out after %v", n, time.Since(began))
		}
		for _, b := range []*batch{first, second, third} {
			b.cancel(nil)
		}
	})
}

// Who waits beside a crowd goes out when it is answered, whether anybody comes back or not.
func TestAnAnswerLetsTheNextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, crowd)
		var first, second *batch
		if n := taken(q, &first)(); n != crowd {
			t.Fatal(n)
		}
		size := taken(q, &second)
		size()
		addEvents(t, q, 1)
		if n := size(); n != 0 {
			t.Errorf("%d go out beside %d", n, crowd)
		}
		q.finish(first.all)
		if n := size(); n != 0 {
			t.Errorf("%d go out while %d are expected", n, crowd)
		}
		time.Sleep(gatherFor)
		if n := size(); n != 1 {
			t.Fatalf("%d go out", n)
		}
		for _, b := range []*batch{first, second} {
			b.cancel(nil)
		}
	})
}

// Beside a crowd under way others wait for its answers, up to a full request; and who
// comes back one after the other is waited for, though not for ever.
func TestACrowdSharesOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, crowd)
		var first, second, third *batch
		if n := taken(q, &first)(); n != crowd {
			t.Fatal(n)
		}
		addEvents(t, q, 3*crowd)
		size := taken(q, &second)
		if n := size(); n != 0 {
			t.Fatalf("%d go out beside %d under way", n, crowd)
		}
		addEvents(t, q, 100-3*crowd)
		if n := size(); n != 100 {
			t.Fatalf("%d go out of what fills a request", n)
		}
		q.finish(first.all)
		q.finish(second.all)
		addEvents(t, q, 1)
		size = taken(q, &third)
		for began := time.Now(); time.Since(began) < gatherMost-gatherFor; addEvents(t, q, 1) {
			if n := size(); n != 0 {
				t.Fatalf("%d go out after %v, while others come back", n, time.Since(began))
			}
			time.Sleep(gatherFor / 2)
		}
		time.Sleep(gatherFor)
		if n := size(); n < 10 || n == 100+crowd {
			t.Fatalf("%d have gathered", n)
		}
		for _, b := range []*batch{first, second, third} {
			b.cancel(nil)
		}
	})
}
