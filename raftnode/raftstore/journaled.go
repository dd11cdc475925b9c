package raftstore

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// journalMost is the size of the largest record that the journal takes, in bytes: to write
// a larger one twice would cost more than it saves. A larger one is not read either,
// so later versions may raise this constant and never lower it.
const journalMost = 64 << 10

// journaledLog makes one log of the bolt file and the journal.
//
// A bolt file is synced twice for a commit, and even for the smallest entry a leaf, the
// branches above it and a meta page are written. So all but the largest batches are first
// written to the journal, whose blocks are allocated already, and which is synced once:
// then they are durable. Bolt gets them with the next large batch, or all together when
// the journal is full.
type journaledLog struct {
	bolt    boltLog // has at least the first entry, if there is one
	journal *journal

	writing sync.Mutex // one write at a time, or one deletion of the last entries
	empty   bool       // bolt has no entry; guarded by writing

	mu      sync.RWMutex // guards pending; written while writing is held, too
	pending []*raft.Log  // what the journal has and bolt lacks; dense, after what bolt has
}

// openLog opens the bolt file and the journal in the folder dir; unless readOnly it
// creates those that are missing. It writes no entry: the node may still refuse to start.
// found has the sizes of all entries.
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
		// The journal is closed in any case: it has no locks.
		errs := []error{openError(boltFile, err), journal.close()}
		if !errors.Is(err, errPanicked) { // bolt's locks may still be held
			errs = append(errs, bolt.Close())
		}
		return nil, nil, errors.Join(errs...)
	}
	found.addAll(j.pending)
	return j, found, nil
}

// load reads the entries that only the journal has into pending.
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

// GetLog reads an entry from memory while only the journal has it on disk, otherwise from bolt.
func (j *journaledLog) GetLog(index uint64, l *raft.Log) error {
	if j.getPending(index, l) {
		return nil
	}
	return j.bolt.GetLog(index, l)
}

// getPending copies an entry of pending to l, and reports whether there is one at index.
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

	// Bolt gets the log's first entry, as FirstIndex is bolt's; a record that the journal
	// has no room for; and an index that bolt refuses, which the caller has to learn now.
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

// flush stores the pending entries and logs in bolt, in one transaction, and rewinds the journal. The
// caller holds writing.
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

// DeleteRange deletes entries, both ends included. It must be called one at a time.
func (j *journaledLog) DeleteRange(low, high uint64) error {
	last, err := j.bolt.LastIndex()
	if err != nil {
		return err
	}
	if high < last { // a compaction: entries may be stored during it, and the journal keeps its own
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

// Close closes the files. Pending entries stay in the journal; the next openLog loads them.
func (j *journaledLog) Close() error { return errors.Join(j.journal.close(), j.bolt.Close()) }
