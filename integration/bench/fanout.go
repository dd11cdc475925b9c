package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
)

// How many events are published, and how long after the last acknowledgement every cursor must have had all.
const (
	fanoutRate = 200 // events a second
	lateWithin = 20 * time.Second
)

// fanout is many cursors that each receive the same numbered events. An event's number is its
// correlation id.
type fanout struct {
	session *ringlogSession
	events  int         // without the first one, by which the cursors show that they receive
	began   time.Time   // when the first was due; written before it is published
	seen    [][]float64 // by cursor: milliseconds from when each event was due
}

// measureFanout is for ringlog alone.
// The rate is fixed; the figure is how late events are.
func measureFanout(ctx context.Context, t *turn) error {
	r, ok := t.session.(*ringlogSession)
	if !ok {
		return errNotOffered
	}
	// Each reader writes to its own element of seen alone.
	f := &fanout{session: r, events: int(t.scale.fanout.Seconds() * fanoutRate), seen: make([][]float64, t.scale.cursors)}
	t.awaitQuiet(ctx)
	if err := f.run(ctx, t); err != nil {
		return err
	}
	// Every pair of an event and a cursor counts.
	all := slices.Concat(f.seen...)
	slices.Sort(all)
	t.record("fanout", fmt.Sprintf("%d cursors, %d events", t.scale.cursors, f.events),
		map[string]float64{p50: quantile(all, 0.5), p99: quantile(all, 0.99), longest: quantile(all, 1)})
	return nil
}

// run opens the cursors, publishes, and returns once every cursor has had every event, or fails.
func (f *fanout) run(ctx context.Context, t *turn) error {
	// The first error ends the cursors and the publisher, and is the cause that is returned.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cursors, err := f.open(ctx)
	// open returns those that it opened with an error, too.
	defer func() {
		for _, cur := range cursors {
			_ = cur.Close() // what it read is judged below
		}
	}()
	if err != nil {
		return err
	}
	// A cursor is done with listening when it has had the first event, and with reading when it has had all or
	// failed.
	var listening, reading sync.WaitGroup
	for i, cur := range cursors {
		listening.Add(1)
		reading.Go(func() {
			if err := f.follow(ctx, i, cur, sync.OnceFunc(listening.Done)); err != nil {
				cancel(fmt.Errorf("cursor %d: %w", i, err))
			}
		})
	}
	// After an error the readers end with ctx, and are awaited all the same.
	if err := f.publish(ctx, t, &listening); err != nil {
		cancel(err)
	}
	// The time begins when all events are acknowledged.
	late := time.AfterFunc(lateWithin, func() {
		cancel(fmt.Errorf("some cursors had not seen every event %s after the last", lateWithin))
	})
	defer late.Stop()
	reading.Wait()
	return context.Cause(ctx)
}

// open opens the cursors at the end of the log, some at a time.
func (f *fanout) open(ctx context.Context) ([]*client.Cursor, error) {
	cursors := make([]*client.Cursor, len(f.seen))
	errs := make(chan error, len(cursors))
	slots := make(chan struct{}, 32) // how many are opened at the same time
	var opening sync.WaitGroup
	for i := range cursors {
		// The slot is taken before the goroutine is made, so no more goroutines exist than slots.
		slots <- struct{}{}
		opening.Go(func() {
			defer func() { <-slots }()
			name, atEnd := fmt.Sprintf("fanout-%d", i), client.CursorOptions{From: client.FromEnd()}
			cur, err := f.session.client.OpenCursor(ctx, name, atEnd)
			if err != nil {
				errs <- err
				return
			}
			cursors[i] = cur
		})
	}
	opening.Wait()
	// The channel has room for an error of each cursor. The first is returned, or nil if there is none.
	close(errs)
	return slices.DeleteFunc(cursors, func(c *client.Cursor) bool { return c == nil }), <-errs
}

// follow reads until all events have come, each once and in order. It calls listens at the first one.
func (f *fanout) follow(ctx context.Context, i int, cur *client.Cursor, listens func()) error {
	// Also if it fails before: publish waits for all cursors.
	defer listens()
	seen := make([]float64, 0, f.events)
	for next := 0; next <= f.events; {
		ev, err := cur.Next(ctx)
		if err != nil {
			return err
		}
		// The cluster emits events of its own.
		if ev.Source != benchSource {
			continue
		}
		// An event that is lost, repeated or out of order fails the measurement.
		if ev.CorrelationID != strconv.Itoa(next) {
			return fmt.Errorf("event %q came where %d was due", ev.CorrelationID, next)
		}
		// The time counts from when the event was due, whenever it was sent.
		if next == 0 {
			// It came before the schedule began and has no time.
			listens()
		} else {
			seen = append(seen, millis(time.Since(f.due(next))))
		}
		next++
	}
	// It is written once, complete, and read after all readers have ended.
	f.seen[i] = seen
	return nil
}

// due is when an event is to be published, from 1.
func (f *fanout) due(number int) time.Time {
	return f.began.Add(time.Duration(number) * time.Second / fanoutRate)
}

// publish publishes the first event, waits until all cursors have received it, and continues at the
// rate, whether or not answers come.
func (f *fanout) publish(ctx context.Context, t *turn, listening *sync.WaitGroup) error {
	g := t.source.generator()
	// A cursor knows an event by its correlation id. The event counts as published before it is acknowledged:
	// if it never is, the measurement fails.
	send := func(number int) *client.Future {
		ev := g.next()
		ev.CorrelationID = strconv.Itoa(number)
		t.published++
		return f.session.client.PublishAsync(ctx, ev)
	}
	// All cursors have the first event before the time of the others begins.
	if _, err := send(0).Wait(ctx); err != nil {
		return err
	}
	listening.Wait()
	// The schedule is fixed from here on. An answer that takes long delays no event after it.
	f.began = time.Now()
	futures := make([]*client.Future, 0, f.events)
	for number := 1; number <= f.events; number++ {
		select {
		case <-time.After(time.Until(f.due(number))):
			futures = append(futures, send(number))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// A cursor would wait in vain for an event that was refused; the refusal is the better error.
	for _, future := range futures {
		if _, err := future.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
