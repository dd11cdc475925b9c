package engine

import (
	"crypto/sha512"
	"fmt"
	"runtime"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// Members with a few keys each get scattered events of one block. The database copies a whole block
// for a seek, so a seek for each event is what a group then spends most of its time on.
func TestScatteredDeliveriesReadTheirBlockOnce(t *testing.T) {
	l := newLeader(t)
	batch := &frame.Batch{}
	policy := l.Machine().Policy()
	bytes := uint64(0)
	for i := range 300 {
		// Payloads that do not compress.
		one, two := sha512.Sum512(fmt.Append(nil, i)), sha512.Sum512(fmt.Append(nil, -i))
		e := event.New("A", fmt.Appendf(nil, `{"of":"%x%x"}`, one, two))
		hash, _, err := policy.Normalize(&e)
		if err != nil {
			t.Fatal(err)
		}
		batch.Add(&e, hash)
		bytes += uint64(len(e.Payload))
	}
	result, err := l.Propose(t.Context(), frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	var deliveries []group.Delivery
	for i, place := range result.Offsets(300) {
		if i%3 == 1 {
			deliveries = append(deliveries, group.Delivery{Offset: place.Offset, Count: uint64(i)})
		}
	}

	term := &groupTerm{name: "g", host: l}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	events, counts, err := term.readEvents(deliveries)
	runtime.ReadMemStats(&after)
	if err != nil || len(events) != len(deliveries) {
		t.Fatalf("%d events of %d deliveries: %v", len(events), len(deliveries), err)
	}
	for i, d := range deliveries {
		if events[i].Offset != d.Offset || counts[i] != d.Count {
			t.Fatalf("event %d, delivery %d, is not %+v", events[i].Offset, counts[i], d)
		}
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*bytes {
		t.Errorf("%d events of a block of %d bytes took %d bytes of allocations", len(events), bytes, took)
	}
}
