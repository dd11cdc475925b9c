package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Where the next record of a journaledFolder goes.
const (
	afterOthers   = "after others"
	overOlder     = "after others, over older ones"
	firstOfARound = "the first over older ones"
)

// journaledFolder is what is on disk after writes of ten entries each, of which the
// journal still has some, unless the next is the first. The newest begins there.
func journaledFolder(t *testing.T, next string) (s *Stores, dir string, last uint64, newest int) {
	dir = t.TempDir()
	s = openStores(t, dir)
	journal := s.log.inner.(*journaledLog).journal
	rewound := next == afterOthers
	for ; !rewound || last < 30 || (next != firstOfARound && journal.end < journalHeader+30<<10); last += 10 {
		before := journal.end
		logs := entries(last+1, last+10, 4)
		for _, l := range logs {
			l.Data = bytes.Repeat([]byte{byte(l.Index)}, 200)
		}
		if err := s.Log().StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		rewound = rewound || last > 10 && journal.end < before
		newest = int(before)
	}
	return s, dir, last, newest
}

func changeJournal(t *testing.T, dir string, change func([]byte) []byte) {
	rewrite(t, filepath.Join(dir, datadir.JournalFile), change)
}

// forgetTail leaves what a machine without power may leave of the tail mark.
func forgetTail(t *testing.T, dir string) {
	if err := os.WriteFile(filepath.Join(dir, tailFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readLast(t *testing.T, dir string) (uint64, error) {
	s, err := Open(Options{Dir: dir, Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		return 0, err
	}
	defer closeStores(t, s)
	last, err := s.Log().LastIndex()
	for i := uint64(1); i <= last && err == nil; i++ {
		err = s.Log().GetLog(i, new(raft.Log))
	}
	return last, err
}

// eachRecord runs a test over each place of the next record.
func eachRecord(t *testing.T, places []string, f func(t *testing.T, next string)) {
	for _, next := range places {
		t.Run(next, func(t *testing.T) { f(t, next) })
	}
}

// TestATornWriteIsNoEntry has the power fail while a record is written: of its sectors
// any may be on disk.
func TestATornWriteIsNoEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine cuts a file at many places")
	}
	eachRecord(t, []string{afterOthers, overOlder, firstOfARound}, func(t *testing.T, next string) {
		s, dir, last, _ := journaledFolder(t, next)
		old, err := os.ReadFile(filepath.Join(dir, datadir.JournalFile))
		if err != nil {
			t.Fatal(err)
		}
		store(t, s, last+1, last+20, 5)
		var sectors []int
		written := copyDir(t, dir)
		forgetTail(t, written)
		changeJournal(t, written, func(raw []byte) []byte {
			for at := 0; at < len(raw); at += 512 {
				after := bytes.Equal(raw[at:at+512], make([]byte, 512)) // the record, up to the end of its block
				if !after && !bytes.Equal(raw[at:at+512], old[at:at+512]) {
					sectors = append(sectors, at)
				}
			}
			return raw
		})
		if len(sectors) < 3 {
			t.Fatalf("%d sectors changed", len(sectors))
		}
		for lost := range 1 << len(sectors) {
			torn := copyDir(t, written)
			changeJournal(t, torn, func(raw []byte) []byte {
				for i, at := range sectors {
					if lost>>i&1 != 0 {
						copy(raw[at:at+512], old[at:])
					}
				}
				return raw
			})
			want := last
			if lost == 0 {
				want += 20
			}
			if got, err := readLast(t, torn); got != want || err != nil {
				t.Errorf("without sectors %b of the record the log ends at %d, %v; want %d", lost, got, err, want)
			}
			os.RemoveAll(torn)
		}
	})
}

// TestDamageIsNotTakenForATornWrite hurts records that were synced, as others after
// them show.
func TestDamageIsNotTakenForATornWrite(t *testing.T) {
	eachRecord(t, []string{afterOthers, overOlder}, func(t *testing.T, next string) {
		_, dir, _, newest := journaledFolder(t, next)
		dir = copyDir(t, dir)
		forgetTail(t, dir)
		for at := journalHeader; at < newest; at += 997 {
			hurt := copyDir(t, dir)
			changeJournal(t, hurt, flipAt(at, at%8))
			_, err := readLast(t, hurt)
			wantError(t, err, ErrDamaged)
			os.RemoveAll(hurt)
		}
	})
}

// TestARefusedStartChangesNothing hurts the newest record, which the tail mark
// distinguishes from a torn one, and mends it.
func TestARefusedStartChangesNothing(t *testing.T) {
	_, dir, last, newest := journaledFolder(t, overOlder)
	dir = copyDir(t, dir)
	flip := flipAt(newest+100, 5)
	changeJournal(t, dir, flip)
	_, err := readLast(t, dir)
	wantError(t, err, ErrDamaged)
	changeJournal(t, dir, flip)
	if got, err := readLast(t, dir); got != last || err != nil {
		t.Errorf("the log ends at %d, %v; want %d", got, err, last)
	}
}

// A stopped node's log whose newest entry is damaged reads like one that never had it.
func TestAReaderSaysThatTheNewestEntriesAreGone(t *testing.T) {
	s, dir, last, newest := journaledFolder(t, overOlder)
	closeStores(t, s)
	lost := func() error {
		r, err := OpenReadOnly(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		return r.Lost()
	}
	if err := lost(); err != nil {
		t.Errorf("a whole log: %v", err)
	}
	changeJournal(t, dir, flipAt(newest+100, 5))
	err := lost()
	wantError(t, err, ErrDamaged)
	if want := fmt.Sprintf("entries %d to %d are gone", last-9, last); !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestTheJournalDoesNotStandForAnEmptyLog(t *testing.T) {
	_, dir, _, _ := journaledFolder(t, afterOthers)
	fresh := t.TempDir()
	closeStores(t, openStores(t, fresh))
	journal := datadir.JournalFile
	raw, err := os.ReadFile(filepath.Join(dir, journal))
	if err := errors.Join(err, os.WriteFile(filepath.Join(fresh, journal), raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = readLast(t, fresh)
	wantError(t, err, ErrDamaged)
}

func TestWhatWasDeletedDoesNotComeBackFromTheJournal(t *testing.T) {
	dir := t.TempDir()
	s := openStores(t, dir)
	for i := range uint64(4) {
		store(t, s, i*10+1, i*10+10, 3)
	}
	if err := s.Log().DeleteRange(25, 40); err != nil {
		t.Fatal(err)
	}
	crashed := copyDir(t, dir)
	forgetTail(t, crashed)
	wantSpan(t, openStores(t, crashed), 1, 24, 3)
}

// TestAnEntryWithoutATimeIsReplayedInEveryZone is one that raft writes when a cluster
// begins, in a zone whose earliest times bolt's encoding cannot hold.
func TestAnEntryWithoutATimeIsReplayedInEveryZone(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("LMT", -75)
	defer func() { time.Local = local }()
	dir := t.TempDir()
	s := openStores(t, dir)
	store(t, s, 1, 2, 1)
	if err := s.Log().StoreLog(&raft.Log{Index: 3, Term: 1}); err != nil {
		t.Fatal(err)
	}
	s = openStores(t, copyDir(t, dir))
	store(t, s, 4, 4, 1)
	wantEntry(t, s, &raft.Log{Index: 3, Term: 1})
}
