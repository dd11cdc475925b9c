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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// transcript writes down what happens, with the time since it began. What is reported through
// the log comes after what else happened within a second.
type transcript struct {
	mu    sync.Mutex
	began time.Time
	lines []line
}

type line struct {
	second   int
	reported bool
	text     string
}

func (tr *transcript) write(reported bool, format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, line{int(time.Since(tr.began).Seconds()), reported, fmt.Sprintf(format, args...)})
}

func (tr *transcript) say(format string, args ...any)    { tr.write(false, format, args...) }
func (tr *transcript) report(format string, args ...any) { tr.write(true, format, args...) }

func (tr *transcript) check(t *testing.T, want string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	slices.SortStableFunc(tr.lines, func(a, b line) int {
		if a.second == b.second && a.reported != b.reported {
			return map[bool]int{false: -1, true: 1}[a.reported]
		}
		return a.second - b.second
	})
	var got strings.Builder
	for _, l := range tr.lines {
		fmt.Fprintf(&got, "%4d s  %s\n", l.second, l.text)
	}
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), got.String()); diff != "" {
		t.Error(diff)
	}
}

// listen writes the router's own events down as they come out of the log.
func (tr *transcript) listen(t *testing.T, r *router.Router) {
	subscribe(
		t,
		r,
		router.Subscription{
			Name:  "listener",
			Types: []string{"HANDLER_*", "CIRCUIT_*"},
			Handler: func(_ context.Context, ev event.Event) error {
				p := fields(t, ev)
				switch ev.Type {
				case event.HandlerFailed:
					tr.report(
						"%s %s event=%s offset=%v attempts=%v dead_letter=%v\n        error: %s",
						ev.Type,
						p["handler"],
						p["event"],
						p["offset"],
						p["attempts"],
						p["dead_letter"],
						p["error"],
					)
				case event.HandlerTimeout:
					tr.report(
						"%s %s event=%s attempt=%v after %v s",
						ev.Type,
						p["handler"],
						p["event"],
						p["attempt"],
						p["timeout_seconds"],
					)
				case event.CircuitReset:
					tr.report("%s %s node_id=%s recovery_source=%s", ev.Type, p["handler"], p["node_id"], p["recovery_source"])
				default:
					tr.report("%s %s failures=%v previous=%v", ev.Type, p["handler"], p["failures"], p["previous"])
				}
				return nil
			},
		},
	)
}

// The breaker opens once three events have failed, however often each did. While it is open no attempt is made, retries
// included: they wait for it, and one probe decides. Nothing is skipped for it, and nothing becomes a dead letter
// before all of its attempts were made.
func TestTheBreakerHoldsAttemptsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, tr := newMemLog(), &transcript{began: time.Now()}
		var failing atomic.Bool
		failing.Store(true)
		r := open(t, log, router.Options{Source: "p1", Retries: router.Backoff(1, time.Second)})
		tr.listen(t, r)
		subscribe(t, r, router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
			Handler: func(ctx context.Context, ev event.Event) error {
				d, _ := router.AttemptOf(ctx)
				if failing.Load() {
					tr.say("attempt %d of event %d fails", d.Number, number(ev))
					return errBoom
				}
				tr.say("attempt %d of event %d succeeds", d.Number, number(ev))
				return nil
			}})
		for n := range 4 {
			publish(t, r, progress("k", n+1))
		}
		time.Sleep(400 * time.Second)
		tr.say("state: %s", r.Subscribers()[1].Breaker.State)
		failing.Store(false)
		time.Sleep(400 * time.Second)
		publish(t, r, progress("k", 5))
		synctest.Wait()
		tr.check(t, `
   0 s  attempt 1 of event 1 fails
   1 s  attempt 2 of event 1 fails
   1 s  attempt 1 of event 2 fails
   1 s  HANDLER_FAILED trainer event=TRAINING_PROGRESS offset=1 attempts=2 dead_letter=true
        error: boom
   1 s  CIRCUIT_BREAKER_THRESHOLD trainer failures=2 previous=<nil>
   2 s  attempt 2 of event 2 fails
   2 s  attempt 1 of event 3 fails
   2 s  HANDLER_FAILED trainer event=TRAINING_PROGRESS offset=2 attempts=2 dead_letter=true
        error: boom
   2 s  CIRCUIT_BREAKER_OPENED trainer failures=3 previous=closed
 302 s  attempt 2 of event 3 fails
 302 s  CIRCUIT_BREAKER_HALF_OPEN trainer failures=0 previous=open
 302 s  CIRCUIT_BREAKER_OPENED trainer failures=0 previous=half-open
 302 s  HANDLER_FAILED trainer event=TRAINING_PROGRESS offset=3 attempts=2 dead_letter=true
        error: boom
 400 s  state: open
 602 s  attempt 1 of event 4 succeeds
 602 s  CIRCUIT_BREAKER_HALF_OPEN trainer failures=0 previous=open
 602 s  CIRCUIT_BREAKER_CLOSED trainer failures=0 previous=half-open
 800 s  attempt 1 of event 5 succeeds
`)
	})
}

// An operator closes a breaker; an event that cannot wait for it fails at once.
func TestABreakerIsClosedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, tr := newMemLog(), &transcript{began: time.Now()}
		var failing atomic.Bool
		failing.Store(true)
		r := open(t, log, router.Options{Source: "p1", Retries: []time.Duration{}})
		tr.listen(t, r)
		sub := subscribe(
			t,
			r,
			router.Subscription{Name: "direct", Types: []string{"TRAINING_PROGRESS"}, Direct: true, Sync: true,
				Breaker: &router.Breaker{Failures: 1},
				Handler: func(context.Context, event.Event) error {
					if failing.Load() {
						return errBoom
					}
					return nil
				}},
		)
		for range 2 {
			res := publish(t, r, progress("k", 1))
			if len(res.Failed) != 1 {
				t.Fatalf("%+v", res)
			}
			tr.say("failed: %v", res.Failed[0].Err)
			synctest.Wait()
		}
		failing.Store(false)
		if err := r.ResetBreaker("direct", "operator"); err != nil {
			t.Fatal(err)
		}
		if err := r.ResetBreaker("nobody", "operator"); err == nil {
			t.Error("a breaker of nobody was reset")
		}
		if res := publish(t, r, progress("k", 1)); len(res.Failed) > 0 {
			t.Errorf("%+v", res)
		}
		synctest.Wait()
		tr.check(t, `
   0 s  failed: boom
   0 s  failed: circuit breaker is open
   0 s  CIRCUIT_BREAKER_OPENED direct failures=1 previous=closed
   0 s  HANDLER_FAILED direct event=TRAINING_PROGRESS offset=1 attempts=1 dead_letter=false
        error: boom
   0 s  CIRCUIT_BREAKER_CLOSED direct failures=0 previous=open
   0 s  CIRCUIT_RESET direct node_id=p1 recovery_source=operator
`)
		if st := sub.Status(); st.Handled != 1 || st.Failed != 1 || st.Refused != 1 || st.Received != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// A handler that runs out of time, panics, or ends its goroutine is reported, retried and
// abandoned like one that returns an error, and the process continues.
func TestBadHandlersAreToldAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, tr := newMemLog(), &transcript{began: time.Now()}
		r := open(t, log, router.Options{Source: "p1", Retries: router.Backoff(1, 2*time.Second), Timeout: 5 * time.Second,
			Breaker: router.Breaker{Failures: 10}})
		tr.listen(t, r)
		handlers := map[string]router.Handler{
			"slow":     func(ctx context.Context, _ event.Event) error { <-ctx.Done(); return ctx.Err() },
			"stubborn": func(context.Context, event.Event) error { time.Sleep(8 * time.Second); return nil },
			"panics":   func(context.Context, event.Event) error { panic("over " + "board") },
			"leaves":   func(context.Context, event.Event) error { exit(); return nil },
			"bad":      func(context.Context, event.Event) error { return router.Permanent(errBoom) },
		}
		for i, name := range []string{"slow", "stubborn", "panics", "leaves", "bad"} {
			subscribe(t, r, router.Subscription{Name: name, Types: []string{"TRAINING_PROGRESS"}, Keys: []string{name},
				Handler: func(ctx context.Context, ev event.Event) error {
					tr.say("%s is called", name)
					return handlers[name](ctx, ev)
				}})
			publish(t, r, progress(name, i))
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
		for i, l := range tr.lines { // the stack is not the same everywhere
			if head, stack, ok := strings.Cut(l.text, "\n\n"); ok {
				tr.lines[i].text = fmt.Sprintf("%s, stack: %v", head, strings.Contains(stack, "breaker_test.go"))
			}
		}
		tr.check(t, `
   0 s  slow is called
   5 s  HANDLER_TIMEOUT slow event=TRAINING_PROGRESS attempt=1 after 5 s
   7 s  slow is called
  12 s  HANDLER_TIMEOUT slow event=TRAINING_PROGRESS attempt=2 after 5 s
  12 s  HANDLER_FAILED slow event=TRAINING_PROGRESS offset=1 attempts=2 dead_letter=false
        error: handler timed out after 5s: context deadline exceeded
  20 s  stubborn is called
  25 s  HANDLER_TIMEOUT stubborn event=TRAINING_PROGRESS attempt=1 after 5 s
  40 s  panics is called
  42 s  panics is called
  42 s  HANDLER_FAILED panics event=TRAINING_PROGRESS offset=7 attempts=2 dead_letter=false
        error: panic: over board, stack: true
  60 s  leaves is called
  60 s  HANDLER_FAILED leaves event=TRAINING_PROGRESS offset=9 attempts=1 dead_letter=false
        error: the handler called runtime.Goexit
  80 s  bad is called
  80 s  HANDLER_FAILED bad event=TRAINING_PROGRESS offset=11 attempts=1 dead_letter=false
        error: boom
`)
		for _, st := range r.Subscribers() {
			if st.Name == "stubborn" && (st.Handled != 1 || st.TimedOut != 1) || st.Running > 0 {
				t.Errorf("%+v", st)
			}
			if st.Name == "bad" && st.Breaker.Failures != 0 {
				t.Errorf("the breaker counts what is permanent: %+v", st)
			}
		}
	})
}

// A handler of HANDLER_FAILED that fails is not reported, or it would never end.
func TestHandlerEventsDoNotFeedThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(
			t,
			log,
			router.Options{Retries: []time.Duration{}, Timeout: time.Second, Breaker: router.Breaker{Off: true}},
		)
		fail := func(ctx context.Context, _ event.Event) error { <-ctx.Done(); return errBoom }
		sub := subscribe(t, r, router.Subscription{Name: "watchdog", Types: []string{"HANDLER_*"}, Handler: fail})
		subscribe(t, r, router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Handler: fail})
		publish(t, r, progress("k", 1))
		time.Sleep(time.Minute)
		if n := len(log.of(event.HandlerFailed, event.HandlerTimeout)); n != 2 {
			t.Errorf("%d events of handlers, want 2", n)
		}
		if st := sub.Status(); st.Failed != 2 || st.TimedOut != 2 || st.LastError == "" {
			t.Errorf("%+v", st)
		}
	})
}

func TestPermanent(t *testing.T) {
	if router.Permanent(nil) != nil || !errors.Is(router.Permanent(errBoom), errBoom) {
		t.Error("Permanent hides what it marks")
	}
}
