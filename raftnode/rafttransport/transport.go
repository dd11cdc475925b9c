package rafttransport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/certs"
)

const (
	defaultTimeout = 3 * time.Second
	defaultMaxPool = 3
)

// Identity is what a node states about itself in a handshake. Each field is 1 to
// 255 bytes of printable UTF-8; only ClusterID may be empty: not yet in a cluster.
type Identity struct {
	ClusterID   string
	NodeID      string
	Incarnation string // random, made with the data folder, lost with it
}

// Options configures a Transport. The callbacks are called from many
// goroutines at once; they must not block and must not call Close.
type Options struct {
	Bind      string // host:port to listen on
	Advertise string // host:port peers dial; "" = the bound address; port 0 = the bound port

	// Self is asked at each handshake, as the cluster id comes later than the
	// transport. Required.
	Self func() Identity
	// Admit asks membership about a peer that has proven the secret; both
	// sides ask theirs. nil admits. An error that wraps ErrOtherIncarnation,
	// ErrRemoved or another sentinel of this package reaches the peer as that
	// sentinel, any other as ErrNotAdmitted. Required.
	Admit func(peer Identity) error
	// Hear reports whether entries are taken from a peer that dials and that Admit
	// refuses: a leader is proven by the votes of a majority, and a node that lags
	// cannot judge it by its own, older entries. Vote requests of such a peer are
	// refused with Admit's error. nil is never.
	Hear func(peer Identity) bool
	// VoteAs returns the id of a voter in whose place raft judges a candidate that this
	// node's newest configuration lists as a non-voter; "" leaves the candidate's own. nil
	// never does.
	VoteAs func(candidate string) string
	// Resolve says which node should answer at an address. A dialled peer that
	// answers under another id is refused. Required.
	Resolve func(addr raft.ServerAddress) (nodeID string, ok bool)
	// Configured is false while this node's raft configuration is empty.
	// RequestVote and RequestPreVote are refused meanwhile, so a cluster is
	// bootstrapped on one voter, which then adds the others. Required.
	Configured func() bool
	// Follows reports whether this node's raft follows that leader in that term. While
	// raft takes no RPC, heartbeats of such a leader are answered if it says so, for up to
	// HungAfter: raft that is held up for longer counts as hung. 0: they wait for raft.
	Follows   func(leaderID string, term uint64) bool
	HungAfter time.Duration
	// Covers returns the newest entry that this node has applied, and whether its state
	// takes the place of its log at index: that entry was applied, or is the last of a
	// state that the log may not lead to. Required.
	Covers func(index uint64) (applied uint64, covered bool)
	// Overloaded reports whether entries are to wait: raft hands the state machine as many
	// as it commits, however far that lags. nil is never.
	Overloaded func() bool
	// Contradicts reports whether this node has applied another entry at index than the one of
	// term that a leader of leaderTerm has there, as far as it still knows. A leader of a term
	// before this node's contradicts nothing: a request that it sent before it was deposed may
	// arrive late, and raft refuses it. nil: it never does.
	Contradicts func(leaderTerm, index, term uint64) bool
	// Secret is the cluster token. Empty: no proof is asked for nor given, and a
	// peer that asks for one is refused.
	Secret []byte
	// TLS secures the connections with the certificates of both nodes; nil: they are plain. With TLSOptional plain
	// ones are taken, too, and dialled at a peer that has nothing else: for the time in which the nodes of a running
	// cluster are restarted one after the other.
	TLS         *certs.Store
	TLSOptional bool

	// Timeout bounds connecting and the handshake together, the time in which no byte
	// of a request could be sent, the wait for its answer (for a large request the
	// longer, see answerScale), and each write of an answer. 0 = 3 s.
	Timeout time.Duration
	// MaxPool is how many idle connections are kept per peer. 0 = 3.
	MaxPool int
	// MaxRPCsInFlight above 1 turns on pipelining, which can deadlock
	// (hashicorp/raft#612). 0 = 1.
	MaxRPCsInFlight int

	Logger hclog.Logger // nil = none
	// Listen and Dial replace TCP, each for itself, so a test can put faults
	// into a connection or run on a network of its own. nil in production.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

// Network is a pair of Options.Listen and Options.Dial. What is dialled reaches
// what listens at that address; a call that cannot be answered waits for its
// context.
type Network interface {
	Listen(ctx context.Context, addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// normalised returns the options with zero fields set to their defaults, or what is wrong with them.
func (o Options) normalised() (Options, error) {
	switch {
	case o.Self == nil || o.Admit == nil || o.Resolve == nil || o.Configured == nil || o.Covers == nil:
		return o, errors.New("one of Self, Admit, Resolve, Configured, Covers is missing")
	case o.HungAfter > 0 && o.Follows == nil:
		return o, errors.New("with HungAfter, Follows is required")
	case o.HungAfter < 0 || o.Timeout < 0 || o.MaxPool < 0 || o.MaxRPCsInFlight < 0:
		return o, errors.New("negative HungAfter, Timeout, MaxPool or MaxRPCsInFlight")
	}
	o.Timeout = orDefault(o.Timeout, defaultTimeout)
	o.MaxPool = orDefault(o.MaxPool, defaultMaxPool)
	o.MaxRPCsInFlight = orDefault(o.MaxRPCsInFlight, 1)
	// The caller may overwrite its secret.
	o.Secret = bytes.Clone(o.Secret)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Listen == nil {
		lc := &net.ListenConfig{KeepAliveConfig: keepAlive()}
		o.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
			return lc.Listen(ctx, "tcp", addr)
		}
	}
	if o.Dial == nil {
		d := &net.Dialer{KeepAliveConfig: keepAlive()}
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return o, nil
}

// orDefault is v, or def if v is the zero value.
func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Transport is a raft.Transport. It is safe for concurrent use.
type Transport struct {
	*raft.NetworkTransport

	opts    Options
	stream  *stream
	refused *refusals

	nodeID    string        // Self's, which never changes
	rpcs      chan raft.RPC // see Consumer; unbuffered, so what was sent was taken
	born      time.Time
	taken     atomic.Int64   // when raft took the last RPC, by now()
	done      chan struct{}  // closed by Close
	pumping   sync.WaitGroup // pump, and the readers of snapshots that discardOldSnapshot answers
	closeOnce sync.Once
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// New listens on o.Bind and serves until Close.
func New(o Options) (*Transport, error) {
	o, err := o.normalised()
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	book := newRefusals(o.Logger)
	s, err := listen(o, book)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", o.Bind, err)
	}
	inner := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:          s,
		MaxPool:         o.MaxPool,
		MaxRPCsInFlight: o.MaxRPCsInFlight,
		Timeout:         o.Timeout,
		Logger:          o.Logger,
	})
	t := &Transport{
		NetworkTransport: inner,
		opts:             o,
		stream:           s,
		refused:          book,
		nodeID:           o.Self().NodeID,
		rpcs:             make(chan raft.RPC),
		born:             time.Now(),
		done:             make(chan struct{}),
	}
	// Not t's own method, which ignores raft's handler: heartbeats go through heartbeat instead.
	inner.SetHeartbeatHandler(t.heartbeat)
	t.pumping.Go(t.pump)
	return t, nil
}

// Addr is the advertised address.
func (t *Transport) Addr() net.Addr { return t.stream.Addr() }

// Consumer is where raft takes incoming RPCs from. Those that are answered in raft's place
// do not appear there.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpcs }

// AppendEntries implements raft.Transport.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return t.fresh(func() error { return t.NetworkTransport.AppendEntries(id, target, args, resp) })
}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress,
	args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.fresh(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// fresh calls request again if its connection had ended: one from the pool may have, because
// the peer was restarted or has learned its cluster id. The peer may get the same request
// twice, like any request that raft repeats.
func (t *Transport) fresh(request func() error) (err error) {
	for range 3 * (t.opts.MaxPool + 1) { // those of the pool, and those in use that return to it
		err = request()
		// A connection of TLS that was closed without a farewell ends with ErrUnexpectedEOF.
		ended := errors.Is(err, errOutgrown) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
			errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
		if !ended || t.IsShutdown() {
			return err
		}
	}
	return err
}

// Disconnect closes every connection to and from a node, those still in their
// handshake included. Called after membership's answer about the node has changed,
// it leaves no connection that was admitted by the old answer.
func (t *Transport) Disconnect(nodeID string) { t.stream.conns.disconnect(nodeID) }

// PeersLost receives the ids of nodes whose last accepted connection has just ended. If a
// node's process ends and its machine still runs, its id arrives at once. The node may also
// have closed its connections and be back. For one reader; while 64 wait, more are dropped.
func (t *Transport) PeersLost() <-chan string { return t.stream.conns.peersLost }

// Refusals lists the last refusal per peer, the newest first; at most 256.
func (t *Transport) Refusals() []Refusal { return t.refused.list() }

// RefusalTotals counts all refusals since New by reason (see Refusal.Reason).
func (t *Transport) RefusalTotals() map[string]uint64 { return t.refused.sums() }

// Close ends the listener, every connection and every goroutine of the
// transport, and returns when they are gone. It is idempotent.
func (t *Transport) Close() error {
	t.closeOnce.Do(func() {
		close(t.done)
		// The listener and all connections end first, then Close waits for their users.
		t.NetworkTransport.Close()
		t.CloseStreams()
		t.stream.wait()
		t.pumping.Wait()
	})
	return nil
}
