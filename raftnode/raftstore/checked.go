package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// checkedLog is the raft.LogStore that raft sees: sealed entries above a store
// that has no checksums.
type checkedLog struct {
	inner   innerLog
	file    string // named in errors
	guard   *guard
	mark    *tailMark
	onStore func(entries, bytes int, took time.Duration)
	recent  recent
	sizes   *sizes

	// span is held for writing while entries are deleted: an index that is
	// within first..last while it is held for reading must be readable.
	span sync.RWMutex
}

var _ raft.LogStore = (*checkedLog)(nil)

// A deletion is made in chunks: bolt deletes in one transaction, which blocks appends.
const (
	deleteEntries = 256
	deleteBytes   = 4 << 20
)

func newCheckedLog(inner innerLog, file string, opts Options, g *guard) *checkedLog {
	return &checkedLog{
		inner:   inner,
		file:    file,
		guard:   g,
		onStore: opts.OnStore,
	}
}

// FirstIndex returns the first index written, 0 for no entries.
func (c *checkedLog) FirstIndex() (uint64, error) { return c.bound("first", c.inner.FirstIndex) }

// LastIndex returns the last index written, 0 for no entries.
func (c *checkedLog) LastIndex() (uint64, error) { return c.bound("last", c.inner.LastIndex) }

func (c *checkedLog) bound(which string, f func() (uint64, error)) (index uint64, err error) {
	if err := c.guard.state(); err != nil {
		return 0, err
	}
	err = c.guard.run(func() (err error) { index, err = f(); return err })
	if err != nil {
		return 0, c.guard.fail(damaged(c.file, fmt.Sprintf("its %s index can not be read: %v", which, err)))
	}
	return index, nil
}

// GetLog reads and checks one entry. raft.ErrLogNotFound means that index is
// outside of first..last; inside, whatever can not be read is ErrCorruptEntry.
func (c *checkedLog) GetLog(index uint64, l *raft.Log) error {
	if err := c.guard.state(); err != nil {
		return err
	}
	if c.recent.get(index, l) {
		return nil
	}
	err := c.read(index, l)
	if err != nil && !errors.Is(err, errPanicked) {
		err = c.reread(index, l)
	}
	if err == nil || err == raft.ErrLogNotFound {
		return err
	}
	return c.guard.fail(corrupt(c.file, index, err))
}

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
	c.span.RLock()
	defer c.span.RUnlock()
	first, err := c.FirstIndex()
	if err != nil {
		return err
	}
	last, err := c.LastIndex()
	if err != nil {
		return err
	}
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
	if err := c.makeRoom(logs); err != nil {
		return err
	}
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

// makeRoom keeps the log dense.
func (c *checkedLog) makeRoom(logs []*raft.Log) error {
	for i, l := range logs {
		if l.Index == 0 || l.Index != logs[0].Index+uint64(i) {
			return fmt.Errorf("raftstore: store %d after %d: %w", l.Index, logs[max(i-1, 0)].Index, ErrNotContiguous)
		}
	}
	if err := c.guard.state(); err != nil {
		return err
	}
	if c.recent.endsBefore(logs[0].Index) { // and so does the log
		return nil
	}
	last, err := c.LastIndex()
	if err != nil {
		return err
	}
	switch first := logs[0].Index; {
	case last == 0 || first == last+1:
		return nil
	case first <= last:
		return fmt.Errorf("raftstore: store %d: %w: the last one is %d", first, ErrNotContiguous, last)
	default:
		return c.deleteAll()
	}
}

func (c *checkedLog) deleteAll() error {
	first, err := c.FirstIndex()
	if err != nil {
		return err
	}
	last, err := c.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	return c.DeleteRange(first, last)
}

// DeleteRange deletes a prefix or a suffix of the log, both ends included, in
// chunks: a prefix from its start and a suffix from its end, so that what a
// crash leaves is dense.
func (c *checkedLog) DeleteRange(low, high uint64) error {
	first, err := c.FirstIndex()
	if err != nil {
		return err
	}
	last, err := c.LastIndex()
	if err != nil {
		return err
	}
	low, high = max(low, first), min(high, last)
	switch {
	case last == 0 || low > high:
		return nil
	case low == first && high < last:
		return c.deleteUpward(low, high)
	case low == first:
		return c.deleteTail(0, func() error { return c.deleteUpward(low, high) })
	case high == last:
		return c.deleteTail(low-1, func() error { return c.deleteDownward(low, high) })
	}
	return fmt.Errorf("raftstore: delete %d to %d of %d to %d: only a prefix or a suffix can go", low, high, first, last)
}

// deleteTail lowers the tail mark before the entries go: else a crash between
// the two would look like entries that were lost.
func (c *checkedLog) deleteTail(last uint64, remove func() error) error {
	err := c.guard.write(operation{verb: "mark the tail"}, func() error { return c.mark.lower(last) })
	if err != nil {
		return err
	}
	return remove()
}

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

func (c *checkedLog) deleteChunk(low, high uint64) error {
	c.span.Lock()
	defer c.span.Unlock()
	c.recent.remove(low, high)
	return c.guard.write(operation{verb: "delete entries", first: low, last: high}, func() error {
		return c.inner.DeleteRange(low, high)
	})
}
