package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// loss is what becomes of traffic on a link that is cut.
type loss int

const (
	// hold keeps bytes until the link is whole again, as TCP's retransmission does
	// over a short interruption: answers then come late.
	hold loss = iota
	// drop swallows bytes: a connection that lost some carries nothing any more, and
	// its ends notice by their deadlines alone.
	drop
	// reset breaks the connections at once and refuses new ones, as a firewall does
	// that says no.
	reset

	losses = 3
)

func (l loss) String() string { return [...]string{"hold", "drop", "reset"}[l] }

// link is one direction between two nodes, for the traffic of one of their ports or of
// both.
type link struct {
	from, to string
	via      port
}

type port int

const (
	bothPorts port = iota
	raftPort
	httpPort
)

func (p port) String() string { return [...]string{"", "raft ", "http "}[p] }

func (l link) String() string { return fmt.Sprintf("%s%s>%s", l.via, l.from, l.to) }

func (l link) back() link { return link{l.to, l.from, l.via} }

// ports are the links of single ports in l.
func (l link) ports() []link {
	if l.via != bothPorts {
		return []link{l}
	}
	return []link{{l.from, l.to, raftPort}, {l.from, l.to, httpPort}}
}

// thin is what a link carries; a zero field bounds nothing.
type thin struct {
	rate    int // bytes a second, of all its connections
	carries int // bytes of one connection, which then breaks
}

// simnet connects the nodes of one simulated cluster: raft's connections and the
// calls of Peers, each over the links of its port. Bytes take no time, but over a thin link. A node
// n1 listens for raft at n1:1 and is the member with the HTTP address n1.
type simnet struct {
	mu        sync.Mutex
	cuts      map[link]loss // of single ports
	thin      map[link]thin
	busy      map[link]time.Time // until when a thin link transmits
	changed   chan struct{}      // closed when cuts, listeners or nodes change
	listeners map[string]*simListener
	nodes     map[string]*Node
	conns     map[*simConn]struct{}
}

func newSimnet() *simnet {
	return &simnet{cuts: map[link]loss{}, thin: map[link]thin{}, busy: map[link]time.Time{},
		changed: make(chan struct{}), listeners: map[string]*simListener{},
		nodes: map[string]*Node{}, conns: map[*simConn]struct{}{}}
}

func (w *simnet) turn() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// cut makes links lossy. Those that were cut before stay as they were.
func (w *simnet) cut(how loss, links ...link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range links {
		for _, l := range l.ports() {
			if _, already := w.cuts[l]; !already {
				w.cuts[l] = how
			}
		}
	}
	for c := range w.conns {
		if w.resets(c.out.link) || w.resets(c.in.link) {
			c.in.fail(syscall.ECONNRESET)
			c.out.fail(syscall.ECONNRESET)
		}
	}
	w.turn()
}

// thinOut bounds what links carry.
func (w *simnet) thinOut(t thin, links ...link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range links {
		w.thin[l] = t
	}
}

// heal makes all links whole.
func (w *simnet) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cuts)
	for c := range w.conns {
		c.out.flush()
		c.settle()
	}
	w.turn()
}

func (w *simnet) open(l link) bool {
	_, cut := w.cuts[l]
	return !cut
}

func (w *simnet) resets(l link) bool {
	how, cut := w.cuts[l]
	return cut && how == reset
}

func (w *simnet) both(l link) bool { return w.open(l) && w.open(l.back()) }

// pass waits for ok, which is asked with mu held whenever something has changed.
func (w *simnet) pass(ctx context.Context, ok func() (bool, error)) error {
	for {
		w.mu.Lock()
		done, err := ok()
		changed := w.changed
		w.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// up has a node answer at its HTTP address; nil takes it away.
func (w *simnet) up(id string, n *Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[id] = n; n == nil {
		delete(w.nodes, id)
	}
	w.turn()
}

// simHost is one node's end of the network.
type simHost struct {
	*simnet
	id string
}

// Listen implements rafttransport.Network.
func (h simHost) Listen(_ context.Context, addr string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.listeners[addr]; taken {
		return nil, fmt.Errorf("listen %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &simListener{net: h.simnet, addr: simAddr(addr), backlog: make(chan *simConn, 16), closed: make(chan struct{})}
	h.listeners[addr] = l
	return l, nil
}

// Dial implements rafttransport.Network. Over a cut link it waits.
func (h simHost) Dial(ctx context.Context, addr string) (c net.Conn, err error) {
	to, _, _ := net.SplitHostPort(addr)
	l := link{h.id, to, raftPort}
	err = h.pass(ctx, func() (bool, error) {
		listener := h.listeners[addr]
		switch {
		case h.resets(l), h.resets(l.back()), h.both(l) && listener == nil:
			return false, syscall.ECONNREFUSED
		case !h.both(l):
			return false, nil
		}
		near, far := h.connect(l, addr)
		select {
		case listener.backlog <- far:
			c = near
			return true, nil
		default:
			return false, syscall.ECONNREFUSED
		}
	})
	return c, err
}

func (w *simnet) connect(l link, addr string) (near, far *simConn) {
	there, here := newSimStream(w, l), newSimStream(w, l.back())
	near = &simConn{net: w, in: here, out: there, local: simAddr(l.from), remote: simAddr(addr)}
	far = &simConn{net: w, in: there, out: here, local: simAddr(addr), remote: simAddr(l.from)}
	w.conns[near], w.conns[far] = struct{}{}, struct{}{}
	return near, far
}

type simAddr string

func (simAddr) Network() string  { return "sim" }
func (a simAddr) String() string { return string(a) }

type simListener struct {
	net     *simnet
	addr    simAddr
	backlog chan *simConn
	closed  chan struct{}
	once    sync.Once
}

func (l *simListener) Addr() net.Addr { return l.addr }

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, string(l.addr))
		l.net.turn()
		l.net.mu.Unlock()
		close(l.closed)
		for len(l.backlog) > 0 {
			(<-l.backlog).Close()
		}
	})
	return nil
}

// window is how much of a stream may be on its way before its writer waits.
const window = 1 << 20

// simStream is one direction of a connection. Its fields are under net.mu.
type simStream struct {
	net  *simnet
	link link

	ready   []byte // for the reader
	held    []byte // written while the link was cut to hold
	sent    int    // bytes written
	lost    bool   // bytes were dropped, so nothing after them can be delivered
	gone    bool   // the writer has closed
	err     error  // for the reader once ready is empty
	refused error  // for the writer

	until struct{ read, write time.Time }
	wake  chan struct{}
}

func newSimStream(w *simnet, l link) *simStream {
	return &simStream{net: w, link: l, wake: make(chan struct{})}
}

func (s *simStream) stir() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *simStream) fail(err error) {
	s.err, s.refused, s.ready = err, err, nil
	s.stir()
}

// carry takes what the writer wrote.
func (s *simStream) carry(p []byte) {
	how, cut := s.net.cuts[s.link]
	switch {
	case s.lost:
	case !cut:
		s.ready = append(s.ready, p...)
		s.stir()
	case how == hold:
		s.held = append(s.held, p...)
	default:
		s.lost = true
	}
}

// flush delivers what a cut has kept back, the writer's goodbye included.
func (s *simStream) flush() {
	s.ready, s.held = append(s.ready, s.held...), nil
	if s.gone && s.err == nil {
		s.err = io.EOF
		if s.lost {
			s.err = syscall.ECONNRESET
		}
	}
	s.stir()
}

// wait releases mu until the stream has stirred or the deadline is over.
func (s *simStream) wait(deadline time.Time) {
	wake := s.wake
	s.net.mu.Unlock()
	defer s.net.mu.Lock()
	if deadline.IsZero() {
		<-wake
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	}
}

func over(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// simConn is one end of a connection.
type simConn struct {
	net           *simnet
	in, out       *simStream
	local, remote simAddr
	closed        bool // under net.mu
}

func (c *simConn) LocalAddr() net.Addr  { return c.local }
func (c *simConn) RemoteAddr() net.Addr { return c.remote }

func (c *simConn) Read(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for s := c.in; ; {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case over(s.until.read):
			return 0, os.ErrDeadlineExceeded
		case len(s.ready) > 0:
			n := copy(p, s.ready)
			if s.ready = s.ready[n:]; len(s.ready) == 0 {
				s.stir()
			}
			return n, nil
		case s.err != nil:
			return 0, s.err
		}
		s.wait(s.until.read)
	}
}

func (c *simConn) Write(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for s := c.out; ; {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case over(s.until.write):
			return 0, os.ErrDeadlineExceeded
		case s.refused != nil:
			return 0, s.refused
		case len(s.ready)+len(s.held) < window:
			return c.transmit(p)
		}
		s.wait(s.until.write)
	}
}

// transmit takes the time that bytes need on the link, and breaks a connection that has
// carried all it may.
func (c *simConn) transmit(p []byte) (n int, err error) {
	s := c.out
	t := c.net.thin[link{from: s.link.from, to: s.link.to}]
	if s.sent += len(p); t.carries > 0 && s.sent > t.carries {
		c.in.fail(syscall.ECONNRESET)
		s.fail(syscall.ECONNRESET)
		return 0, syscall.ECONNRESET
	}
	if t.rate == 0 {
		s.carry(p)
		return len(p), nil
	}
	const turn = 16 << 10 // then another connection may send
	for n < len(p) {
		piece := p[n:min(n+turn, len(p))]
		start := time.Now()
		if busy := c.net.busy[s.link]; busy.After(start) {
			start = busy
		}
		done := start.Add(time.Duration(len(piece)) * time.Second / time.Duration(t.rate))
		c.net.busy[s.link] = done
		c.net.mu.Unlock()
		time.Sleep(time.Until(done))
		c.net.mu.Lock()
		if s.refused != nil {
			return n, s.refused
		}
		s.carry(piece)
		if n += len(piece); n < len(p) && over(s.until.write) {
			return n, os.ErrDeadlineExceeded
		}
	}
	return n, nil
}

// Close notifies the other end, unless the link is cut: then heal does.
func (c *simConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed, c.out.gone = true, true
	c.in.stir()
	c.out.stir()
	c.settle()
	return nil
}

// settle lets the other end of a closed connection know, once it can.
func (c *simConn) settle() {
	if !c.closed || !c.net.open(c.out.link) {
		return
	}
	c.in.refused = syscall.EPIPE
	c.out.flush()
	delete(c.net.conns, c)
}

func (c *simConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *simConn) SetReadDeadline(t time.Time) error  { return c.until(c.in, &c.in.until.read, t) }
func (c *simConn) SetWriteDeadline(t time.Time) error { return c.until(c.out, &c.out.until.write, t) }

func (c *simConn) until(s *simStream, deadline *time.Time, t time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if *deadline != t {
		*deadline = t
		s.stir()
	}
	return nil
}

// call is one call of Peers from h: connected both ways, carried out by the node
// that is there, and answered if the way back is open then.
func call[T any](ctx context.Context, h simHost, url string, do func(*Node) (T, error)) (answer T, err error) {
	l := link{h.id, strings.TrimPrefix(url, "http://"), httpPort}
	var n *Node
	err = h.pass(ctx, func() (bool, error) {
		n = h.nodes[l.to]
		if h.resets(l) || h.resets(l.back()) || h.both(l) && n == nil {
			return false, syscall.ECONNREFUSED
		}
		return h.both(l), nil
	})
	if err != nil {
		return answer, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	answer, failure := do(n)
	lost := false
	err = h.pass(ctx, func() (bool, error) {
		if h.nodes[l.to] != n || h.resets(l) || h.resets(l.back()) {
			return false, syscall.ECONNRESET
		}
		how, cut := h.cuts[l.back()]
		lost = lost || cut && how == drop
		return !cut && !lost, nil
	})
	if err != nil {
		var none T
		return none, err
	}
	return answer, failure
}

// Identify implements Peers, as do the following.
func (h simHost) Identify(ctx context.Context, url string, q Question) (Report, error) {
	return call(ctx, h, url, func(n *Node) (Report, error) { return n.Report(q), nil })
}

func (h simHost) Forward(ctx context.Context, url string, request []byte) ([]byte, error) {
	return call(ctx, h, url, func(n *Node) ([]byte, error) { return n.ProposeForwarded(ctx, request) })
}

func (h simHost) ReadIndex(ctx context.Context, url string) (uint64, error) {
	return call(ctx, h, url, func(n *Node) (uint64, error) { return n.ReadIndex(ctx) })
}

func (h simHost) Join(ctx context.Context, url string, m frame.Member, opts MemberOptions) error {
	_, err := call(ctx, h, url, func(n *Node) (struct{}, error) {
		_, err := n.AddMember(ctx, m, opts)
		if _, leader := n.roster.Leader(); errors.Is(err, ErrNotLeader) && leader != "" && leader != url {
			err = simHost{h.simnet, n.cfg.ID}.Join(ctx, leader, m, opts)
		}
		return struct{}{}, err
	})
	return err
}
