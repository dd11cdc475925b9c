package router_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// weather is what a durable subscription's handler goes through: events that always fail, and times in which all do.
type weather struct {
	concurrency, queue int
	retries            []time.Duration
	breaker            router.Breaker
	maxOutage          time.Duration
	events             []fate
	outages            []span
	traffic            time.Duration // between good events beside the others, each of its own key; 0 is none
}

// fate is an event and what its handler does.
type fate struct {
	after     time.Duration // the event before it
	key       string
	poisonous bool
	takes     time.Duration // an attempt that begins well
	fails     time.Duration // an attempt that does not, until it returns
	early     bool          // an outage that it does not begin in has no effect on it
	beside    bool          // of the traffic
}

// slowest is the longest attempt.
const slowest = 25 * time.Second

type span struct{ from, to time.Duration }

// hindsight is what happened to the events.
type hindsight struct {
	weather
	log   *memLog
	began time.Time

	mu      sync.Mutex
	wrong   []string
	fates   []fate            // by the number of their event
	first   map[int]time.Time // the begin of its first attempt
	tries   map[int]int
	handled map[int]time.Time
	running map[string]bool
	last    map[string]int
	worst   float64
}

func (h *hindsight) fault(format string, args ...any) {
	h.wrong = append(h.wrong, fmt.Sprintf("%v: ", time.Since(h.began))+fmt.Sprintf(format, args...))
}

func (h *hindsight) down() bool {
	for _, o := range h.outages {
		if at := time.Since(h.began); o.from <= at && at < o.to {
			return true
		}
	}
	return false
}

func (h *hindsight) isLetter(n int) bool {
	for _, l := range h.log.stored() {
		if number(l.Event) == n {
			return true
		}
	}
	return false
}

// handle fails if the event is poisonous, or an outage is where its attempt begins or, unless it is early, ends.
func (h *hindsight) handle(_ context.Context, ev event.Event) error {
	n, lane := number(ev), ev.Key
	if h.concurrency == 1 {
		lane = "all"
	}
	letter := h.isLetter(n)
	h.mu.Lock()
	switch last := h.last[lane]; {
	case letter:
		h.fault("event %d is tried after its letter", n)
	case lane == "":
	case h.running[lane]:
		h.fault("event %d is tried beside another of its lane", n)
	case n < last:
		h.fault("event %d is tried after %d of its lane", n, last)
	}
	h.running[lane], h.last[lane] = true, max(n, h.last[lane])
	if h.tries[n]++; h.tries[n] == 1 {
		h.first[n] = time.Now()
	}
	f := h.fates[n]
	h.mu.Unlock()

	bad := f.poisonous || h.down()
	if bad {
		time.Sleep(f.fails)
	} else {
		time.Sleep(f.takes)
		bad = h.down() && !f.early
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[lane] = false
	if bad {
		return errBoom
	}
	if !h.handled[n].IsZero() {
		h.fault("event %d is handled twice", n)
	}
	h.handled[n] = time.Now()
	return nil
}

func (h *hindsight) publish(t *testing.T, f fate) {
	h.mu.Lock() // numbers are in the order of the log
	defer h.mu.Unlock()
	ev := progress(f.key, len(h.fates))
	h.fates = append(h.fates, f)
	ev.NoDedup = true
	if _, err := h.log.Publish(t.Context(), []event.Event{ev}); err != nil {
		t.Fatal(err)
	}
}

// settled reports whether every event is handled or a letter, but for those of the traffic unless all is set.
func (h *hindsight) settled(all bool) bool {
	open := -len(h.log.stored())
	h.mu.Lock()
	defer h.mu.Unlock()
	for n, f := range h.fates {
		if h.handled[n].IsZero() && (all || !f.beside) {
			open++
		}
	}
	return open == 0
}

// endure publishes the events and waits until all of them are settled.
func endure(t *testing.T, w weather) *hindsight {
	h := &hindsight{weather: w, log: newMemLog(), began: time.Now(), first: map[int]time.Time{}, tries: map[int]int{},
		handled: map[int]time.Time{}, running: map[string]bool{}, last: map[string]int{}}
	r := open(t, h.log, router.Options{Retries: w.retries, Breaker: w.breaker})
	subscribe(t, r, router.Subscription{Name: "worker", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
		Concurrency: w.concurrency, Queue: w.queue, MaxOutage: w.maxOutage, Handler: h.handle})
	published := make(chan struct{})
	go func() {
		defer close(published)
		for _, f := range w.events {
			time.Sleep(f.after)
			h.publish(t, f)
		}
	}()

	// The traffic ends with the events, so that what is left has to settle without it.
	busy := w.traffic > 0
	for n := 0; busy; n++ {
		time.Sleep(w.traffic)
		h.publish(t, fate{key: fmt.Sprint("beside", n), takes: 10 * time.Millisecond, fails: time.Second, beside: true})
		synctest.Wait()
		select {
		case <-published:
			busy = !h.settled(false) && time.Since(h.began) < 100*time.Hour
		default:
		}
	}
	<-published
	for range 100 * 60 {
		synctest.Wait()
		if h.settled(true) {
			break
		}
		time.Sleep(time.Minute)
	}
	h.checkEnd()
	return h
}

// checkEnd checks that every good event is handled and every poisonous one is a letter.
func (h *hindsight) checkEnd() {
	// Each attempt that counts, but the first, follows the one before within MaxOutage, and until each of those that wait
	// for the breaker has had its turn as the probe.
	turns := time.Duration(h.concurrency) * (h.breaker.OpenFor + slowest)
	bound := time.Duration(len(h.retries)+1) * (h.maxOutage + turns + time.Minute)
	letters := map[int]int{}
	for _, l := range h.log.stored() {
		n := number(l.Event)
		letters[n]++
		took := l.Last.Sub(h.first[n])
		if h.worst = max(h.worst, float64(took)/float64(bound)); took > bound {
			h.fault("event %d becomes a letter after %s and %d attempts, and not within %s", n, took, h.tries[n], bound)
		}
	}
	for n, f := range h.fates {
		switch {
		case f.poisonous && letters[n] != 1:
			h.fault("poisonous event %d has %d letters after %d attempts", n, letters[n], h.tries[n])
		case !f.poisonous && letters[n] > 0:
			h.fault("good event %d is a letter after %d attempts", n, h.tries[n])
		case !f.poisonous && h.handled[n].IsZero():
			h.fault("good event %d is not handled after %d attempts", n, h.tries[n])
		}
	}
}

func drawWeather(rt *rapid.T) weather {
	w := weather{
		concurrency: rapid.IntRange(1, 6).Draw(rt, "concurrency"),
		retries:     router.Backoff(rapid.IntRange(1, 4).Draw(rt, "retries"), time.Second),
		breaker: router.Breaker{Failures: rapid.IntRange(1, 4).Draw(rt, "failures"),
			Probes: rapid.IntRange(1, 2).Draw(rt, "probes"), Off: rapid.IntRange(0, 3).Draw(rt, "off") == 0,
			OpenFor: time.Duration(rapid.IntRange(1, 10).Draw(rt, "open")) * time.Minute},
		maxOutage: 30 * time.Minute,
	}
	w.queue = w.concurrency + rapid.IntRange(0, 20).Draw(rt, "queue")
	keys := rapid.IntRange(0, 6).Draw(rt, "keys")
	poison := rapid.IntRange(0, 4).Draw(rt, "poison") // quarters of the events
	w.events = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) fate {
		f := fate{
			after:     max(0, time.Duration(rapid.IntRange(-30, 60).Draw(rt, "after"))*time.Second),
			poisonous: rapid.IntRange(0, 3).Draw(rt, "poisonous") < poison,
			takes:     time.Duration(rapid.IntRange(0, 40).Draw(rt, "takes")) * 500 * time.Millisecond,
			fails:     time.Duration(rapid.IntRange(0, 50).Draw(rt, "fails")) * 500 * time.Millisecond,
			early:     rapid.Bool().Draw(rt, "early"),
		}
		if key := rapid.IntRange(0, keys).Draw(rt, "key"); key > 0 {
			f.key = fmt.Sprint("k", key)
		}
		return f
	}), 1, 20).Draw(rt, "events")

	// One outage counts as one attempt, so there are as many as an event has retries, and the first begins less than
	// MaxOutage before the last ends.
	at := time.Duration(rapid.IntRange(0, 600).Draw(rt, "from")) * time.Second
	end := at + w.maxOutage - time.Second
	for range rapid.IntRange(0, len(w.retries)).Draw(rt, "outages") {
		to := min(end, at+time.Duration(rapid.IntRange(1, 1800).Draw(rt, "lasts"))*time.Second)
		w.outages = append(w.outages, span{at, to})
		at = min(end, to+time.Duration(rapid.IntRange(1, 300).Draw(rt, "apart"))*time.Second)
	}
	w.traffic = rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Second, time.Minute,
		10 * time.Minute}).Draw(rt, "traffic")
	return w
}

// Whatever fails, and however slowly: each poisonous event becomes a dead letter, and no event that an outage made
// fail does. All others are handled, in the order of their keys, and none after its letter.
func TestAnOutageMakesNoDeadLetters(t *testing.T) {
	kinds, worst := map[string]int{}, 0.0
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWeather(rt)
		var h *hindsight
		synctest.Test(t, func(t *testing.T) { h = endure(t, w) })
		for _, wrong := range h.wrong {
			rt.Error(wrong)
		}
		worst = max(worst, h.worst)
		kinds["letters"] += len(h.log.stored())
		kinds["handled"] += len(h.handled)
		for n, f := range h.fates {
			if !f.poisonous && h.tries[n] > len(h.retries)+1 {
				kinds["waited for an outage"]++
			}
		}
	})
	t.Log(kinds, worst)
	for _, kind := range []string{"letters", "handled", "waited for an outage"} {
		if kinds[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("none: %s", kind)
		}
	}
}

// What succeeds in an outage as it was begun before, or beside an attempt that was begun in the outage and fails after
// it, is no proof against an event.
func TestOnlyWhatSucceedsBetweenTwoAttemptsCounts(t *testing.T) {
	w := weather{concurrency: 4, queue: 4, retries: router.Backoff(1, time.Second), maxOutage: time.Hour}
	for name, c := range map[string]struct {
		outage span
		events []fate
	}{
		"begun before": {span{time.Second, 10 * time.Second},
			[]fate{{takes: 1500 * time.Millisecond, early: true}, {after: time.Second}}},
		"beside a slow failure": {span{0, 10 * time.Second},
			[]fate{{fails: 6 * time.Second}, {after: 10 * time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			w.outages, w.events = []span{c.outage}, c.events
			synctest.Test(t, func(t *testing.T) {
				for _, wrong := range endure(t, w).wrong {
					t.Error(wrong)
				}
			})
		})
	}
}

// An event that always fails beside good ones is a letter after its usual attempts. Where no other can be handled it
// is one after MaxOutage and the turns of those that wait for the breaker, and so is each that follows.
func TestAPoisonousEventBecomesADeadLetter(t *testing.T) {
	for name, c := range map[string]struct {
		concurrency, keys, poisonous int
		traffic, within              time.Duration
		attempts                     int // most
	}{
		"beside others":             {8, 1, 1, 500 * time.Millisecond, 10 * time.Second, 4},
		"of one at a time":          {1, 1, 1, time.Second, 20 * time.Minute, 9},
		"without others":            {8, 1, 1, 0, 16 * time.Minute, 30},
		"three beside others":       {8, 3, 3, 500 * time.Millisecond, 25 * time.Minute, 8},
		"as many as places":         {3, 3, 3, 500 * time.Millisecond, 46 * time.Minute, 4},
		"sixteen of a key":          {1, 1, 16, time.Minute, 16 * 20 * time.Minute, 9},
		"sixteen of a key of eight": {8, 1, 16, time.Second, 16 * 15 * time.Second, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := weather{concurrency: c.concurrency, traffic: c.traffic, queue: 256, maxOutage: 15 * time.Minute,
					retries: router.Backoff(3, time.Second), breaker: router.Breaker{OpenFor: 5 * time.Minute}}
				for n := range c.poisonous {
					w.events = append(w.events, fate{key: fmt.Sprint("k", n%c.keys), poisonous: true})
				}
				h := endure(t, w)
				for _, wrong := range h.wrong {
					t.Error(wrong)
				}
				letters := h.log.stored()
				last := letters[len(letters)-1]
				if took := last.Last.Sub(h.began); took > c.within || last.Attempts > c.attempts {
					t.Errorf("the last of %d letters came after %s and %d attempts", len(letters), took, last.Attempts)
				}
			})
		})
	}
}
