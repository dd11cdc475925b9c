package raftnode

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/platform/transfers"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// openFolder opens the data folder and what needs no state machine: the disk guard, raft's stores and the
// journal of outages.
func (n *Node) openFolder() (err error) {
	n.dir, err = datadir.Open(n.cfg.Dir, datadir.Options{NodeID: n.cfg.ID})
	if err != nil {
		return err
	}
	// Status reports it before this process has sent a backup.
	last := n.dir.LastBackup()
	n.backup.Store(&last)
	n.disk, err = newDiskGuard(n.dir, n.cfg.Disk, n.logger.Named("disk"))
	if err != nil {
		return err
	}
	// On a full disk the reserve is what the stores open with.
	n.disk.check()
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
	// From here on a folder without the stores is one that has lost them.
	if err := n.dir.MarkStoresCreated(); err != nil {
		return err
	}
	n.journal, err = health.OpenJournal(n.dir.Path(datadir.BlackBoxFile), n.cfg.journalFS, n.logger)
	if err != nil {
		return err
	}
	// It records now since when this node was down, before anything else may be recorded.
	n.outages = health.NewOutageMonitor(health.MonitorOptions{
		Self:    n.cfg.ID,
		Timing:  n.cfg.Timing.health(),
		Journal: n.journal,
		Logger:  n.logger,
	})
	return nil
}

// ViewOptions are those of the views that every node folds, in a folder.
func ViewOptions(dir string, logger hclog.Logger, fatal func(error)) engine.Options {
	return engine.Options{
		Dir:     dir,
		Logger:  logger,
		Fatal:   fatal,
		Compile: compileView,
		Version: engine.FoldVersion,
		BuiltIn: []engine.BuiltIn{{Name: transfers.Name, Fold: transfers.New(), Version: transfers.Version}},
	}
}

// openState opens the state machine, with the views beside it, and makes sure that log and state fit.
func (n *Node) openState() (err error) {
	folded := ViewOptions(n.dir.Path(datadir.ViewsDir), n.logger.Named("views"), n.cfg.Fatal)
	folded.FS, folded.Compile = n.cfg.stateFS, n.cfg.compileView
	n.views, err = engine.Open(folded)
	if err != nil {
		return err
	}
	n.machine, err = fsm.Open(fsm.Options{
		Dir:    n.dir.Path(datadir.StateDir),
		FS:     n.cfg.stateFS,
		Logger: n.logger.Named("state"),
		Fatal:  n.cfg.Fatal,
		// Events are trimmed once the views of this node have them.
		BeforeTrim: n.views.BeforeTrim,
	})
	if err != nil {
		return err
	}
	n.views.Start(n.machine)
	// This comes before anything is read with the id of the marker.
	if err := n.sameCluster(); err != nil {
		return err
	}
	// The state is its own snapshot: raft is given no other store.
	n.snapshots, err = statestore.OpenSnapshots(n.machine, n.views, n.stores.Stable(), n.dir.Path(datadir.SnapshotsDir),
		n.cfg.ID, n.logger.Named("snapshots"))
	if err != nil {
		return err
	}
	// Replicated time continues from where the state left it.
	n.clock.Reset(n.machine.Time())
	if err := reconcileLog(n.stores, n.machine.Position()); err != nil {
		return err
	}
	return n.openHistory()
}

// openHistory opens the state as it was. A state that is not on the disk has no history.
func (n *Node) openHistory() (err error) {
	if n.cfg.stateFS != nil {
		return nil
	}
	limits := n.cfg.Timing
	// Stays is how many entries compaction leaves at least, so how far back a checkpoint can be replayed from. On a
	// full disk no checkpoint is kept.
	n.history, err = statestore.OpenHistory(n.dir.Path(datadir.HistoryDir), statestore.HistoryOptions{
		Machine:   n.machine,
		Snapshots: n.snapshots,
		First:     n.stores.Log().FirstIndex,
		Stays:     func() uint64 { return min(limits.TrailingLogs, max(n.stores.Newest(limits.CompactBytes), 1)) },
		Full:      func() bool { return n.disk.status().Full },
		Logger:    n.logger.Named("history"),
	})
	return err
}

// reconcileLog refuses a raft log that lacks entries between its end and the state at p, unless an installed
// snapshot explains the gap, and deletes a log that contradicts the state. Call it before raft starts.
func reconcileLog(stores *raftstore.Stores, p fsm.Position) error {
	// The index of the last snapshot that was installed: raft's log may begin after it.
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
	// The state has no cluster yet, or the marker has the same.
	case id == "" || id == marked.ClusterID:
		return nil
	case marked.ClusterID != "":
		return fmt.Errorf("open %s: %w: %s and %s", n.cfg.Dir, ErrOtherCluster, id, marked.ClusterID)
	}
	if err := n.dir.SetCluster(id, marked.Peers); err != nil {
		return err
	}
	// Only a node that settled on the members of a new cluster has them in its marker.
	if len(marked.Peers) > 0 {
		n.founder.Store(true)
		n.logger.Info("cluster formed", "cluster", id, "voters", idsOf(marked.Peers))
	}
	return nil
}

// openTransport opens the transport that raft is given. Whom it accepts is decided by what connectObservers has made.
func (n *Node) openTransport() (err error) {
	o := rafttransport.Options{
		Bind:      n.cfg.RaftBind,
		Advertise: n.cfg.RaftAdvertise,
		Secret:    n.cfg.Secret,
		TLS:       n.cfg.TLS, TLSOptional: n.cfg.TLSOptional,
		Timeout:   n.cfg.Timing.Transport,
		HungAfter: n.cfg.Timing.Sync,
		Logger:    upstream.QuietLogger(n.cfg.Logger.Named("transport"), n.life.Closing),

		// Who may connect, and whose requests raft is given.
		Self:       n.roster.Identity,
		Admit:      n.admission.Admit,
		Hear:       n.admission.Hear,
		Resolve:    n.roster.MemberAt,
		VoteAs:     n.roster.VoteAs,
		Configured: n.roster.MayVote,

		// What is answered beside raft, from what this node has applied.
		Covers:      n.snapshots.Covers,
		Contradicts: n.contradicts,
		Overloaded:  n.raft.Overloaded,
		Follows:     n.follows,
	}
	// A network of its own, as tests have, replaces TCP.
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
	// Raft starts after the transport is open: until then this node follows nobody.
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
	// The last entry of the state as it was opened or installed.
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
	// The entry that this node has at the index, or had when the state was installed.
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
	// Tests put a state machine of their own between raft and the node's.
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
		return fmt.Errorf("start raft in %s: %w", n.cfg.Dir, err)
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

// raftConfig is how raft is configured; what it leaves at its default is not listed.
func (n *Node) raftConfig() *raft.Config {
	t := n.cfg.Timing
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	// Validate has checked their order, which raft requires.
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = t.Heartbeat, t.Election, t.Lease
	c.CommitTimeout = t.CommitTimeout
	// How many entries stay is decided by compaction, not by TrailingLogs.
	c.SnapshotInterval, c.SnapshotThreshold, c.TrailingLogs = t.SnapshotInterval, t.SnapshotThreshold, 1
	// Requests are bounded in bytes beside this; see upstream.
	c.MaxAppendEntries = 64
	c.BatchApplyCh = true
	// This node decides itself when raft ends.
	c.ShutdownOnRemove = false
	// The state is on the disk already: raft has nothing to restore it from.
	c.NoSnapshotRestoreOnStart = true
	c.NoLegacyTelemetry = true
	c.Logger = upstream.QuietLogger(n.cfg.Logger.Named("raft"), n.life.Closing)
	return c
}

// afterApply runs in raft's own goroutine after each batch and restore, and does only what cannot wait: the
// cluster's id is in the marker before the next batch is applied.
func (n *Node) afterApply() {
	n.raft.Applied()
	// Nearly always: the id changes once in the life of a folder.
	if n.machine.ClusterID() == n.dir.Marker().ClusterID {
		return
	}
	if err := n.sameCluster(); err != nil {
		n.cfg.Fatal(err)
	}
}
