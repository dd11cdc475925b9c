package raftstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// TestALogThatContradictsTheStateIsDropped is hashicorp/raft#697.
func TestALogThatContradictsTheStateIsDropped(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, last uint64 // of the log, in term 3
		index, term uint64 // of the state
		dropped     bool
	}{
		{"same entry", 1, 400, 200, 3, false},
		{"other term", 1, 400, 200, 4, true},
		{"other term at the end", 1, 400, 400, 4, true},
		{"other term at the start", 200, 400, 200, 2, true},
		{"log ends before the state", 1, 400, 500, 4, true},
		{"log continues from the state", 201, 400, 200, 3, false},
		{"log continues in an older term", 201, 400, 200, 4, true},
		{"no state", 1, 400, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStores(t, t.TempDir())
			store(t, s, c.first, c.last, 3)
			dropped, err := s.DropContradicting(c.index, c.term)
			if err != nil || dropped != c.dropped {
				t.Fatalf("dropped %v (%v), want %v", dropped, err, c.dropped)
			}
			if !dropped {
				wantSpan(t, s, c.first, c.last, 3)
				return
			}
			wantSpan(t, s, 0, 0, 0)
			store(t, s, c.index+1, c.index+3, 5)
			wantSpan(t, s, c.index+1, c.index+3, 5)
		})
	}
}

func TestALogBehindTheStateIsRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, last uint64
		applied     uint64
		snapshot    bool
		refused     bool
	}{
		{"empty node", 0, 0, 0, false, false},
		{"log reaches the state", 1, 20, 20, false, false},
		{"log lags", 1, 19, 20, false, true},
		{"log lags, a snapshot explains it", 1, 19, 20, true, false},
		{"log is gone", 0, 0, 20, false, true},
		{"log is gone, a snapshot explains it", 0, 0, 20, true, false},
		{"log continues from the state", 21, 30, 20, false, false},
		{"state lacks entries", 22, 30, 20, true, true},
		{"state is gone", 22, 30, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStores(t, t.TempDir())
			if c.last > 0 {
				store(t, s, c.first, c.last, 1)
			}
			if err := s.Check(c.applied, c.snapshot); errors.Is(err, ErrBehindState) != c.refused || err != nil && !c.refused {
				t.Fatalf("Check: %v, refused wanted: %v", err, c.refused)
			}
		})
	}
}

// TestAStoppedFolderCanBeInspected reads a folder with one damaged entry.
func TestAStoppedFolderCanBeInspected(t *testing.T) {
	dir := usedFolder(t)
	rewrite(t, logFile(dir), func(raw []byte) []byte { return breakEntry(raw, entry(57, 4)) })
	r, err := OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := Summary{First: 21, Last: lastIndex, LastStored: lastIndex, VoteTerm: 4, VoteCandidate: "n2:9770"}
	if r.Summary() != want {
		t.Fatalf("summary is %+v, want %+v", r.Summary(), want)
	}
	next := uint64(50)
	for l, err := range r.Entries(next, 1<<40) {
		wantIndex, wantBad := next, next == 57
		if l.Index != wantIndex || errors.Is(err, ErrCorruptEntry) != wantBad || err != nil && !wantBad {
			t.Fatalf("entry %d: %v, want %d", l.Index, err, wantIndex)
		}
		if next++; next == 280 {
			break
		}
	}
	if next != 280 {
		t.Fatalf("stopped at %d", next)
	}
}

func breakEntry(raw []byte, l *raft.Log) []byte {
	at := bytes.LastIndex(raw, l.Data)
	return flipAt(at, 3)(raw)
}
