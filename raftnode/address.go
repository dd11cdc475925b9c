package raftnode

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// stayKnown has the cluster record this node's address if it has another one, after a start at a wrong address,
// say. Nobody reaches this node there: it receives no entries, among them the correction of its own configuration,
// and no votes while others have a leader. stayKnown also notices that this node was removed. It runs until ctx
// ends.
func (n *Node) stayKnown(ctx context.Context) {
	wait, next := formEvery, time.Now()
	tick := time.NewTicker(n.cfg.Timing.Ping)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		listed, elsewhere := n.asOthersKnow()
		if removed := !listed; n.removed.Swap(removed) != removed && removed {
			n.logger.Error("this node is no member any more", "error", ErrRemovedNode)
		}
		// The next correction is then made without a delay.
		if !elsewhere {
			wait, next = formEvery, time.Now()
			continue
		}
		if time.Now().Before(next) {
			continue
		}
		n.logger.Warn("the cluster knows this node at another address: making this one known", "raft", n.roster.Address(), "http", n.cfg.HTTPAdvertise)
		// A member that joins without asking for a vote keeps the one it has.
		n.joinAnySeed(ctx, false)
		wait = min(2*wait, joinBackoff)
		next = time.Now().Add(wait)
	}
}

// asOthersKnow reports whether the other members list this node, and whether at another address. Only a member that
// has a leader and has applied no less than this node counts; of those, the one that has applied most.
func (n *Node) asOthersKnow() (listed, elsewhere bool) {
	if n.cfg.Peers == nil || n.raft.Load().State() == raft.Leader {
		return true, false
	}
	self, newest := n.roster.Self(), Report{Applied: n.machine.Applied()}
	for _, r := range n.watch.Reports() {
		if r.ClusterID == n.machine.ClusterID() && r.LeaderID != "" && len(r.Members) > 0 && r.Applied >= newest.Applied {
			newest = r
		}
	}
	if newest.ID == "" {
		return !n.removed.Load(), false // no report contradicts that
	}
	i := slices.IndexFunc(newest.Members, func(m datadir.Peer) bool { return m.ID == self.ID && m.Incarnation == self.Incarnation })
	if i < 0 {
		return false, false
	}
	m := newest.Members[i]
	return true, m.Raft != self.RaftAddr || m.HTTP != self.HTTPAddr
}
