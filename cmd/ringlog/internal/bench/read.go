package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
)

const (
	// followed is how many events a tail benchmark follows one by one.
	followed = 200
	// unmeasuredFollowed come before them, while the reader connects.
	unmeasuredFollowed = 5
)

// publishEvents publishes what is to be read, the warm-up first, and returns where it starts.
func (r *round) publishEvents(ctx context.Context) (from uint64, err error) {
	// An event published alone marks the place: what is to be read starts after it.
	first, err := r.client.Publish(ctx, r.newEvent(randomSource()))
	if err != nil {
		return 0, err
	}
	r.sh.Say("publishing %d events of %d bytes to read", r.opts.events, r.size)
	if err := r.warmUp(ctx); err != nil {
		return 0, err
	}
	// Publishing is counted and not reported: the round is about reading.
	var published tally
	return first.Offset + 1, r.publishLoad(ctx, amount{events: r.opts.events}, "publishing", &published)
}

// randomSource returns a source whose numbers differ in each run.
func randomSource() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))) }

// benchTail reads the events at once, then a few as they are published.
// The first part measures the rate, the second one the latency.
func benchTail(ctx context.Context, r *round) error {
	from, err := r.publishEvents(ctx)
	if err != nil {
		return err
	}
	// All that was published is read, without waiting for more.
	if err := r.readAll(ctx, from); err != nil {
		return err
	}
	return r.measureFollowing(ctx)
}

// readAll reads what was prepared and counts what comes after the warm-up.
func (r *round) readAll(ctx context.Context, from uint64) error {
	defer startMeter(r.sh, "reading", int64(r.opts.events), &r.tally.events)()
	defer r.tally.stop()
	// The limit ends the reading, even if others publish meanwhile.
	o := client.TailOptions{From: client.FromOffset(from), Limit: uint64(r.warmed + r.opts.events), NoFollow: true,
		Consistency: client.Linearizable}
	// The clock starts after the last event of the warm-up, or at once if there is none.
	unmeasured := r.warmed
	if unmeasured == 0 {
		r.tally.start()
	}
	for ev, err := range r.client.Tail(ctx, o) {
		switch {
		case err != nil:
			return err
		case unmeasured == 0:
			r.tally.count(1, len(ev.Payload))
		// An event of the warm-up: the clock starts after the last one.
		default:
			unmeasured--
			if unmeasured == 0 {
				r.tally.start()
			}
		}
	}
	// Fewer events than were acknowledged would be a loss, not a slow reading.
	if n := r.tally.events.Load(); n < int64(r.opts.events) {
		return fmt.Errorf("bench tail: %d events came of %d", n, r.opts.events)
	}
	return nil
}

// measureFollowing publishes events one by one and times until each is read.
func (r *round) measureFollowing(ctx context.Context) error {
	var reading sync.WaitGroup
	// It runs after cancel, which is deferred later: the reader ends with ctx.
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The channel has room for nearly all, so the reader does not wait for the publisher.
	arrived := make(chan uint64, followed)
	// There is room for the one error of the reader, which then ends.
	failed := make(chan error, 1)
	random := randomSource()
	// The reader starts after an event that is there, so it misses none.
	first, err := r.client.Publish(ctx, r.newEvent(random))
	if err != nil {
		return err
	}
	reading.Go(func() {
		for ev, err := range r.client.Tail(ctx, client.TailOptions{From: client.FromOffset(first.Offset + 1)}) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case arrived <- ev.Offset:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
		}
	})
	// One event at a time: what is measured is the way to the reader, without a queue.
	for i := range unmeasuredFollowed + followed {
		sent := time.Now()
		res, err := r.client.Publish(ctx, r.newEvent(random))
		if err != nil {
			return err
		}
		// The reader may be ahead by events of others: anything at or after the offset will do.
		for seen := uint64(0); seen < res.Offset; {
			select {
			case seen = <-arrived:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if i >= unmeasuredFollowed {
			r.tally.latencies.add(time.Since(sent))
		}
	}
	return nil
}

// benchCursor reads the events through a cursor of its own, which it removes.
func benchCursor(ctx context.Context, r *round) (err error) {
	from, err := r.publishEvents(ctx)
	if err != nil {
		return err
	}
	// Run and size make the name unlike that of any other cursor.
	name := fmt.Sprintf("%s-%s-%d", benchSource, r.run, r.size)
	cur, err := r.client.OpenCursor(ctx, name, client.CursorOptions{From: client.FromOffset(from)})
	if err != nil {
		return err
	}
	// The cursor is removed after Ctrl-C, too.
	defer func() {
		err = errors.Join(err, cur.Close(), r.client.DeleteCursor(context.WithoutCancel(ctx), name))
	}()
	// The warm-up is read and committed as the rest is, but counted apart.
	var unmeasured tally
	// It commits its last event, so nothing is left to commit when the measurement begins.
	if err := r.consumeEvents(ctx, cur, r.warmed, &unmeasured); err != nil {
		return err
	}
	defer startMeter(r.sh, "reading", int64(r.opts.events), &r.tally.events)()
	return r.consumeEvents(ctx, cur, r.opts.events, &r.tally)
}

// consumeEvents takes n events from a cursor and commits each batch of them.
func (r *round) consumeEvents(ctx context.Context, cur *client.Cursor, n int, t *tally) error {
	// The clock of the warm-up runs, too, and is not read.
	t.start()
	defer t.stop()
	for taken := 1; taken <= n; taken++ {
		ev, err := cur.Next(ctx)
		if err != nil {
			return err
		}
		t.count(1, len(ev.Payload))
		// The last batch may be smaller than the others.
		if taken%r.opts.batch != 0 && taken < n {
			continue
		}
		// The latency of a cursor is that of its commits: reading is ahead of it.
		sent := time.Now()
		if err := cur.Commit(ctx, ev.Offset); err != nil {
			return err
		}
		t.latencies.add(time.Since(sent))
	}
	return nil
}
