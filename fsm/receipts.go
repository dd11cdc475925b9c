package fsm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// receipts are the events that an entry suppressed:
//
//	1        receiptsForm
//	varint   replicated time, Unix nanoseconds
//	uvarint  number of sources, then each as length and bytes
//	rest     per suppressed event: uvarint offset of the first, uvarint source
//
// A value that was stored before receipts were counted has no first byte; its time begins with
// a byte above 0x7f.
type receipts struct {
	list    []receipt
	sources map[string]int // the number of each source
	names   []string       // by number
}

const receiptsForm = 1

// receipt is one suppressed event: the offset of the event that it repeats, and the number of its source.
type receipt struct {
	offset uint64
	source int
}

// receiptTotals count the stored receipts. They count for retention.bytes, and take at most an eighth
// of it: beyond that the oldest are removed, and what their entries suppressed is no longer explained.
type receiptTotals struct {
	From  uint64 `json:"from"`  // no receipt is of an entry before this one
	Bytes uint64 `json:"bytes"` // keys and values
}

const (
	receiptsShare = 8  // of retention.bytes
	receiptsStep  = 64 // a 64th of the share is removed at a time, so most entries remove nothing
)

// add notes an event that was suppressed, because the event at offset is the same.
func (r *receipts) add(offset uint64, source string) {
	// A source is stored once; receipts name it by its number.
	n, known := r.sources[source]
	if !known {
		if r.sources == nil {
			r.sources = make(map[string]int)
		}
		n = len(r.names)
		r.sources[source] = n
		r.names = append(r.names, source)
	}
	r.list = append(r.list, receipt{offset, n})
}

// encode returns nil when nothing was suppressed.
func (r *receipts) encode(now int64) []byte {
	if len(r.list) == 0 {
		return nil
	}
	b := binary.AppendVarint([]byte{receiptsForm}, now)
	b = binary.AppendUvarint(b, uint64(len(r.names)))
	for _, name := range r.names {
		b = fields.Append(b, name)
	}

	// Receipts name their source by its place in this list.
	for _, one := range r.list {
		b = binary.AppendUvarint(b, one.offset)
		b = binary.AppendUvarint(b, uint64(one.source))
	}
	return b
}

// readReceipts reads what receipts.encode wrote and returns its time.
func readReceipts(b []byte, yield func(offset uint64, source string, at time.Time)) time.Time {
	// Without the form byte the value is an older one and begins with its time.
	if len(b) > 0 && b[0] == receiptsForm {
		b = b[1:]
	}
	r := fields.Reader{Rest: b}
	at := time.Unix(0, r.Varint()).UTC()
	names := make([]string, r.Count(1))
	for i := range names {
		names[i] = string(r.Bytes())
	}
	// A damaged receipt ends the list: it explains less, and decides nothing.
	for len(r.Rest) > 0 {
		offset, source := r.Uvarint(), r.Uvarint()
		if r.Err == nil && source < uint64(len(names)) {
			yield(offset, names[source], at)
		}
	}
	return at
}

// storeReceipts keeps what this entry suppressed.
func (a *publishApplier) storeReceipts() {
	value := a.receipts.encode(a.now)
	if value == nil {
		return
	}
	// They are stored under the entry's index, and count for retention.bytes.
	k := indexKey(prefixReceipts, a.index)
	a.tx.Set(k, value)
	a.s.meta.Receipts.Bytes += uint64(len(k) + len(value))
}

// trimReceipts removes the oldest receipts while there are more than their share of retention.bytes.
func (a *trimApplier) trimReceipts() error {
	share := a.s.settings.RetentionBytes / receiptsShare
	if share == 0 || a.s.meta.Receipts.Bytes <= share {
		return nil
	}
	return a.dropReceipts(a.index, share-share/receiptsStep)
}

// dropReceipts removes receipts of entries before index, the oldest first, until no more than keep
// bytes are left, or all of them where keep is 0. One entry adds one receipt at most and removes up
// to maxDropped; later entries remove the rest.
func (a *trimApplier) dropReceipts(index, keep uint64) error {
	t := &a.s.meta.Receipts
	it, err := a.db.Iter(indexKey(prefixReceipts, t.From), indexKey(prefixReceipts, index))
	if err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	defer it.Close()
	ok := it.First()

	// Receipts that were stored before they were counted have no form byte.
	for n := 0; ok && n < maxDropped && (keep == 0 || t.Bytes > keep); n++ {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("receipts: %w", err)
		}
		if len(value) > 0 && value[0] == receiptsForm {
			t.Bytes -= uint64(len(it.Key()) + len(value))
		}
		a.tx.Delete(it.Key())
		t.From = binary.BigEndian.Uint64(it.Key()[1:]) + 1
		ok = it.Next()
	}
	// Nothing is left before index: the next search begins there.
	if !ok {
		t.From = max(t.From, index)
	}
	return it.Error()
}
