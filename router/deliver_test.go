package router_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

func exit() { runtime.Goexit() }

// The letter and the move of the cursor wait for those before them, and the cursor
// waits for the letter.
func TestADeadLetterTakesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{Retries: router.Backoff(1, time.Second)})
		sub := subscribe(
			t,
			r,
			router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Concurrency: 2,
				Handler: func(_ context.Context, ev event.Event) error {
					if ev.Key == "slow" {
						time.Sleep(10 * time.Second)
						return nil
					}
					if number(ev) == 1 {
						return errBoom
					}
					return nil
				}},
		)
		publish(t, r, progress("slow", 0))
		publish(t, r, progress("bad", 1))
		publish(t, r, progress("good", 2))
		time.Sleep(5 * time.Second)
		if st := sub.Status(); st.Handled != 1 || st.Failed != 1 || st.DeadLettered != 0 || log.committed("trainer") != 0 {
			t.Fatalf("before the slow one: %+v", st)
		}
		log.setNoPut(errAway)
		time.Sleep(10 * time.Second)
		if got := log.committed("trainer"); got != 0 && got != 1 {
			t.Fatalf("the cursor is at %d, and the letter of 2 is not stored", got)
		}
		log.setNoPut(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		letters := log.stored()
		if len(letters) != 1 || log.committed("trainer") < 3 {
			t.Fatalf("%d letters, the cursor is at %d", len(letters), log.committed("trainer"))
		}
		l := letters[0]
		if l.Event.Offset != 2 || l.Handler != "trainer" || l.Error != "boom" || l.Attempts != 2 ||
			l.Last.Sub(l.First) != time.Second ||
			l.Generation != 1 {
			t.Errorf("%+v", l)
		}
		log.setNoPut(fmt.Errorf("%w: no", router.ErrRefused))
		publish(t, r, progress("bad", 1))
		time.Sleep(10 * time.Second)
		if st := sub.Status(); st.State != router.Refused || st.StateError == "" || st.DeadLettered != 1 {
			t.Errorf("a letter that is refused: %+v", st)
		}
	})
}

// The log may be away at the start and later: subscriptions wait for it, and resume where
// they were.
func TestTheLogMayBeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		log.setAway(errAway)
		r := open(t, log, router.Options{})
		var all, passing seen
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		spec := router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Critical: true,
			Handler: func(ctx context.Context, ev event.Event) error {
				time.Sleep(5 * time.Second) // longer than the log is away
				return all.handle(ctx, ev)
			}}
		if _, err := r.Subscribe(ctx, spec); !errors.Is(err, errAway) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("subscribe: %v", err)
		}
		spec.Background = true
		sub := subscribe(t, r, spec)
		subscribe(
			t,
			r,
			router.Subscription{
				Name:       "passing",
				Types:      []string{"TRAINING_PROGRESS"},
				Background: true,
				Handler:    passing.handle,
			},
		)
		if err := r.Ready(ctx); err == nil || !strings.Contains(err.Error(), "trainer") {
			t.Fatalf("ready: %v", err)
		}
		log.setAway(nil)
		if err := r.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for n := range 6 {
			publish(t, r, progress("k", n))
			if n == 2 {
				synctest.Wait()
				log.setAway(errAway)
				time.Sleep(time.Second)
				if st := sub.Status(); st.State != router.Connecting || st.StateError == "" {
					t.Errorf("%+v", st)
				}
				log.setAway(nil)
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(time.Minute)
		if got, want := all.numbers()+"|"+passing.numbers(), "k0 k1 k2 k3 k4 k5|k0 k1 k2 k3 k4 k5"; got != want ||
			log.committed("trainer") != 6 {
			t.Errorf("%s, the cursor is at %d", got, log.committed("trainer"))
		}
	})
}

// A seek backwards on purpose is followed when the cursor is opened again.
func TestACursorThatWasMovedBackIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{})
		var all seen
		subscribe(
			t,
			r,
			router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Handler: all.handle},
		)
		for n := range 3 {
			publish(t, r, progress("k", n))
		}
		synctest.Wait()
		log.setAway(errAway)
		time.Sleep(time.Second)
		log.mu.Lock()
		log.cursors["trainer"].committed = 1
		log.mu.Unlock()
		log.setAway(nil)
		time.Sleep(time.Minute)
		if got := all.numbers(); got != "k0 k1 k2 k1 k2" || log.committed("trainer") != 3 {
			t.Errorf("%s, the cursor is at %d", got, log.committed("trainer"))
		}
	})
}

// Events that the log does not keep any more are reported before those after them are handled.
func TestGapsAreTold(t *testing.T) {
	for _, durable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := newMemLog()
			var story []string
			spec := router.Subscription{
				Name:    "trainer",
				Types:   []string{"TRAINING_PROGRESS"},
				Durable: durable,
				From:    client.FromOffset(1),
				Handler: func(_ context.Context, ev event.Event) error {
					story = append(story, fmt.Sprint("event ", ev.Offset))
					return nil
				},
				OnGap: func(_ context.Context, gap client.Gap) {
					story = append(story, fmt.Sprintf("gap %d-%d %s", gap.From, gap.To, gap.Reason))
					panic("who cares")
				},
			}
			r := open(t, log, router.Options{})
			for n := range 5 {
				publish(t, r, progress("k", n))
			}
			log.trim(4)
			sub := subscribe(t, r, spec)
			synctest.Wait()
			if got, want := strings.Join(story, ", "), "gap 1-3 retention, event 4, event 5"; got != want {
				t.Errorf("durable %v: %s", durable, got)
			}
			if st := sub.Status(); st.Gaps != 1 || st.LastGap.To != 3 || durable && log.committed("trainer") != 5 ||
				st.Uncommitted != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A reader does not run ahead of its handler without bound, and other subscriptions do not
// notice.
func TestASlowHandlerHoldsItsReaderBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{})
		release := make(chan struct{})
		var fast seen
		slow := subscribe(
			t,
			r,
			router.Subscription{Name: "slow", Types: []string{"TRAINING_PROGRESS"}, Durable: true, Queue: 8, Concurrency: 2,
				Timeout: time.Hour, Handler: func(_ context.Context, ev event.Event) error {
					if ev.Key == "stuck" {
						<-release
					}
					return nil
				}},
		)
		subscribe(t, r, router.Subscription{Name: "fast", Types: []string{"TRAINING_PROGRESS"}, Handler: fast.handle})
		publish(t, r, progress("stuck", 0))
		const events = 1000
		for n := range events {
			publish(t, r, progress("free", n))
		}
		synctest.Wait()
		if st := slow.Status(); st.Uncommitted != 8*16 || st.Committed != 0 {
			t.Errorf("%d uncommitted, committed %d", st.Uncommitted, st.Committed)
		}
		if len(fast.all()) != events+1 {
			t.Errorf("the fast one has %d", len(fast.all()))
		}
		publish(t, r, progress("stuck", 1), router.Local())
		close(release)
		synctest.Wait()
		if st := slow.Status(); st.Uncommitted != 0 || st.Committed != events+1 || st.Handled != events+2 {
			t.Errorf("%+v", st)
		}
	})
}

// Publish returns once handlers marked Sync are through with the event, whether they get
// it from the log or directly; inside a handler it waits for none.
func TestPublishWaitsForSyncHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{Retries: []time.Duration{}, Breaker: router.Breaker{Off: true}})
		var mu sync.Mutex
		handled := map[string]int{}
		for _, name := range []string{"durable", "passing", "direct"} {
			subscribe(
				t,
				r,
				router.Subscription{
					Name:    name,
					Types:   []string{"TRAINING_*"},
					Durable: name == "durable",
					Direct:  name == "direct",
					Sync:    true,
					Where:   `type != "TRAINING_FAILED"`,
					Handler: func(ctx context.Context, ev event.Event) error {
						time.Sleep(5 * time.Second)
						mu.Lock()
						handled[name]++
						mu.Unlock()
						if ev.Key == "chain" {
							next := progress("", 0)
							next.NoDedup = true
							if _, err := r.Publish(ctx, next); err != nil {
								return err
							}
						}
						if ev.Key == "bad" {
							return errBoom
						}
						return nil
					},
				},
			)
		}
		began := time.Now()
		if res := publish(t, r, progress("good", 0)); len(res.Failed) > 0 ||
			fmt.Sprint(handled) != "map[direct:1 durable:1 passing:1]" ||
			time.Since(began) != 5*time.Second {
			t.Errorf("%+v, %v after %s", res, handled, time.Since(began))
		}
		if res := publish(t, r, progress("bad", 0)); len(res.Failed) != 3 || !errors.Is(res.Failed[0].Err, errBoom) {
			t.Errorf("%+v", res)
		}
		began = time.Now()
		if res := publish(t, r, event.New(event.TrainingFailed, nil)); len(res.Failed) > 0 || time.Since(began) > 0 {
			t.Errorf("what their condition passes: %+v after %s", res, time.Since(began))
		}
		if res := publish(t, r, progress("chain", 0)); len(res.Failed) > 0 {
			t.Errorf("%+v", res)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := progress("late", 0)
		if res, err := r.Publish(ctx, late); err != nil || len(res.Failed) != 3 || res.Offset == 0 {
			t.Errorf("without time to wait: %+v, %v", res, err)
		}
	})
}

// Past the room of its queue an event that cannot wait in the log is refused, and the
// publisher gets an error.
func TestADirectHandlerIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, newMemLog(), router.Options{LocalTypes: []string{"training.*"}})
		var again router.Result
		sub := subscribe(t, r, router.Subscription{Name: "direct", Direct: true, Queue: 2, Timeout: 5 * time.Second,
			Handler: func(ctx context.Context, ev event.Event) (err error) {
				if number(ev) == 0 { // it would wait for itself
					for range 2 {
						if again, err = r.Publish(ctx, progress("again", 1)); err != nil {
							return err
						}
					}
				}
				time.Sleep(3 * time.Second)
				return nil
			}})
		publish(t, r, progress("k", 0))
		synctest.Wait()
		if len(again.Failed) != 1 || !errors.Is(again.Failed[0].Err, router.ErrOverloaded) || !again.Local ||
			again.Offset != 0 {
			t.Errorf("%+v", again)
		}
		began := time.Now()
		if res := publish(t, r, progress("k", 2)); len(res.Failed) > 0 || time.Since(began) != 3*time.Second {
			t.Errorf("%+v after %s", res, time.Since(began))
		}
		if st := sub.Status(); st.Refused != 1 || st.Received != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHistoryAndReplay(t *testing.T) {
	bothLogs(t, func(t *testing.T, log router.Log) {
		r := open(t, log, router.Options{Recent: 3, Retries: []time.Duration{}})
		var replayed, live seen
		subscribe(
			t,
			r,
			router.Subscription{
				Name:    "trainer",
				Types:   []string{"training.*"},
				Where:   "payload.n % 2 == 0",
				Durable: true,
				Sync:    true,
				Handler: func(ctx context.Context, ev event.Event) error {
					if d, _ := router.AttemptOf(ctx); !d.Replay {
						return live.handle(ctx, ev)
					}
					if number(ev) == 4 {
						return errBoom
					}
					return replayed.handle(ctx, ev)
				},
			},
		)
		var offsets []uint64
		for n := range 8 {
			offsets = append(offsets, publish(t, r, progress("k", n)).Offset)
		}
		count := func(q router.Query) (n int) {
			for _, err := range r.History(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		}
		only := event.Filter{Types: []string{"TRAINING_PROGRESS"}}
		for want, q := range map[int]router.Query{
			8: {Filter: only}, 5: {Filter: only, Where: "payload.n >= 2", Limit: 5},
			3: {Filter: only, From: client.FromOffset(offsets[2]), To: offsets[4]}, 1: {Filter: only, Limit: 1},
		} {
			if got := count(q); got != want {
				t.Errorf("%+v has %d events, want %d", q, got, want)
			}
		}
		for _, err := range r.History(t.Context(), router.Query{Where: "1 +"}) {
			if err == nil || !strings.Contains(err.Error(), "column") {
				t.Errorf("a bad condition: %v", err)
			}
		}
		var last []string
		for _, ev := range r.Recent(10) {
			last = append(last, fmt.Sprint(number(ev)))
		}
		if got := strings.Join(last, " "); got != "5 6 7" {
			t.Errorf("recent: %s", got)
		}
		rep, err := r.Replay(t.Context(), "trainer", router.Query{From: client.FromOffset(offsets[1]), To: offsets[6]})
		if err != nil || rep.Events != 3 || rep.Handled != 2 || rep.Failed != 1 || len(rep.Errors) != 1 {
			t.Errorf("%+v, %v", rep, err)
		}
		if got := replayed.numbers() + "|" + live.numbers(); got != "k2 k6|k0 k2 k4 k6" {
			t.Error(got)
		}
		if _, err := r.Replay(t.Context(), "nobody", router.Query{}); err == nil {
			t.Error("a replay to nobody")
		}
	})
}
