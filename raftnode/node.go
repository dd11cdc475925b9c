package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/view/engine"
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

// Node is one running member of a cluster. It is safe for concurrent use.
//
// It holds the parts, connects them, and opens and closes them in order. Each part has its own locks and goroutines and
// knows of the others what it was given, and of the node a few functions. No field but founder and closeErr changes
// once Open has returned.
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
	proposer *batcher.Batcher // turns requests into log entries; nil until connectLeader, as are leadership and handover
	barrier  *barrier         // proves that this node leads

	observers
	admission  *membership.Admission // who may connect
	changes    *membership.Changes   // adds, promotes, demotes and removes them
	autopilot  *membership.Autopilot // does so by itself, on a leader
	joiner     *joiner               // brings this node into its cluster
	leadership *leadership           // this node's terms as the leader
	handover   *handover             // gives leadership to another

	founder atomic.Bool               // this process has taken part in forming the cluster
	backup  atomic.Pointer[time.Time] // when the last whole backup was sent; never nil

	closeOnce sync.Once
	closeErr  error // of the first Close
}

// storage is what has files in the data folder. Open fills it from top to bottom; release closes it the other way.
type storage struct {
	dir       *datadir.Dir          // the marker and the lock
	disk      *diskGuard            // free space, and the reserve
	stores    *raftstore.Stores     // raft's log and stable values
	journal   *health.Journal       // of outages
	views     *engine.Engine        // what is folded of the log
	machine   *fsm.Machine          // the state
	snapshots *statestore.Snapshots // the state as raft's snapshot store
	history   *statestore.History   // the state as it was; nil where the state is not on a disk
	adapter   *statestore.FSM       // the state as raft's state machine; nil until openRaft
}

// observers are what sees the other members, and this one.
type observers struct {
	watch      *health.Watch   // the pings
	contacts   health.Contacts // raft's answered requests
	terms      *health.Terms   // nil until start
	outages    *health.OutageMonitor
	divergence *health.Divergence // a state that differs from the majority's
	rollback   *rollbackGuard     // folders that are older copies
}

// Open starts the node of a data folder and returns once raft runs. Forming or
// joining a cluster continues after it returns; WaitLeader waits for that. ctx bounds
// Open alone.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	// Before the folder is touched: a setting that cannot work leaves no traces.
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// Whatever fails from here on, what is open by then is closed again.
	n := &Node{cfg: cfg, logger: quietlog.New(cfg.Logger, nil), clock: clock.New(cfg.clocks), life: lifetime.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.release())
		}
	}()
	// Raft starts last. Before it may vote, log and state have to fit, and the other members must not know
	// of a newer copy of the data folder.
	for _, open := range []func() error{n.openFolder, n.openState} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	n.connectObservers()
	refuseRollback := func() error { return n.rollback.refuseOlderCopy(ctx) }
	for _, open := range []func() error{n.openTransport, refuseRollback, n.openRaft} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	n.connectLeader()
	n.start()
	return n, nil
}

// failover campaigns early when the leader's connections are lost, until ctx ends.
func (n *Node) failover(ctx context.Context) {
	t := n.cfg.Timing
	f := upstream.Failover{
		Self:        n.cfg.ID,
		Lease:       t.Lease,
		Heartbeat:   t.Heartbeat,
		Election:    t.Election,
		PeersLost:   n.transport.PeersLost(),
		LastIndexes: n.lastIndexes,
		Logger:      n.logger,
	}
	// Raft is loaded once: it is the same one until this node ends.
	f.Run(ctx, n.raft.Load())
}

// lastIndexes asks members how far their logs reach.
func (n *Node) lastIndexes(ctx context.Context, ids []string) map[string]uint64 {
	// Only members have an address to be asked at.
	members := slices.DeleteFunc(n.roster.Known(), func(m datadir.Peer) bool { return !slices.Contains(ids, m.ID) })
	last := map[string]uint64{}
	for id, s := range n.watch.AskAll(ctx, members) {
		last[id] = s.Report.LastIndex
	}
	return last
}

// Views is what this node folds of the log, for reading.
func (n *Node) Views() *engine.Engine { return n.views }

// Machine is the node's state, for reading.
func (n *Node) Machine() *fsm.Machine { return n.machine }

// WaitLeader returns when this node knows who leads and has applied that
// leader's first entry.
func (n *Node) WaitLeader(ctx context.Context) error {
	return n.life.Poll(ctx, func() bool {
		// Raft names a leader before that leader's first entry is applied here, and leads before the intake is open.
		id, _ := n.roster.Leader()
		l := n.machine.Leadership()
		applied := l.Leader == id && l.Term == n.raft.Load().CurrentTerm()
		return id != "" && applied && (id != n.cfg.ID || n.proposer.OpenTerm() != 0)
	})
}

// Snapshot makes the state durable and lets raft compact its log now.
func (n *Node) Snapshot(context.Context) error {
	// A snapshot of this raft is a sync of the state; compaction follows it.
	err := n.raft.Load().Snapshot().Error()
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// Close ends the node. A leader first hands leadership over and records that it leaves on purpose, as far as
// ctx allows. Close is idempotent: later calls return what the first one returned.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		n.life.BeginClosing()
		// While it hands over, the node still runs; what only waits has ended with BeginClosing.
		switch err := n.handover.retire(ctx); {
		case errors.Is(err, ErrNoTarget), errors.Is(err, ErrNotLeader), errors.Is(err, ErrNoLeader),
			errors.Is(err, ErrOutcomeUnknown):
			// As where all nodes are stopped: nobody takes leadership over, or it ended with the quorum meanwhile.
			n.logger.Info("leadership is not handed over", "error", oneLine(err))
		case err != nil:
			n.logger.Warn("leaving without handing over", "error", oneLine(err))
		}
		n.closeErr = n.release()
		n.logger.Info("stopped")
	})
	return n.closeErr
}

// oneLine is the text of an error that may be several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// release closes what Open has opened so far, in an order in which nothing waits for what is closed already:
// callers, then raft, then what raft uses.
func (n *Node) release() error {
	// Every wait of a caller ends with ErrClosed from here on.
	n.life.Retire()
	if n.adapter != nil {
		n.adapter.Close()
	}
	if n.proposer != nil {
		n.proposer.Close()
	}
	// The goroutines of start use raft until they return.
	n.work.Wait()
	// An entry that waits for the views before it trims would keep raft from ending.
	if n.views != nil {
		n.views.Stop()
	}
	var errs []error
	// Nobody proposes or reads any more.
	errs = append(errs, n.raft.Shutdown())
	if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	// Only a closed transport ends the requests that this waits for.
	n.raft.Close()
	if n.views != nil {
		errs = append(errs, n.views.Close())
	}
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

// leaveHungDisk leaves this node's leadership to others when its disk hangs, until ctx ends.
func (n *Node) leaveHungDisk(ctx context.Context) {
	n.raft.LeaveHungDisk(ctx, n.cfg.Timing.health().Urgent(), func(term uint64) { n.proposer.Pause(term) })
}
