package raftstore

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Errors of this package. ErrDamaged is the data folder's, so one check
// finds damage of either.
var (
	ErrDamaged       = datadir.ErrDamaged
	ErrCorruptEntry  = errors.New("raft log entry is corrupt")
	ErrDiskFailed    = errors.New("disk failed to write")
	ErrDiskHung      = errors.New("disk hangs")
	ErrBehindState   = errors.New("raft log does not fit the state")
	ErrNotContiguous = errors.New("entries do not follow the log")
	ErrClosed        = errors.New("raft stores are closed")
)

var (
	errMissing  = errors.New("it is missing")
	errPanicked = errors.New("store panicked") // see protect: a memory fault, too
)

// damaged returns ErrDamaged with the file, what is wrong with it and the remedy.
func damaged(file, what string) error {
	return fmt.Errorf("%s: %w: %s: %s", file, ErrDamaged, what, datadir.Rejoin)
}

// lostEnd returns ErrDamaged if stored, the last index by the tail mark, is after last, the last index of
// the log.
func lostEnd(file string, stored, last uint64) error {
	if stored <= last {
		return nil
	}
	return damaged(file, fmt.Sprintf("entries %d to %d are gone", last+1, stored))
}

// corrupt returns ErrCorruptEntry with the entry, the cause and the remedy.
func corrupt(file string, index uint64, cause error) error {
	return fmt.Errorf("entry %d of %s: %w: %w: %s", index, file, ErrCorruptEntry, cause, datadir.Rejoin)
}
