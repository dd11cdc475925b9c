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
	// Before its connection is closed, a refused peer gets this time to read the reason,
	// and may send this many bytes meanwhile.
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 1 << 20

	maxAcceptDelay = time.Second // between attempts to accept, after errors
)

// keepAlive detects within half a minute that a peer's machine is gone.
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
	accepted chan *conn // after their handshake; Accept takes them

	ctx     context.Context // ended by Close
	cancel  context.CancelFunc
	running sync.WaitGroup // the accept loop and its handshakes
}

// listen opens the listener and starts to accept. The stream records refusals in book.
func listen(o Options, book *refusals) (*stream, error) {
	ln, err := o.Listen(context.Background(), o.Bind)
	if err != nil {
		return nil, err
	}
	// The address may depend on the port that the kernel chose.
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

// Close implements net.Listener. It does not wait: see wait.
func (s *stream) Close() error {
	s.cancel()
	err := s.listener.Close()
	s.conns.close()
	return err
}

// wait blocks until all goroutines of a closed stream have ended, and raft's handlers of
// accepted connections as well.
func (s *stream) wait() {
	s.running.Wait()
	s.conns.owned.Wait()
}

// Dial implements raft.StreamLayer. It connects and makes the handshake within timeout.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	c, err := s.dial(ctx, address)
	if err != nil {
		if s.ctx.Err() != nil {
			err = raft.ErrTransportShutdown
		}
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

// dial connects and makes the handshake. ctx must have a deadline.
func (s *stream) dial(ctx context.Context, address raft.ServerAddress) (*conn, error) {
	c, err := s.dialOver(ctx, address, s.opts.TLS != nil)
	if errors.Is(err, errPlainPeer) {
		c, err = s.dialOver(ctx, address, false)
	}
	return c, err
}

// dialOver is dial with TLS or without. It returns errPlainPeer if the peer has no TLS and need not have it.
func (s *stream) dialOver(ctx context.Context, address raft.ServerAddress, overTLS bool) (*conn, error) {
	raw, err := s.opts.Dial(ctx, string(address))
	if err != nil {
		return nil, err
	}
	c, _ := s.conns.add(raw, false)
	if c == nil {
		raw.Close()
		return nil, raft.ErrTransportShutdown
	}
	// Without a target any node may answer; membership still decides about it.
	target, _ := s.opts.Resolve(address)
	h := s.handshake(c, target)
	deadline, _ := ctx.Deadline()
	_ = raw.SetDeadline(deadline)
	if overTLS {
		err = s.secureDialled(c, h)
	}
	if err == nil {
		err = h.dial()
	}
	if err != nil {
		s.fail(c, h, string(address), err)
		c.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	s.conns.establish(c)
	return c, nil
}

// acceptLoop accepts connections until the stream is closed.
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
			// With too many open files, for example, the next attempt would fail at once, too.
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

// sleep waits for d, and reports false if the stream was closed before.
func (s *stream) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// welcome starts an accepted connection's handshake, or closes the connection if there are too many. It does
// not block.
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

// busy is the refusal of a connection that has not stated who it is.
func busy(raw net.Conn) *RefusedError {
	e := refusef(ErrBusy, "%d handshakes pending", maxPending)
	e.Addr = raw.RemoteAddr().String()
	return e
}

// serve runs an accepted connection's handshake, within Timeout, and hands the connection to raft's
// transport.
func (s *stream) serve(c *conn) {
	h := s.handshake(c, "")
	_ = c.raw.SetDeadline(time.Now().Add(s.opts.Timeout))
	err := s.secureAccepted(c, h)
	if err == nil {
		err = h.accept()
	}
	// The deadline is of the handshake alone: raft sets its own.
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = refusef(ErrSlow, "not done in %v", s.opts.Timeout)
		}
		s.fail(c, h, c.RemoteAddr().String(), err)
		c.Close()
		return
	}
	_ = c.raw.SetDeadline(time.Time{})
	s.conns.establish(c)
	s.hand(c)
}

// hand hands the connection to raft's transport, which waits in Accept. The connection is
// counted as owned first, so wait does not miss it.
func (s *stream) hand(c *conn) {
	c.handed = true
	s.conns.owned.Add(1)
	select {
	case s.accepted <- c:
	case <-s.ctx.Done():
		c.Close()
	}
}

// handshake prepares the handshake of a connection; target is the node that should answer, "" for any.
func (s *stream) handshake(c *conn, target string) *handshake {
	self := s.opts.Self()
	if self.ClusterID == "" {
		c.outgrown = func() bool { return s.opts.Self().ClusterID != "" }
	}
	return &handshake{
		rw: c.Conn, self: self, target: target, secret: s.opts.Secret, speaks: spoken,
		admit: func(peer Identity) error {
			// Before membership is asked, see identify.
			if err := s.conns.identify(c, peer.NodeID); err != nil {
				return err
			}
			// A dialling peer that is not admitted may still be a leader that has to be heard.
			err := s.opts.Admit(peer)
			if err != nil && c.accepted && s.opts.Hear != nil && s.opts.Hear(peer) {
				s.conns.hear(c, peer)
				return nil
			}
			return err
		},
	}
}

// fail records a refusal and, if this side refuses, sends it to the peer, for up to
// lingerTime. Any other error is one of the network, which the dialer reports.
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
		_ = c.raw.SetDeadline(time.Now().Add(lingerTime))
		h.refuse(refusal)
		linger(c.raw)
	}
}

// linger waits until the peer has read a refusal: closing the connection with unread
// bytes would reset it, and the reason might be lost. The caller sets the deadline.
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

// advertise returns the address that peers dial: wanted, or the bound one, with the bound port for port 0. It
// fails if peers could not dial it.
func advertise(wanted string, bound net.Addr) (advertised, error) {
	_, boundPort, err := net.SplitHostPort(bound.String())
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(orDefault(wanted, bound.String()))
	if err != nil {
		return "", fmt.Errorf("advertised address: %w", err)
	}
	// Every peer would dial itself at such an address.
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		return "", fmt.Errorf("advertised address %s:%s names no host that peers could dial", host, port)
	}
	if port == "0" {
		port = boundPort
	}
	return advertised(net.JoinHostPort(host, port)), nil
}
