package raftnode

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// lifeLog logs what a node becomes: a member, a follower of one leader and then of another, one that has caught up.
// Each is one line. The lines of forming, of leading and of snapshots are logged where that happens.
type lifeLog struct {
	n *Node

	suffrage raft.ServerSuffrage
	member   bool      // suffrage is that of a member
	leader   string    // that was logged last; "" before the first
	term     uint64    // in which leader leads
	since    time.Time // when this node began to follow leader
	caughtUp bool      // once in the life of a process
}

// logLife logs what this node becomes until ctx ends.
func (n *Node) logLife(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.health().Urgent())
	defer tick.Stop()
	l := &lifeLog{n: n}
	// A restarted member is none from now on.
	if s, listed := n.roster.Server(n.cfg.ID); listed && n.machine.ClusterID() != "" {
		l.suffrage, l.member = s.Suffrage, true
	}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// The leader first: noteCatchUp measures from when this node began to follow it.
		l.noteLeader(time.Now())
		l.noteCatchUp(time.Now())
		l.noteSuffrage()
	}
}

// noteLeader logs whom this node follows, once for each leader and term.
func (l *lifeLog) noteLeader(now time.Time) {
	term := l.n.raft.Load().CurrentTerm()
	id, _ := l.n.roster.Leader()
	// Read again: the leader is that of the term only if no other began in between.
	if id == "" || term != l.n.raft.Load().CurrentTerm() || (id == l.leader && term == l.term) {
		return
	}
	l.leader, l.term, l.since = id, term, now
	if id != l.n.cfg.ID {
		l.n.logger.Info("following", "leader", id, "term", term)
	}
}

// noteCatchUp logs that this node has all that the leader had when this node had begun to follow it.
func (l *lifeLog) noteCatchUp(now time.Time) {
	if l.caughtUp || l.leader == "" {
		return
	}
	// Who leads lags nobody.
	if l.leader == l.n.cfg.ID {
		l.caughtUp = true
		return
	}
	// Only an answer to a question that was asked since then says how far the leader is.
	answer, _ := l.n.watch.Last(l.leader)
	if !answer.Asked.After(l.since) || l.n.machine.Applied() < answer.Report.Applied {
		return
	}
	l.caughtUp = true
	_, last := l.n.machine.Log().Bounds()
	l.n.logger.Info("caught up", "offset", last, "after", now.Sub(l.since).Round(time.Millisecond))
}

// noteSuffrage logs that this node has joined, or has got or lost its vote. A new member that wants a vote has joined
// once it has that.
func (l *lifeLog) noteSuffrage() {
	cluster := l.n.machine.ClusterID()
	s, listed := l.n.roster.Server(l.n.cfg.ID)
	if !listed || cluster == "" || (l.member && s.Suffrage == l.suffrage) {
		return
	}
	votes := s.Suffrage == raft.Voter
	// A new member that wants a vote is still catching up.
	if !l.member && !votes && !l.n.cfg.NonVoter {
		return
	}
	joined := !l.member
	l.suffrage, l.member = s.Suffrage, true
	switch {
	case joined && l.n.founder.Load(): // it has logged that it has formed the cluster
	case joined && votes:
		l.n.logger.Info("joined as voter", "cluster", cluster)
	case joined:
		l.n.logger.Info("joined as non-voter", "cluster", cluster)
	case votes:
		l.n.logger.Info("promoted to voter")
	default:
		l.n.logger.Info("demoted to non-voter")
	}
}
