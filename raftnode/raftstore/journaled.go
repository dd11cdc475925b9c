package raftstore

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// journalMost is the largest record for the journal: writing larger ones twice would
// cost more than it saves. Larger ones are not read either, so it can grow but not
// shrink.
const journalMost = 64 << 10

// journaledLog makes one log of the bolt file and the journal.
//
// A bolt file is synced twice for a commit, and for the smallest entry a leaf, the
// branches above it and a meta page are written. So all but the largest entries are
// first written to the journal, whose blocks are allocated already and which is synced
// once: that makes them durable. Bolt gets them with the next large ones, or all
// together when the journal is full.
type journaledLog struct {
	bolt    boltLog // has at least the first entry, if there is one
	journal *journal

	writing sync.Mutex // one write at a time, or one deletion of the last entries
	empty   bool       // bolt has no entry; guarded by writing

	mu      sync.RWMutex
	pending []*raft.Log // what the journal has and bolt lacks; dense, after what bolt has
}

// openLog opens the bolt file and the journal in the folder dir; unless readOnly it
// creates those that are missing. It writes no entry: that is for a start that is not
// refused. What the entries have in bytes is found.
func openLog(dir string, readOnly bool) (j *journaledLog, found *sizes, err error) {
	boltFile := filepath.Join(dir, datadir.BoltFile)
	found = &sizes{}
	bolt, err := openBolt(boltFile, readOnly, found)
	if err != nil {
		return nil, nil, err
	}
	journal, err := openJournal(filepath.Join(dir, datadir.JournalFile), readOnly)
	if err != nil {
		return nil, nil, errors.Join(err, bolt.Close())
	}
	j = &journaledLog{bolt: bolt, journal: journal}
	if err := protect(j.load); err != nil {
		errs := []error{openError(boltFile, err), journal.close()}
		if !errors.Is(err, errPanicked) { // bolt's locks may still be held
			errs = append(errs, bolt.Close())
		}
		return nil, nil, errors.Join(errs...)
	}
	found.addAll(j.pending)
	return j, found, nil
}

// load finds what only the journal has.
func (j *journaledLog) load() error {
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	j.empty = last == 0
	j.pending, err = j.journal.load(last)
	return err
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
	if j.getPending(index, l) {
		return nil
	}
	return j.bolt.GetLog(index, l)
}

func (j *journaledLog) getPending(index uint64, l *raft.Log) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	n := len(j.pending)
	if n == 0 || index < j.pending[0].Index || index > j.pending[n-1].Index {
		return false
	}
	*l = *j.pending[index-j.pending[0].Index]
	return true
}

// StoreLogs stores entries. It returns when they are durable.
func (j *journaledLog) StoreLogs(logs []*raft.Log) error {
	j.writing.Lock()
	defer j.writing.Unlock()

	// Bolt gets the first entry, so that it knows where the log begins, what the
	// journal has no room for, and what bolt will refuse.
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

// flush stores what is pending, and logs after it, in bolt, and starts the journal again.
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

// DeleteRange deletes entries, both ends included; one call at a time.
func (j *journaledLog) DeleteRange(low, high uint64) error {
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	if high < last { // what is stored meanwhile still goes to the journal
		return j.bolt.DeleteRange(low, high)
	}

	// The journal must not bring back what bolt is about to delete at its end. So bolt
	// gets what only the journal has, and the journal is cleared before bolt deletes.
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
