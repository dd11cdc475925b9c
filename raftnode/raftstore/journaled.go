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
// branches above it and a meta page are written. So small entries go into a journal
// first, which is synced once: that makes them durable. They go into the bolt file
// with the next large ones, or all together when the journal is full, or when the log
// is closed. To raft the two are one log.

// journalMost is the largest record for the journal: of larger ones the second writing
// would cost more than the second sync.
const journalMost = 16 << 10

// journaledLog is the log in a bolt file with a journal before it.
type journaledLog struct {
	bolt    boltLog
	journal *journal

	writing sync.Mutex // one write or deletion at a time
	failed  bool       // a write: what is where is not known

	mu      sync.RWMutex
	pending []*raft.Log // what the journal has and bolt has not; dense, behind what bolt has
}

// openJournaled opens the log in the folder dir, or creates it.
func openJournaled(dir string) (_ innerLog, _ string, err error) {
	file, path := filepath.Join(dir, datadir.BoltFile), filepath.Join(dir, datadir.JournalFile)
	bolt, err := openBolt(file)
	if err != nil {
		return nil, file, err
	}
	j := &journaledLog{bolt: bolt}
	defer func() {
		if err != nil {
			j.failed = true
			err = errors.Join(err, j.Close())
		}
	}()
	if err := createFile(path, createJournal); err != nil {
		return nil, path, err
	}
	if j.journal, err = openJournal(path, false); err != nil {
		return nil, path, err
	}
	return j, file, j.replay()
}

// replay brings into the bolt file what only the journal has.
func (j *journaledLog) replay() error {
	return protect(func() error {
		last, err := j.bolt.LastIndex()
		if err != nil {
			return err
		}
		if j.pending, err = j.journal.load(last); err != nil {
			return err
		}
		return j.settle()
	})
}

// FirstIndex returns the first index written, 0 for no entries.
func (j *journaledLog) FirstIndex() (uint64, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	first, err := j.bolt.FirstIndex()
	if first == 0 && err == nil && len(j.pending) > 0 {
		first = j.pending[0].Index
	}
	return first, err
}

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
	if size > journalMost || !j.journal.fits(size) || logs[len(logs)-1].Index > maxIndex {
		return j.flush(logs)
	}
	if err := j.journal.append(logs); err != nil {
		j.failed = true
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
			j.failed = true
			return err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = nil
	j.journal.rewind()
	return nil
}

// settle leaves all entries to the bolt file, and none in the journal.
func (j *journaledLog) settle() error {
	if err := j.flush(nil); err != nil {
		return err
	}
	if err := j.journal.clear(); err != nil {
		j.failed = true
		return err
	}
	return nil
}

// DeleteRange deletes entries, both ends included. What the bolt file then lacks at its
// end must not come back from the journal.
func (j *journaledLog) DeleteRange(low, high uint64) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	if high >= last {
		if err := j.settle(); err != nil {
			return err
		}
	}
	return j.bolt.DeleteRange(low, high)
}

// Close closes the files, after all is in the bolt file.
func (j *journaledLog) Close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	var errs []error
	if !j.failed {
		errs = append(errs, j.settle())
	}
	if j.journal != nil {
		errs = append(errs, j.journal.close())
	}
	return errors.Join(append(errs, j.bolt.Close())...)
}
