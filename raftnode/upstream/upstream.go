// Package upstream runs hashicorp/raft with what this log needs and raft lacks or does differently.
//
// Raft.Start runs raft itself between a log and a transport that do more than raft knows:
//
//	raft's log        guard, backlog, eager sender, compaction    -> raftstore
//	raft's transport  eager sender, retries, log of peers         -> rafttransport
//	raft's edges      a queue that raft never waits for           -> the node
//
// Failover campaigns early when the leader's connections are lost. Each file opens with what raft
// does, the issue where there is one, and what would let us delete the file; README.md lists all
// that we change about raft, in whatever package it is. The package promises raft what raft expects of
// its log and transport, and knows no node: what a node knows comes through Options.
package upstream

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// Raft is hashicorp/raft with what this package adds to it: between raft and its log the guard, the
// backlog, the eager sender and compaction; between raft and its transport the eager sender, the
// retries and the log of peers. The zero value is a raft that is not started.
type Raft struct {
	options Options
	raft    atomic.Pointer[raft.Raft] // nil until Start has succeeded

	edges      *edges
	eager      *eager
	compaction *compaction
	peers      *peerLog
	backlog    backlog
	write      leaderWrite
	abdicated  atomic.Uint64 // the term in which this node has left its leadership, see LeaveHungDisk; 0: none

	pumping  sync.WaitGroup // edges.pump; Shutdown waits for it
	stopPump chan struct{}  // closed by Shutdown, after raft has ended
}

// Options are what raft runs on.
type Options struct {
	Context    context.Context // ends when the node retires
	Config     *raft.Config    // without NotifyCh, which Start sets
	Machine    raft.BatchingFSM
	Stores     *raftstore.Stores
	Snapshots  Snapshots
	Transport  *rafttransport.Transport
	Contacts   Contacts
	Limits     CompactionLimits
	Logger     hclog.Logger // for warnings about compaction
	PeerLogger hclog.Logger // for members that raft cannot reach

	// AppliedBy is the index up to which a member has applied the log, as far as is known.
	AppliedBy func(member string) uint64
}

// Snapshots is the state as raft's snapshot store.
type Snapshots interface {
	raft.SnapshotStore
	Durable() uint64 // an index up to which the state is on disk
	Base() *raft.Log // the last entry of the state as it was opened or installed: index and term only
}

// Contacts keeps what raft's requests show of the other members. It is called from many
// goroutines at once.
type Contacts interface {
	Begin(id raft.ServerID) // a request is sent
	End(id raft.ServerID)   // it has ended, answered or not
	// Note takes when a request was sent that the member has answered in that term.
	Note(id raft.ServerID, term uint64, at time.Time)
	// Match takes the index up to which the member has the leader's log.
	Match(id raft.ServerID, term, index uint64, now time.Time)
	// Newest is when the newest answered request to a member was sent; zero if none was.
	Newest(id raft.ServerID) time.Time
}

// Start runs raft. After an error Shutdown is still to be called.
func (p *Raft) Start(o Options) error {
	p.options = o
	p.edges, p.stopPump = newEdges(), make(chan struct{})
	// Raft may report leadership before NewRaft returns: the queue takes the changes from the first on.
	notify := make(chan bool)
	o.Config.NotifyCh = notify
	p.pumping.Go(func() { p.edges.pump(notify, p.stopPump) })
	p.peers = &peerLog{logger: o.PeerLogger}
	p.compaction = newCompaction(o.Stores, o.Limits, p.neededByOthers, o.Logger)
	p.eager = newEager(o.Transport.AppendEntries, o.Config.LeaderLeaseTimeout)

	// Raft gets the store and the transport with what is worked around on each.
	log := GuardedLog{
		LogStore: o.Stores.Log(),
		Durable:  o.Snapshots.Durable,
		Keep:     p.compaction.from,
		Base:     o.Snapshots.Base,
		Storing:  p.storing,
		Stored:   p.stored,
	}
	transport := notedTransport{
		Transport: o.Transport,
		contacts:  o.Contacts,
		eager:     p.eager,
		retries:   &retries{contact: p.awaitContact},
		peers:     p.peers,
		abdicated: &p.abdicated,
	}
	r, err := raft.NewRaft(o.Config, o.Machine, log, o.Stores.Stable(), o.Snapshots, transport)
	if err != nil {
		return err
	}
	p.raft.Store(r)
	return nil
}

// Load is raft itself; nil until Start has succeeded.
func (p *Raft) Load() *raft.Raft { return p.raft.Load() }

// Servers is raft's newest configuration, committed or not.
func (p *Raft) Servers() []raft.Server {
	r := p.raft.Load()
	if r == nil {
		return nil
	}
	future := r.GetConfiguration() // answers at once, from an atomic copy
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// LeadershipChanged is signalled after leadership was gained or lost: see Leadership.
func (p *Raft) LeadershipChanged() <-chan struct{} { return p.edges.wake }

// Leadership reports whether leadership was gained or lost since the last call, and whether this node
// leads after the newest change. For one goroutine.
func (p *Raft) Leadership() (changed, leading bool) { return p.edges.take() }

// storing sends the entries ahead that this node is about to store as the leader. It runs
// in raft's own goroutine, so raft's state does not change meanwhile.
func (p *Raft) storing(logs []*raft.Log) {
	p.backlog.storing(logs, p.options.AppliedBy(string(p.options.Config.LocalID)))
	r := p.raft.Load()
	if r == nil || r.State() != raft.Leader {
		p.eager.forget()
		return
	}
	// Without the entry before them no request can be made: raft sends these entries itself.
	var before raft.Log
	if err := p.options.Stores.Log().GetLog(logs[0].Index-1, &before); err == nil {
		p.write.begin(logs, before.Term)
		p.eager.ship(logs, before.Term, r.CommitIndex())
		runtime.Gosched() // the senders first: this goroutine is about to wait for the disk
	}
}

// stored runs in raft's own goroutine once entries are stored.
func (p *Raft) stored() {
	p.write.end()
	p.compaction.stored()
}

// Overloaded reports whether more than MaxBacklog bytes of committed entries wait for the state machine.
func (p *Raft) Overloaded() bool {
	r := p.raft.Load()
	return r != nil && p.backlog.bytes(p.options.AppliedBy(string(p.options.Config.LocalID)), r.CommitIndex()) > MaxBacklog
}

// neededByOthers is the last entry that all other members have applied, as far as this
// node knows: raft reads its term before it sends what follows. Without other members no
// entry is needed.
func (p *Raft) neededByOthers() uint64 {
	needed := uint64(math.MaxUint64)
	for _, s := range p.Servers() {
		if s.ID != p.options.Config.LocalID {
			needed = min(needed, p.options.AppliedBy(string(s.ID)))
		}
	}
	return needed
}

// awaitContact blocks until the member has answered a request that was sent after since, has
// been removed, or this node no longer leads in that term, or retires.
func (p *Raft) awaitContact(id raft.ServerID, term uint64, since time.Time) {
	r := p.raft.Load()
	pollUntil(p.options.Context, func() bool {
		member := false
		for _, s := range p.Servers() {
			member = member || s.ID == id
		}
		leads := r.State() == raft.Leader && r.CurrentTerm() == term
		return p.options.Contacts.Newest(id).After(since) || !member || !leads
	})
}

// AnnounceCommits sends followers the commits that no request carries, until ctx ends.
func (p *Raft) AnnounceCommits(ctx context.Context) {
	p.eager.announce(ctx, func() (commit, term uint64) {
		r := p.raft.Load()
		term = r.CurrentTerm()
		if r.State() != raft.Leader {
			return 0, 0
		}
		return r.CommitIndex(), term
	})
}

// Applied is to be called after entries are applied. It does not block.
func (p *Raft) Applied() {
	if r := p.raft.Load(); r != nil && r.State() == raft.Leader && r.LastIndex() == r.CommitIndex() {
		p.eager.wake() // otherwise the entries that are not committed yet carry the commit index
	}
}

// Compact calls snapshot whenever enough was stored, until ctx ends: raft then compacts its log.
func (p *Raft) Compact(ctx context.Context, snapshot func(context.Context) error) {
	p.compaction.run(ctx, snapshot)
}

// LogRoom is by how many entries a member may lag until it needs a snapshot of the state.
func (p *Raft) LogRoom() (uint64, error) {
	last := p.raft.Load().LastIndex()
	first, err := p.options.Stores.Log().FirstIndex()
	return p.compaction.room(last + 1 - min(first, last)), err
}

// MemberLeft forgets a member that was removed.
func (p *Raft) MemberLeft(id string) {
	p.eager.forget(raft.ServerID(id))
	p.peers.left(raft.ServerID(id))
}

// Shutdown ends raft and returns once it has ended. Then the transport must be closed, and Close be called.
func (p *Raft) Shutdown() error {
	var err error
	if r := p.raft.Load(); r != nil {
		err = r.Shutdown().Error()
	}
	if p.stopPump != nil {
		close(p.stopPump)
	}
	p.pumping.Wait()
	return err
}

// Close waits for the requests that eager still sends; the closed transport ends them.
func (p *Raft) Close() {
	if p.eager != nil {
		p.eager.close()
	}
}
