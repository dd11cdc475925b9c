package rafttransport

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
)

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
		{"behind the state", 7, 3, false},
		{"the state itself", 10, 3, false},
		{"ahead of the state", 11, 3, true},
		{"of another leader's term", 7, 4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2")},
				SnapshotVersion: raft.SnapshotVersionMax, Term: test.term, LastLogIndex: test.index, LastLogTerm: 2, Size: int64(len(state))}
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
