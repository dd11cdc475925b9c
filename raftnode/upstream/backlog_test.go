package upstream

import (
	"testing"

	"github.com/hashicorp/raft"
)

func TestTheBacklogIsWhatIsCommittedAndNotApplied(t *testing.T) {
	var b backlog
	store := func(applied, first uint64, sizes ...int) {
		var logs []*raft.Log
		for i, size := range sizes {
			logs = append(logs, &raft.Log{Index: first + uint64(i), Data: make([]byte, size)})
		}
		b.storing(logs, applied)
	}
	want := func(applied, committed uint64, bytes int64) {
		t.Helper()
		if got := b.bytes(applied, committed); got != bytes {
			t.Errorf("after %d, up to %d: %d bytes, want %d", applied, committed, got, bytes)
		}
	}
	want(0, 5, 0)
	store(0, 1, 1, 10, 100, 1000)
	want(0, 4, 1111)
	want(1, 3, 110)
	want(4, 4, 0)
	want(9, 4, 0)
	store(2, 4, 5, 7) // another leader's, in the place of one
	want(2, 4, 105)
	want(2, 5, 112)
	store(5, 6, 3)
	want(5, 9, 3)
	store(20, 21, 8) // after a snapshot
	want(20, 21, 8)
	if n := len(b.entries); n != 1 {
		t.Errorf("%d entries are remembered, one is not applied", n)
	}
}
