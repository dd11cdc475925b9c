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
	maxPending  = 64  // handshakes at once; at the limit the oldest is evicted
	maxAccepted = 256 // connections after their handshake
	maxPerPeer  = 32  // connections of one peer; at the limit its oldest is evicted

	// stallFactor x Timeout without a byte in the middle of an RPC ends the connection:
	// raft reads a snapshot in its main loop, which a dead sender would block.
	stallFactor = 3

	// A dialled connection writes this much at a time. Timeout without a byte of it ends it.
	writePiece = 256 << 10
	// An answer may take Timeout for each answerScale bytes of its request, at least one
	// Timeout: the peer writes the bytes to its disk first.
	answerScale = 8 << 20

	// rpcInstallSnapshot is the byte with which raft's transport begins that RPC.
	rpcInstallSnapshot = 2

	peersLostRoom = 64 // ended peers that Transport.PeersLost keeps for its reader
)

var errOutgrown = errors.New("connection is older than this node's cluster id")

// conn is a connection during its handshake and after it. The handshake uses the
// embedded Conn, with deadlines set by stream; raft's transport uses conn itself.
type conn struct {
	net.Conn          // paced, or TLS over it; set by the goroutine that makes the handshake
	raw      net.Conn // what the network gave: who ends a connection closes this, which waits for nobody
	pace     *paced
	registry *registry
	accepted bool          // by this node; otherwise it was dialled
	timeout  time.Duration // Options.Timeout

	// outgrown reports whether this node has a cluster id by now; nil if it had one in the
	// handshake. The first RPC after it gained one must not pass, as the peer may be of
	// another cluster.
	outgrown func() bool

	inRPC      atomic.Bool // accepted: a request has begun to arrive and is not answered yet
	installing atomic.Bool // accepted: that request is a snapshot
	handed     bool        // raft's transport owns an accepted conn and closes it
	sent       int         // dialled: bytes of the present request; used by its caller alone
	closeOnce  sync.Once

	// Guarded by registry.mu.
	order  uint64 // grows with each new connection
	nodeID string // of the peer, from identify on
	stage  stage
	heard  *Identity // the peer, if Admit refused and Hear took it
}

// stage is how far a connection is.
type stage int

const (
	pending     stage = iota // in its handshake
	evicted                  // closed to make room; its owner has not called Close yet
	established              // carries RPCs
)

// Read waits without limit for a request to begin, and a bounded time for it to continue.
// On a dialled connection it waits a bounded time for an answer.
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

	// These are the first bytes of a request.
	if n > 0 && !c.inRPC.Swap(true) {
		if c.isOutgrown() {
			return 0, io.EOF // the peer dials again
		}
		c.installing.Store(p[0] == rpcInstallSnapshot)
	}
	return n, err
}

// Write writes an answer, which ends an RPC, on an accepted connection, and a request on a
// dialled one. It may take as long as some bytes are written within each Timeout: a large
// request over a slow link would never finish within a limit on the whole.
func (c *conn) Write(p []byte) (n int, err error) {
	if !c.accepted && c.isOutgrown() {
		return 0, errOutgrown
	}
	c.inRPC.Store(false)
	c.installing.Store(false)
	n, err = c.Conn.Write(p)
	c.sent += n
	return n, err
}

// paced is the connection below TLS, where there is TLS: a write of TLS that once ran out of time fails for ever.
type paced struct {
	net.Conn
	timeout time.Duration
	on      bool // once established: the deadline of the handshake counts until then
}

// Write implements net.Conn, see conn.Write.
func (c *paced) Write(p []byte) (n int, err error) {
	if !c.on {
		return c.Conn.Write(p)
	}
	for n < len(p) {
		if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(n+writePiece, len(p))])
		n += m
		if m > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue // a link may need longer than Timeout for a piece
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// SetDeadline is called by raft's transport when an RPC begins on a dialled connection. It
// sets no deadline: Read and Write set their own.
func (c *conn) SetDeadline(time.Time) error {
	c.sent = 0
	return nil
}

func (c *conn) isOutgrown() bool { return c.outgrown != nil && c.outgrown() }

// Close must be called by the owner only. Others who end a connection close raw, so stream.wait still waits for
// the owner. It is idempotent.
func (c *conn) Close() error {
	var err error
	c.closeOnce.Do(func() {
		c.registry.remove(c)
		err = c.raw.Close()
		if c.handed {
			c.registry.owned.Done()
		}
	})
	return err
}

// registry holds all open connections and their limits.
type registry struct {
	timeout   time.Duration
	peersLost chan string    // see Transport.PeersLost
	owned     sync.WaitGroup // accepted connections that raft's transport reads

	mu     sync.Mutex // guards the fields below, and those of each conn that name it
	closed bool
	next   uint64 // order of the newest connection
	open   map[*conn]struct{}
}

func newRegistry(timeout time.Duration) *registry {
	return &registry{timeout: timeout, peersLost: make(chan string, peersLostRoom), open: make(map[*conn]struct{})}
}

// add registers a new connection and returns it as c: nil if the registry is closed, or
// if those pending and those evicted but not yet ended are 2*maxPending together.
// closed is the oldest pending connection if it had to be evicted, otherwise nil.
func (r *registry) add(raw net.Conn, accepted bool) (c, closed *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil
	}
	if accepted {
		// Evicted connections count as well: their goroutines have not ended yet.
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
	pace := &paced{Conn: raw, timeout: r.timeout}
	c = &conn{Conn: pace, raw: raw, pace: pace, registry: r, accepted: accepted, timeout: r.timeout, order: r.next}
	r.open[c] = struct{}{}
	return c, closed
}

// identify notes whose connection c is, and refuses it with ErrBusy if there are too many.
// It has to be called before membership is asked: a connection that disconnect does not
// find yet is then judged by membership's new answer.
func (r *registry) identify(c *conn, nodeID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.nodeID = nodeID
	if !c.accepted {
		return nil
	}
	// A peer that has its share of connections may replace one of them; see establish.
	all, _ := r.accepted(established)
	own, _ := r.acceptedFrom(nodeID)
	if all >= maxAccepted && own < maxPerPeer {
		return ErrBusy
	}
	return nil
}

// hear marks a connection whose peer Admit refused and Hear took: it is granted no vote.
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

// establish ends c's handshake, unless c was evicted meanwhile. If the peer has too many connections, its
// oldest is evicted.
func (r *registry) establish(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, oldest := r.acceptedFrom(c.nodeID); c.accepted && n >= maxPerPeer {
		if oldest == nil {
			oldest = c // all others carry snapshots and must not be evicted
		}
		oldest.evict()
	}
	if c.stage == pending {
		c.stage, c.pace.on = established, true
	}
}

// evict ends a connection to make room for another. The caller holds registry.mu; the owner calls Close.
func (c *conn) evict() {
	c.stage = evicted
	c.raw.Close()
}

// accepted counts the accepted connections in a stage; see count. The caller holds mu.
func (r *registry) accepted(s stage) (n int, oldest *conn) {
	return r.count(func(c *conn) bool { return c.accepted && c.stage == s })
}

// acceptedFrom counts the established connections accepted from a peer; see count. The caller holds mu.
func (r *registry) acceptedFrom(nodeID string) (n int, oldest *conn) {
	return r.count(func(c *conn) bool { return c.accepted && c.stage == established && c.nodeID == nodeID })
}

// count counts connections. oldest is the oldest of those that may be evicted, nil if there
// is none. One that carries a snapshot may not: while raft reads the snapshot, it takes no
// other request, so the peer opens more connections. The caller holds mu.
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

// remove forgets a connection. If it was the last one accepted from its peer, it reports it to peersLost.
func (r *registry) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	if n, _ := r.acceptedFrom(c.nodeID); n > 0 || !c.accepted || c.stage != established || r.closed {
		return
	}
	select {
	case r.peersLost <- c.nodeID:
	default: // nobody reads it
	}
}

// disconnect ends all connections to and from one node; their owners close them.
func (r *registry) disconnect(nodeID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		if c.nodeID == nodeID {
			c.raw.Close()
		}
	}
}

// close ends all connections and admits none from then on; their owners close them.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.open {
		c.raw.Close()
	}
}
