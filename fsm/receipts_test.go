package fsm

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// storedReceipts are the bytes of all receipts in the database.
func storedReceipts(t *testing.T, m *Machine) (bytes uint64) {
	t.Helper()
	err := m.log.View(func(db kv.DB) error {
		return scan(db, prefixReceipts, func(key string, value []byte) error {
			bytes += uint64(1 + len(key) + len(value))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestReceiptsCountForRetention(t *testing.T) {
	const bound, slack = 64 << 10, 1 << 10 // slack: of one entry
	disk := vfs.NewMem()
	n := &node{t: t, m: open(t, disk), term: 1, at: epoch}
	apply := func(requests ...request) []Result {
		n.index++
		n.at = n.at.Add(time.Second)
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))
	}
	apply(do(frame.SettingSet{Key: "retention.bytes", Value: "65536"}),
		do(frame.SettingSet{Key: "dedup.window", Value: "24h"}))
	var same []event.Event
	for i := range 100 {
		same = append(same, ev(i))
	}
	apply(publish(same...))
	for range 2000 { // duplicates alone: no block comes that could push a receipt out
		apply(publish(same...))
		if s := n.m.Stats(); s.Bytes+s.Receipts > bound+slack || s.Receipts > bound/receiptsShare+slack {
			t.Fatalf("entry %d: %d bytes of blocks, %d of receipts", n.index, s.Bytes, s.Receipts)
		}
	}
	if s := n.m.Stats(); s.Receipts != storedReceipts(t, n.m) || s.Receipts < bound/receiptsShare/2 {
		t.Errorf("%d bytes are counted, %d are stored", s.Receipts, storedReceipts(t, n.m))
	}
	x, err := n.m.Explain(t.Context(), 2)
	if err != nil || x.Suppressed == 0 || x.Last != n.at {
		t.Errorf("the newest receipts explain: %+v %v", x, err)
	}
	for i := range 2000 { // blocks push receipts out
		apply(publish(ev(1000+i)), publish(same[:1]...))
		if s := n.m.Stats(); s.Bytes+s.Receipts > bound+slack {
			t.Fatalf("entry %d: %d bytes of blocks, %d of receipts", n.index, s.Bytes, s.Receipts)
		}
	}
	reload(t, n.m)
	if s := n.m.Stats(); s.Receipts != storedReceipts(t, n.m) {
		t.Errorf("%d bytes are counted, %d are stored", s.Receipts, storedReceipts(t, n.m))
	}
}
