package server

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/internal/group/engine"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
)

// BenchmarkGroup has one member take batches and acknowledge them: within the server, and
// over Connect with the member's half of the work.
func BenchmarkGroup(b *testing.B) {
	s := newSite(b, nil)
	s.knowsGroups()
	s.set("group.max_pending", "50000")
	for _, keys := range []int{0, 8} {
		prefix := fmt.Sprintf("keys=%d/", keys)
		kind := fmt.Sprintf("GROUP_BENCH_%d", keys)
		s.appendMany(b, kind, keys, 400_000)
		for _, batch := range []uint32{256, 4096} {
			b.Run(fmt.Sprintf("%sserver/batch=%d", prefix, batch), func(b *testing.B) { benchServerGroup(b, s, kind, batch) })
			b.Run(fmt.Sprintf("%sconnect/batch=%d", prefix, batch), func(b *testing.B) { benchConnectGroup(b, s, kind, batch) })
		}
	}
}

// appendMany fills the log with events that look like the platform's.
func (s *site) appendMany(b *testing.B, kind string, keys, events int) {
	b.Helper()
	c := ringlogv1connect.NewLogServiceClient(h2c(b), s.url)
	for i := 0; i < events; i += 4000 {
		request := &ringlogv1.PublishRequest{}
		for n := i; n < i+4000; n++ {
			e := &ringlogv1.Event{Type: kind, Payload: trainingPayload(int64(n)), Source: "trainer"}
			if keys > 0 {
				e.Key = fmt.Sprintf("hex8_%d", n%keys)
			}
			request.Events = append(request.Events, e)
		}
		if _, err := c.Publish(b.Context(), connect.NewRequest(request)); err != nil {
			b.Fatal(err)
		}
	}
}

// workGroup exchanges until all events of a type are settled, once for each iteration.
func workGroup(
	b *testing.B, s *site, kind string,
	exchange func(group string, session uint64, acks []frame.Range) (now uint64, got []uint64),
) {
	round, events := 0, 0
	for b.Loop() {
		round++
		group := fmt.Sprintf("g-%s-%d-%d", kind, b.N, round)
		s.ok("PUT", "/v1/groups/"+group, `{"filter":{"types":["`+kind+`"]}}`)
		session, acks := uint64(0), []frame.Range(nil)
		for {
			now, got := exchange(group, session, acks)
			if session, acks = now, acks[:0]; len(got) == 0 {
				break
			}
			for _, offset := range got {
				if n := len(acks); n > 0 && acks[n-1].To+1 == offset {
					acks[n-1].To = offset
				} else {
					acks = append(acks, frame.Range{From: offset, To: offset})
				}
			}
			events += len(got)
		}
		s.ok("DELETE", "/v1/groups/"+group, "")
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func benchServerGroup(b *testing.B, s *site, kind string, batch uint32) {
	var offsets []uint64
	workGroup(b, s, kind, func(group string, session uint64, acks []frame.Range) (uint64, []uint64) {
		out, err := s.server.ops.Groups.Exchange(b.Context(), engine.Request{
			Group:   group,
			Member:  "w",
			Session: session,
			Acks:    acks,
			Want:    int(batch),
		})
		if err != nil {
			b.Fatal(err)
		}
		offsets = offsets[:0]
		for i := range out.Events {
			offsets = append(offsets, out.Events[i].Offset)
		}
		return out.Session, offsets
	})
}

func benchConnectGroup(b *testing.B, s *site, kind string, batch uint32) {
	c := ringlogv1connect.NewGroupServiceClient(h2c(b), s.url)
	workGroup(b, s, kind, func(group string, session uint64, acks []frame.Range) (uint64, []uint64) {
		out, err := c.Exchange(
			b.Context(),
			connect.NewRequest(&ringlogv1.ExchangeRequest{
				Group:   group,
				Member:  "w",
				Session: session,
				Want:    batch,
				Ahead:   true,
				Acks:    rangesToWire(acks),
			}),
		)
		if err != nil {
			b.Fatal(err)
		}
		return out.Msg.Session, offsetsOfRuns(out.Msg.Runs)
	})
}
