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
)

// digests are the ones to compare with other nodes: at the last index and at
// every digestStride-th before it.
func (n *Node) digests() (list []IndexDigest) {
	last, sum := n.machine.Digest()
	if last == 0 {
		return nil
	}
	low := last - min(last, digestReach-1)
	for i := low - low%digestStride; i < last; i += digestStride {
		if d, known := n.machine.DigestAt(i); known && i > 0 {
			list = append(list, IndexDigest{i, d})
		}
	}
	return append(list, IndexDigest{last, sum})
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
	if !n.diverged.Load() && !n.outvoted() {
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

// Diverged reports whether this node has stopped serving because its state
// differs from the majority's.
func (n *Node) Diverged() bool { return n.diverged.Load() }
