package raftstore

import (
	"testing"
)

func vote(t testing.TB, s *Stores, term uint64, candidate string) {
	t.Helper()
	if err := s.Stable().SetUint64([]byte(keyVoteTerm), term); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable().Set([]byte(keyVoteCandidate), []byte(candidate)); err != nil {
		t.Fatal(err)
	}
}

func wantVote(t testing.TB, s *Stores, term uint64, candidate string) {
	t.Helper()
	gotTerm, err := s.Stable().GetUint64([]byte(keyVoteTerm))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Stable().Get([]byte(keyVoteCandidate))
	if err != nil {
		t.Fatal(err)
	}
	if gotTerm != term || string(got) != candidate || (got == nil) != (candidate == "") {
		t.Fatalf("vote is %d for %q, want %d for %q", gotTerm, got, term, candidate)
	}
}

// TestACrashBetweenTheTwoVoteWritesLeavesTheOldVote is hashicorp/raft#661: the new term
// with the old candidate would let the node vote again in the new term.
func TestACrashBetweenTheTwoVoteWritesLeavesTheOldVote(t *testing.T) {
	dir := t.TempDir()
	s := openStores(t, dir)
	wantVote(t, s, 0, "")
	vote(t, s, 5, "n1")
	if err := s.Stable().SetUint64([]byte(keyCurrentTerm), 6); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable().SetUint64([]byte(keyVoteTerm), 6); err != nil {
		t.Fatal(err)
	}
	between := copyDir(t, dir)
	wantVote(t, s, 5, "n1")
	if err := s.Stable().Set([]byte(keyVoteCandidate), []byte("n2")); err != nil {
		t.Fatal(err)
	}
	after := copyDir(t, dir)
	wantVote(t, s, 6, "n2")

	crashed := openStores(t, between)
	wantVote(t, crashed, 5, "n1")
	if term, err := crashed.Stable().GetUint64([]byte(keyCurrentTerm)); term != 6 || err != nil {
		t.Fatalf("current term is %d (%v), want 6", term, err)
	}
	wantVote(t, openStores(t, after), 6, "n2")
}

func TestACandidateWithoutATermIsRefused(t *testing.T) {
	s := openStores(t, t.TempDir())
	wantError(t, s.Stable().Set([]byte(keyVoteCandidate), []byte("n2")), errNoVoteTerm)
	vote(t, s, 5, "n1")
	wantError(t, s.Stable().Set([]byte(keyVoteCandidate), []byte("n2")), errNoVoteTerm)
	wantVote(t, s, 5, "n1")
}
