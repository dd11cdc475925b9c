package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// BenchmarkExchange delivers events in batches and settles them, as one member does.
func BenchmarkExchange(b *testing.B) {
	for _, keys := range []int{0, 8, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchExchange(b, keys) })
	}
}

func benchExchange(b *testing.B, keys int) {
	const batch = 4096
	now := time.Unix(1000, 0)
	policy := Policy{AckWait: 30 * time.Second, Session: 10 * time.Second, MaxDeliver: 5, MaxPending: 10_000}
	c := New(now, State{}, policy, 0)
	m, err := c.Join(now, "w", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, max(keys, 1))
	for i := range names {
		if keys > 0 {
			names[i] = fmt.Sprintf("key-%d", i)
		}
	}
	events, taken := make([]Event, batch), []Delivery(nil)
	b.ReportAllocs()
	offset, handed := uint64(0), 0
	for b.Loop() {
		for i := range events {
			offset++
			events[i] = Event{Offset: offset, Key: names[offset%uint64(len(names))], Bytes: 200}
		}
		c.Feed(events, offset+1)
		if _, ok := c.NextAckBatch(batch, false); !ok {
			b.Fatal("nothing to settle")
		}
		c.AckBatchDone(true)
		taken = c.Take(now, m, Demand{Events: batch, Bytes: 1 << 30, Units: batch, Ahead: true}, taken[:0])
		handed += len(taken)
		if refused := c.Ack(m, frame.Range{From: offset - batch + 1, To: offset}, nil); refused != nil {
			b.Fatal(refused)
		}
	}
	b.ReportMetric(float64(handed)/b.Elapsed().Seconds(), "events/s")
}
