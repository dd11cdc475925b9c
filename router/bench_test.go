package router_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// The way of an event from Publish through a node's log to a handler.
func BenchmarkPublishToHandler(b *testing.B) {
	for _, kind := range []string{"durable", "passing", "direct", "local"} {
		b.Run(kind, func(b *testing.B) {
			log := embedded(b)
			r := open(b, log, router.Options{})
			var all sync.WaitGroup
			subscribe(b, r, router.Subscription{Name: "bench", Types: []string{"TRAINING_PROGRESS"}, Concurrency: 4, Queue: 4096,
				Durable: kind == "durable", Direct: kind == "direct",
				Handler: func(context.Context, event.Event) error { all.Done(); return nil }})
			var opts []router.PublishOption
			if kind == "local" {
				opts = append(opts, router.Local())
			}
			b.SetParallelism(256)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					all.Add(1)
					publish(b, r, progress(fmt.Sprint(i%16), i), opts...)
				}
			})
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
