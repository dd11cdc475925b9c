package raftnode

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	digestStride = 64   // indexes whose digests are reported, beside the newest
	digestReach  = 1024 // how far back the state keeps digests

	// The newest are reported closer, so that two nodes at which nothing is appended, and of
	// which one is ahead, have one in common.
	digestNear, nearStride = 64, 8

	momentsKept = 64
)

// moment is how far this node was at a time.
type moment struct {
	at            time.Time
	term, applied uint64
}

// digests are the ones to compare with other nodes: at the last index, at every
// nearStride-th of the newest, and at every digestStride-th before those.
func (n *Node) digests() (list []IndexDigest) {
	last, sum := n.machine.Digest()
	if last == 0 {
		return nil
	}
	low := last - min(last, digestReach-1)
	near := last - min(last, digestNear)
	for i := low - low%digestStride; i < last; i += stride(i, near) {
		if d, known := n.machine.DigestAt(i); known && i > 0 {
			list = append(list, IndexDigest{i, d})
		}
	}
	return append(list, IndexDigest{last, sum})
}

// stride is how far the index after i is whose digest is reported.
func stride(i, near uint64) uint64 {
	if i+digestStride <= near {
		return digestStride
	}
	return nearStride
}

// differs compares at the newest index that both sides know; compared is false
// if there is none.
func differs(own, other []IndexDigest) (differ, compared bool) {
	for _, o := range slices.Backward(other) {
		i := slices.IndexFunc(own, func(d IndexDigest) bool { return d.Index == o.Index })
		if i >= 0 {
			return own[i].Digest != o.Digest, true
		}
	}
	return false, false
}

// majorityDiffers decides over the reports of the other voters.
func majorityDiffers(own []IndexDigest, others [][]IndexDigest, voters int) bool {
	against := 0
	for _, other := range others {
		if d, compared := differs(own, other); compared && d {
			against++
		}
	}
	return against > voters/2
}

// suspect is called when an entry carries a digest that differs from the own.
// The comparison itself is made with the next round of reports.
func (n *Node) suspect(index uint64) {
	n.logger.Warn("the leader's digest differs from this node's", "index", index)
}

// watchDigests compares digests after each round of reports, until ctx ends. A hand-over
// takes its time, so that it has a goroutine of its own.
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

// compareDigests stops a node whose state is not the majority's: it serves and
// accepts nothing any more and says so. Where it leads, be it because a hand-over
// failed or because it was elected since, it lets another lead first, or with the
// next round.
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
	voters := votersOf(n.servers())
	var others [][]IndexDigest
	for _, id := range voters {
		if s, healthy := n.watch.last(id); healthy && id != n.cfg.ID && s.report.ClusterID == n.machine.ClusterID() {
			others = append(others, s.report.Digests)
		}
	}
	return majorityDiffers(n.digests(), others, len(voters))
}

// aheadOfItsLeader reports whether a leader's log ends before what this node had applied when the
// leader was asked, in a term not before this node's: a leader has all that was committed. One of
// the two has lost what it had, or is of a cluster that was recovered from this one.
func (n *Node) aheadOfItsLeader() bool {
	// In this order: what was applied was committed in that term or before, and at that time.
	applied := n.machine.Applied()
	term := n.raft.Load().CurrentTerm()
	now := moment{time.Now(), term, applied}
	n.moments = append(n.moments, now)
	n.moments = n.moments[max(0, len(n.moments)-momentsKept):]
	for _, m := range n.knownPeers() {
		s, healthy := n.watch.last(m.ID)
		if !healthy || m.ID == n.cfg.ID || s.report.ClusterID != n.machine.ClusterID() {
			continue
		}
		if ahead(n.moments, s.asked, s.report) {
			n.logger.Error("a leader's log ends before what this node has applied", "leader", m.ID, "last-index", s.report.LastIndex, "applied", now.applied)
			return true
		}
	}
	return false
}

// ahead compares a report with the newest moment that is not after it was asked for.
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
