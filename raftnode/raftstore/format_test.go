package raftstore

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// testdata/folder.zip is the raft folder of a killed node, as version 1 of each of its
// formats has it: entries 1 to 10 were compacted, 41 to 43 are large, 48 to 50 were
// replaced by those of term 4, and from 48 on they are in the journal only.
func formatFolder(t *testing.T) string {
	z, err := zip.OpenReader(filepath.Join("testdata", "folder.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := filepath.Join(t.TempDir(), "raft")
	if err := os.CopyFS(dir, z); err != nil {
		t.Fatal(err)
	}
	return dir
}

func formatEntry(index uint64) *raft.Log {
	switch {
	case index >= 41 && index <= 43:
		return largeEntry(index, 20*pieceBytes+10)
	case index >= 48:
		return entry(index, 4)
	}
	return entry(index, 3)
}

// TestAFolderOfTheFirstFormatOpens reads what a stopped node has before and after it ran
// again, which moves the journal's entries.
func TestAFolderOfTheFirstFormatOpens(t *testing.T) {
	dir := formatFolder(t)
	want := Summary{First: 11, Last: 60, LastStored: 60, CurrentTerm: 5, VoteTerm: 4, VoteCandidate: "n2:9770"}
	wantSummary(t, dir, want)

	s := openStores(t, dir)
	wantVote(t, s, 4, "n2:9770")
	for index := want.First; index <= want.Last; index++ {
		wantEntry(t, s, formatEntry(index))
	}
	store(t, s, 61, 61, 4)
	closeStores(t, s)

	want.Last, want.LastStored = 61, 61
	wantSummary(t, dir, want)
}

func wantSummary(t *testing.T, dir string, want Summary) {
	t.Helper()
	r, err := OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Summary() != want {
		t.Fatalf("summary is %+v, want %+v", r.Summary(), want)
	}
	next := want.First
	for l, err := range r.Entries(0, want.Last) {
		if same := fmt.Sprint(l) == fmt.Sprint(formatEntry(next)); err != nil || !same {
			t.Fatalf("entry %d is %v (%v)", next, l, err)
		}
		next++
	}
	if next != want.Last+1 {
		t.Fatalf("the entries end before %d", next)
	}
}
