package server

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/router"
)

// timeouts returns what /status says of handlers.
func (s *site) timeouts() api.HandlerTimeouts {
	s.t.Helper()
	var st api.Status
	s.ok("GET", "/status", "").decode(s.t, &st)
	return st.Timeouts
}

// A handler that runs out of time in a process that calls one node is shown by another one's /status.
func TestATimedOutHandlerIsShownEverywhere(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].atLevel(frame.LevelClients)
	_, others := leading(t, sites)
	here, there := others[0], others[1]
	c, err := client.New(client.Config{Endpoints: []string{here.url}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	r, err := router.New(router.OnClient(c), router.Options{Register: true, Source: "p1", Drop: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())

	// One attempt waits for its context's end, and says so at length.
	slow := router.Subscription{Name: "slow", Types: []string{"A"}, Timeout: 20 * time.Millisecond,
		Retries: []time.Duration{},
		Handler: func(ctx context.Context, _ event.Event) error {
			<-ctx.Done()
			return fmt.Errorf("gpu 3\nis busy %s", strings.Repeat("€", api.MaxLastError))
		}}
	failing, err := r.Subscribe(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Publish(t.Context(), event.New("A", map[string]any{})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an attempt that timed out", func() bool { return failing.Status().FailedAttempts > 0 })

	// The counts are sent along with the next registration, which a new subscription causes.
	fine := router.Subscription{Name: "fine", Types: []string{"B"}, Handler: func(context.Context, event.Event) error {
		return nil
	}}
	if _, err := r.Subscribe(t.Context(), fine); err != nil {
		t.Fatal(err)
	}
	var got api.HandlerTimeouts
	eventually(t, "both handlers at another node", func() bool {
		got = there.timeouts()
		return len(got.Handlers) == 2 && got.TimedOut > 0
	})
	worst, other := got.Handlers[0], got.Handlers[1]
	if worst.Client != "p1" || worst.Subscription != "slow" || worst.TimedOut != 1 || worst.FailedAttempts != 1 ||
		worst.TimeoutSeconds != 0.02 || worst.Breaker != api.BreakerClosed ||
		time.Since(worst.LastErrorAt) > time.Minute {
		t.Errorf("%+v", worst)
	}
	if !strings.Contains(worst.LastError, "gpu 3 is busy €€") || len(worst.LastError) > api.MaxLastError {
		t.Errorf("%d bytes: %q", len(worst.LastError), worst.LastError)
	}
	if other.Subscription != "fine" || other.TimedOut != 0 || other.Breaker != api.BreakerClosed || got.LeftOut != 0 {
		t.Errorf("%+v", got)
	}
}

// The handlers that timed out most come first, whoever has them, and what is left out is counted. What a client sends
// of its last error is clipped and never refused.
func TestTheWorstHandlersAreNotLeftOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelClients)
	for i := range 60 {
		s.ok("PUT", fmt.Sprintf("/v1/clients/c%02d", i), fmt.Sprintf(`{"subscriptions":[
			{"name":"a","handler_timeout_seconds":1,"health":{"timed_out":%d,"failed_attempts":%d}},
			{"name":"b","handler_timeout_seconds":1}, {"name":"unknown"}]}`, i/2, i))
	}
	long := strings.Repeat(`\u0000\n€`, 10_000)
	s.ok("PUT", "/v1/clients/z", `{"subscriptions":[{"name":"a","health":{"timed_out":1000,"failed_attempts":1000,
		"breaker":"open","last_error":"`+long+`","last_error_at":"2026-01-05T10:00:00+02:00"}}]}`)
	got := s.timeouts()
	if len(got.Handlers) != 100 || got.LeftOut != 21 || got.TimedOut != 1000+2*(29*30/2) {
		t.Errorf("%d listed, %d left out, %d timed out", len(got.Handlers), got.LeftOut, got.TimedOut)
	}
	z := got.Handlers[0]
	if z.Client != "z" || z.LastError != strings.Repeat("  €", 40) || z.Breaker != api.BreakerOpen ||
		z.LastErrorAt.Format(time.RFC3339) != "2026-01-05T08:00:00Z" {
		t.Errorf("%+v", z)
	}
	last := [2]uint64{math.MaxUint64, math.MaxUint64}
	for _, h := range got.Handlers {
		now := [2]uint64{h.TimedOut, h.FailedAttempts}
		if slices.Compare(now[:], last[:]) > 0 {
			t.Errorf("%s of %s has %d after %d", h.Subscription, h.Client, now, last)
		}
		last = now
	}
}
