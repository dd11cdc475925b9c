package raftstore

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// TestReadersWritersAndCompactionDoNotDisturbEachOther runs what raft runs at
// the same time. An entry that compaction takes away under a reader is not
// found; it must not pass for a lost one, which is fatal.
func TestReadersWritersAndCompactionDoNotDisturbEachOther(t *testing.T) {
	s := openStores(t, t.TempDir())
	store(t, s, 1, 10, 1)
	var stop atomic.Bool
	var done sync.WaitGroup
	defer done.Wait()
	defer stop.Store(true)
	for range 3 {
		done.Go(func() {
			for !stop.Load() {
				readAround(t, s)
			}
		})
	}
	done.Go(func() {
		for !stop.Load() {
			if _, last, err := s.log.span(); err != nil || last > 600 && s.deletePrefix(last-300) != nil {
				t.Error("compaction failed", err)
			}
		}
	})
	for i := uint64(11); i < 2000; i += 20 {
		store(t, s, i, i+19, 1)
	}
}

// readAround reads an entry near the start of the log, where compaction is.
func readAround(t *testing.T, s *Stores) {
	first, _, err := s.log.span()
	if err != nil {
		t.Error(err)
		return
	}
	var l raft.Log
	index := first + rand.Uint64N(40)
	switch err := s.Log().GetLog(index, &l); {
	case err == nil && (l.Index != index || string(l.Data) != string(entry(index, 1).Data)):
		t.Errorf("entry %d is %+v", index, l)
	case err != nil && err != raft.ErrLogNotFound:
		t.Errorf("entry %d: %v", index, err)
	}
}
