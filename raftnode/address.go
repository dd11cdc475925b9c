package raftnode

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// stayKnown asks the cluster to record this node's address if the cluster has another one, after a start at a
// wrong address, say. Nobody reaches this node there: it receives no entries, not even the one that corrects its own
// configuration, and no votes while others have a leader. stayKnown also notices that this node was removed. It runs
// until ctx ends.
func (j *joiner) stayKnown(ctx context.Context) {
	// No correction is tried before next, and wait doubles with each attempt.
	wait, next := formEvery, time.Now()
	tick := time.NewTicker(j.cfg.Timing.Ping)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// Judged by the reports of the pings, which costs nothing.
		listed, elsewhere := j.asOthersKnow()
		if removed := !listed; j.removed.Swap(removed) != removed && removed {
			j.logger.Error("this node is no longer a member", "error", ErrRemovedNode)
		}
		// The next correction is then made without a delay.
		if !elsewhere {
			wait, next = formEvery, time.Now()
			continue
		}
		if time.Now().Before(next) {
			continue
		}
		j.logger.Warn("the cluster knows this node at another address: making this one known",
			"raft", j.roster.Address(), "http", j.cfg.HTTPAdvertise)
		// A member that joins without asking for a vote keeps the one it has.
		j.joinAnySeed(ctx, false)
		wait = min(2*wait, joinBackoff)
		next = time.Now().Add(wait)
	}
}

// asOthersKnow reports whether the other members list this node, and whether at another address. Only a member that
// has a leader and has applied no less than this node counts; of those, the one that has applied most.
func (j *joiner) asOthersKnow() (listed, elsewhere bool) {
	if j.cfg.Peers == nil || j.raft.Load().State() == raft.Leader {
		return true, false
	}
	// A report that is older than this node's own state says nothing new.
	self, newest := j.roster.Self(), Report{Applied: j.machine.Applied()}
	for _, r := range j.watch.Reports() {
		if r.ClusterID == j.machine.ClusterID() && r.LeaderID != "" && len(r.Members) > 0 && r.Applied >= newest.Applied {
			newest = r
		}
	}
	if newest.ID == "" {
		return !j.removed.Load(), false // no report contradicts that
	}
	isSelf := func(m datadir.Peer) bool { return m.ID == self.ID && m.Incarnation == self.Incarnation }
	i := slices.IndexFunc(newest.Members, isSelf)
	// Only a newer list without this node, or with another folder under its id, shows a removal.
	if i < 0 {
		return false, false
	}
	// It is listed. One address that differs is enough: raft or clients do not reach this node there.
	m := newest.Members[i]
	return true, m.Raft != self.RaftAddr || m.HTTP != self.HTTPAddr
}
