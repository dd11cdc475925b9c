package raftstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// checkedLog is the raft.LogStore that raft sees. It seals entries, checks what it
// reads, and keeps the log dense; every write goes through the guard.
type checkedLog struct {
	inner   innerLog
	file    string // named in errors
	guard   *guard
	mark    *tailMark
	onStore func(entries, bytes int, took time.Duration) // see Options.OnStore; may be nil
	recent  recent
	sizes   *sizes // of all entries of inner

	// deleting is held for writing while entries are deleted: an index within
	// first..last while it is held for reading must be readable.
	deleting sync.RWMutex
}

// innerLog is the log below the checks: a journaledLog, or what a test puts in front of it.
// Writes are called one at a time, except that deletions from the start of the log may be
// called during others.
type innerLog interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, l *raft.Log) error
	StoreLogs(logs []*raft.Log) error
	DeleteRange(low, high uint64) error
	Close() error
}

var _ raft.LogStore = (*checkedLog)(nil)

// A deletion is made in chunks: bolt deletes in one transaction, which blocks appends.
const (
	deleteEntries = 256
	deleteBytes   = 4 << 20
)

// FirstIndex returns the first index written, 0 for no entries.
func (c *checkedLog) FirstIndex() (uint64, error) { return c.bound("first", c.inner.FirstIndex) }

// LastIndex returns the last index written, 0 for no entries.
func (c *checkedLog) LastIndex() (uint64, error) { return c.bound("last", c.inner.LastIndex) }

// bound returns the first or the last index. An error in reading it is final: without the bounds nobody can say
// what is missing.
func (c *checkedLog) bound(which string, f func() (uint64, error)) (index uint64, err error) {
	if err := c.guard.state(); err != nil {
		return 0, err
	}
	err = c.guard.run(func() (err error) { index, err = f(); return err })
	if err != nil {
		return 0, c.guard.fail(damaged(c.file, fmt.Sprintf("its %s index cannot be read: %v", which, err)))
	}
	return index, nil
}

// span returns the first and the last index, 0 and 0 for no entries.
func (c *checkedLog) span() (first, last uint64, err error) {
	first, err = c.FirstIndex()
	if err != nil {
		return 0, 0, err
	}
	last, err = c.LastIndex()
	return first, last, err
}

// GetLog reads and checks one entry. raft.ErrLogNotFound means that index is
// outside of first..last; inside, whatever cannot be read is ErrCorruptEntry.
func (c *checkedLog) GetLog(index uint64, l *raft.Log) error {
	if err := c.guard.state(); err != nil {
		return err
	}
	// The cache holds what was stored by this process, which needs no check.
	if c.recent.get(index, l) {
		return nil
	}
	// After a panic bbolt's locks may be held for ever: nothing is read again.
	err := c.read(index, l)
	if err != nil && !errors.Is(err, errPanicked) {
		err = c.reread(index, l)
	}
	if err == nil || err == raft.ErrLogNotFound {
		return err
	}
	return c.guard.fail(corrupt(c.file, index, err))
}

// read reads an entry and checks it. It changes l only if both succeed.
func (c *checkedLog) read(index uint64, l *raft.Log) error {
	var stored raft.Log
	if err := c.guard.run(func() error { return c.inner.GetLog(index, &stored) }); err != nil {
		return err
	}
	if err := unseal(&stored, index); err != nil {
		return err
	}
	*l = stored
	return nil
}

// reread decides about an entry that could not be read, while nothing is
// deleted: it may never have been there, or be lost, or have been deleted under
// the reader.
func (c *checkedLog) reread(index uint64, l *raft.Log) error {
	c.deleting.RLock()
	defer c.deleting.RUnlock()
	first, last, err := c.span()
	if err != nil {
		return err
	}
	// Deleted meanwhile, or never written: raft expects this error.
	if first == 0 || index < first || index > last {
		return raft.ErrLogNotFound
	}
	err = c.read(index, l)
	if errors.Is(err, raft.ErrLogNotFound) {
		return fmt.Errorf("%w, yet the log is %d to %d", errMissing, first, last)
	}
	return err
}

// StoreLog stores one entry.
func (c *checkedLog) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries that follow the log. Entries beyond the next index
// are what raft stores after it installed a snapshot: they replace the log,
// whose entries the snapshot covers. It returns when they are durable.
func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return c.guard.state()
	}
	if err := c.prepare(logs); err != nil {
		return err
	}

	// The entries are durable before the tail mark says that they are there.
	first, last := logs[0].Index, logs[len(logs)-1].Index
	sealed, bytes := sealAll(logs)
	began := time.Now()
	err := c.guard.write(operation{verb: "store entries", first: first, last: last}, func() error {
		if err := c.inner.StoreLogs(sealed); err != nil {
			return err
		}
		return c.mark.set(last)
	})
	if err != nil {
		return err
	}

	c.recent.add(logs)
	c.sizes.addAll(logs)
	if c.onStore != nil {
		c.onStore(len(logs), bytes, time.Since(began))
	}
	return nil
}

// sealAll returns the entries as they are stored, and the bytes of their data.
func sealAll(logs []*raft.Log) (sealed []*raft.Log, bytes int) {
	stored := make([]raft.Log, len(logs))
	sealed = make([]*raft.Log, len(logs))
	for i, l := range logs {
		stored[i] = seal(l)
		sealed[i] = &stored[i]
		bytes += len(l.Data)
	}
	return sealed, bytes
}

// prepare refuses entries that would leave the log with a hole or an overlap, and
// deletes the log if they are those after a snapshot.
func (c *checkedLog) prepare(logs []*raft.Log) error {
	// A batch with a gap in it would be a gap in the log.
	for i, l := range logs {
		if l.Index == 0 || l.Index != logs[0].Index+uint64(i) {
			return fmt.Errorf("store %d after %d: %w", l.Index, logs[max(i-1, 0)].Index, ErrNotContiguous)
		}
	}
	if err := c.guard.state(); err != nil {
		return err
	}

	// The usual case does not read the disk: the cache ends where the log does.
	first := logs[0].Index
	if c.recent.endsBefore(first) {
		return nil
	}
	last, err := c.LastIndex()
	switch {
	case err != nil:
		return err
	case last == 0 || first == last+1:
		return nil
	case first <= last:
		return fmt.Errorf("store %d: %w: the last one is %d", first, ErrNotContiguous, last)
	}
	return c.deleteAll()
}

// deleteAll deletes every entry.
func (c *checkedLog) deleteAll() error { return c.DeleteRange(0, math.MaxUint64) }

// DeleteRange deletes a prefix or a suffix of the log, both ends included, in
// chunks: a prefix from its start and a suffix from its end, so what a
// crash leaves is dense.
func (c *checkedLog) DeleteRange(low, high uint64) error {
	first, last, err := c.span()
	if err != nil {
		return err
	}
	low, high = max(low, first), min(high, last)
	switch {
	case last == 0 || low > high:
		return nil
	case low > first && high < last:
		return fmt.Errorf("delete %d to %d of %d to %d: only a prefix or a suffix can be deleted",
			low, high, first, last)
	}

	// The tail mark is lowered before the entries are deleted: otherwise a crash
	// between the two would look like lost entries.
	if high == last {
		left := uint64(0) // the last index that remains; 0: none
		if low > first {
			left = low - 1
		}
		err := c.guard.write(operation{verb: "lower the tail mark"}, func() error { return c.mark.lower(left) })
		if err != nil {
			return err
		}
	}
	if low == first {
		return c.deleteUpward(low, high)
	}
	return c.deleteDownward(low, high)
}

// deleteUpward deletes low to high from the start of the log on, in chunks bounded in entries and bytes.
func (c *checkedLog) deleteUpward(low, high uint64) error {
	for low <= high {
		to := min(low+min(high-low, deleteEntries-1), c.sizes.within(low, deleteBytes))
		if err := c.deleteChunk(low, to); err != nil {
			return err
		}
		c.sizes.removeUpTo(to)
		low = to + 1
	}
	return nil
}

// deleteDownward deletes low to high from the end of the log back, in chunks bounded in entries.
func (c *checkedLog) deleteDownward(low, high uint64) error {
	for low <= high {
		from := high - min(high-low, deleteEntries-1)
		if err := c.deleteChunk(from, high); err != nil {
			return err
		}
		c.sizes.removeFrom(from)
		high = from - 1
	}
	return nil
}

// deleteChunk deletes low to high in one write, while no reader decides whether an entry is missing.
func (c *checkedLog) deleteChunk(low, high uint64) error {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	c.recent.remove(low, high)
	return c.guard.write(operation{verb: "delete entries", first: low, last: high}, func() error {
		return c.inner.DeleteRange(low, high)
	})
}
