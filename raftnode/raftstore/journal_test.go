package raftstore

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// journaledFolder is what stands on disk after writes of ten entries each, of which the
// journal still has some, the newest from there on: in a fresh one, or over what is left
// of a round before.
func journaledFolder(t *testing.T, again bool) (s *Stores, dir string, last uint64, newest int) {
	dir = t.TempDir()
	s = openStores(t, dir, Bolt)
	journal := s.log.inner.(*journaledLog).journal
	for rewound := !again; !rewound || last < 30 || journal.end < journalHeader+30<<10; last += 10 {
		before := journal.end
		logs := entries(last+1, last+10, 4)
		for _, l := range logs {
			l.Data = bytes.Repeat([]byte{byte(l.Index)}, 200)
		}
		if err := s.Log().StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		rewound = rewound || journal.end < before
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

// TestATornWriteIsNoEntry has the power fail while a record is written: of its sectors
// any may be on disk.
func TestATornWriteIsNoEntry(t *testing.T) {
	for name, again := range map[string]bool{"fresh": false, "over older records": true} {
		t.Run(name, func(t *testing.T) {
			s, dir, last, _ := journaledFolder(t, again)
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
					if !bytes.Equal(raw[at:at+512], old[at:at+512]) {
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
}

// TestDamageIsNotTakenForATornWrite hurts records that were synced, as others after
// them show.
func TestDamageIsNotTakenForATornWrite(t *testing.T) {
	for name, again := range map[string]bool{"fresh": false, "over older records": true} {
		t.Run(name, func(t *testing.T) {
			_, dir, _, newest := journaledFolder(t, again)
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
}
