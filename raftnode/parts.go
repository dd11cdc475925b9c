package raftnode

import (
	"context"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/membership"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// connectObservers makes the parts that know the other members. They ask nobody and run nothing before start; the
// functions that they are given read what Open makes later, and are first called after that.
func (n *Node) connectObservers() {
	// The address is known once the transport is open; nothing asks for it before.
	n.roster = roster.New(roster.Options{
		ID:      n.cfg.ID,
		HTTP:    n.cfg.HTTPAdvertise,
		Version: n.cfg.Version,
		Address: func() string { return n.transport.Addr().String() },
		Raft:    &n.raft,
		Machine: n.machine,
		Dir:     n.dir,
	})
	// What members report is checked against what their folders held before.
	n.rollback = &rollbackGuard{
		folder:     n.cfg.Dir,
		within:     n.cfg.Timing.Ping,
		peers:      n.cfg.Peers,
		roster:     n.roster,
		machine:    n.machine,
		stores:     n.stores,
		disconnect: func(id string) { n.transport.Disconnect(id) },
		fatal:      n.cfg.Fatal,
		logger:     n.logger,
	}
	// Pings the members, and passes their answers on.
	n.watch = health.NewWatch(health.WatchOptions{
		Self:      n.cfg.ID,
		Peers:     n.cfg.Peers,
		Timing:    n.cfg.Timing.health(),
		Clocks:    n.clock.Read,
		Members:   n.roster.Known,
		Applied:   n.machine.Applied,
		ClusterID: n.machine.ClusterID,
		// The closure is called by the watch itself, once it is set.
		Urgent:   func() bool { return n.watch.Quorum(n.roster.Voters()).AtRisk() },
		Differs:  n.differsFrom,
		Contacts: &n.contacts,
		OnReport: n.rollback.checkReport,
		OnRound:  n.afterRound,
	})
	// Brings this node into its cluster, by what the pings show.
	n.joiner = &joiner{
		cfg:     &n.cfg,
		raft:    &n.raft,
		roster:  n.roster,
		machine: n.machine,
		dir:     n.dir,
		watch:   n.watch,
		logger:  n.logger,
	}
	// Whose connections are accepted; the transport asks it for each.
	n.admission = membership.NewAdmission(membership.AdmissionOptions{
		Raft:     &n.raft,
		Roster:   n.roster,
		Machine:  n.machine,
		Watch:    n.watch,
		Holdings: &n.rollback.holdings,
	})
	// Compares the states that the pings report with this node's.
	n.divergence = health.NewDivergence(health.DivergenceOptions{
		Roster:   n.roster,
		Machine:  n.machine,
		Watch:    n.watch,
		Raft:     &n.raft,
		Every:    n.cfg.Timing.Ping,
		StepDown: n.stepDownIfLeading,
		Logger:   n.logger,
	})
}

// connectLeader makes the parts that need a running raft: what a leader does, and what callers of a leader wait for.
func (n *Node) connectLeader() {
	// These two register with raft, which runs already, before any request is taken.
	r := n.raft.Load()
	n.terms = health.NewTerms(r)
	n.outages.Attach(health.OutageSources{
		Raft:     &n.raft,
		Roster:   n.roster,
		Contacts: &n.contacts,
		Pings:    n.watch,
		Machine:  n.machine,
		OpenTerm: func() uint64 { return n.proposer.OpenTerm() },
	})
	// The intake is closed until leadership opens it.
	n.proposer = batcher.New(n.cfg.ID, n.cfg.Limits, n.clock, n.machine.Digest, n.machine.FeatureLevel, r.Apply)
	// Proofs of leadership, for linearizable reads.
	n.barrier = newBarrier(&n.raft, n.roster, &n.contacts, n.proposer)
	// Changes of members and hand-overs exclude each other, and a leader that is to lose its vote hands over within a
	// change: handOver is the part that does not ask for the exclusion itself.
	n.changes = membership.NewChanges(membership.Options{
		Timing:    n.cfg.Timing.health(),
		Raft:      &n.raft,
		Roster:    n.roster,
		Machine:   n.machine,
		Watch:     n.watch,
		Contacts:  &n.contacts,
		Proposals: n.proposer,
		Life:      n.life,
		Logger:    n.logger,
		HandOver:  func(ctx context.Context) error { return n.handover.handOver(ctx, "", causeOperator) },
		StepClock: func(ctx context.Context, propose func(frame.ClockStep) error) error {
			return n.leadership.stepClock(ctx, propose)
		},
		// A removed member is not admitted any more, but its open connections stay until they are closed.
		Left: func(id string) {
			n.admission.Update()
			n.transport.Disconnect(id)
		},
	})
	// Autopilot makes its changes as an operator does.
	n.autopilot = membership.NewAutopilot(n.changes)
	// Proposes the leader's own commands, for both of the parts that follow.
	own := &termLog{
		raft:     &n.raft,
		proposer: n.proposer,
		patience: n.cfg.Timing.transferPatience(),
		fatal:    n.cfg.Fatal,
	}
	// Both propose past the intake, and must not do so at once: a hand-over begins only in a term that is open.
	n.handover = &handover{
		id:       n.cfg.ID,
		election: n.cfg.Timing.Election,
		raft:     &n.raft,
		roster:   n.roster,
		machine:  n.machine,
		watch:    n.watch,
		changes:  n.changes,
		life:     n.life,
		proposer: n.proposer,
		own:      own,
		logger:   n.logger,
	}
	// Its intake is closed when leadership is lost, before anything of the next term is proposed.
	n.leadership = &leadership{
		id:       n.cfg.ID,
		lease:    n.cfg.Timing.Lease,
		raft:     &n.raft,
		roster:   n.roster,
		machine:  n.machine,
		dir:      n.dir,
		watch:    n.watch,
		terms:    n.terms,
		clock:    n.clock,
		proposer: n.proposer,
		own:      own,
		logger:   n.logger,
	}
	// The duties begin once the term start is applied, and all have ended before this node starts another term.
	n.leadership.duties = []func(context.Context){
		n.leadership.proposeTicks,
		n.changes.Tend,
		n.reportVoters,
		n.autopilot.Run,
		n.reportPressure,
		n.yieldFullDisk,
		n.leaveHungDisk,
	}
}

// start starts the goroutines of the parts.
func (n *Node) start() {
	// Without raft the guard has counted this node as the only voter.
	n.disk.voters = n.fullVoters
	// All of them end with the node's context; release waits for them by n.work before it closes raft.
	n.work.Go(func() { n.raft.Compact(n.life.Context(), n.Snapshot) })
	for _, run := range []func(context.Context){
		n.leadership.run,
		n.watch.Run,
		n.disk.run,
		n.joiner.run,
		n.joiner.watchBelonging,
		n.barrier.run,
		n.outages.Run,
		n.outages.KeepJournal,
		n.raft.AnnounceCommits,
		n.failover,
		n.divergence.Run,
		n.logLife,
	} {
		n.work.Go(func() { run(n.life.Context()) })
	}
	if n.history != nil {
		n.work.Go(func() { n.history.Run(n.life.Context()) })
	}
	// After the start, so a warning is not lost among the lines of opening.
	for _, w := range n.cfg.Warnings() {
		n.logger.Warn(w)
	}
}

// afterRound runs after each interval of pings. It forgets the nodes that are members no more and closes their
// connections.
func (n *Node) afterRound() {
	// Otherwise what is known of removed members' folders would stay for ever.
	n.rollback.holdings.Keep(n.roster.Known())
	for _, id := range n.admission.Update() {
		n.transport.Disconnect(id)
		n.raft.MemberLeft(id)
	}
}

// reportVoters reports to the log how the voters are, until ctx ends.
func (n *Node) reportVoters(ctx context.Context) {
	// A reporter belongs to one term, and what it remembers of the others ends with the term.
	health.ReportVoters(ctx, health.ReporterOptions{
		Timing:    n.cfg.Timing.health(),
		Clock:     n.clock,
		Raft:      &n.raft,
		Roster:    n.roster,
		Machine:   n.machine,
		Watch:     n.watch,
		Contacts:  &n.contacts,
		Terms:     n.terms,
		Outages:   n.outages,
		Proposals: n.proposer,
		Logger:    n.logger,
	})
}

// differsFrom reports whether another node of the cluster has reported a state that is not this node's.
func (n *Node) differsFrom(r Report) bool {
	return r.ClusterID == n.machine.ClusterID() && health.Differs(n.machine.DigestAt, r.Digests)
}
