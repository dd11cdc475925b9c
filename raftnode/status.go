package raftnode

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// Status is what a node reports of itself and, as it sees them, of its members.
type Status struct {
	// What the node is, and whom it follows.
	NodeID      string
	ClusterID   string
	Incarnation string
	Role        string
	LeaderID    string // "" if none is known
	LeaderHTTP  string // a URL; "" if it is not known
	// How far it is, by raft and by its state.
	Term         uint64
	CommitIndex  uint64 // by raft; a follower learns of it with the leader's next request
	AppliedIndex uint64
	Diverged     bool
	// How much room there is, on the disk and in the queue.
	Disk         DiskStatus
	Waiting      int // not yet in an entry
	WaitingBytes int // of these
	Queue        QueueStatus
	// The others, by pings and by raft's newest configuration.
	Members []MemberStatus // in the order of the configuration, this node among them
	Quorum  Quorum

	Outage      *Outage                 // as this voter observes it now
	Voters      election.Health         // as the log reports them
	Refusals    []rafttransport.Refusal // of connections, by this node's transport
	JoinRefused string                  // why this node was last not admitted
	NotFormed   string                  // why this node is in no cluster yet
	LastBackup  time.Time               // when this node last sent a whole backup
}

// MemberStatus is one member as this node sees it.
type MemberStatus struct {
	ID              string
	Raft            string
	HTTP            string
	Voter           bool
	Healthy         bool
	Unreachable     string // why it is not healthy: "http" or, on the leader, "raft"
	LastContactMs   int64  // over HTTP; -1: it never answered
	TrailingEntries uint64 // that this node has applied and the member has not
	// How long it has lacked entries of the raft log and stored none; 0 on a node that does not lead.
	StalledMs int64
	// What is wrong with the node that answers in its place; see health.Mismatch.
	OtherToken   bool
	OtherFolder  bool
	OtherCluster bool

	Disk *DiskStatus // by its last report; nil if it never answered
}

// Status returns this moment's view.
func (n *Node) Status() Status {
	// Raft and the state are read one after the other: what they say may differ by an entry or a term.
	r := n.raft.Load()
	id, url := n.roster.Leader()
	m := n.dir.Marker()
	s := Status{
		NodeID:       n.cfg.ID,
		ClusterID:    n.machine.ClusterID(),
		Incarnation:  m.Incarnation,
		Role:         n.roster.Role(),
		LeaderID:     id,
		LeaderHTTP:   url,
		Term:         r.CurrentTerm(),
		CommitIndex:  r.CommitIndex(),
		AppliedIndex: n.machine.Applied(),
		Diverged:     n.divergence.Found(),
		Disk:         n.disk.status(),
		Members:      n.memberStatus(),
		Quorum:       n.watch.Quorum(n.roster.Voters()),
		Outage:       n.outages.Current(),
		Voters:       n.machine.Health(),
		Refusals:     n.transport.Refusals(),
		JoinRefused:  n.joiner.refused.text(),
		LastBackup:   *n.backup.Load(),
	}
	// That it was removed is the newer of the two reasons.
	if n.joiner.removed.Load() {
		s.JoinRefused = ErrRemovedNode.Error()
	}
	if len(n.roster.Servers()) == 0 {
		s.NotFormed = n.joiner.notFormed().Error()
	}
	s.Waiting, s.WaitingBytes = n.proposer.Waiting()
	s.Queue = n.proposer.Status()
	return s
}

// memberStatus returns the status of every member of raft's newest configuration.
func (n *Node) memberStatus() []MemberStatus {
	var list []MemberStatus
	// All members are compared with one moment of this node.
	applied := n.machine.Applied()
	r, leading := n.raft.Load(), n.proposer.OpenTerm()
	last, now := r.LastIndex(), time.Now()
	leader, _ := n.roster.Leader()
	for _, server := range n.roster.Servers() {
		// A member that never answered has -1 milliseconds, no disk, and lags by nothing that is known.
		s := MemberStatus{ID: string(server.ID), Raft: string(server.Address), LastContactMs: -1}
		// Raft counts a promotion as soon as the leader has it, and forgets it with the leader until it is committed.
		s.Voter = server.Suffrage == raft.Voter && n.machine.Votes(s.ID)
		// The state has the HTTP address, once it has the member.
		if p, known := n.roster.Peer(s.ID); known {
			s.HTTP = p.HTTP
		}
		// The same answer that guards and autopilot get.
		s.Unreachable, _ = n.watch.Absence(s.ID)
		s.Healthy = s.Unreachable == ""
		// This node knows itself without a ping.
		if s.ID == n.cfg.ID {
			s.LastContactMs = 0
			disk := n.disk.status()
			s.Disk = &disk
		} else if seen, _ := n.watch.Last(s.ID); !seen.At.IsZero() {
			s.LastContactMs = time.Since(seen.At).Milliseconds()
			s.Disk = &seen.Report.Disk
			// Entries come from the leader, so it lacks none: what its last ping lacks is the age of the ping.
			if s.ID != leader {
				s.TrailingEntries = applied - min(applied, seen.Report.Applied)
			}
		}
		wrong := n.watch.Mismatch(s.ID)
		s.OtherToken, s.OtherFolder, s.OtherCluster = wrong.Token, wrong.Folder, wrong.Cluster
		// Only a leader sends entries, and so knows what is confirmed.
		if leading != 0 && s.ID != n.cfg.ID {
			s.StalledMs = n.contacts.Stalled(server.ID, leading, last, now).Milliseconds()
		}
		list = append(list, s)
	}
	return list
}

// Report returns what this node reports of itself to others, with the answer to q.
func (n *Node) Report(q Question) Report {
	// What is read here need not be of one moment: each field is true for itself.
	self := n.roster.Identity()
	leader, url := n.roster.Leader()
	r := Report{
		ID:           self.NodeID,
		ClusterID:    self.ClusterID,
		Incarnation:  self.Incarnation,
		RaftAddr:     n.roster.Address(),
		HTTPAddr:     n.cfg.HTTPAdvertise,
		Version:      n.cfg.Version,
		FeatureLevel: fsm.FeatureLevel,
		Time:         n.clock.Read().Wall.UTC(),
		Role:         n.roster.Role(),
		Term:         n.raft.Load().CurrentTerm(),
		Applied:      n.machine.Applied(),
		LastIndex:    n.raft.Load().LastIndex(),
		LeaderID:     leader,
		LeaderHTTP:   url,
		Disk:         n.disk.status(),
		Diverged:     n.divergence.Found(),
		Known:        n.joiner.forming.peers(),
		Agreed:       len(n.dir.Marker().Peers) > 0,
		Members:      roster.PeersOf(n.machine.Members()),
		Digests:      health.Digests(n.machine, q.DigestAt),
		Started:      n.outages.Started(),
		Start:        &n.rollback.standing,
		RanBefore:    n.outages.RanBefore(),
		Predecessors: n.machine.Predecessors(),
		RolledBack:   n.rollback.holdings.RolledBack(),
	}
	// Both together: a view is listed once its outage has ended.
	r.Views, r.InOutage = n.outages.Views()
	// A non-voter takes no part in forming a cluster.
	if !n.cfg.NonVoter {
		r.Expect = n.cfg.BootstrapExpect
	}
	if r.Role == RoleLeader && n.proposer.OpenTerm() == r.Term {
		// By the clock of r.Time, of which the asker can compute the offset.
		now := time.Now()
		if at := n.confirmed(r.Term, now); !at.IsZero() {
			r.Confirmed = r.Time.Add(-now.Sub(at))
		}
	}
	// The asker is starting, and may find less in its folder than it reported before.
	s := q.Standing
	if s == nil || s.ClusterID != r.ClusterID || slices.Contains(r.RolledBack, s.Incarnation) {
		return r
	}
	if n.rollback.holdings.Exceeds(*s) {
		r.RolledBack = append(r.RolledBack, s.Incarnation)
	}
	return r
}

// confirmed returns a moment at or after which a majority of voters was in a term that this node
// leads; zero if none was yet.
func (n *Node) confirmed(term uint64, now time.Time) time.Time {
	return n.contacts.Majority(raft.ServerID(n.cfg.ID), n.roster.Servers(), term, now)
}
