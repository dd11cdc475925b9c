package rafttransport

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxPending  = 64  // handshakes at once; past it the oldest is evicted
	maxAccepted = 256 // connections after their handshake
	maxPerPeer  = 32  // of one peer; past it its oldest is evicted

	// stallFactor x Timeout without a byte inside an RPC ends the connection.
	// raft reads a snapshot on its main loop, which a dead sender would hold.
	stallFactor = 3

	// A dialled connection writes this much at a time. Timeout without a byte of it ends it.
	writePiece = 256 << 10
	// An answer may take Timeout, or that for each answerScale bytes of a larger request:
	// they are written to a disk first.
	answerScale = 8 << 20

	// rpcInstallSnapshot is the byte with which raft's transport begins that RPC.
	rpcInstallSnapshot = 2

	partedRoom = 64
)

var errOutgrown = errors.New("rafttransport: connection is older than this node's cluster id")

// conn is a connection through its handshake and after it. The handshake uses
// the embedded Conn; raft's transport uses conn itself.
type conn struct {
	net.Conn
	registry *registry
	accepted bool
	timeout  time.Duration

	// outgrown is set if the handshake was made without a cluster id: the first
	// RPC after the node gained one must not pass, as the peer may be of another.
	outgrown func() bool

	inRPC      atomic.Bool // accepted: bytes of a request came and no answer went yet
	installing atomic.Bool // accepted: that request is a snapshot
	handed     bool        // raft's transport owns an accepted conn and closes it
	sent       int         // dialled: bytes of the present request; its caller's
	closeOnce  sync.Once

	// Guarded by registry.mu.
	order  uint64
	nodeID string
	stage  stage
	heard  *Identity // set where Admit refused the peer and Hear took it
}

type stage int

const (
	pending     stage = iota // in its handshake
	evicted                  // closed to make room; its owner has not called Close yet
	established              // carries RPCs
)

// Read waits without limit for a request to begin, and for a bounded time for it to
// continue. On a dialled connection it waits for an answer.
func (c *conn) Read(p []byte) (int, error) {
	if !c.accepted {
		wait := c.timeout * time.Duration(max(1, c.sent/answerScale))
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		return c.Conn.Read(p)
	}
	var until time.Time
	if c.inRPC.Load() {
		until = time.Now().Add(stallFactor * c.timeout)
	}
	if err := c.SetReadDeadline(until); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)

	// The first bytes of a request.
	if n > 0 && !c.inRPC.Swap(true) {
		if c.isOutgrown() {
			return 0, io.EOF // the peer dials again
		}
		c.installing.Store(p[0] == rpcInstallSnapshot)
	}
	return n, err
}

// Write ends an RPC on an accepted connection. On a dialled one, a request may take as
// long as it makes progress: a large one over a thin link would never get through.
func (c *conn) Write(p []byte) (n int, err error) {
	if !c.accepted && c.isOutgrown() {
		return 0, errOutgrown
	}
	c.inRPC.Store(false)
	c.installing.Store(false)
	for n < len(p) {
		if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(n+writePiece, len(p))])
		n += m
		c.sent += m
		if m > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue // a link may need longer than Timeout for a piece
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// SetDeadline is called by raft's transport as an RPC begins on a dialled connection. Read
// and Write have deadlines of their own.
func (c *conn) SetDeadline(time.Time) error {
	c.sent = 0
	return nil
}

func (c *conn) isOutgrown() bool { return c.outgrown != nil && c.outgrown() }

// Close is called by the owner only; others who end a connection close the embedded
// Conn, so that stream.wait still waits for the owner.
func (c *conn) Close() error {
	var err error
	c.closeOnce.Do(func() {
		c.registry.remove(c)
		err = c.Conn.Close()
		if c.handed {
			c.registry.owned.Done()
		}
	})
	return err
}

// registry holds every open connection and their limits.
type registry struct {
	timeout time.Duration
	parted  chan string    // see Transport.Parted
	owned   sync.WaitGroup // accepted connections that raft's transport reads

	mu     sync.Mutex
	closed bool
	next   uint64
	open   map[*conn]struct{}
}

func newRegistry(timeout time.Duration) *registry {
	return &registry{timeout: timeout, parted: make(chan string, partedRoom), open: make(map[*conn]struct{})}
}

// add registers a new connection. It is nil if the registry is closed, or so full that
// even those evicted have not ended yet. closed is the oldest pending one, which was
// evicted if there were too many.
func (r *registry) add(raw net.Conn, accepted bool) (c, closed *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil
	}
	if accepted {
		ending, _ := r.accepted(evicted)
		n, oldest := r.accepted(pending)
		if n+ending >= 2*maxPending {
			return nil, nil
		}
		if n >= maxPending {
			oldest.evict()
			closed = oldest
		}
	}
	r.next++
	c = &conn{Conn: raw, registry: r, accepted: accepted, timeout: r.timeout, order: r.next}
	r.open[c] = struct{}{}
	return c, closed
}

// identify notes whose connection it is, before membership is asked: a connection that
// disconnect does not see yet is then judged by membership's new answer.
func (r *registry) identify(c *conn, nodeID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.nodeID = nodeID
	if !c.accepted {
		return nil
	}
	all, _ := r.accepted(established)
	own, _ := r.acceptedFrom(nodeID)
	if all >= maxAccepted && own < maxPerPeer {
		return ErrBusy
	}
	return nil
}

// hear marks a connection whose peer is granted no vote.
func (r *registry) hear(c *conn, peer Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.heard = &peer
}

// heard returns the peers of one node id that Hear took although Admit refused them.
func (r *registry) heard(nodeID string) (peers []Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		if c.heard != nil && c.nodeID == nodeID {
			peers = append(peers, *c.heard)
		}
	}
	return peers
}

// establish ends c's handshake; the peer's oldest connection is evicted if it has too many.
func (r *registry) establish(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, oldest := r.acceptedFrom(c.nodeID); c.accepted && n >= maxPerPeer {
		if oldest == nil {
			oldest = c // all others carry snapshots
		}
		oldest.evict()
	}
	if c.stage == pending {
		c.stage = established
	}
}

// evict is called with registry.mu held.
func (c *conn) evict() {
	c.stage = evicted
	c.Conn.Close()
}

// accepted, acceptedFrom and count are called with mu held.
func (r *registry) accepted(s stage) (n int, oldest *conn) {
	return r.count(func(c *conn) bool { return c.accepted && c.stage == s })
}

func (r *registry) acceptedFrom(nodeID string) (n int, oldest *conn) {
	return r.count(func(c *conn) bool { return c.accepted && c.stage == established && c.nodeID == nodeID })
}

// count counts connections; oldest is the oldest of those that may be evicted. One that
// carries a snapshot may not: while raft reads it, it takes no other request, and the
// requests of the same peer accumulate.
func (r *registry) count(which func(*conn) bool) (n int, oldest *conn) {
	for c := range r.open {
		if !which(c) {
			continue
		}
		n++
		if !c.installing.Load() && (oldest == nil || c.order < oldest.order) {
			oldest = c
		}
	}
	return n, oldest
}

// remove forgets a connection, and reports a peer whose last one it was.
func (r *registry) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	if n, _ := r.acceptedFrom(c.nodeID); n > 0 || !c.accepted || c.stage != established || r.closed {
		return
	}
	select {
	case r.parted <- c.nodeID:
	default: // nobody reads it
	}
}

// disconnect ends the connections of one node; their owners close them.
func (r *registry) disconnect(nodeID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		if c.nodeID == nodeID {
			c.Conn.Close()
		}
	}
}

// close ends all connections and accepts none from then on; their owners close them.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.open {
		c.Conn.Close()
	}
}
