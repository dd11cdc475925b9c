package raftstore

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// DropContradicting deletes the log if it cannot continue the state, whose
// last entry is (stateIndex, stateTerm): if the log holds that index with another
// term, begins after it with an older term, or ends before it. Raft would ask for
// the same snapshot again and again (hashicorp/raft#697), or could not append. What is
// deleted is in the state or was never committed. Call it before raft starts, and
// after Check has accepted a log that ends before the state. Delete it when raft drops
// such a log itself.
func (s *Stores) DropContradicting(stateIndex, stateTerm uint64) (dropped bool, err error) {
	first, last, err := s.log.span()
	if err != nil || last == 0 || stateIndex == 0 {
		return false, err
	}
	contradicts := last < stateIndex
	if !contradicts {
		contradicts, err = s.contradicts(max(first, stateIndex), stateIndex, stateTerm)
	}
	if err != nil || !contradicts {
		return false, err
	}
	// The whole log: an entry that stayed below stateIndex would leave a hole
	// before the next append.
	if err := s.log.deleteAll(); err != nil {
		return false, err
	}
	s.guard.logger.Warn("dropped a raft log that contradicts the state", "first", first, "last", last,
		"state-index", stateIndex, "state-term", stateTerm)
	return true, nil
}

// contradicts reports whether the entry at index, which is the state's last one or a later one, does not fit
// the state.
func (s *Stores) contradicts(index, stateIndex, stateTerm uint64) (bool, error) {
	var l raft.Log
	if err := s.log.GetLog(index, &l); err != nil {
		return false, err
	}
	if index == stateIndex {
		return l.Term != stateTerm, nil
	}
	// Terms never fall along a log.
	return l.Term < stateTerm, nil
}

// Check returns ErrBehindState if log and state do not meet. A log that ends before
// appliedIndex has lost entries that this node acknowledged, unless an installed snapshot
// explains that (hasSnapshot). If a log begins after appliedIndex+1, the state lacks the
// entries in between.
func (s *Stores) Check(appliedIndex uint64, hasSnapshot bool) error {
	first, last, err := s.log.span()
	if err != nil {
		return err
	}
	// Entries are missing at the end, or at the beginning.
	if last < appliedIndex && !hasSnapshot {
		return unfit(s.log.file,
			fmt.Sprintf("it ends at %d, yet the state has applied %d and no snapshot explains that", last, appliedIndex))
	}
	if first > appliedIndex+1 {
		return unfit(s.log.file, fmt.Sprintf("it begins at %d, yet the state has applied only %d", first, appliedIndex))
	}
	return nil
}

// unfit returns ErrBehindState with the file, what is wrong and the remedy.
func unfit(file, what string) error {
	return fmt.Errorf("%s: %w: %s: %s", file, ErrBehindState, what, datadir.Rejoin)
}
