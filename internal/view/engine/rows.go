package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/internal/view"
)

// A stored row is the offset of its last change, then its value.

// decodeRow splits a stored row.
func decodeRow(stored []byte) (changed uint64, value []byte, err error) {
	changed, n := binary.Uvarint(stored)
	if n <= 0 {
		return 0, nil, errors.New("a stored row without an offset")
	}
	return changed, stored[n:], nil
}

// written is the rows of a view while events are folded: those that were read or changed lately, over the database.
type written struct {
	generation uint64                // of the view
	isRow      func(key string) bool // of a key of the view, not of what the fold has beside its rows
	offset     uint64                // of the event that is folded
	batch      kv.IndexedBatch       // nil between chunks

	recent  map[string]*recentRow // by key of the row; also rows that do not exist
	changed []string              // keys of recent that the batch does not have yet
	touched []string              // keys that this chunk has changed, possibly several times
	bytes   int                   // of recent
	before  int                   // bytes before this chunk
	missed  int                   // rows of this chunk that recent did not have
	rows    int64                 // of keys that this chunk has added, less those it has removed
	digest  uint64                // what this chunk adds to the digest of the view
}

// recentRow is a row in memory.
type recentRow struct {
	value   []byte // empty if there is no such row; its memory is kept
	offset  uint64 // of its last change
	sum     uint64 // what it adds to the digest of the view; 0 if there is no such row
	exists  bool   // false for one that was read and is not there, or was deleted
	changed bool   // since the batch has it
}

// rowSum is what a row adds to the digest of its view, which is the sum of all: the order of changes does not matter.
func rowSum(key string, value []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	// The length keeps a key and a value from being taken for others that are the same bytes together.
	var length [binary.MaxVarintLen64]byte
	_, _ = d.Write(binary.AppendUvarint(length[:0], uint64(len(key))))
	_, _ = d.WriteString(key)
	_, _ = d.Write(value)
	return d.Sum64()
}

// maxRecent bounds the rows in memory of one view before a chunk, and about those that a chunk adds, in bytes.
const maxRecent = 8 << 20

// begin takes what follows into a batch.
func (w *written) begin(db kv.DB) {
	// They are forgotten all at once, between chunks, when the database has them all.
	if w.recent == nil || w.bytes > maxRecent {
		w.recent, w.bytes = map[string]*recentRow{}, 0
	}
	w.before = w.bytes
	w.batch, w.changed, w.touched, w.rows, w.digest, w.missed = db.NewIndexedBatch(), nil, nil, 0, 0, 0
}

// fit returns how many events the next chunk may have, after one of that many: the rows of a chunk take no more than
// maxRecent beside those that were in memory, if they are as large as those of the last one.
func (w *written) fit(events int) int {
	grown := max(1, w.bytes-w.before)
	return max(chunkEvents, min(2*events, maxRecent*events/grown, mostEvents))
}

// abandon forgets what was not committed. The rows in memory may have changes that are in no database.
func (w *written) abandon() { w.recent = nil }

// end closes the batch.
func (w *written) end() error {
	b := w.batch
	w.batch = nil
	return b.Close()
}

var _ view.Rows = (*written)(nil)

// row returns a row in memory, from the database if it has to.
func (w *written) row(key string) (*recentRow, error) {
	if r := w.recent[key]; r != nil {
		return r, nil
	}
	// The batch also has what this chunk has flushed.
	stored, closer, err := w.batch.Get(rowKey(w.generation, key))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return w.keep(key, nil)
	case err != nil:
		return nil, fmt.Errorf("read row %q: %w", key, err)
	}
	defer closer.Close()
	return w.keep(key, stored)
}

// keep takes a row into memory. One that is not there, which has a nil stored, is kept as well, so that it is not
// searched again.
func (w *written) keep(key string, stored []byte) (*recentRow, error) {
	r := &recentRow{}
	if stored != nil {
		changed, value, err := decodeRow(stored)
		if err != nil {
			return nil, fmt.Errorf("read row %q: %w", key, err)
		}
		r.value, r.offset, r.sum, r.exists = slices.Clone(value), changed, rowSum(key, value), true
	}
	w.missed++
	w.recent[key] = r
	w.bytes += len(key) + len(r.value) + rowOverhead
	return r, nil
}

// readAhead takes rows into memory, at the begin of a chunk: those of many keys, in their order, take a fraction of the
// time that it takes to search one after the other.
func (w *written) readAhead(db kv.Reader, keys []string) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" || w.recent[key] != nil })
	slices.Sort(keys)
	low, high := span(prefixRow, w.generation)
	it, err := db.Iter(low, high)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer it.Close()
	for _, key := range slices.Compact(keys) {
		low = append(low[:rowPrefix], key...)
		var stored []byte
		if it.SeekGE(low) && bytes.Equal(it.Key(), low) {
			if stored, err = it.ValueAndErr(); err != nil {
				return fmt.Errorf("read row %q: %w", key, err)
			}
		}
		if _, err := w.keep(key, stored); err != nil {
			return err
		}
	}
	return it.Error()
}

// rowOverhead is about what a row takes in memory beside its key and value, in bytes.
const rowOverhead = 128

// Get implements view.Rows.
func (w *written) Get(key string) (value []byte, found bool, err error) {
	r, err := w.row(key)
	if err != nil || !r.exists {
		return nil, false, err
	}
	return r.value, true, nil
}

// Set implements view.Rows.
func (w *written) Set(key string, value []byte) error { return w.change(key, value, true) }

// Delete implements view.Rows.
func (w *written) Delete(key string) error { return w.change(key, nil, false) }

// change sets or deletes a row. The batch gets it with flush, once for all changes of a chunk.
func (w *written) change(key string, value []byte, exists bool) error {
	r, err := w.row(key)
	if err != nil {
		return err
	}
	// Only rows of keys are counted.
	switch {
	case exists == r.exists || !w.isRow(key):
	case exists:
		w.rows++
	default:
		w.rows--
	}
	w.bytes += len(value) - len(r.value)
	// The caller may use the memory of value again.
	r.value, r.offset, r.exists = append(r.value[:0], value...), w.offset, exists
	// The digest of the view changes by the difference; uint64 wraps around, and so does their sum.
	sum := uint64(0)
	if exists {
		sum = rowSum(key, value)
	}
	w.digest += sum - r.sum
	r.sum = sum
	// Once until the next flush.
	if !r.changed {
		r.changed = true
		w.changed = append(w.changed, key)
		w.touched = append(w.touched, key)
	}
	return nil
}

// flush writes the changed rows into the batch. They stay in memory as well. With one row changed by many events, it is
// written once.
func (w *written) flush() error {
	// In their order they are inserted faster.
	slices.Sort(w.changed)
	for _, key := range w.changed {
		r := w.recent[key]
		r.changed = false
		var err error
		if r.exists {
			stored := append(binary.AppendUvarint(nil, r.offset), r.value...)
			err = w.batch.Set(rowKey(w.generation, key), stored)
		} else {
			err = w.batch.Delete(rowKey(w.generation, key))
		}
		if err != nil {
			return fmt.Errorf("write row %q: %w", key, err)
		}
	}
	w.changed = w.changed[:0]
	return nil
}

// Each implements view.Rows.
func (w *written) Each(prefix, from string, yield func(key string, value []byte) bool) error {
	// The iterator sees what is in the batch.
	if err := w.flush(); err != nil {
		return err
	}
	return eachRow(w.batch, w.generation, prefix, from, func(key string, _ uint64, value []byte) bool {
		return yield(key, value)
	})
}

// eachRow calls yield with the stored rows whose key begins with prefix and is greater than from.
func eachRow(r kv.Reader, generation uint64, prefix, from string,
	yield func(key string, changed uint64, value []byte) bool) error {
	low := rowKey(generation, prefix)
	high := after(low)
	// The next key after from is from with a zero byte.
	if from >= prefix {
		low = append(rowKey(generation, from), 0)
	}
	// from may be beyond all keys with the prefix.
	if high != nil && bytes.Compare(low, high) >= 0 {
		return nil
	}
	it, err := r.Iter(low, high)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		stored, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		changed, value, err := decodeRow(stored)
		if err != nil {
			return fmt.Errorf("read row %q: %w", it.Key()[rowPrefix:], err)
		}
		if !yield(string(it.Key()[rowPrefix:]), changed, value) {
			return nil
		}
	}
	return it.Error()
}

// stored is the rows of a view as they are in the database at one moment. They cannot be changed. It is for one
// goroutine, as newest changes with each read.
type stored struct {
	reader     kv.Reader // a snapshot
	generation uint64
	newest     uint64 // the offset of the last change of any row that was read
}

var _ view.Rows = (*stored)(nil)

// errReadOnly is returned where rows that are only read are changed.
var errReadOnly = errors.New("these rows are only read")

// Get implements view.Rows.
func (s *stored) Get(key string) (value []byte, found bool, err error) {
	raw, closer, err := s.reader.Get(rowKey(s.generation, key))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read row %q: %w", key, err)
	}
	defer closer.Close()
	changed, value, err := decodeRow(raw)
	if err != nil {
		return nil, false, fmt.Errorf("read row %q: %w", key, err)
	}
	s.newest = max(s.newest, changed)
	return slices.Clone(value), true, nil
}

// Set implements view.Rows.
func (s *stored) Set(string, []byte) error { return errReadOnly }

// Delete implements view.Rows.
func (s *stored) Delete(string) error { return errReadOnly }

// Each implements view.Rows.
func (s *stored) Each(prefix, from string, yield func(key string, value []byte) bool) error {
	return eachRow(s.reader, s.generation, prefix, from, func(key string, changed uint64, value []byte) bool {
		s.newest = max(s.newest, changed)
		return yield(key, value)
	})
}
