package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// history is what a durable subscription goes through.
type history struct {
	concurrency, queue, keys int
	retries                  []time.Duration
	letters                  bool
	breaker                  router.Breaker
	lives                    []life
}

// life is one process: what it publishes, and how long it has to close.
type life struct {
	events []script
	lasts  time.Duration // before it closes; 0 is until all is settled
	grace  time.Duration
}

// script is an event and what its handler does.
type script struct {
	key   int // 0 is none
	fails int // attempts that fail, before one succeeds
	takes time.Duration
}

func drawHistory(rt *rapid.T) history {
	h := history{
		concurrency: rapid.IntRange(1, 4).Draw(rt, "concurrency"),
		keys:        rapid.IntRange(0, 3).Draw(rt, "keys"),
		retries:     router.Backoff(rapid.IntRange(0, 3).Draw(rt, "retries"), time.Second),
		letters:     rapid.Bool().Draw(rt, "letters"),
	}
	h.queue = h.concurrency + rapid.IntRange(0, 3).Draw(rt, "queue")
	h.breaker = router.Breaker{
		Failures: rapid.IntRange(1, 4).Draw(rt, "failures"),
		OpenFor:  10 * time.Second,
		Off:      rapid.Bool().Draw(rt, "off"),
	}
	draw := rapid.Custom(func(rt *rapid.T) script {
		return script{key: rapid.IntRange(0, h.keys).Draw(rt, "key"), fails: max(0, rapid.IntRange(-6, 5).Draw(rt, "fails")),
			takes: time.Duration(rapid.IntRange(0, 3).Draw(rt, "takes")) * 500 * time.Millisecond}
	})
	for range rapid.IntRange(1, 3).Draw(rt, "lives") {
		h.lives = append(h.lives, life{events: rapid.SliceOfN(draw, 0, 12).Draw(rt, "events"),
			lasts: time.Duration(rapid.IntRange(1, 20).Draw(rt, "lasts")) * 700 * time.Millisecond,
			grace: time.Duration(rapid.IntRange(0, 5).Draw(rt, "grace")) * time.Second})
	}
	h.lives[len(h.lives)-1].lasts = 0
	return h
}

// witness watches the handler and checks what must hold at each moment.
type witness struct {
	h       history
	log     *memLog
	mu      sync.Mutex
	wrong   []string
	scripts []script             // by the number of their event
	fails   map[uint64]int       // attempts that failed, over all lives
	tried   map[uint64]int       // attempts of this life
	ended   map[uint64]time.Time // the last attempt, in this life
	done    map[uint64]int       // how often it was handled
	gone    map[uint64]bool      // abandoned
	active  map[string]uint64
	lastOf  map[string]uint64 // of a key, in this life
	count   int
	cut     bool // a life was cut off
}

func (w *witness) fault(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// begins notes the begin of an attempt. What is in order shares a lane.
func (w *witness) begins(ev *event.Event, lane string, attempt int) script {
	w.mu.Lock()
	defer w.mu.Unlock()
	offset := ev.Offset
	if w.count++; w.count > w.h.concurrency {
		w.fault("%d handlers at once", w.count)
	}
	if other := w.active[lane]; lane != "" && other > 0 {
		w.fault("%d runs while %d of its lane does", offset, other)
	}
	if before := w.lastOf[lane]; lane != "" && before > offset {
		w.fault("%d runs after %d of its lane", offset, before)
	}
	w.active[lane], w.lastOf[lane] = offset, offset
	if w.tried[offset]++; w.tried[offset] != attempt || attempt > len(w.h.retries)+1 {
		w.fault("attempt %d of %d says it is attempt %d", w.tried[offset], offset, attempt)
	}
	if waited := time.Since(w.ended[offset]); attempt > 1 &&
		(waited < w.h.retries[attempt-2] || w.h.breaker.Off && waited > w.h.retries[attempt-2]) {
		w.fault("attempt %d of %d came after %s", attempt, offset, waited)
	}
	return w.scripts[number(*ev)]
}

func (w *witness) ends(offset uint64, lane string, attempt int, sc script, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	delete(w.active, lane)
	w.ended[offset] = time.Now()
	switch {
	case err != nil: // cut off
	case w.fails[offset] < sc.fails:
		w.fails[offset]++
		w.gone[offset] = attempt == len(w.h.retries)+1
		err = errBoom
	default:
		w.done[offset]++
	}
	return err
}

func (w *witness) lane(key string) string {
	if w.h.concurrency == 1 {
		return "all"
	}
	return key
}

func (w *witness) subscription() router.Subscription {
	breaker := w.h.breaker
	return router.Subscription{
		Name:        "worker",
		Types:       []string{"TRAINING_PROGRESS"},
		Durable:     true,
		Concurrency: w.h.concurrency,
		Queue:       w.h.queue,
		Retries:     w.h.retries,
		Breaker:     &breaker,
	}
}

// moved checks a move of the cursor: everything it passes is settled. The log's lock is held.
func (w *witness) moved(_ string, to uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.log.events[:to] {
		if offset := ev.Offset; ev.Type == event.TrainingProgress && w.done[offset] == 0 && !w.gone[offset] {
			w.fault("the cursor is at %d, and %d is not settled", to, offset)
		}
	}
}

// live runs one process.
func (w *witness) live(t *testing.T, l life) {
	r, err := router.New(w.log, router.Options{Drop: !w.h.letters})
	if err != nil {
		t.Fatal(err)
	}
	w.tried, w.ended, w.count = map[uint64]int{}, map[uint64]time.Time{}, 0
	w.active, w.lastOf = map[string]uint64{}, map[string]uint64{}
	spec := w.subscription()
	spec.Handler = w.handle
	if _, err := r.Subscribe(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	w.publish(t, l.events)
	if l.lasts == 0 {
		for range 10000 {
			synctest.Wait()
			if w.log.committed("worker") >= w.last() {
				break
			}
			time.Sleep(time.Second)
		}
		l.grace = time.Minute
	}
	time.Sleep(l.lasts)
	ctx, cancel := context.WithTimeout(t.Context(), l.grace)
	defer cancel()
	if err := r.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		w.fault("close: %v", err)
	} else if err != nil {
		w.cut = true
	}
}

// last is the offset of the last event that was published.
func (w *witness) last() uint64 {
	if all := w.log.of(event.TrainingProgress); len(all) > 0 {
		return all[len(all)-1].Offset
	}
	return 0
}

func (w *witness) handle(ctx context.Context, ev event.Event) error {
	d, _ := router.AttemptOf(ctx)
	lane := w.lane(ev.Key)
	sc := w.begins(&ev, lane, d.Number)
	timer := time.NewTimer(sc.takes)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return w.ends(ev.Offset, lane, d.Number, sc, err)
}

// publish publishes events, each with the number of its script.
func (w *witness) publish(t *testing.T, scripts []script) {
	for _, sc := range scripts {
		key := ""
		if sc.key > 0 {
			key = fmt.Sprint("k", sc.key)
		}
		w.mu.Lock()
		ev := progress(key, len(w.scripts))
		w.scripts = append(w.scripts, sc)
		w.mu.Unlock()
		ev.NoDedup = true
		if _, err := w.log.Publish(t.Context(), []event.Event{ev}); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever handlers do, and however often the process ends: no event is skipped, one of a
// key at a time and in order, at most that many at once, retries at their times, and the
// cursor never passes what is not settled. Without a restart each is handled once.
func TestHandlersSeeEachEventInOrder(t *testing.T) {
	kinds := map[string]int{}
	check := func(rt *rapid.T) {
		h := drawHistory(rt)
		var w *witness
		synctest.Test(t, func(t *testing.T) { w = run(t, h) })
		for _, wrong := range w.wrong {
			rt.Error(wrong)
		}
		kinds["events"] += len(w.scripts)
		kinds["lives"] += len(h.lives)
		kinds["letters"] += len(w.log.letters)
		for _, n := range w.fails {
			kinds["failed attempts"] += n
		}
		if w.cut {
			kinds["cut off"]++
		}
	}
	for range 5 {
		rapid.Check(t, check)
	}
	t.Log(kinds)
	for _, kind := range []string{"events", "letters", "failed attempts", "cut off"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
}

func run(t *testing.T, h history) *witness {
	log := newMemLog()
	w := &witness{h: h, log: log, fails: map[uint64]int{}, done: map[uint64]int{}, gone: map[uint64]bool{}}
	log.moves = w.moved
	for _, l := range h.lives {
		w.live(t, l)
	}
	w.checkEnd(len(h.lives) == 1)
	return w
}

// checkEnd checks that all is settled.
func (w *witness) checkEnd(unbroken bool) {
	for _, ev := range w.log.of(event.TrainingProgress) {
		offset := ev.Offset
		switch {
		case w.done[offset] == 0 && !w.gone[offset]:
			w.fault("%d was skipped", offset)
		case unbroken && w.done[offset] > 1:
			w.fault("%d was handled %d times", offset, w.done[offset])
		}
	}
	inLetters := map[uint64]int{}
	for _, l := range w.log.letters {
		inLetters[l.Event.Offset]++
		if !w.gone[l.Event.Offset] {
			w.fault("%d is a dead letter and was not given up", l.Event.Offset)
		}
	}
	for offset, gone := range w.gone {
		if gone && w.h.letters && w.done[offset] == 0 && offset > 0 && inLetters[offset] == 0 {
			w.fault("%d was given up and is no dead letter", offset)
		}
	}
}
