package upstream

import (
	"testing"

	"github.com/hashicorp/raft"
)

func TestCompactionNeverPassesTheState(t *testing.T) {
	for _, test := range []struct {
		name      string
		durable   uint64
		base      raft.Log // the log has term 2
		keep      uint64   // the first that is to stay
		low, high uint64
		first     uint64 // of the log from 1 to 20, afterwards
		last      uint64
	}{
		{"below the state", 15, raft.Log{}, 20, 1, 10, 11, 20},
		{"past the state, whose end raft's no-ops follow", 8, raft.Log{}, 20, 1, 12, 8, 20},
		{"nothing durable", 0, raft.Log{}, 20, 1, 12, 1, 20},
		{"what is to stay", 15, raft.Log{}, 6, 1, 10, 6, 20},
		{"all is to stay", 15, raft.Log{}, 1, 1, 10, 1, 20},
		{"all but the state's last, as a suffix went meanwhile", 20, raft.Log{}, 20, 1, 20, 20, 20},
		{"all but the state's last, though no more is to stay", 15, raft.Log{}, 20, 1, 16, 15, 20},
		{"what follows the state, though raft would empty the log", 15, raft.Log{Index: 15, Term: 2}, 20, 1, 20, 15, 20},
		{"a replaced suffix", 3, raft.Log{}, 3, 15, 20, 1, 14},
		{"all that the state does not have", 3, raft.Log{Index: 3, Term: 2}, 3, 4, 20, 1, 3},
		{"after a snapshot that the log does not reach", 25, raft.Log{Index: 25, Term: 2}, 20, 1, 19, 0, 0},
		{"after a snapshot that the log leads to", 15, raft.Log{Index: 15, Term: 2}, 6, 1, 15, 6, 20},
		{"after a snapshot that the log contradicts", 15, raft.Log{Index: 15, Term: 3}, 6, 1, 15, 16, 20},
		{
			"after a snapshot whose last entry the log ends with, of another term",
			20,
			raft.Log{Index: 20, Term: 3},
			6,
			1,
			19,
			0,
			0,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := raft.NewInmemStore()
			for i := range uint64(20) {
				if err := store.StoreLog(&raft.Log{Index: i + 1, Term: 2}); err != nil {
					t.Fatal(err)
				}
			}
			g := GuardedLog{LogStore: store, Durable: func() uint64 { return test.durable },
				Keep: func(uint64) uint64 { return test.keep }, Base: func() *raft.Log { return &test.base }}
			if err := g.DeleteRange(test.low, test.high); err != nil {
				t.Fatal(err)
			}
			first, _ := g.FirstIndex()
			last, _ := g.LastIndex()
			if first != test.first || last != test.last {
				t.Errorf("%d to %d are left, want %d to %d", first, last, test.first, test.last)
			}
		})
	}
}
