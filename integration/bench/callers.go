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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var all tally
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			g, mine, events := src.generator(), tally{}, make([]event.Event, size)
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				all.events, all.bytes = all.events+mine.events, all.bytes+mine.bytes
			}()
			for ctx.Err() == nil {
				batch := events[:q.take(size)]
				if len(batch) == 0 {
					return
				}
				g.fill(batch)
				if err := publish(ctx, batch); err != nil {
					cancel(err)
					return
				}
				mine.events += len(batch)
				mine.bytes += payloadBytes(batch)
			}
		})
	}
	running.Wait()
	return all, context.Cause(ctx)
}
