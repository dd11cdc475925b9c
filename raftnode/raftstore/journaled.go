package raftstore

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// A bolt file is synced twice for a commit, and for the smallest entry a leaf, the
// branches above it and a meta page are written. So all but the largest entries go into a
// journal first, whose blocks are there already and which is synced once: that makes them
// durable. They go into the store with the next large ones, or all together when the
// journal is full. To raft the two are one log, of which the store has at least the first
// entry.

// journalMost is the largest record for the journal: of larger ones the second writing
// would cost more than it spares. Larger ones are not read either, so it can grow but not
// shrink.
const journalMost = 64 << 10

// journaledLog is a log store with a journal before it.
type journaledLog struct {
	store   innerLog
	journal *journal

	writing sync.Mutex // one write at a time, or one deletion of the last entries
	empty   bool       // store has no entry; guarded by writing

	mu      sync.RWMutex
	pending []*raft.Log // what the journal has and store has not; dense, behind what store has
}

// openJournaled opens the journal, or creates it, before the store in file, and adds what its entries have to found.
func openJournaled(opts Options, store innerLog, file string, found *sizes) (_ innerLog, _ string, err error) {
	path := filepath.Join(opts.Dir, datadir.JournalFile)
	if err := createFile(path, createJournal); err != nil {
		return nil, path, errors.Join(err, store.Close())
	}
	journal, err := openJournal(path, false)
	if err != nil {
		return nil, path, errors.Join(err, store.Close())
	}
	j := &journaledLog{store: store, journal: journal}
	if err := protect(j.load); err != nil {
		errs := []error{openError(file, err), journal.close()}
		if !errors.Is(err, errPanicked) { // it may hold bolt's locks
			errs = append(errs, store.Close())
		}
		return nil, file, errors.Join(errs...)
	}
	found.addAll(j.pending)
	return j, file, nil
}

// load finds what only the journal has. It writes nothing: that is for a start that is
// not refused.
func (j *journaledLog) load() error {
	last, err := j.store.LastIndex()
	if err != nil {
		return err
	}
	j.empty = last == 0
	j.pending, err = j.journal.load(last)
	return err
}

// FirstIndex returns the first index written, 0 for no entries.
func (j *journaledLog) FirstIndex() (uint64, error) { return j.store.FirstIndex() }

// LastIndex returns the last index written, 0 for no entries.
func (j *journaledLog) LastIndex() (uint64, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if n := len(j.pending); n > 0 {
		return j.pending[n-1].Index, nil
	}
	return j.store.LastIndex()
}

// GetLog reads an entry.
func (j *journaledLog) GetLog(index uint64, l *raft.Log) error {
	j.mu.RLock()
	found := pendingEntry(j.pending, index, l)
	j.mu.RUnlock()
	if found {
		return nil
	}
	return j.store.GetLog(index, l)
}

// pendingEntry finds one among dense entries.
func pendingEntry(pending []*raft.Log, index uint64, l *raft.Log) bool {
	if len(pending) == 0 || index < pending[0].Index || index > pending[len(pending)-1].Index {
		return false
	}
	*l = *pending[index-pending[0].Index]
	return true
}

// StoreLog stores one entry.
func (j *journaledLog) StoreLog(l *raft.Log) error { return j.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries. It returns when they are durable.
func (j *journaledLog) StoreLogs(logs []*raft.Log) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	size := recordSize(logs)
	if j.empty || size > journalMost || !j.journal.fits(size) || logs[len(logs)-1].Index > maxIndex {
		return j.flush(logs)
	}
	if err := j.journal.append(logs); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, logs...)
	return nil
}

// flush stores what is pending, and logs behind it, in the store.
func (j *journaledLog) flush(logs []*raft.Log) error {
	if all := slices.Concat(j.pending, logs); len(all) > 0 {
		if err := j.store.StoreLogs(all); err != nil {
			return err
		}
		j.empty = false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = nil
	j.journal.rewind()
	return nil
}

// DeleteRange deletes entries, both ends included; one call at a time. What the store
// then lacks at its end must not come back from the journal.
func (j *journaledLog) DeleteRange(low, high uint64) error {
	last, err := j.store.LastIndex()
	if err != nil {
		return err
	}
	if high < last { // what is stored meanwhile goes on into the journal
		return j.store.DeleteRange(low, high)
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	if err := j.flush(nil); err != nil {
		return err
	}
	if err := j.journal.clear(); err != nil {
		return err
	}
	if err := j.store.DeleteRange(low, high); err != nil {
		return err
	}
	last, err = j.store.LastIndex()
	j.empty = last == 0
	return err
}

// Close closes the files, and leaves in the journal what is there.
func (j *journaledLog) Close() error { return errors.Join(j.journal.close(), j.store.Close()) }
