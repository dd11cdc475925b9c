package raftstore

import (
	"errors"
	"iter"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Summary is what a stopped node's raft folder holds.
type Summary struct {
	First, Last   uint64 // of the log; 0, 0 if it is empty
	LastStored    uint64 // by the tail mark; above Last: entries are lost; 0: unknown
	CurrentTerm   uint64
	VoteTerm      uint64
	VoteCandidate string // address of the candidate this node voted for in VoteTerm
}

// Reader reads a stopped node's raft folder and writes nothing.
type Reader struct {
	summary Summary // read by OpenReadOnly
	file    string  // of the log; named in errors
	log     *journaledLog
}

// OpenReadOnly opens the raft folder of a stopped node. It refuses with
// datadir.ErrInUse while the node runs, and with ErrDamaged where the structure
// of a file is damaged; a damaged entry only shows in Entries.
func OpenReadOnly(dir string) (*Reader, error) {
	// Term and vote. A running node holds the lock of this file, so this refuses first.
	stable, state, err := openStableFile(filepath.Join(dir, datadir.StableFile), true)
	if err != nil {
		return nil, err
	}
	if err := stable.close(); err != nil {
		return nil, err
	}
	r := &Reader{file: filepath.Join(dir, datadir.BoltFile)}
	r.summary.CurrentTerm = state.Numbers[keyCurrentTerm]
	r.summary.VoteTerm = state.Numbers[keyVoteTerm]
	r.summary.VoteCandidate = string(state.Bytes[keyVoteCandidate])

	// A missing or unreadable tail mark is not damage: the log alone still opens.
	if raw, err := os.ReadFile(filepath.Join(dir, tailFile)); err == nil && len(raw) == tailSize {
		r.summary.LastStored = decodeTail(raw)
	}

	r.log, _, err = openLog(dir, true)
	if err != nil {
		return nil, err
	}
	// bbolt may panic on what the structure check cannot see.
	err = protect(func() (err error) {
		r.summary.First, err = r.log.FirstIndex()
		if err != nil {
			return err
		}
		r.summary.Last, err = r.log.LastIndex()
		return err
	})
	if err != nil {
		return nil, errors.Join(openError(r.file, err), r.Close())
	}
	return r, nil
}

// Summary returns what the folder holds.
func (r *Reader) Summary() Summary { return r.summary }

// Lost returns ErrDamaged if the newest entries are gone, which is what a damaged end looks
// like: the node would refuse to start.
func (r *Reader) Lost() error { return lostEnd(r.file, r.summary.LastStored, r.summary.Last) }

// Entries yields the entries from..to, both included and cut to what is there,
// in order. A damaged one comes with ErrCorruptEntry and its index, and the
// entries after it follow.
func (r *Reader) Entries(from, to uint64) iter.Seq2[*raft.Log, error] {
	return func(yield func(*raft.Log, error) bool) {
		for index := max(from, r.summary.First, 1); index <= min(to, r.summary.Last); index++ {
			if !yield(r.entry(index)) {
				return
			}
		}
	}
}

// GetLog reads and checks one entry, as a raft.LogStore does.
func (r *Reader) GetLog(index uint64, l *raft.Log) error {
	entry, err := r.entry(index)
	*l = *entry
	return err
}

// entry reads and checks one entry; with an error only its index is set.
func (r *Reader) entry(index uint64) (*raft.Log, error) {
	var l raft.Log
	// A damaged file may make the library panic, which protect turns into an error.
	err := protect(func() error { return r.log.GetLog(index, &l) })
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

// Close closes the files.
func (r *Reader) Close() error { return r.log.Close() }
