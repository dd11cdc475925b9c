package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

// The log and the state's last entry show which entry was applied, as long as they have it.
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

// Two nodes compare at an index that one of them has just applied, wherever that is.
func TestADigestIsReportedWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	const stride = 64 // of the indexes whose digests are reported
	for i := range 2 * stride {
		publish(t, n, i)
	}
	last := n.machine.Applied()
	for _, index := range []uint64{last - stride - 1, last - stride - 2, last - 1, last, last + 1} {
		sum, known := n.machine.DigestAt(index)
		list := n.Report(Question{DigestAt: index}).Digests
		if slices.Contains(list, health.IndexDigest{Index: index, Digest: sum}) != known || known != (index <= last) {
			t.Errorf("index %d of %d: known %v, in the report %v", index, last, known,
				slices.Contains(list, health.IndexDigest{Index: index, Digest: sum}))
		}
		if !slices.IsSortedFunc(list, func(a, b health.IndexDigest) int { return cmp.Compare(a.Index, b.Index) }) ||
			len(list) > 64 {
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
			if err = errors.Join(err, o.stores.Stable().SetUint64([]byte(statestore.KeyInstalled), o.machine.Applied()),
				o.close()); err != nil {
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
			_ = leader.raft.Load().LeadershipTransferToServer(raft.ServerID(odd), raft.ServerAddress(n.roster.Address())).Error()
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
