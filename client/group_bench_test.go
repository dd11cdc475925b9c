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
	"github.com/ringrift/ringlog/internal/frame"
)

// endless returns as many events as are requested and accepts every ack: what remains is
// the client's own cost. A block of the log is cut into as many parts as it takes.
type endless struct {
	ringlogv1connect.UnimplementedGroupServiceHandler
	block *ringlogv1.Packet
	given atomic.Uint64
	acked atomic.Int64
}

const blockRows = 4096

func newEndless(keys int) *endless {
	var events []event.Event
	for n := range blockRows {
		ev := training(n)
		if keys > 0 {
			ev.Key = fmt.Sprintf("key-%d", n%keys)
		}
		events = append(events, ev)
	}
	p := frame.Pack(events)
	return &endless{block: &ringlogv1.Packet{Rows: uint32(p.Rows), Types: p.Types, Sources: p.Sources, Body: p.Body}}
}

func (e *endless) Exchange(
	_ context.Context,
	r *connect.Request[ringlogv1.ExchangeRequest],
) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	for _, a := range r.Msg.Acks {
		e.acked.Add(int64(a.To-a.From) + 1)
	}
	resp := &ringlogv1.ExchangeResponse{Session: 1}
	for want := uint64(r.Msg.Want); want > 0; {
		at := e.given.Load()
		skip := at % blockRows
		take := min(want, blockRows-skip)
		resp.Runs = append(
			resp.Runs,
			&ringlogv1.Run{
				Term: 1,
				Span: &ringlogv1.Span{Packet: e.block, First: at - skip + 1, Skip: uint32(skip), Take: uint32(take)},
			},
		)
		e.given.Add(take)
		want -= take
	}
	return connect.NewResponse(resp), nil
}

// BenchmarkGroup takes and acknowledges events one by one.
func BenchmarkGroup(b *testing.B) {
	for _, keys := range []int{0, 8, 1000} {
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("keys=%d/workers=%d", keys, workers), func(b *testing.B) {
				e := newEndless(keys)
				mux := http.NewServeMux()
				mux.Handle(ringlogv1connect.NewGroupServiceHandler(e))
				m := joinGroup(b, dial(b, client.Config{}, openDoor(b, mux)), client.GroupOptions{})
				b.SetParallelism(max(1, workers/2))
				b.ReportAllocs()
				one := func() bool {
					d, err := m.Next(b.Context())
					if err == nil {
						err = d.Ack()
					}
					if err != nil {
						b.Error(err)
					}
					return err == nil
				}
				if workers == 1 {
					for b.Loop() && one() {
					}
				} else {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() && one() {
						}
					})
				}
				if err := m.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
