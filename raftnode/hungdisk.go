package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// leaveHungDisk ends this node's leadership when its disk has been writing one batch for
// longer than an election takes and a majority of the voters has that batch on disk
// without this node: they acknowledge nothing while it leads. It runs until ctx ends with
// the leadership.
//
// Raft cannot be asked to hand over, so this node falls silent: it sends nothing more in
// its term and closes its connections, and the others elect a leader among themselves.
func (n *Node) leaveHungDisk(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.Ping / hurry)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		logs, prevTerm, took := n.write.now()
		if len(logs) == 0 || took < n.cfg.Timing.Election/2 {
			continue
		}
		// A follower that raft was speaking to when the write began has not got it yet.
		n.eager.ship(logs, prevTerm, n.raft.Load().CommitIndex())
		last := logs[len(logs)-1]
		if took < n.cfg.Timing.Election || n.abdicated.Load() == last.Term {
			continue
		}
		voters := votersOf(n.servers())
		with := 0
		for _, id := range voters {
			if id != n.cfg.ID && n.eager.has(raft.ServerID(id), last) {
				with++
			}
		}
		if with <= len(voters)/2 {
			continue
		}
		n.logger.Error("this node's disk does not write, others' do: it leaves its leadership to them", "term", last.Term, "writing_for", took.Round(time.Millisecond))
		n.abdicated.Store(last.Term)
		n.proposer.pause(last.Term)
		for _, id := range voters {
			n.transport.Disconnect(id)
		}
	}
}
