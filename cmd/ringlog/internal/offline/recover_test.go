package offline

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// A survivor is chosen by the last entry of its log, so a log that has lost its end is
// refused, and is not mistaken for an older one.
func TestASurvivorIsChosenByItsLastEntry(t *testing.T) {
	dir := t.TempDir()
	n, err := raftnode.Open(t.Context(), raftnode.Config{
		ID:              "n1",
		Dir:             dir,
		RaftBind:        "127.0.0.1:0",
		HTTPAdvertise:   "n1",
		BootstrapExpect: 1,
		Disk:            raftnode.Disk{MinFree: -1, Reserve: -1},
		Fatal:           func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.WaitLeader(t.Context()), n.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	stores, err := raftstore.Open(raftstore.Options{
		Dir:         filepath.Join(dir, datadir.RaftDir),
		SyncTimeout: time.Minute,
		Fatal:       func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	last, err := stores.Log().LastIndex()
	newest := &raft.Log{Index: last + 1, Term: 7, Data: []byte("of a later term")}
	if err := errors.Join(err, stores.Log().StoreLog(newest), stores.Close()); err != nil {
		t.Fatal(err)
	}
	if index, term, err := lastEntry(dir); err != nil || index != last+1 || term != 7 {
		t.Errorf("entry %d of term %d, %v; want %d of term 7", index, term, err, last+1)
	}

	// The newest entries are in the journal: without it the log would just end earlier.
	journal := filepath.Join(dir, datadir.RaftDir, datadir.JournalFile)
	info, err := os.Stat(journal)
	if err == nil {
		err = os.WriteFile(journal, make([]byte, info.Size()), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if index, term, err := lastEntry(dir); !errors.Is(err, raftstore.ErrDamaged) {
		t.Errorf("a log that lost its end: entry %d of term %d, %v", index, term, err)
	}
}
