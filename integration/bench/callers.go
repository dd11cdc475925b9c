package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ringrift/ringlog/event"
)

// eachBatch has callers publish batches at the same time, each waiting for its own, until the
// quota is used up or one fails.
func eachBatch(ctx context.Context, callers, size int, src *source, q *quota, publish func(context.Context, []event.Event) error) (tally, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var events, bytes atomic.Int64
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			g := src.generator()
			for ctx.Err() == nil {
				n := q.take(size)
				if n == 0 {
					return
				}
				batch := g.batch(n)
				if err := publish(ctx, batch); err != nil {
					cancel(err)
					return
				}
				events.Add(int64(n))
				bytes.Add(int64(payloadBytes(batch)))
			}
		})
	}
	running.Wait()
	return tally{events: int(events.Load()), bytes: int(bytes.Load())}, context.Cause(ctx)
}
