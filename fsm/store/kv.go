package store

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/internal/kv"
)

// Pebble as package kv has it. Each type is one pointer, which becomes an interface without an allocation.
type (
	database struct{ *pebble.DB }
	batch    struct{ *pebble.Batch }
	snapshot struct{ *pebble.Snapshot }
)

// NewBatch implements kv.DB.
func (d database) NewBatch() kv.Batch { return batch{d.DB.NewBatch()} }

// NewIndexedBatch implements kv.DB.
func (d database) NewIndexedBatch() kv.IndexedBatch { return batch{d.DB.NewIndexedBatch()} }

// NewSnapshot implements kv.DB.
func (d database) NewSnapshot() kv.Snapshot { return snapshot{d.DB.NewSnapshot()} }

// Sync implements kv.DB. A sync of the write-ahead log covers all that was written to it before.
func (d database) Sync() error { return d.LogData(nil, pebble.Sync) }

// Checkpoint implements kv.DB. Without the flush, the copy would lack what is in the buffer of the write-ahead log.
func (d database) Checkpoint(dir string) error { return d.DB.Checkpoint(dir, pebble.WithFlushedWAL()) }

// Iter implements kv.Reader.
func (d database) Iter(low, high []byte) (kv.Iterator, error) {
	return iterator(d.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high}))
}

// Iter implements kv.Reader.
func (s snapshot) Iter(low, high []byte) (kv.Iterator, error) {
	return iterator(s.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high}))
}

// Iter implements kv.Reader.
func (b batch) Iter(low, high []byte) (kv.Iterator, error) {
	return iterator(b.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high}))
}

// iterator returns a nil interface with an error, where a nil pointer in one would be none.
func iterator(it *pebble.Iterator, err error) (kv.Iterator, error) {
	if err != nil {
		return nil, err
	}
	return it, nil
}

// Set implements kv.Batch.
func (b batch) Set(key, value []byte) error { return b.Batch.Set(key, value, nil) }

// Delete implements kv.Batch.
func (b batch) Delete(key []byte) error { return b.Batch.Delete(key, nil) }

// DeleteRange implements kv.Batch.
func (b batch) DeleteRange(low, high []byte) error { return b.Batch.DeleteRange(low, high, nil) }

// Commit implements kv.Batch.
func (b batch) Commit(sync bool) error {
	if sync {
		return b.Batch.Commit(pebble.Sync)
	}
	return b.Batch.Commit(pebble.NoSync)
}
