package raftstore

import (
	"errors"
	"iter"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Summary says what a stopped node's raft folder holds.
type Summary struct {
	First, Last   uint64 // of the log; 0, 0 if it is empty
	LastStored    uint64 // what the tail mark says; above Last means that entries are lost; 0 is unknown
	CurrentTerm   uint64
	VoteTerm      uint64
	VoteCandidate string // address of whom this node voted for in VoteTerm
}

// Reader looks at a stopped node's raft folder and writes nothing.
type Reader struct {
	summary Summary
	file    string
	bolt    boltLog
	pending []*raft.Log // what only the journal has; dense, after what bolt has
	close   func() error
}

// OpenReadOnly opens the raft folder of a stopped node. It refuses with
// datadir.ErrInUse while the node runs, and with ErrDamaged where the structure
// of a file is damaged; a damaged entry only shows in Entries.
func OpenReadOnly(dir string) (*Reader, error) {
	r := &Reader{close: func() error { return nil }}
	if err := r.readStable(filepath.Join(dir, datadir.StableFile)); err != nil {
		return nil, err
	}
	if raw, err := os.ReadFile(filepath.Join(dir, tailFile)); err == nil && len(raw) == tailSize {
		r.summary.LastStored = decodeTail(raw)
	}
	if err := r.openLog(dir); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Reader) openLog(dir string) error {
	if err := r.openBolt(filepath.Join(dir, datadir.BoltFile)); err != nil {
		return err
	}
	return r.openJournal(filepath.Join(dir, datadir.JournalFile))
}

func (r *Reader) readStable(path string) error {
	rec, body, err := openRecord(path, stableRecord, true)
	if err != nil {
		return err
	}
	state, err := decodeStable(path, body)
	r.summary.CurrentTerm = state.Numbers[keyCurrentTerm]
	r.summary.VoteTerm = state.Numbers[keyVoteTerm]
	r.summary.VoteCandidate = string(state.Bytes[keyVoteCandidate])
	return errors.Join(err, rec.close())
}

func (r *Reader) openBolt(path string) error {
	bolt, err := openBoltFile(path, true, &sizes{})
	if err != nil {
		return err
	}
	r.file, r.bolt, r.close = path, bolt, bolt.Close
	err = protect(func() (err error) {
		if r.summary.First, err = bolt.FirstIndex(); err != nil {
			return err
		}
		r.summary.Last, err = bolt.LastIndex()
		return err
	})
	return openError(path, err)
}

// openJournal adds the entries that only the journal has.
func (r *Reader) openJournal(path string) error {
	j, err := openJournal(path, true)
	if err != nil {
		return err
	}
	r.pending, err = j.load(r.summary.Last)
	if err := errors.Join(err, j.close()); err != nil {
		return err
	}
	if n := len(r.pending); n > 0 {
		r.summary.Last = r.pending[n-1].Index
	}
	return nil
}

// Summary returns what the folder holds.
func (r *Reader) Summary() Summary { return r.summary }

// Lost is ErrDamaged where the newest entries are gone, which a damaged end looks like: a start
// would be refused.
func (r *Reader) Lost() error { return lostEnd(r.file, r.summary.LastStored, r.summary.Last) }

// Entries yields the entries from..to, both included and cut to what is there,
// in order. A damaged one comes with ErrCorruptEntry and its index, and the
// entries behind it follow.
func (r *Reader) Entries(from, to uint64) iter.Seq2[*raft.Log, error] {
	return func(yield func(*raft.Log, error) bool) {
		for index := max(from, r.summary.First, 1); index <= min(to, r.summary.Last); index++ {
			if !yield(r.entry(index)) {
				return
			}
		}
	}
}

var errMissing = errors.New("it is missing")

// entry reads and checks one entry; with an error only its index is set.
func (r *Reader) entry(index uint64) (*raft.Log, error) {
	var l raft.Log
	var err error
	if !pendingEntry(r.pending, index, &l) {
		err = protect(func() error { return r.bolt.GetLog(index, &l) })
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		err = errMissing
	}
	if err == nil {
		err = unseal(&l, index)
	}
	if err != nil {
		return &raft.Log{Index: index}, corrupt(r.file, index, err)
	}
	return &l, nil
}

// Close lets the files go. It is idempotent.
func (r *Reader) Close() error {
	closeFiles := r.close
	r.close = func() error { return nil }
	return closeFiles()
}
