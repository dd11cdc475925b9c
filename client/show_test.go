package client_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/eventlog"
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

// about returns the lines with a message.
func (s *shown) about(message string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.text.String()) {
		if strings.Contains(line, "msg="+message+" ") {
			found = append(found, line)
		}
	}
	return found
}

// With RINGRIFT_DEBUG each event that a client publishes or receives is a line of its logger.
func TestEventsAreShownOnRequest(t *testing.T) {
	n := startNode(t)
	for _, asked := range []string{"", "true"} {
		t.Setenv(eventlog.Variable, asked)
		var out shown
		debug := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})
		c := dial(t, client.Config{Logger: slog.New(debug)}, openDoor(t, n.server.Handler()))
		ev := numbered(1)
		ev.NoDedup = true
		if _, err := c.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PublishBatch(t.Context(), []event.Event{ev, ev}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PublishAsync(t.Context(), ev).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		bad := ev
		bad.Payload = []byte("1")
		if _, err := c.Publish(t.Context(), bad); err == nil {
			t.Error("a payload that is no object was accepted")
		}
		c.PublishAsync(t.Context(), bad)
		for _, err := range c.Tail(t.Context(), client.TailOptions{From: client.FromStart(), NoFollow: true, Limit: 2}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		cur, err := c.OpenCursor(t.Context(), "reader", client.CursorOptions{From: client.FromStart()})
		if err != nil {
			t.Fatal(err)
		}
		defer cur.Close()
		if _, err := cur.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if asked == "" {
			if found := out.about("published"); len(found) > 0 || len(out.about("received")) > 0 {
				t.Errorf("not asked for: %q", found)
			}
			continue
		}
		until(t, "the lines", func() bool {
			return len(out.about("published")) == 4 && len(out.about(`"not published"`)) == 2
		})
		if first := out.about("published")[0]; !strings.Contains(first, "offset=") || !strings.Contains(first, "payload=") {
			t.Error(first)
		}
		if received := out.about("received"); !strings.Contains(received[0], "from=tail") ||
			!strings.Contains(received[2], `from="cursor reader"`) {
			t.Errorf("%q", received)
		}
	}
}
