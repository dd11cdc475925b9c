package ringlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *ringlog.Node {
	t.Helper()
	n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: dir, Fatal: func(err error) { panic(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, n) })
	return n
}

func shut(t *testing.T, n *ringlog.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestALogInsideTheProcessOutlivesIt(t *testing.T) {
	dir := t.TempDir()
	training := client.CursorOptions{Filter: event.Filter{Types: []string{"training.*"}}}
	const lives, each = 3, 20
	for life := range lives {
		n := open(t, dir)
		c := n.Client()
		cur, err := c.OpenCursor(t.Context(), "trainer", training)
		if err != nil {
			t.Fatal(err)
		}
		var last uint64
		for i := range each {
			res, err := c.Publish(t.Context(), event.New(event.TrainingProgress, map[string]int{"epoch": life*each + i}))
			if err != nil || res.Offset <= last || res.Duplicate {
				t.Fatalf("%+v, %v", res, err)
			}
			last = res.Offset
		}
		for i := range each {
			ev, err := cur.Next(t.Context())
			if want := fmt.Sprintf(`{"epoch": %d}`, life*each+i); err != nil || string(ev.Payload) != want {
				t.Fatalf("life %d read %s, %v, want %s", life, ev.Payload, err, want)
			}
		}
		if err := cur.Commit(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		count := 0
		for ev, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true, Filter: training.Filter}) {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`{"epoch": %d}`, count); string(ev.Payload) != want {
				t.Fatalf("life %d: event %d is %s", life, count, ev.Payload)
			}
			count++
		}
		if count != (life+1)*each {
			t.Errorf("life %d has %d events, want %d", life, count, (life+1)*each)
		}
		shut(t, n)
		if _, err := c.Publish(t.Context(), event.New(event.TrainingProgress, nil)); !errors.Is(err, client.ErrClosed) {
			t.Errorf("publish after Close: %v", err)
		}
	}
}

func TestAFolderIsOpenOnce(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: dir}); err == nil {
		shut(t, n)
		t.Error("the same folder opened twice")
	}
}

// A subscription to a misspelt type would wait for ever: the log says so, with what may be meant.
func TestASubscriptionToAMisspeltTypeIsWarnedAbout(t *testing.T) {
	lines := make(chan string, 1000)
	logger := slog.New(slog.NewTextHandler(chanWriter(lines), &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := ringlog.Open(t.Context(), ringlog.Config{
		Dir: t.TempDir(), Logger: logger, Fatal: func(err error) { panic(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, n)
	for spelt, durable := range map[string]bool{"TRAINNG_COMPLETED": false, "MODELL_PROMOTED": true} {
		_, err := n.Router().Subscribe(t.Context(), router.Subscription{
			Name: "on " + spelt, Durable: durable, Types: []string{spelt},
			Handler: func(context.Context, event.Event) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		for {
			if line := <-lines; strings.Contains(line, spelt+" is not in the catalogue; nearest known types: ") {
				break
			}
		}
	}
}

// chanWriter sends what is written to a channel.
type chanWriter chan<- string

func (w chanWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}

func BenchmarkPublish(b *testing.B) {
	n, err := ringlog.Open(b.Context(), ringlog.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close(b.Context())
	b.SetParallelism(256)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			ev := event.New(event.TrainingProgress, map[string]int{"epoch": i})
			ev.NoDedup = true
			if _, err := n.Client().Publish(b.Context(), ev); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// TestTheNodeLogsToSlog reads what a node logs while it starts through a handler of log/slog.
func TestTheNodeLogsToSlog(t *testing.T) {
	var out syncBuffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: t.TempDir(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	shut(t, n)

	// A line of the node names its part, and nothing below the handler's level comes through.
	text := out.String()
	if !strings.Contains(text, "part=raft") || !strings.Contains(text, "level=INFO") ||
		strings.Contains(text, "level=DEBUG") {
		t.Errorf("the node logged\n%s", text)
	}
}

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
