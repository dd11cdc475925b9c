package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

// A node stops serving if a leader lacks what it had applied, and not for a report of a leader
// that was asked before, or of an earlier term.
func TestALeaderThatLacksWhatWasAppliedIsAContradiction(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	moments := []moment{{at(0), 3, 10}, {at(1), 3, 20}, {at(2), 4, 30}}
	for _, test := range []struct {
		name   string
		asked  int
		report Report
		want   bool
	}{
		{"it has all", 2, Report{Role: RoleLeader, Term: 4, LastIndex: 30}, false},
		{"it lacks one", 2, Report{Role: RoleLeader, Term: 4, LastIndex: 29}, true},
		{"it was asked before that was applied", 1, Report{Role: RoleLeader, Term: 4, LastIndex: 29}, false},
		{"it lacked one of those before", 1, Report{Role: RoleLeader, Term: 4, LastIndex: 19}, true},
		{"it is deposed and does not know", 2, Report{Role: RoleLeader, Term: 3, LastIndex: 20}, false},
		{"it follows", 2, Report{Role: RoleFollower, Term: 4, LastIndex: 20}, false},
		{"it was asked before anything is known", -1, Report{Role: RoleLeader, Term: 4, LastIndex: 1}, false},
	} {
		if got := ahead(moments, at(test.asked), test.report); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// The log and the state's last entry tell which entry was applied, as long as they have it.
func TestWhatWasAppliedIsToldFromAnotherEntry(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	for i := range 5 {
		publish(t, c.leader(), i)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			c.crash("n1")
			c.start("n1")
			c.leader()
		}
		n := c.nodes["n1"]
		first, err := n.stores.Log().FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		term := n.raft.Load().CurrentTerm()
		for index := first; index <= n.machine.Applied(); index++ {
			l := entryOf(t, n, index)
			if n.contradicts(term, index, l.Term) || !n.contradicts(term, index, l.Term+1) {
				t.Errorf("restarted %v: entry %d of term %d is taken for another", restarted, index, l.Term)
			}
			if n.contradicts(term-1, index, l.Term+1) {
				t.Errorf("restarted %v: a late request of a deposed leader contradicts entry %d", restarted, index)
			}
		}
		if n.contradicts(term, n.machine.Applied()+100, 1) {
			t.Error("an entry that is not there contradicts")
		}
	}
}

func TestADigestIsComparedWhereBothSidesKnowOne(t *testing.T) {
	d := func(index uint64, sum byte) IndexDigest { return IndexDigest{index, fsm.Sum{sum}} }
	own := func(index uint64) (sum fsm.Sum, known bool) {
		sums := map[uint64]byte{64: 1, 128: 2, 130: 3}
		return fsm.Sum{sums[index]}, sums[index] != 0
	}
	for _, test := range []struct {
		name  string
		other []IndexDigest
		want  bool
	}{
		{"the same at the newest that both have", []IndexDigest{d(64, 9), d(128, 2), d(140, 9)}, false},
		{"another there", []IndexDigest{d(64, 1), d(128, 7)}, true},
		{"nothing to compare", []IndexDigest{d(192, 5)}, false},
		{"nothing at all", nil, false},
	} {
		if got := differs(own, test.other); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// Two nodes compare at an index that one of them has just applied, wherever that is.
func TestADigestIsReportedWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	for i := range 2 * digestStride {
		publish(t, n, i)
	}
	last := n.machine.Applied()
	for _, index := range []uint64{last - digestStride - 1, last - digestStride - 2, last - 1, last, last + 1} {
		sum, known := n.machine.DigestAt(index)
		list := n.Report(Question{DigestAt: index}).Digests
		if slices.Contains(list, IndexDigest{index, sum}) != known || known != (index <= last) {
			t.Errorf("index %d of %d: known %v, in the report %v", index, last, known, slices.Contains(list, IndexDigest{index, sum}))
		}
		if !slices.IsSortedFunc(list, func(a, b IndexDigest) int { return cmp.Compare(a.Index, b.Index) }) || len(list) > 64 {
			t.Errorf("%d digests: %v", len(list), list)
		}
	}
}

func TestANodeWhoseStateDiffersFromTheMajorityStopsServing(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("as leader %v", leads), func(t *testing.T) {
			c := voters(t, 3, nil)
			publish(t, c.leader(), 1)
			c.settle()
			odd := c.followers()[0].cfg.ID
			c.crash(odd)
			// The state machine of a faulty node decides the next entry in its own way.
			publish(t, c.leader(), 2)
			o := c.offlineOf(odd)
			var b frame.Builder
			b.Add(frame.SettingSet{Key: "dedup.window", Value: "61s"}, nil)
			_, err := o.machine.Apply(o.machine.Applied()+1, o.machine.Term(), b.Encode(frame.Seal{Time: noon, Proposer: odd}))
			if err = errors.Join(err, o.stores.Stable().SetUint64([]byte(statestore.KeyInstalled), o.machine.Applied()), o.close()); err != nil {
				t.Fatal(err)
			}
			n := c.start(odd)
			if leads {
				_ = c.leader().StepDown(context.Background(), odd)
			}
			publish(t, c.leaderBut(n), 3)
			eventually(t, "it says that it differs", func() bool { return n.Status().Diverged && n.Report(Question{}).Diverged })
			if _, err := n.Propose(t.Context(), numbered(4)); !errors.Is(err, ErrDiverged) {
				t.Errorf("it still takes requests: %v", err)
			}
			if err := n.ReadBarrier(t.Context()); !errors.Is(err, ErrDiverged) {
				t.Errorf("it still serves reads: %v", err)
			}
			leader := c.leaderBut(n)
			publish(t, leader, 5)
			// Voters that know nothing of it may elect it: it does not keep the cluster.
			term := n.Status().Term
			_ = leader.raft.Load().LeadershipTransferToServer(raft.ServerID(odd), raft.ServerAddress(n.raftAddr())).Error()
			eventually(t, "an election", func() bool { return n.Status().Term > term })
			publish(t, c.leaderBut(n), 6)
			for _, m := range c.all() {
				if m != n && m.Diverged() {
					t.Errorf("%s of the majority stopped serving", m.cfg.ID)
				}
			}
		})
	}
}

// leaderBut waits for a leader other than n.
func (c *cluster) leaderBut(n *Node) *Node {
	c.t.Helper()
	var leader *Node
	eventually(c.t, "another leader than "+n.cfg.ID, func() bool {
		leader = nil
		for _, m := range c.nodes {
			if m != n && m.proposer.OpenTerm() != 0 {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}
