// Raft stores a vote's term and its candidate in two writes (hashicorp/raft#661). Delete what joins the two writes
// when raft stores a vote with one call.

package raftstore

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// Keys that raft uses (raft.go: keyCurrentTerm, keyLastVoteTerm, keyLastVoteCand).
const (
	keyCurrentTerm   = "CurrentTerm"
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// stableStore is the raft.StableStore. All its keys are one record, so each
// change is one atomic write, and reads come from a copy in memory that was
// checked when the store was opened.
//
// raft writes a vote as SetUint64(LastVoteTerm) and then Set(LastVoteCand)
// (raft.go, persistVote). A crash between them would pair the new term with the
// old candidate, and the node could vote twice in that term (hashicorp/raft#661). So the
// term waits in memory and both are written by the second call; until then
// reads return the old pair.
type stableStore struct {
	file  *stableFile
	guard *guard

	mu       sync.Mutex  // guards the fields below, also while the file is written
	state    stableState // equals the file's
	voteTerm *uint64     // set by SetUint64(LastVoteTerm) and not written yet; nil: none
}

var errNoVoteTerm = errors.New("a candidate without a term: set " + keyVoteTerm + " first")

var _ raft.StableStore = (*stableStore)(nil)

// openStable opens the store at path and creates a missing one; g guards its writes.
func openStable(path string, g *guard) (*stableStore, error) {
	file, state, err := openStableFile(path, false)
	if err != nil {
		return nil, err
	}
	return &stableStore{file: file, guard: g, state: state}, nil
}

// Set stores val under key. For the vote's candidate it also stores the term
// that was set just before, in the same write.
func (s *stableStore) Set(key, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.state.clone()
	next.Bytes[string(key)] = append([]byte{}, val...)
	if string(key) == keyVoteCandidate {
		if s.voteTerm == nil {
			return fmt.Errorf("set %s: %w", key, errNoVoteTerm)
		}
		next.Numbers[keyVoteTerm] = *s.voteTerm
	}
	if err := s.save(next); err != nil {
		return err
	}
	// Kept until the write has succeeded: the term of a vote is written with its candidate only.
	if string(key) == keyVoteCandidate {
		s.voteTerm = nil
	}
	return nil
}

// Get returns the value of key, nil if there is none.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard.state(); err != nil {
		return nil, err
	}
	val, ok := s.state.Bytes[string(key)]
	if !ok {
		return nil, nil
	}
	return append([]byte{}, val...), nil
}

// SetUint64 stores val under key. The vote's term is stored by the Set of its
// candidate.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) == keyVoteTerm {
		s.voteTerm = &val
		return s.guard.state()
	}
	// Raft sets a term that it has already; that costs no write.
	if stored, ok := s.state.Numbers[string(key)]; ok && stored == val {
		return s.guard.state()
	}
	next := s.state.clone()
	next.Numbers[string(key)] = val
	return s.save(next)
}

// GetUint64 returns the value of key, 0 if there is none.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Numbers[string(key)], s.guard.state()
}

// save writes next to the file and, if that succeeds, makes it the state in memory. The caller holds mu.
func (s *stableStore) save(next stableState) error {
	err := s.guard.write(operation{verb: "store term and vote"}, func() error { return s.file.save(next) })
	if err == nil {
		s.state = next
	}
	return err
}
