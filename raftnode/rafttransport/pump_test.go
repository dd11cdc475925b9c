package rafttransport

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

// A node does not answer for entries that it has applied as others.
func TestARequestThatContradictsTheStateIsRefused(t *testing.T) {
	w := newTown()
	n2 := w.open(t, "n2", nil)
	n1 := w.open(t, "n1", func(o *Options) {
		o.Covers = func(index uint64) (applied uint64, covered bool) { return 10, index < 10 }
		o.Contradicts = func(_, index, term uint64) bool { return index >= 8 && term != 2 } // older entries are gone
	})
	came := answer(t, n1)
	entry := func(index, term uint64) *raft.Log { return &raft.Log{Index: index, Term: term} }
	for _, test := range []struct {
		name       string
		prev, term uint64
		entries    []*raft.Log
		refused    bool
	}{
		{"the same entries", 8, 2, []*raft.Log{entry(9, 2), entry(10, 2), entry(11, 3)}, false},
		{"another entry before", 10, 3, []*raft.Log{entry(11, 3)}, true},
		{"another among those that were applied", 6, 1, []*raft.Log{entry(7, 1), entry(8, 1), entry(9, 1)}, true},
		{"of what this node does not know", 6, 1, []*raft.Log{entry(7, 1)}, false},
		{"after what was applied", 11, 3, []*raft.Log{entry(12, 3)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
				ProtocolVersion: raft.ProtocolVersionMax,
				ID:              []byte("n2"),
			},
				Term: 3, PrevLogEntry: test.prev, PrevLogTerm: test.term, Entries: test.entries, LeaderCommitIndex: 8}
			var resp raft.AppendEntriesResponse
			err := n2.AppendEntries("n1", n1.LocalAddr(), &req, &resp)
			if (err != nil) != test.refused {
				t.Fatalf("answered with %+v, %v", resp, err)
			}
			if !test.refused {
				<-came
			}
			if len(came) > 0 {
				t.Error("raft was handed it")
			}
		})
	}
}

// A node whose state has reached a snapshot answers for raft, which would install it, if raft
// follows the leader that sends it.
func TestASnapshotThatTheStateHasReachedIsNotInstalled(t *testing.T) {
	w := newTown()
	n2 := w.open(t, "n2", nil)
	n1 := w.open(t, "n1", func(o *Options) {
		o.Follows = func(leader string, term uint64) bool { return leader == "n2" && term == 3 }
		o.Covers = func(index uint64) (applied uint64, covered bool) { return 10, index < 10 }
	})
	came := answer(t, n1)
	state := bytes.Repeat([]byte("state"), 100_000)
	for _, test := range []struct {
		name      string
		index     uint64
		term      uint64
		installed bool
	}{
		{"before the state", 7, 3, false},
		{"the state itself", 10, 3, false},
		{"ahead of the state", 11, 3, true},
		{"of another leader's term", 7, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{
				ProtocolVersion: raft.ProtocolVersionMax,
				ID:              []byte("n2"),
			},
				SnapshotVersion: raft.SnapshotVersionMax,
				Term:            test.term,
				LastLogIndex:    test.index,
				LastLogTerm:     2,
				Size:            int64(len(state))}
			var resp raft.InstallSnapshotResponse
			if err := n2.InstallSnapshot("n1", n1.LocalAddr(), &req, &resp, bytes.NewReader(state)); err != nil {
				t.Fatal(err)
			}
			if test.installed {
				<-came
				return
			}
			if !resp.Success || resp.Term != test.term {
				t.Errorf("answered with %+v", resp)
			}
			select {
			case <-came:
				t.Error("raft was handed it")
			default:
			}
		})
	}
}
