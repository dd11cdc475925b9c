package sinks_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// sinkFunc is a sink that is a function.
type sinkFunc func(ctx context.Context, d client.Delivery) error

func (f sinkFunc) Handle(ctx context.Context, d client.Delivery) error { return f(ctx, d) }

// progress is an event of a key with a number.
func progress(key string, n int) event.Event {
	ev := event.New(event.TrainingProgress, map[string]any{"n": n})
	ev.Key = key
	return ev
}

// transcript writes down what happens, with the seconds since it began. Within a second
// come joining, outcomes by event, leaving, and what is published.
type transcript struct {
	mu    sync.Mutex
	began time.Time
	lines []transcriptLine
}

type transcriptLine struct {
	second   int
	reported bool
	text     string
}

func (l transcriptLine) class() int {
	switch {
	case l.reported:
		return 3
	case l.text == "left":
		return 2
	case l.text == "joined":
		return 0
	}
	return 1
}

func newTranscript() *transcript { return &transcript{began: time.Now()} }

func (tr *transcript) write(reported bool, text string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, transcriptLine{int(time.Since(tr.began).Seconds()), reported, text})
}

func (tr *transcript) say(format string, args ...any) { tr.write(false, fmt.Sprintf(format, args...)) }

func (tr *transcript) outcome(o sinks.Outcome) {
	text := fmt.Sprintf("event %d delivery %d attempt %d: %s", o.Offset, o.Delivery, o.Attempt, o.Result)
	if o.Wait > 0 {
		text += fmt.Sprintf(", again in %s", o.Wait)
	}
	if o.Lost {
		text += ", lost"
	}
	if o.Error != "" {
		text += ": " + o.Error
	}
	tr.say("%s", text)
}

// publish takes what a reactor publishes.
func (tr *transcript) publish(_ context.Context, ev event.Event) error {
	var p map[string]any
	if err := json.Unmarshal(ev.Payload, &p); err != nil {
		return err
	}
	text := string(ev.Type)
	for _, name := range []string{
		"handler",
		"event",
		"offset",
		"delivery",
		"attempt",
		"attempts",
		"dead_letter",
		"failures",
		"previous",
		"error",
	} {
		if v, ok := p[name]; ok {
			separator := " "
			if name == "error" {
				separator = "\n        "
			}
			text += fmt.Sprintf("%s%s=%v", separator, name, v)
		}
	}
	tr.write(true, text)
	return nil
}

func (tr *transcript) check(t *testing.T, want string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	slices.SortStableFunc(tr.lines, func(a, b transcriptLine) int {
		order := cmp.Or(a.second-b.second, a.class()-b.class())
		if order == 0 && a.class() == 1 {
			return strings.Compare(a.text, b.text)
		}
		return order
	})
	var got strings.Builder
	for _, l := range tr.lines {
		fmt.Fprintf(&got, "%4d s  %s\n", l.second, l.text)
	}
	if diff := gocmp.Diff(strings.TrimLeft(want, "\n"), got.String()); diff != "" {
		t.Error(diff)
	}
}

// react runs a reactor over a group until it ends.
func react(ctx context.Context, t *testing.T, g *memGroup, o sinks.Options) sinks.Summary {
	t.Helper()
	o.Group, o.Join, o.MaxDeliver = "trainers", g.join, g.maxDeliver
	r, err := sinks.NewReactor(o)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := r.Run(ctx)
	if err != nil {
		t.Error(err)
	}
	return sum
}
