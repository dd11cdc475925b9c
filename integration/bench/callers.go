package main

import (
	"context"
	"sync"

	"github.com/ringrift/ringlog/event"
)

// eachBatch has callers publish batches at the same time, each waiting for its own, until the
// quota is used up or one fails. A batch's slice is used again, its payloads are not.
func eachBatch(
	ctx context.Context, callers, size int, src *source, q *quota,
	publish func(context.Context, []event.Event) error,
) (tally, error) {
	// The first error ends the other callers, and is the cause that is returned.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// mu guards all. Each caller adds its own sum once, when it ends.
	var mu sync.Mutex
	var all tally
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			// A generator belongs to one goroutine, and so does the slice.
			g, mine, events := src.generator(), tally{}, make([]event.Event, size)
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				all.events, all.bytes = all.events+mine.events, all.bytes+mine.bytes
			}()
			for ctx.Err() == nil {
				// The last batch is shorter: it has what the quota has left.
				batch := events[:q.take(size)]
				if len(batch) == 0 {
					return
				}
				g.fill(batch)
				if err := publish(ctx, batch); err != nil {
					cancel(err)
					return
				}
				// Only acknowledged events are counted.
				mine.events += len(batch)
				mine.bytes += payloadBytes(batch)
			}
		})
	}
	running.Wait()
	// Without an error the cause is nil, since the deferred cancel has not run.
	return all, context.Cause(ctx)
}
