package client_test

import (
	"context"
	"slices"
	"testing"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Config.TracePublish gives its trace to the events of every call that publishes, in place of that of the cause but not
// of one that an event has itself, and learns the outcome of each call once.
func TestEveryPublishIsTraced(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	span := func(id byte) event.Trace { return event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{id}, Flags: 1} }
	var began byte
	ended := make(chan error, 16)
	c := dial(t, client.Config{TracePublish: func(_ context.Context, events []event.Event) (
		event.Trace, func([]client.Result, error),
	) {
		began++
		return span(began), func(results []client.Result, err error) {
			if err == nil && len(results) != len(events) {
				t.Errorf("%d results of %d events", len(results), len(events))
			}
			ended <- err
		}
	}}, openDoor(t, n.server.Handler()))
	cause := event.Event{Offset: 1, Trace: span(100)}
	ctx := event.CausedBy(t.Context(), &cause)
	own := numbered(3)
	own.Trace = span(200)

	_, err := c.Publish(ctx, numbered(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.PublishBatch(ctx, []event.Event{numbered(2), own}); err != nil {
		t.Fatal(err)
	}
	if _, err = c.PublishAsync(ctx, numbered(4)).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	role, err := c.AcquireRole(ctx, "TRACER", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer role.Release(ctx)
	if _, err = c.PublishUnder(ctx, role.Lease(), numbered(5)); err != nil {
		t.Fatal(err)
	}
	// A call that fails ends its trace as well, whether it is refused at once or not.
	for _, refused := range []func() error{
		func() error { _, err := c.Publish(ctx, event.Event{}); return err },
		func() error { _, err := c.PublishAsync(ctx, event.Event{}).Wait(ctx); return err },
		func() error { _, err := c.PublishBatch(ctx, nil); return err },
	} {
		if refused() == nil {
			t.Error("an event without a type was published")
		}
	}

	failed := 0
	for range 7 {
		if err := <-ended; err != nil {
			failed++
		}
	}
	if failed != 3 || len(ended) != 0 {
		t.Errorf("%d calls have failed, %d ended more than once", failed, len(ended))
	}
	var got []event.Trace
	for ev, err := range c.Tail(ctx, client.TailOptions{From: client.FromStart()}) {
		if err != nil {
			t.Fatal(err)
		}
		if numberOf(ev) > 0 {
			got = append(got, ev.Trace)
		}
		if numberOf(ev) == 5 { // the last: a tail follows the log
			break
		}
	}
	if want := []event.Trace{span(1), span(2), span(200), span(3), span(4)}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
