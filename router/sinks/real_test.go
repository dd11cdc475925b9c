package sinks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/breaker"
	"github.com/ringrift/ringlog/router/sinks"
)

// embedded is a node inside the process.
func embedded(t *testing.T) *client.Client {
	t.Helper()
	n, err := ringlog.Open(t.Context(), ringlog.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n.Client()
}

// handled remembers what a sink has handled.
type handled struct {
	mu    sync.Mutex
	times map[uint64]int
	last  map[string]uint64 // the highest offset of each key
}

// handle fails on some first deliveries, and never handles others.
func (h *handled) handle(_ context.Context, d client.Delivery) error {
	switch {
	case mustDie(d.Offset):
		return &sinks.Error{Err: errBoom, Dead: true}
	case d.Offset%17 == 0 && d.Count == 1:
		return errBoom
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.Offset < h.last[d.Key] {
		return fmt.Errorf("%d of %s comes after %d", d.Offset, d.Key, h.last[d.Key])
	}
	h.times[d.Offset]++
	h.last[d.Key] = d.Offset
	return nil
}

func (h *handled) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.times)
}

func mustDie(offset uint64) bool { return offset%101 == 0 }

// Two reactors share a group of a real log; one of them ends half way. Every event is
// handled once, those of a key in order, or is a dead letter.
func TestReactorsShareAGroup(t *testing.T) {
	const events = 2000
	c := embedded(t)
	var batch []event.Event
	for i := range events {
		ev := progress(fmt.Sprint("k", i%20), i)
		ev.NoDedup = true
		batch = append(batch, ev)
	}
	results, err := c.PublishBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	first, last := results[0].Offset, results[events-1].Offset
	if _, err := c.CreateGroup(
		t.Context(),
		"trainers",
		client.GroupSpec{Filter: event.Filter{Types: []string{"TRAINING_PROGRESS"}}},
	); err != nil {
		t.Fatal(err)
	}
	h := &handled{times: map[uint64]int{}, last: map[string]uint64{}}
	settled := func(ctx context.Context) (bool, error) {
		info, err := c.Cursor(ctx, "trainers")
		return err == nil && info.Committed >= last, err
	}
	half, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	sums := make([]sinks.Summary, 2)
	for i, ctx := range []context.Context{half, t.Context()} {
		r, err := sinks.NewReactor(
			sinks.Options{
				Group:       "trainers",
				Concurrency: 4,
				Backoff:     time.Millisecond,
				Breaker:     breaker.Config{Off: true},
				Settled:     settled,
				Join: func(ctx context.Context, hold int) (sinks.Member, error) {
					return c.JoinGroup(ctx, "trainers", client.GroupOptions{NoCreate: true, Prefetch: hold, AutoProgress: true})
				},
				Sink: sinkFunc(func(ctx context.Context, d client.Delivery) error {
					if i == 0 && h.count() > events/2 {
						cancel()
					}
					return h.handle(ctx, d)
				}),
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			var err error
			if sums[i], err = r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	t.Logf("%+v\n%+v", sums[0], sums[1])
	dead := 0
	for offset := first; offset <= last; offset++ {
		if times := h.times[offset]; mustDie(offset) {
			dead++
		} else if times != 1 {
			t.Errorf("%d was handled %d times", offset, times)
		}
	}
	letters := 0
	for l, err := range c.Admin().DeadLetters(t.Context(), client.LetterFilter{Cursor: "trainers"}) {
		if err != nil {
			t.Fatal(err)
		}
		if letters++; l.Error != "boom" {
			t.Errorf("%+v", l)
		}
	}
	if letters != dead || sums[0].Dead+sums[1].Dead != uint64(dead) {
		t.Errorf("%d letters, not %d: %+v %+v", letters, dead, sums[0], sums[1])
	}
	if sums[0].Handled == 0 || sums[1].Handled == 0 {
		t.Error("they did not share")
	}
}

// An answer whose acknowledgement was lost is in the log: its repetition does not wait for the end of the dedup window.
func TestARepeatedAnswerIsAnAnswer(t *testing.T) {
	c := embedded(t)
	if _, err := c.CreateGroup(t.Context(), "answering", client.GroupSpec{
		Filter: event.Filter{Types: []string{"TRAINING_STARTED"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), event.New(event.TrainingStarted, map[string]any{"n": 1})); err != nil {
		t.Fatal(err)
	}
	lost := false
	r, err := sinks.NewReactor(sinks.Options{
		Group: "answering", Count: 1,
		Join: func(ctx context.Context, hold int) (sinks.Member, error) {
			return c.JoinGroup(ctx, "answering", client.GroupOptions{NoCreate: true, Prefetch: hold})
		},
		Sink:   sinkFunc(func(context.Context, client.Delivery) error { return nil }),
		Answer: func(event.Type, bool) event.Type { return event.TrainingCompleted },
		Publish: func(ctx context.Context, ev event.Event) error {
			_, err := c.Publish(ctx, ev)
			if err == nil && !lost {
				lost = true
				return errBoom
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := r.Run(t.Context())
	if err != nil || sum.Handled != 1 || sum.Attempts != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	answers := 0
	for _, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true,
		Filter: event.Filter{Types: []string{"TRAINING_COMPLETED"}}}) {
		if answers++; err != nil {
			t.Fatal(err)
		}
	}
	if answers != 1 {
		t.Errorf("%d answers", answers)
	}
}
