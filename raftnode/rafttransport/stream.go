package rafttransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// How long, and for how many bytes that it still sends, a refused peer is waited
	// for to read the reason before the connection is closed.
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 64 << 10

	maxAcceptDelay = time.Second
)

// keepAlive finds a peer whose machine is gone within half a minute.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// stream is the raft.StreamLayer: what it accepts and dials has passed the
// handshake.
type stream struct {
	opts     Options
	listener net.Listener
	addr     advertised
	conns    *registry
	refused  *refusals
	accepted chan *conn // handshake done

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // the accept loop and its handshakes
}

func listen(o Options, book *refusals) (*stream, error) {
	ln, err := o.Listen(context.Background(), o.Bind)
	if err != nil {
		return nil, err
	}
	addr, err := advertise(o.Advertise, ln.Addr())
	if err != nil {
		ln.Close()
		return nil, err
	}
	s := &stream{
		opts: o, listener: ln, addr: addr, refused: book,
		conns:    newRegistry(o.Timeout),
		accepted: make(chan *conn),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.acceptLoop)
	return s, nil
}

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener; raft takes it for the local address.
func (s *stream) Addr() net.Addr { return s.addr }

// Close implements net.Listener. It waits for nothing: see wait.
func (s *stream) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.conns.close()
	return err
}

// wait returns when nothing of a closed stream runs, raft's handlers of accepted
// connections included.
func (s *stream) wait() {
	s.running.Wait()
	s.conns.owned.Wait()
}

// Dial implements raft.StreamLayer: connected, and through the handshake, within
// timeout.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	c, err := s.dial(ctx, address)
	if err != nil {
		if s.ctx.Err() != nil {
			err = raft.ErrTransportShutdown
		}
		return nil, fmt.Errorf("rafttransport: dial %s: %w", address, err)
	}
	return c, nil
}

func (s *stream) dial(ctx context.Context, address raft.ServerAddress) (*conn, error) {
	raw, err := s.opts.Dial(ctx, string(address))
	if err != nil {
		return nil, err
	}
	c, _ := s.conns.add(raw, false)
	if c == nil {
		raw.Close()
		return nil, raft.ErrTransportShutdown
	}
	target, _ := s.opts.Resolve(address)
	h := s.handshake(c, target)
	deadline, _ := ctx.Deadline()
	_ = raw.SetDeadline(deadline)
	if err := h.dial(); err != nil {
		s.fail(c, h, string(address), err)
		c.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	s.conns.establish(c)
	return c, nil
}

func (s *stream) acceptLoop() {
	var delay time.Duration
	for {
		raw, err := s.listener.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return
		}
		if err != nil {
			delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
			s.opts.Logger.Error("accepting a raft connection failed", "error", err, "retry-in", delay)
			if !s.sleep(delay) {
				return
			}
			continue
		}
		delay = 0
		s.welcome(raw)
	}
}

func (s *stream) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// welcome starts a connection's handshake and never waits.
func (s *stream) welcome(raw net.Conn) {
	c, closed := s.conns.add(raw, true)
	if closed != nil {
		s.refused.record(busy(closed.Conn))
	}
	if c == nil {
		s.refused.record(busy(raw))
		raw.Close()
		return
	}
	s.running.Go(func() { s.serve(c) })
}

func busy(raw net.Conn) *RefusedError {
	e := refusef(ErrBusy, "%d handshakes pending", maxPending)
	e.Addr = raw.RemoteAddr().String()
	return e
}

// serve runs an accepted connection's handshake and hands it to raft's transport.
func (s *stream) serve(c *conn) {
	h := s.handshake(c, "")
	_ = c.Conn.SetDeadline(time.Now().Add(s.opts.Timeout))
	if err := h.accept(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = refusef(ErrSlow, "not done in %v", s.opts.Timeout)
		}
		s.fail(c, h, c.RemoteAddr().String(), err)
		c.Close()
		return
	}
	_ = c.Conn.SetDeadline(time.Time{})
	s.conns.establish(c)
	s.hand(c)
}

// hand hands the connection to raft's transport. It is counted as owned before, so that
// wait does not miss it.
func (s *stream) hand(c *conn) {
	c.handed = true
	s.conns.owned.Add(1)
	select {
	case s.accepted <- c:
	case <-s.ctx.Done():
		c.Close()
	}
}

func (s *stream) handshake(c *conn, target string) *handshake {
	self := s.opts.Self()
	if self.ClusterID == "" {
		c.outgrown = func() bool { return s.opts.Self().ClusterID != "" }
	}
	return &handshake{
		rw: c.Conn, self: self, target: target, secret: s.opts.Secret, speaks: spoken,
		admit: func(peer Identity) error {
			if err := s.conns.identify(c, peer.NodeID); err != nil {
				return err
			}
			err := s.opts.Admit(peer)
			if err != nil && c.accepted && s.opts.Hear != nil && s.opts.Hear(peer) {
				s.conns.hear(c, peer)
				return nil
			}
			return err
		},
	}
}

// fail records a refusal and, if it is this side's, sends it to the peer. Other errors
// are the network's, and the dialer reports them.
func (s *stream) fail(c *conn, h *handshake, addr string, err error) {
	refusal, ok := errors.AsType[*RefusedError](err)
	if !ok {
		s.opts.Logger.Debug("raft handshake failed", "addr", addr, "error", err)
		return
	}
	refusal.Addr = addr
	refusal.Peer = orDefault(h.peer.NodeID, h.target)
	s.refused.record(refusal)

	// The deadline bounds both writing the refusal and waiting for it to arrive.
	if !refusal.ByPeer {
		_ = c.Conn.SetDeadline(time.Now().Add(lingerTime))
		h.refuse(refusal)
		linger(c.Conn)
	}
}

// linger lets a refusal arrive: closing with bytes unread would reset the
// connection and could take the reason with it. The deadline is set.
func linger(raw net.Conn) {
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, raw, lingerBytes)
}

// advertised is an address as peers dial it, a host name included.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

func advertise(wanted string, bound net.Addr) (advertised, error) {
	_, boundPort, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(orDefault(wanted, bound.String()))
	if err != nil {
		return "", fmt.Errorf("advertised address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		return "", fmt.Errorf("advertised address %s:%s names no host that peers could dial", host, port)
	}
	if port == "0" {
		port = boundPort
	}
	return advertised(net.JoinHostPort(host, port)), nil
}
