package raftnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ringrift/ringlog/fsm"
)

const (
	digestStride = 64   // distance of the indexes whose digests are reported, below the newest
	digestReach  = 1024 // how far back the state keeps digests

	// The newest are reported closer, so that two nodes at which nothing is appended, and of
	// which one is ahead, have one in common.
	digestNear, nearStride = 64, 8

	momentsKept = 64 // of Node.moments
)

// moment is what this node had applied at a time, and its term.
type moment struct {
	at            time.Time
	term, applied uint64
}

// digests returns the digests to compare with other nodes, in the order of their indexes: at the last index, at every
// nearStride-th of the newest, at every digestStride-th before those, and at the index that another node asked for.
// The asker has applied that index; so either this node has too, or the asker still knows the digest at this node's
// last index, unless one of them is ahead by more than digestReach.
func (n *Node) digests(asked uint64) (list []IndexDigest) {
	last, sum := n.machine.Digest()
	if last == 0 {
		return nil
	}
	// All nodes report multiples of the strides, so that two that are not far apart have one in common.
	low := last - min(last, digestReach-1)
	near := last - min(last, digestNear)
	for i := low - low%digestStride; i < last; i += stride(i, near) {
		if d, known := n.machine.DigestAt(i); known && i > 0 {
			list = append(list, IndexDigest{i, d})
		}
	}
	list = append(list, IndexDigest{last, sum})
	// The index that was asked for may be listed already, or be one that this node has not applied.
	i, listed := slices.BinarySearchFunc(list, asked, func(d IndexDigest, index uint64) int { return cmp.Compare(d.Index, index) })
	if d, known := n.machine.DigestAt(asked); known && !listed && asked > 0 {
		list = slices.Insert(list, i, IndexDigest{asked, d})
	}
	return list
}

// stride returns the distance from i to the next index whose digest is reported; near is where the newest ones begin.
func stride(i, near uint64) uint64 {
	if i+digestStride <= near {
		return digestStride
	}
	return nearStride
}

// differs reports whether two nodes' digests differ at the newest index that both know; own returns this side's. It
// has to be called when the other's arrive: either side forgets its digests after digestReach entries.
func differs(own func(index uint64) (fsm.Sum, bool), other []IndexDigest) bool {
	for _, o := range slices.Backward(other) {
		if d, known := own(o.Index); known {
			return d != o.Digest
		}
	}
	return false
}

// suspect is called when an entry carries a digest that differs from this node's. It only logs that: compareDigests
// decides by the reports of a majority.
func (n *Node) suspect(index uint64) {
	n.logger.Warn("the leader's digest differs from this node's", "index", index)
}

// watchDigests compares digests once in a ping's interval, until ctx ends. It has a goroutine of its own, since a
// hand-over may take long.
func (n *Node) watchDigests(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.Ping)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n.compareDigests(ctx)
	}
}

// compareDigests marks this node as diverged if its state is not the majority's: it then serves and accepts nothing
// any more. If it leads, it hands over first. A hand-over that failed is retried with the next round, also if the node
// was elected after it had diverged.
func (n *Node) compareDigests(ctx context.Context) {
	if !n.diverged.Load() && !n.outvoted() && !n.aheadOfItsLeader() {
		return
	}
	handing, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := n.StepDown(handing, ""); err != nil && !errors.Is(err, ErrNotLeader) {
		n.logger.Error("handing over, as this node's state differs from the majority's", "error", err)
	}
	if n.diverged.CompareAndSwap(false, true) {
		n.logger.Error("this node's state differs from the majority's: it serves nothing any more", "error", ErrDiverged)
	}
}

// outvoted reports whether most voters' states differ from this node's.
func (n *Node) outvoted() bool {
	voters, against := votersOf(n.servers()), 0
	for _, id := range voters {
		if s, healthy := n.watch.last(id); healthy && id != n.cfg.ID && s.differs {
			against++
		}
	}
	return against > len(voters)/2
}

// differsFrom reports whether another node of the cluster has reported a state that is not this
// node's.
func (n *Node) differsFrom(r Report) bool {
	return r.ClusterID == n.machine.ClusterID() && differs(n.machine.DigestAt, r.Digests)
}

// aheadOfItsLeader reports whether the leader that this node follows, in a term not before this node's, has a log that
// ends before what this node had applied when the leader was asked. A leader has all that was committed, so either one
// of the two has lost entries, or the leader is of a cluster that was forked from this one. Another member that leads
// at the same time is a split, which proves nothing against this node.
func (n *Node) aheadOfItsLeader() bool {
	// In this order: what was applied was committed in that term or before, and at that time.
	applied := n.machine.Applied()
	term := n.raft.Load().CurrentTerm()
	n.moments = append(n.moments, moment{time.Now(), term, applied})
	n.moments = n.moments[max(0, len(n.moments)-momentsKept):]
	leader, _ := n.leader()
	s, healthy := n.watch.last(leader)
	if !healthy || leader == n.cfg.ID || s.report.ClusterID != n.machine.ClusterID() || !ahead(n.moments, s.asked, s.report) {
		return false
	}
	n.logger.Error("the leader's log ends before what this node has applied", "leader", leader,
		"last-index", s.report.LastIndex, "applied", applied)
	return true
}

// ahead reports whether at the newest moment not after a report was asked for, this node had applied more than the
// log of the leader that gave it holds.
func ahead(moments []moment, asked time.Time, r Report) bool {
	for _, m := range slices.Backward(moments) {
		if !m.at.After(asked) {
			return r.Role == RoleLeader && r.Term >= m.term && r.LastIndex < m.applied
		}
	}
	return false
}

// Diverged reports whether this node has stopped serving because its state
// differs from the majority's.
func (n *Node) Diverged() bool { return n.diverged.Load() }
