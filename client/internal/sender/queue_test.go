package sender

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/event"
)

// queueOf is a queue with that many single events waiting.
func queueOf(t *testing.T, waiting int) *queue {
	q := newQueue(&Config{MaxBatchEvents: 100, MaxBatchBytes: 1 << 20}, newByteBudget(1<<20))
	q.callersReturn = true
	addEvents(t, q, waiting)
	return q
}

func addEvents(t *testing.T, q *queue, n int) {
	for range n {
		if err := q.addItem(t.Context(), &Item{Events: make([]event.Event, 1), done: make(chan struct{})}); err != nil {
			t.Error(err)
		}
	}
}

// taken has a worker take a batch, and returns a function for its size: 0 before the worker
// has one.
func taken(q *queue, into **batch) func() int {
	done := make(chan struct{})
	go func() {
		*into = q.nextBatch(context.Background(), time.Minute)
		close(done)
	}()
	return func() int {
		synctest.Wait()
		select {
		case <-done:
			return len((*into).items)
		default:
			return 0
		}
	}
}

func addUnshareable(t *testing.T, q *queue) {
	if err := q.addItem(
		t.Context(),
		&Item{unshareable: true, Events: make([]event.Event, 1), done: make(chan struct{})},
	); err != nil {
		t.Error(err)
	}
}

// A free worker takes a batch as soon as it is worth sending: an unshareable request is sent
// beside others, also after one that waits or has left, and nobody waits for long beside a
// request that hangs.
func TestAFreeWorkerTakesWhatIsWorthSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 8)
		var workers [4]*batch
		if n := taken(q, &workers[0])(); n != 8 {
			t.Fatal(n)
		}
		second, third := taken(q, &workers[1]), taken(q, &workers[2])
		second()
		third()
		addEvents(t, q, 1)
		addUnshareable(t, q)
		if a, b := second(), third(); a != 1 || b != 1 {
			t.Errorf("the workers have %d and %d", a, b)
		}
		fourth := taken(q, &workers[3])
		fourth()
		addEvents(t, q, 3)
		if n := fourth(); n != 0 {
			t.Errorf("%d are sent at once beside 9", n)
		}
		time.Sleep(maxLinger)
		if n := fourth(); n != 3 {
			t.Errorf("%d are sent after maxLinger", n)
		}
		for _, b := range workers {
			b.cancel(nil)
		}
	})
}

// While a request is in flight, the next is sent when it has as many events; and callers that
// were answered are waited for, though not for long.
func TestCallersShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, 8)
		var first, second, third *batch
		if n := taken(q, &first)(); n != 8 {
			t.Fatalf("an idle worker takes %d of 8", n)
		}
		addEvents(t, q, 7)
		size := taken(q, &second)
		if n := size(); n != 0 {
			t.Fatalf("beside 8 in flight a request of %d is sent", n)
		}
		addEvents(t, q, 1)
		if n := size(); n != 8 {
			t.Fatalf("beside 8 in flight a request of %d is sent, not 8", n)
		}
		q.finish(first.items)
		q.finish(second.items)
		addEvents(t, q, 3)
		size = taken(q, &third)
		if n := size(); n != 0 {
			t.Fatalf("%d are sent while 13 more are expected", n)
		}
		addEvents(t, q, 13)
		if n := size(); n != 16 {
			t.Fatalf("%d are sent when all 16 have returned", n)
		}
		q.finish(third.items)
		addEvents(t, q, 1)
		size = taken(q, &first)
		began := time.Now()
		if n := size(); n != 0 {
			t.Fatalf("%d are sent while 15 more are expected", n)
		}
		time.Sleep(returnWait)
		if n := size(); n != 1 || time.Since(began) > returnWait {
			t.Fatalf("%d are sent after %v", n, time.Since(began))
		}
		for _, b := range []*batch{first, second, third} {
			b.cancel(nil)
		}
	})
}

// Events that wait beside inFlightLimit others are sent once those are answered, whether their callers
// return or not.
func TestAnAnswerLetsTheNextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, inFlightLimit)
		var first, second *batch
		if n := taken(q, &first)(); n != inFlightLimit {
			t.Fatal(n)
		}
		size := taken(q, &second)
		size()
		addEvents(t, q, 1)
		if n := size(); n != 0 {
			t.Errorf("%d are sent beside %d", n, inFlightLimit)
		}
		q.finish(first.items)
		if n := size(); n != 0 {
			t.Errorf("%d are sent while %d are expected", n, inFlightLimit)
		}
		time.Sleep(returnWait)
		if n := size(); n != 1 {
			t.Fatalf("%d are sent", n)
		}
		for _, b := range []*batch{first, second} {
			b.cancel(nil)
		}
	})
}

// Beside inFlightLimit events others wait for their answers, up to a full request; and callers
// that return one after the other are waited for, though not for long.
func TestManyCallersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queueOf(t, inFlightLimit)
		var first, second, third *batch
		if n := taken(q, &first)(); n != inFlightLimit {
			t.Fatal(n)
		}
		addEvents(t, q, 3*inFlightLimit)
		size := taken(q, &second)
		if n := size(); n != 0 {
			t.Fatalf("%d are sent beside %d in flight", n, inFlightLimit)
		}
		addEvents(t, q, 100-3*inFlightLimit)
		if n := size(); n != 100 {
			t.Fatalf("%d are sent of what fills a request", n)
		}
		q.finish(first.items)
		q.finish(second.items)
		addEvents(t, q, 1)
		size = taken(q, &third)
		for began := time.Now(); time.Since(began) < maxReturnWait-returnWait; addEvents(t, q, 1) {
			if n := size(); n != 0 {
				t.Fatalf("%d are sent after %v, while others return", n, time.Since(began))
			}
			time.Sleep(returnWait / 2)
		}
		time.Sleep(returnWait)
		if n := size(); n < 10 || n == 100+inFlightLimit {
			t.Fatalf("%d are sent", n)
		}
		for _, b := range []*batch{first, second, third} {
			b.cancel(nil)
		}
	})
}
