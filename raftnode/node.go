package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/lifetime"
	"github.com/ringrift/ringlog/raftnode/membership"
	"github.com/ringrift/ringlog/raftnode/quietlog"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// Node is one running member of a cluster. It is safe for concurrent use. Its parts have locks of their own and no
// reference to the node.
type Node struct {
	cfg    Config
	logger hclog.Logger

	storage
	transport *rafttransport.Transport
	raft      upstream.Raft // started last: Load returns nil while Open runs

	roster *roster.Roster     // who the members are
	life   *lifetime.Lifetime // until when things of this node may wait
	work   sync.WaitGroup     // everything that needs raft

	clock    *clock.Clock     // replicated time
	proposer *batcher.Batcher // turns requests into log entries; nil until start, as are leadership and handover
	barrier  *barrier

	observers
	admission  *membership.Admission // who may connect
	members    *membership.Changes
	autopilot  *membership.Autopilot
	joiner     *joiner
	leadership *leadership
	handover   *handover

	closeOnce sync.Once
	closeErr  error // of the first Close
}

// storage is what has files in the data folder. Open fills it from top to bottom; release closes it the other way.
type storage struct {
	dir       *datadir.Dir
	disk      *diskGuard
	stores    *raftstore.Stores
	journal   *health.Journal // of outages
	machine   *fsm.Machine
	snapshots *statestore.Snapshots
	adapter   *statestore.FSM
}

// observers are what sees the other members, and this one.
type observers struct {
	watch      *health.Watch   // the pings
	contacts   health.Contacts // raft's answered requests
	terms      *health.Terms   // nil until start
	outages    *health.OutageMonitor
	divergence *health.Divergence
	rollback   *rollbackGuard
}

// Open starts the node of a data folder and returns once raft runs. Forming or
// joining a cluster continues after it returns; WaitLeader waits for that. ctx bounds
// Open alone.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, logger: quietlog.New(cfg.Logger, nil), clock: clock.New(cfg.clocks), life: lifetime.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.release())
		}
	}()
	// Raft starts last. Before it may vote, log and state have to fit, and the other members must not know
	// of a newer copy of the data folder.
	refuseRollback := func() error { return n.rollback.refuse(ctx) }
	for _, open := range []func() error{n.openFolder, n.openState, n.openTransport, refuseRollback, n.openRaft} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	n.start()
	return n, nil
}

// openFolder opens the data folder and what needs no state machine: the disk guard, raft's stores and the
// journal of outages.
func (n *Node) openFolder() (err error) {
	n.dir, err = datadir.Open(n.cfg.Dir, datadir.Options{NodeID: n.cfg.ID})
	if err != nil {
		return err
	}
	n.disk, err = newDiskGuard(n.dir, n.cfg.Disk, n.logger.Named("disk"))
	if err != nil {
		return err
	}
	n.disk.check() // on a full disk the reserve is what the stores open with
	n.stores, err = raftstore.Open(raftstore.Options{
		Dir:         n.dir.Path(datadir.RaftDir),
		SyncTimeout: n.cfg.Timing.Sync,
		Fatal:       n.cfg.Fatal,
		Logger:      n.logger.Named("store"),
		OnStore:     n.cfg.OnStore,
	})
	if err != nil {
		return err
	}
	if err := n.dir.MarkStoresCreated(); err != nil {
		return err
	}
	n.journal, err = health.OpenJournal(n.dir.Path(datadir.BlackBoxFile), n.cfg.journalFS, n.logger)
	if err != nil {
		return err
	}
	n.outages = health.NewOutageMonitor(health.MonitorOptions{
		Self:    n.cfg.ID,
		Timing:  n.cfg.Timing.health(),
		Journal: n.journal,
		Logger:  n.logger,
	})
	return nil
}

// openState opens the state machine and makes sure that log and state fit.
func (n *Node) openState() (err error) {
	n.machine, err = fsm.Open(fsm.Options{Dir: n.dir.Path(datadir.StateDir), FS: n.cfg.stateFS,
		Logger: n.logger.Named("state"), Fatal: n.cfg.Fatal})
	if err != nil {
		return err
	}
	if err := n.sameCluster(); err != nil {
		return err
	}
	n.snapshots, err = statestore.OpenSnapshots(n.machine, n.stores.Stable(), n.dir.Path(datadir.SnapshotsDir),
		n.cfg.ID, n.logger.Named("snapshots"))
	if err != nil {
		return err
	}
	// Replicated time continues from where the state left it.
	n.clock.Reset(n.machine.Time())
	return reconcileLog(n.stores, n.machine.Position())
}

// reconcileLog refuses a raft log that lacks entries between its end and the state at p, unless an installed
// snapshot explains the gap, and deletes a log that contradicts the state. Call it before raft starts.
func reconcileLog(stores *raftstore.Stores, p fsm.Position) error {
	installed, err := stores.Stable().GetUint64([]byte(statestore.KeyInstalled))
	if err != nil {
		return err
	}
	if err := stores.Check(p.Index, installed >= p.Index); err != nil {
		return err
	}
	_, err = stores.DropContradicting(p.Index, p.Term)
	return err
}

// sameCluster writes the cluster's id into the marker once the state knows it. It returns ErrOtherCluster if
// the marker has another id.
func (n *Node) sameCluster() error {
	id, marked := n.machine.ClusterID(), n.dir.Marker()
	switch {
	case id == "" || id == marked.ClusterID:
		return nil
	case marked.ClusterID != "":
		return fmt.Errorf("raftnode: open %s: %w: %s and %s", n.cfg.Dir, ErrOtherCluster, id, marked.ClusterID)
	}
	if err := n.dir.SetCluster(id, marked.Peers); err != nil {
		return err
	}
	// Only a node that settled on the members of a new cluster has them in its marker.
	if len(marked.Peers) > 0 {
		n.logger.Info("cluster formed", "cluster", id, "voters", idsOf(marked.Peers))
	} else {
		n.logger.Info("this data folder belongs to a cluster now", "cluster", id)
	}
	return nil
}

// openTransport makes what knows the other members: the roster, the watch, which asks nobody before start, and the
// transport that raft is given.
func (n *Node) openTransport() (err error) {
	n.roster = roster.New(roster.Options{
		ID:      n.cfg.ID,
		HTTP:    n.cfg.HTTPAdvertise,
		Version: n.cfg.Version,
		Address: func() string { return n.transport.Addr().String() },
		Raft:    &n.raft,
		Machine: n.machine,
		Dir:     n.dir,
	})
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
	n.watch = health.NewWatch(health.WatchOptions{
		Self:     n.cfg.ID,
		Peers:    n.cfg.Peers,
		Timing:   n.cfg.Timing.health(),
		Clocks:   n.clock.Read,
		Members:  n.roster.Known,
		Applied:  n.machine.Applied,
		Urgent:   func() bool { return n.watch.Quorum(n.roster.Voters()).AtRisk() },
		Differs:  n.differsFrom,
		Contacts: &n.contacts,
		OnReport: n.rollback.checkReport,
		OnRound:  n.afterRound,
	})
	n.joiner = &joiner{
		cfg:     &n.cfg,
		raft:    &n.raft,
		roster:  n.roster,
		machine: n.machine,
		dir:     n.dir,
		watch:   n.watch,
		logger:  n.logger,
	}
	n.admission = membership.NewAdmission(membership.AdmissionOptions{
		Raft:     &n.raft,
		Roster:   n.roster,
		Machine:  n.machine,
		Watch:    n.watch,
		Holdings: &n.rollback.holdings,
	})
	n.divergence = health.NewDivergence(health.DivergenceOptions{
		Roster:   n.roster,
		Machine:  n.machine,
		Watch:    n.watch,
		Raft:     &n.raft,
		Every:    n.cfg.Timing.Ping,
		StepDown: n.stepDownIfLeading,
		Logger:   n.logger,
	})
	o := rafttransport.Options{
		Bind:        n.cfg.RaftBind,
		Advertise:   n.cfg.RaftAdvertise,
		Secret:      n.cfg.Secret,
		Timeout:     n.cfg.Timing.Transport,
		Patience:    n.cfg.Timing.Sync,
		Self:        n.roster.Identity,
		Admit:       n.admission.Admit,
		Hear:        n.admission.Hear,
		VoteAs:      n.roster.VoteAs,
		Resolve:     n.roster.MemberAt,
		Configured:  n.roster.MayVote,
		Covers:      n.snapshots.Covers,
		Contradicts: n.contradicts,
		Overloaded:  n.raft.Overloaded,
		Follows:     n.follows,
		Logger:      upstream.QuietLogger(n.cfg.Logger.Named("transport")),
	}
	if n.cfg.Network != nil {
		o.Listen, o.Dial = n.cfg.Network.Listen, n.cfg.Network.Dial
	}
	n.transport, err = rafttransport.New(o)
	return err
}

// follows reports whether raft follows that leader in that term. The term is read last:
// it is what no later vote may have been given before.
func (n *Node) follows(leader string, term uint64) bool {
	r := n.raft.Load()
	if r == nil {
		return false
	}
	_, id := r.LeaderWithID()
	return string(id) == leader && r.State() == raft.Follower && r.CurrentTerm() == term
}

// contradicts implements rafttransport.Options.Contradicts. Before the state as it was opened or
// installed the log counts only if it leads there.
func (n *Node) contradicts(leaderTerm, index, term uint64) bool {
	// The caller has read what is applied before: it was committed in the current term or earlier.
	if r := n.raft.Load(); r != nil && leaderTerm < r.CurrentTerm() {
		return false
	}
	base := n.snapshots.Base()
	logged := func(index uint64) (term uint64, known bool) {
		var l raft.Log
		err := n.stores.Log().GetLog(index, &l)
		return l.Term, err == nil
	}
	// Entries before the base may be of a log that does not lead to the state: the one at the base decides.
	if index < base.Index {
		if last, kept := logged(base.Index); !kept || last != base.Term {
			return false
		}
	}
	own, known := logged(index)
	if index == base.Index {
		own, known = base.Term, true
	}
	if !known || own == term {
		return false
	}
	n.logger.Error("a leader has another entry where this node has applied one",
		"index", index, "term", term, "own-term", own)
	return true
}

// openRaft starts raft over what Open has opened. From here on this node may vote.
func (n *Node) openRaft() error {
	n.adapter = statestore.NewFSM(n.machine, n.snapshots, statestore.Hooks{
		Clock:     n.clock,
		Fatal:     n.cfg.Fatal,
		OnApply:   n.afterApply,
		OnDiverge: n.divergence.Suspect,
	})
	var machine raft.BatchingFSM = n.adapter
	if n.cfg.wrapFSM != nil {
		machine = n.cfg.wrapFSM(machine)
	}
	err := n.raft.Start(upstream.Options{
		Context:    n.life.Context(),
		Config:     n.raftConfig(),
		Machine:    machine,
		Stores:     n.stores,
		Snapshots:  n.snapshots,
		Transport:  n.transport,
		Contacts:   &n.contacts,
		Limits:     n.cfg.Timing.compaction(),
		AppliedBy:  n.appliedBy,
		Logger:     n.logger,
		PeerLogger: n.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("raftnode: start raft in %s: %w", n.cfg.Dir, err)
	}
	return nil
}

// appliedBy is the index up to which a member has applied the log, as far as this node knows.
func (n *Node) appliedBy(member string) uint64 {
	if member == n.cfg.ID {
		return n.machine.Applied()
	}
	seen, _ := n.watch.Last(member)
	return seen.Report.Applied
}

func (n *Node) raftConfig() *raft.Config {
	t := n.cfg.Timing
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = t.Heartbeat, t.Election, t.Lease
	c.CommitTimeout = t.CommitTimeout
	// How many entries stay is decided by compaction, not by TrailingLogs.
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = t.SnapshotInterval, t.SnapshotThreshold, 1
	c.MaxAppendEntries = 64
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false // this node decides itself when raft ends
	c.NoSnapshotRestoreOnStart = true
	c.NoLegacyTelemetry = true
	c.Logger = upstream.QuietLogger(n.cfg.Logger.Named("raft"))
	return c
}

// start creates what needs a running raft and starts its goroutines. They end with n.life.Context(), and release waits
// for them by n.work.
func (n *Node) start() {
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
	n.proposer = batcher.New(n.cfg.ID, n.cfg.Limits, n.clock, n.machine.Digest, n.machine.FeatureLevel, r.Apply)
	n.barrier = newBarrier(&n.raft, n.roster, &n.contacts, n.proposer)
	n.members = membership.NewChanges(membership.Options{
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
		// From then on its connections are refused; those that are open have to be closed.
		Left: func(id string) {
			n.admission.Update()
			n.transport.Disconnect(id)
		},
	})
	n.autopilot = membership.NewAutopilot(membership.AutopilotOptions{
		Ping:     n.cfg.Timing.Ping,
		Changes:  n.members,
		Contacts: &n.contacts,
		Logger:   n.logger,
	})
	own := &termLog{
		raft:     &n.raft,
		proposer: n.proposer,
		patience: n.cfg.Timing.transferPatience(),
		fatal:    n.cfg.Fatal,
	}
	n.handover = &handover{
		id:       n.cfg.ID,
		election: n.cfg.Timing.Election,
		raft:     &n.raft,
		roster:   n.roster,
		machine:  n.machine,
		watch:    n.watch,
		members:  n.members,
		life:     n.life,
		proposer: n.proposer,
		log:      own,
		logger:   n.logger,
	}
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
		log:      own,
		logger:   n.logger,
	}
	n.leadership.duties = []func(context.Context){
		n.leadership.ticks,
		n.members.Tend,
		n.reportVoters,
		n.autopilot.Run,
		n.reportPressure,
		n.yieldFullDisk,
		n.leaveHungDisk,
	}
	// Without raft the guard has counted this node as the only voter.
	n.disk.voters = n.fullVoters
	n.work.Go(func() { n.raft.Compact(n.life.Context(), n.Snapshot) })
	for _, run := range []func(context.Context){
		n.leadership.run,
		n.watch.Run,
		n.disk.run,
		n.joiner.run,
		n.joiner.belong,
		n.barrier.run,
		n.outages.Run,
		n.outages.KeepJournal,
		n.raft.AnnounceCommits,
		n.failover,
		n.divergence.Run,
	} {
		n.work.Go(func() { run(n.life.Context()) })
	}
	for _, w := range n.cfg.Warnings() {
		n.logger.Warn(w)
	}
}

// afterApply runs in raft's own goroutine after each batch and restore, and does only what cannot wait: the
// cluster's id is in the marker before the next batch is applied.
func (n *Node) afterApply() {
	n.raft.Applied()
	if n.machine.ClusterID() == n.dir.Marker().ClusterID {
		return
	}
	if err := n.sameCluster(); err != nil {
		n.cfg.Fatal(err)
	}
}

// afterRound runs after each interval of pings. It forgets the nodes that are members no more and closes their
// connections.
func (n *Node) afterRound() {
	n.rollback.holdings.Keep(n.roster.Known())
	for _, id := range n.admission.Update() {
		n.transport.Disconnect(id)
		n.raft.MemberLeft(id)
	}
}

// failover campaigns early when the leader's connections are lost, until ctx ends.
func (n *Node) failover(ctx context.Context) {
	t := n.cfg.Timing
	f := upstream.Failover{Self: n.cfg.ID, Lease: t.Lease, Heartbeat: t.Heartbeat, Election: t.Election,
		Lost: n.transport.Parted(), LastIndexes: n.lastIndexes, Logger: n.logger}
	f.Run(ctx, n.raft.Load())
}

// lastIndexes asks members how far their logs reach.
func (n *Node) lastIndexes(ctx context.Context, ids []string) map[string]uint64 {
	members := slices.DeleteFunc(n.roster.Known(), func(m datadir.Peer) bool { return !slices.Contains(ids, m.ID) })
	last := map[string]uint64{}
	for id, s := range n.watch.AskAll(ctx, members) {
		last[id] = s.Report.LastIndex
	}
	return last
}

// Machine is the node's state, for reading.
func (n *Node) Machine() *fsm.Machine { return n.machine }

// WaitLeader returns when this node knows who leads and has applied that
// leader's first entry.
func (n *Node) WaitLeader(ctx context.Context) error {
	return n.life.Poll(ctx, func() bool {
		// Raft names a leader before that leader's first entry is applied here, and leads before the gate is open.
		id, _ := n.roster.Leader()
		l := n.machine.Leadership()
		applied := l.Leader == id && l.Term == n.raft.Load().CurrentTerm()
		return id != "" && applied && (id != n.cfg.ID || n.proposer.OpenTerm() != 0)
	})
}

// Snapshot makes the state durable and lets raft compact its log now.
func (n *Node) Snapshot(context.Context) error {
	err := n.raft.Load().Snapshot().Error()
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("raftnode: snapshot: %w", err)
	}
	return nil
}

// Close ends the node. A leader first hands leadership over and records that it leaves on purpose, as far as
// ctx allows. Close is idempotent: later calls return what the first one returned.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		n.life.BeginClosing()
		if err := n.handover.retire(ctx); err != nil {
			n.logger.Warn("leaving without handing over", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		n.closeErr = n.release()
	})
	return n.closeErr
}

// release closes what Open has opened so far, in an order in which nothing waits for what is closed already:
// callers, then raft, then what raft uses.
func (n *Node) release() error {
	n.life.Retire()
	if n.adapter != nil {
		n.adapter.Close()
	}
	if n.proposer != nil {
		n.proposer.Close()
	}
	// The goroutines of start use raft until they return.
	n.work.Wait()
	var errs []error
	errs = append(errs, n.raft.Shutdown())
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	// Only a closed transport ends the requests that this waits for.
	n.raft.Close()
	if n.machine != nil {
		errs = append(errs, n.machine.Close())
	}
	if n.stores != nil {
		errs = append(errs, n.stores.Close())
	}
	if n.journal != nil {
		errs = append(errs, n.journal.Close())
	}
	// The folder is last: it holds the lock that keeps other processes from these files.
	if n.dir != nil {
		errs = append(errs, os.RemoveAll(n.dir.Path(datadir.SnapshotsDir)), n.dir.Close())
	}
	return errors.Join(errs...)
}

// BlackBox returns what this node's journal of outages holds, and a channel that is closed when it grows.
func (n *Node) BlackBox() (b BlackBox, grown <-chan struct{}) { return n.journal.Contents() }

// Diverged reports whether this node has stopped serving because its state differs from the majority's.
func (n *Node) Diverged() bool { return n.divergence.Found() }

// reportVoters reports to the log how the voters are, until ctx ends.
func (n *Node) reportVoters(ctx context.Context) {
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

// leaveHungDisk leaves this node's leadership to others when its disk hangs, until ctx ends.
func (n *Node) leaveHungDisk(ctx context.Context) {
	n.raft.LeaveHungDisk(ctx, n.cfg.Timing.health().Urgent(), func(term uint64) { n.proposer.Pause(term) })
}

// differsFrom reports whether another node of the cluster has reported a state that is not this node's.
func (n *Node) differsFrom(r Report) bool {
	return r.ClusterID == n.machine.ClusterID() && health.Differs(n.machine.DigestAt, r.Digests)
}
