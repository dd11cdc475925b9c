package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// load is what the publishers publish: events with a number, in batches.
type load struct {
	events, publishers, batch int
	enough                    chan struct{} // if not nil, publishers stop early once it is closed

	acknowledged atomic.Int64  // events
	last         atomic.Uint64 // the highest offset acknowledged
}

// loadEvent is the event with a number: each has its own content, and one of 64 keys.
func loadEvent(publisher, n int) event.Event {
	ev := event.New(event.TrainingProgress, map[string]any{"n": n})
	ev.Source, ev.Key = fmt.Sprintf("pub-%d", publisher), fmt.Sprintf("config-%d", n%64)
	return ev
}

// publish publishes everything, or until there is enough; what fails on the way is sent again, and counts once.
func (l *load) publish(ctx context.Context, t *testing.T, c *cluster) {
	var all sync.WaitGroup
	for p := range l.publishers {
		cl := c.client()
		all.Go(func() {
			// Each publisher has every publishers-th batch.
			for from := p * l.batch; from < l.events; from += l.publishers * l.batch {
				select {
				case <-l.enough:
					return
				default:
				}
				var batch []event.Event
				for n := from; n < min(from+l.batch, l.events); n++ {
					batch = append(batch, loadEvent(p, n))
				}
				results, err := cl.PublishBatch(ctx, batch)
				for ; err != nil && ctx.Err() == nil; results, err = cl.PublishBatch(ctx, batch) {
					t.Logf("publisher %d: %v", p, err)
				}
				if err != nil {
					return
				}
				l.acknowledged.Add(int64(len(results)))
				for _, r := range results {
					l.raiseLast(r.Offset)
				}
			}
		})
	}
	all.Wait()
}

// raiseLast sets last to offset, if that is higher.
func (l *load) raiseLast(offset uint64) {
	for {
		last := l.last.Load()
		if last >= offset || l.last.CompareAndSwap(last, offset) {
			return
		}
	}
}

// listeners are the processes that handle events of a load: by a durable subscription
// each, or as the members of one group.
type listeners struct {
	t    *testing.T
	list []*listener
}

// newListeners returns three listeners with different filters and concurrency.
func newListeners(t *testing.T, c *cluster) *listeners {
	return listenersOf(t, c,
		listenerSpec{Name: "everything", Concurrency: 8},
		listenerSpec{Name: "even", Where: "payload.n % 2 == 0", Concurrency: 4},
		listenerSpec{Name: "first-publisher", Sources: []string{"pub-0"}, Concurrency: 1},
	)
}

// listenersOf returns processes that handle events, not started. They are killed when the test ends.
func listenersOf(t *testing.T, c *cluster, specs ...listenerSpec) *listeners {
	all := &listeners{t: t}
	for _, s := range specs {
		s.Endpoints, s.File = c.endpoints(), filepath.Join(t.TempDir(), s.Name)
		all.list = append(all.list, &listener{t: t, spec: s, log: s.File + ".log"})
	}
	t.Cleanup(func() {
		for _, l := range all.list {
			l.kill()
		}
	})
	return all
}

// handled counts the events that were handled, those that came twice twice.
func (all *listeners) handled() (n int64) {
	for _, l := range all.list {
		if info, err := os.Stat(l.spec.File); err == nil {
			n += info.Size() / recordSize
		}
	}
	return n
}

// disturbed publishes work while processes and the leader are killed, until about expected
// events are handled. It returns what is in the log, and how often each was killed.
func (all *listeners) disturbed(
	c *cluster, rng *rand.Rand, work *load, expected int64,
) (map[uint64]event.Event, map[string]int) {
	all.t.Helper()
	ctx, cancel := context.WithTimeout(all.t.Context(), 5*time.Minute)
	defer cancel()
	published := make(chan struct{})
	go func() {
		defer close(published)
		work.publish(ctx, all.t, c)
	}()
	kills := all.disturb(c, rng, expected)
	<-published
	if ctx.Err() != nil {
		all.t.Fatal(context.Cause(ctx))
	}
	return loaded(all.t, c, work), kills
}

// Handlers in three processes, each with a durable subscription, some of which fail, on
// three voters: whichever is killed, a handler's process or the leader, each event that is a
// subscription's is handled or dead-lettered, in the order of its key, and handled again
// only where a process died.
func TestHandlersInThreeProcesses(t *testing.T) {
	t.Parallel()
	work := &load{events: 60_000, publishers: 4, batch: 500}
	if !longtest.Enabled() {
		work.events = 20_000
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	c := newCluster(t, t.TempDir(), 3).startAll()
	all := newListeners(t, c)
	for _, l := range all.list {
		l.start()
		l.awaitAttached(c)
	}
	// Of the three filters one passes all events, one every other, and one those of one publisher.
	expected := int64(work.events) + int64(work.events)/2 + int64(work.events/work.publishers)
	events, kills := all.disturbed(c, rng, work, expected)
	for _, l := range all.list {
		l.awaitCommitted(c, events)
		l.stop()
		l.check(c, events, kills[l.spec.Name])
	}
	t.Logf("the leader was killed %d times", kills["leader"])
	c.converged()
}

// disturb kills each listener and the leader, three times, in an order and at moments
// that come from rng, and starts them again. It returns how often each was.
func (all *listeners) disturb(c *cluster, rng *rand.Rand, expected int64) map[string]int {
	all.t.Helper()
	// The victims in some order, each with the number of handled events at which it is killed.
	leader := len(all.list)
	victims := []int{0, 0, 0, 1, 1, 1, 2, 2, 2, leader, leader, leader}
	rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	moments := make([]int64, len(victims))
	for i := range moments {
		moments[i] = expected/50 + rng.Int64N(expected*4/5)
	}
	slices.Sort(moments)
	kills := map[string]int{}
	for i, victim := range victims {
		c.eventually(2*time.Minute, "handling to continue", func() error {
			if n := all.handled(); n < moments[i] {
				return fmt.Errorf("%d handled, fault %d comes at %d", n, i, moments[i])
			}
			return nil
		})
		if victim == leader {
			kills["leader"]++
			p := c.leader()
			p.kill()
			p.start()
			c.leader()
			continue
		}
		l := all.list[victim]
		kills[l.spec.Name]++
		l.kill()
		l.start()
	}
	return kills
}

// loaded reads the load back: each event by its offset.
func loaded(t *testing.T, c *cluster, work *load) map[uint64]event.Event {
	t.Helper()
	events := map[uint64]event.Event{}
	numbers := map[int]bool{}
	o := client.TailOptions{From: client.FromStart(), NoFollow: true, Consistency: client.Linearizable,
		Filter: event.Filter{Types: []string{string(event.TrainingProgress)}}}
	for ev, err := range c.client().Tail(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		ev.Payload = slices.Clone(ev.Payload)
		events[ev.Offset] = ev
		numbers[numberIn(ev)] = true
	}
	if n := int(work.acknowledged.Load()); len(events) != n || len(numbers) != n {
		t.Fatalf("the log has %d events with %d numbers, %d were acknowledged", len(events), len(numbers), n)
	}
	return events
}

// numberIn returns the number of a published event.
func numberIn(ev event.Event) int {
	var p struct{ N int }
	if err := json.Unmarshal(ev.Payload, &p); err != nil {
		panic(err)
	}
	return p.N
}

// awaitCommitted waits until the subscription's cursor has committed the last event that its filter passes.
func (l *listener) awaitCommitted(c *cluster, events map[uint64]event.Event) {
	l.t.Helper()
	last := uint64(0)
	for offset, ev := range events {
		if l.spec.wants(ev) {
			last = max(last, offset)
		}
	}
	cl := c.client()
	c.eventually(2*time.Minute, "commit of "+l.spec.Name, func() error {
		info, err := cl.Cursor(l.t.Context(), l.spec.Name)
		if err != nil || info.Committed < last {
			return cmp.Or(err, fmt.Errorf("%s is at %d of %d; it logged:\n%s", l.spec.Name, info.Committed, last, l.tail()))
		}
		return nil
	})
}

// check compares what was handled and what was dead-lettered with what was published.
func (l *listener) check(c *cluster, events map[uint64]event.Event, kills int) {
	l.t.Helper()
	dead := map[uint64]bool{}
	for letter, err := range c.client().Admin().DeadLetters(l.t.Context(), client.LetterFilter{Cursor: l.spec.Name}) {
		if err != nil {
			l.t.Fatal(err)
		}
		dead[letter.Offset] = true
	}
	// What it handled: only its own events, those of a key in order, and no event twice in one life.
	first := map[uint64]int{} // the life that handled an event first
	again := 0
	newest := map[string]uint64{} // by life and key
	for _, r := range l.records() {
		ev, there := events[r.offset]
		if !there || !l.spec.wants(ev) || isPoison(numberIn(ev)) {
			l.t.Fatalf("%s handled %d, which is not its own to handle: %+v", l.spec.Name, r.offset, ev)
		}
		if life, twice := first[r.offset]; twice {
			again++
			if life == r.life {
				l.t.Errorf("%s: life %d handled %d twice", l.spec.Name, r.life, r.offset)
			}
		} else {
			first[r.offset] = r.life
		}
		lifeAndKey := fmt.Sprint(r.life, " ", ev.Key)
		if after := newest[lifeAndKey]; after >= r.offset {
			l.t.Errorf("%s: life %d handled %d of %s after %d", l.spec.Name, r.life, r.offset, ev.Key, after)
		}
		newest[lifeAndKey] = r.offset
	}
	// Of the events that its filter passes, each was handled, or is dead if no attempt can succeed.
	wanted := 0
	for offset, ev := range events {
		if !l.spec.wants(ev) {
			continue
		}
		wanted++
		_, handled := first[offset]
		if poison := isPoison(numberIn(ev)); handled == poison || dead[offset] != poison {
			l.t.Errorf("%s: %d: handled %v, dead %v, of one that can be handled: %v",
				l.spec.Name, offset, handled, dead[offset], !poison)
		}
	}
	if l.life != kills+1 {
		l.t.Errorf("%s lived %d times and was killed %d times: it ended by itself", l.spec.Name, l.life, kills)
	}
	l.t.Logf("%s: %d events of %d, %d handled again by the life after %d kills, %d dead letters",
		l.spec.Name, wanted, len(events), again, kills, len(dead))
}
