package raftnode

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/view"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/membership"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// Config says who a node is and how it works.
type Config struct {
	ID  string // required; never given to another data folder while it is a member
	Dir string // required; the data folder, created when missing

	RaftBind      string // host:port to listen on for raft; required
	RaftAdvertise string // host:port peers dial for raft; "" is the bound address
	HTTPAdvertise string // host:port, or a URL, at which Peers reach this node

	// BootstrapExpect is how many voters form a new cluster: they find each other
	// through Join and the lowest id begins once all report the same set. 0: the
	// node waits to be admitted to an existing cluster, through Join or by AddMember.
	BootstrapExpect int
	Join            []string // URLs of other nodes
	NonVoter        bool     // join without a vote

	Secret []byte // cluster token for the raft handshake; empty is none
	// TLS secures raft's connections with the certificate of ID, see rafttransport.Options; nil is no TLS.
	TLS *certs.Store
	// TLSOptional takes plain connections, too, and makes them to nodes without TLS. It protects nobody from who can
	// change packets: it is for the time in which a cluster moves to TLS.
	TLSOptional bool
	Version     string // of the program, reported to others

	Timing Timing
	Limits Limits
	Disk   Disk

	Peers  Peers        // how to reach other nodes; nil for a node that is alone
	Logger hclog.Logger // nil logs nothing
	// Network carries raft's connections; nil is TCP, as always in production.
	Network rafttransport.Network
	// Fatal is called when this node must not continue: damage, a disk that fails or
	// hangs, an entry that cannot be applied. It should end the process; it must
	// not call Close. The node does nothing more for anybody after it. Required.
	Fatal func(error)
	// OnStore, if set, sees every batch of entries stored by raft. It must not block.
	OnStore func(entries, bytes int, took time.Duration)

	// The file systems of the journal of outages and of the state; nil is the operating system's.
	journalFS, stateFS vfs.FS

	// compileView makes a fold of a view's declaration; nil is package view's.
	compileView func(declaration string) (view.Fold, error)

	clocks func() clock.Reading // nil reads the machine's
	// wrapFSM, if set, returns what raft is given in the place of the state machine.
	wrapFSM func(raft.BatchingFSM) raft.BatchingFSM
}

// Timing holds the clocks of consensus. A zero field takes its default.
type Timing struct {
	// Heartbeat is how long a follower waits without hearing from the leader before it campaigns. Raft checks
	// only now and then, so it can take up to three times as long; 1 s.
	Heartbeat time.Duration
	Election  time.Duration // how long a candidate waits for votes, at least Heartbeat; by default Heartbeat
	// Lease is how long a leader leads without hearing from a quorum before it steps down, and how long a
	// follower waits before it campaigns when the leader's process has ended; at most Heartbeat, by default
	// three quarters of it.
	Lease             time.Duration
	CommitTimeout     time.Duration // 50 ms
	Transport         time.Duration // bound of one RPC; 3 s
	SnapshotInterval  time.Duration // how often raft checks whether to compact its log; 30 s
	SnapshotThreshold uint64        // entries since the last compaction that trigger the next; 16384
	TrailingLogs      uint64        // entries kept for followers that lag, at least 1; 10240
	CompactBytes      int64         // bytes stored since the last compaction that trigger the next, and stay; 64 MiB
	TrailingBytes     int64         // bytes kept for followers that lag, at least CompactBytes; 1 GiB
	Ping              time.Duration // how often the other members are asked; 500 ms
	Misses            int           // pings without an answer until a member is out of reach; 3
	Sync              time.Duration // a disk write that takes longer counts as hung and keeps no leader; 10 s
}

// Limits bound what waits in memory.
type Limits = batcher.Limits

// Disk says when a disk counts as full. A zero field takes its default, a
// negative one turns it off.
type Disk struct {
	// MinFree: with fewer free bytes appends are refused; 5 % of the volume, at least 64 MiB
	// and at most 1 GiB.
	MinFree int64
	// Reserve: bytes kept back to start and trim with; a quarter of MinFree, at least 16 MiB
	// and at most 64 MiB.
	Reserve int64
	// Space replaces what the file system reports of free bytes and of the volume's size; nil
	// in production.
	Space func() (free, size uint64, err error)
}

// on returns d with its defaults for a volume of size bytes.
func (d Disk) on(size uint64) Disk {
	orDefault(&d.MinFree, min(max(int64(size/20), 64<<20), 1<<30))
	orDefault(&d.Reserve, min(max(d.MinFree/4, 16<<20), 64<<20))
	return d
}

// orDefault sets *v to fallback if it has the zero value.
func orDefault[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

// transferPatience is how long a leadership transfer may take before it counts as stuck.
// Whoever waits for its end has to wait for longer.
func (t Timing) transferPatience() time.Duration { return 5*t.Election + 2*time.Second }

// health is what the pings and the outage monitor go by.
func (t Timing) health() health.Timing {
	return health.Timing{Ping: t.Ping, Misses: t.Misses, Heartbeat: t.Heartbeat, Election: t.Election, Lease: t.Lease}
}

// compaction is how much of raft's log stays.
func (t Timing) compaction() upstream.CompactionLimits {
	return upstream.CompactionLimits{
		CompactBytes:  t.CompactBytes,
		TrailingBytes: t.TrailingBytes,
		TrailingLogs:  t.TrailingLogs,
	}
}

// withDefaults returns t with the defaults of Timing in its zero fields.
func (t Timing) withDefaults() Timing {
	orDefault(&t.Heartbeat, time.Second)
	orDefault(&t.Election, t.Heartbeat)
	orDefault(&t.Lease, t.Heartbeat*3/4)
	orDefault(&t.CommitTimeout, 50*time.Millisecond)
	orDefault(&t.Transport, 3*time.Second)
	orDefault(&t.SnapshotInterval, 30*time.Second)
	orDefault(&t.SnapshotThreshold, 16384)
	orDefault(&t.TrailingLogs, 10240)
	orDefault(&t.CompactBytes, 64<<20)
	orDefault(&t.TrailingBytes, max(1<<30, t.CompactBytes))
	orDefault(&t.Ping, 500*time.Millisecond)
	orDefault(&t.Misses, 3)
	orDefault(&t.Sync, 10*time.Second)
	return t
}

// Validate fills in the defaults and returns the first setting that cannot work as an error.
func (c *Config) Validate() error {
	c.Timing = c.Timing.withDefaults()
	orDefault(&c.Limits.QueueRequests, 32768)
	orDefault(&c.Limits.QueueBytes, 64<<20)
	orDefault(&c.Limits.RequestBytes, 32<<20)
	if c.clocks == nil {
		c.clocks = clock.System()
	}
	if c.compileView == nil {
		c.compileView = compileView
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	// After the defaults: their order is checked too.
	if err := c.problem(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// compileView makes a fold of the declaration of a view.
func compileView(declaration string) (view.Fold, error) {
	d, err := view.Parse([]byte(declaration))
	if err != nil {
		return nil, err
	}
	return view.Compile(d)
}

// problem returns the first setting that cannot work. The defaults have to be filled in.
func (c *Config) problem() error {
	switch {
	case c.ID == "" || len(c.ID) > 255:
		return errors.New("a node id of 1 to 255 bytes is required")
	case c.Dir == "":
		return errors.New("a data folder is required")
	case c.Fatal == nil:
		return errors.New("the callback Fatal is required")
	case c.BootstrapExpect < 0:
		return fmt.Errorf("%d voters to bootstrap with", c.BootstrapExpect)
	// Without Peers a node reaches nobody but by raft, which begins only after the forming.
	case c.BootstrapExpect > 1 && c.Peers == nil:
		return errors.New("more than one voter to bootstrap with needs Peers")
	case len(c.Join) > 0 && c.Peers == nil:
		return errors.New("joining needs Peers")
	case c.NonVoter && c.BootstrapExpect > 0:
		return errors.New("a non-voter joins a cluster, it cannot begin one: drop NonVoter or BootstrapExpect")
	}
	// Raft requires this order, and would only report it once the stores are open.
	if t := c.Timing; t.Lease > t.Heartbeat || t.Election < t.Heartbeat {
		return fmt.Errorf("a lease of %s, a heartbeat of %s and an election of %s: they must not be in another order",
			t.Lease, t.Heartbeat, t.Election)
	}
	if t := c.Timing; t.CompactBytes < 0 || t.TrailingBytes < t.CompactBytes {
		return fmt.Errorf("%d bytes to compact at and %d that stay for members that lag: these must not be less",
			t.CompactBytes, t.TrailingBytes)
	}
	// A wrong address would be found only when the listener is opened, or by nobody.
	for _, addr := range []string{c.RaftBind, c.RaftAdvertise} {
		// An empty RaftAdvertise means the bound address.
		if addr == "" && c.RaftBind != "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("raft address %q: %w", addr, err)
		}
	}
	return nil
}

// Warnings returns remarks on settings that work but are seldom meant.
func (c *Config) Warnings() []string {
	if w := membership.VoterWarning(c.BootstrapExpect); w != "" && c.BootstrapExpect > 0 {
		return []string{w}
	}
	return nil
}
