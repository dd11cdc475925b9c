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
// journal first, which is synced once: that makes them durable. They go into the bolt file
// with the next large ones, or all together when the journal is full. To raft the two
// are one log, of which the bolt file has at least the first entry.

// journalMost is the largest record for the journal: of larger ones the second writing
// would cost more than the second sync. Larger ones are not read either, so it can grow
// but not shrink.
const journalMost = 64 << 10

// journaledLog is the log in a bolt file with a journal before it.
type journaledLog struct {
	bolt    boltLog
	journal *journal

	writing sync.Mutex // one write at a time, or one deletion of the last entries
	empty   bool       // bolt has no entry; guarded by writing

	mu      sync.RWMutex
	pending []*raft.Log // what the journal has and bolt has not; dense, behind what bolt has
}

// openJournaled opens the log in the folder dir, or creates it, and adds what its entries
// have to found.
func openJournaled(dir string, found *sizes) (_ innerLog, file string, err error) {
	file, path := filepath.Join(dir, datadir.BoltFile), filepath.Join(dir, datadir.JournalFile)
	bolt, err := openBolt(file, found)
	if err != nil {
		return nil, file, err
	}
	if err := createFile(path, createJournal); err != nil {
		return nil, path, errors.Join(err, bolt.Close())
	}
	journal, err := openJournal(path, false)
	if err != nil {
		return nil, path, errors.Join(err, bolt.Close())
	}
	j := &journaledLog{bolt: bolt, journal: journal}
	if err := protect(j.load); err != nil {
		errs := []error{openError(file, err), journal.close()}
		if !errors.Is(err, errPanicked) { // it may hold bolt's locks
			errs = append(errs, bolt.Close())
		}
		return nil, file, errors.Join(errs...)
	}
	found.addAll(j.pending)
	return j, file, nil
}

// load finds what only the journal has. It writes nothing: that is for a start that is
// not refused.
func (j *journaledLog) load() error {
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	j.empty = last == 0
	if j.pending, err = j.journal.load(last); err != nil {
		return err
	}
	// Entries that bolt has were perhaps written by a process that was killed before it
	// synced them.
	return j.bolt.store.Sync()
}

// FirstIndex returns the first index written, 0 for no entries.
func (j *journaledLog) FirstIndex() (uint64, error) { return j.bolt.FirstIndex() }

// LastIndex returns the last index written, 0 for no entries.
func (j *journaledLog) LastIndex() (uint64, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	if n := len(j.pending); n > 0 {
		return j.pending[n-1].Index, nil
	}
	return j.bolt.LastIndex()
}

// GetLog reads an entry.
func (j *journaledLog) GetLog(index uint64, l *raft.Log) error {
	j.mu.RLock()
	found := pendingEntry(j.pending, index, l)
	j.mu.RUnlock()
	if found {
		return nil
	}
	return j.bolt.GetLog(index, l)
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

// flush stores what is pending, and logs behind it, in the bolt file.
func (j *journaledLog) flush(logs []*raft.Log) error {
	if all := slices.Concat(j.pending, logs); len(all) > 0 {
		if err := j.bolt.StoreLogs(all); err != nil {
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

// DeleteRange deletes entries, both ends included; one call at a time. What the bolt file
// then lacks at its end must not come back from the journal.
func (j *journaledLog) DeleteRange(low, high uint64) error {
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	if high < last { // what is stored meanwhile goes on into the journal
		return j.bolt.DeleteRange(low, high)
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	if err := j.flush(nil); err != nil {
		return err
	}
	if err := j.journal.clear(); err != nil {
		return err
	}
	if err := j.bolt.DeleteRange(low, high); err != nil {
		return err
	}
	last, err = j.bolt.LastIndex()
	j.empty = last == 0
	return err
}

// Close closes the files, and leaves in the journal what is there.
func (j *journaledLog) Close() error { return errors.Join(j.journal.close(), j.bolt.Close()) }
