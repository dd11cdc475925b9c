package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// instant answers at once and keeps nothing: what is left is the client's own cost.
type instant struct {
	ringlogv1connect.UnimplementedLogServiceHandler
	requests, events atomic.Int64
}

func (i *instant) Publish(
	_ context.Context,
	r *connect.Request[ringlogv1.PublishRequest],
) (*connect.Response[ringlogv1.PublishResponse], error) {
	i.requests.Add(1)
	n := int64(r.Msg.GetPacket().GetRows())
	return connect.NewResponse(
		&ringlogv1.PublishResponse{First: uint64(i.events.Add(n) - n + 1), AppendedAtUnixNano: 1},
	), nil
}

func training(n int) event.Event {
	return event.New(
		event.TrainingCompleted,
		fmt.Appendf(
			nil,
			`{"config_key": "hex8_2p", "final_loss": 0.%d1, `+
				`"metrics": {"accuracy": 0.8125, "epochs": %d, "samples": 184320}, `+
				`"model_path": "models/hex8_2p/run-%d.pth", "source": "trainer-3"}`,
			n,
			n%50,
			n,
		),
	)
}

// BenchmarkPublish measures calls that share requests, by how many callers there are.
func BenchmarkPublish(b *testing.B) {
	for _, callers := range []int{1, 16, 256, 2048} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			peer := &instant{}
			mux := http.NewServeMux()
			mux.Handle(ringlogv1connect.NewLogServiceHandler(peer))
			c := dial(b, client.Config{}, openDoor(b, mux))
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := c.Publish(b.Context(), training(int(n.Add(1)))); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(peer.events.Load())/float64(max(peer.requests.Load(), 1)), "events/request")
		})
	}
}

func BenchmarkPublishAsync(b *testing.B) {
	peer := &instant{}
	mux := http.NewServeMux()
	mux.Handle(ringlogv1connect.NewLogServiceHandler(peer))
	c := dial(b, client.Config{}, openDoor(b, mux))
	b.ReportAllocs()
	var last *client.Future
	for n := 0; b.Loop(); n++ {
		last = c.PublishAsync(b.Context(), training(n))
	}
	if _, err := last.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNode is the same against a real node, alone in its cluster.
func BenchmarkNode(b *testing.B) {
	n := startNode(b)
	d := openDoor(b, n.server.Handler())
	b.Run("publish", func(b *testing.B) {
		c := dial(b, client.Config{}, d)
		b.SetParallelism(1024)
		var i atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := c.Publish(b.Context(), training(int(i.Add(1)))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("batches of 512", func(b *testing.B) {
		c := dial(b, client.Config{}, d)
		for at := 0; b.Loop(); at++ {
			var events []event.Event
			for i := range 512 {
				events = append(events, training(at*512+i))
			}
			if _, err := c.PublishBatch(b.Context(), events); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("tail", func(b *testing.B) {
		c := dial(b, client.Config{}, d)
		read := 0
		for b.Loop() {
			for _, err := range c.Tail(b.Context(), client.TailOptions{NoFollow: true}) {
				if err != nil {
					b.Fatal(err)
				}
				read++
			}
		}
		b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "events/s")
	})
}
