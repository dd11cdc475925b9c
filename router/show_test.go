package router_test

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/eventlog"
	"github.com/ringrift/ringlog/router"
)

// shown collects a logger's lines.
type shown struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shown) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// With RINGRIFT_DEBUG each delivery to a handler, and what becomes of it, is a line of the router's logger.
func TestDeliveriesAreShownOnRequest(t *testing.T) {
	for asked, want := range map[string]string{"": "", "true": `
delivered offset=1 attempt=1
handled offset=1
delivered offset=2 attempt=1
failed offset=2 attempt=1 error=boom
delivered offset=2 attempt=2
failed offset=2 attempt=2 error=boom
abandoned offset=2 attempts=2 dead_letter=true error=boom
delivered offset=3 attempt=1
handled offset=3
`} {
		t.Setenv(eventlog.Variable, asked)
		synctest.Test(t, func(t *testing.T) {
			var out shown
			debug := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
			r := open(t, newMemLog(), router.Options{Logger: slog.New(debug), Retries: router.Backoff(1, time.Second)})
			subscribe(t, r, router.Subscription{Name: "trainer", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
				Handler: func(_ context.Context, ev event.Event) error {
					if number(ev) == 1 {
						return errBoom
					}
					return nil
				}})
			for n := range 3 {
				publish(t, r, progress("k", n))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			got := "\n" + regexp.MustCompile(`(?m)^.*msg=|type=TRAINING_PROGRESS |key=k subscription=trainer ?| ?payload=.*$`).
				ReplaceAllString(out.text.String(), "")
			if got = strings.ReplaceAll(got, " \n", "\n"); got != want && !(want == "" && got == "\n") {
				t.Errorf("asked %q: %s", asked, got)
			}
		})
	}
}
