package calls

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

// Messages are what one connection brings.
type Messages = connect.ServerStreamForClient[ringlogv1.TailResponse]

// OpenFunc opens a stream at one node from an offset on, 0 being where its caller wants to begin.
type OpenFunc func(ctx context.Context, n *Node, next uint64) (*Messages, error)

// Stream reads messages, from one node after the other if it must. One goroutine uses it.
//
// next is the offset to resume from: everything before it was received. It is 0 until a node
// has said where the stream begins, and then only rises.
type Stream struct {
	c    *Cluster
	open OpenFunc
	next uint64

	// Those since the stream has last made progress.
	attempts  *attempts
	bounded   bool      // each message has a deadline, not only the first
	deadline  time.Time // of the first message, or if bounded of the next
	contacted bool      // a message came
	// nil while there is none.
	conn *connection
}

// connection is a stream's present one.
type connection struct {
	node *Node
	in   *Messages
	ctx  context.Context
	// Whether the request may have left.
	sent    *atomic.Bool
	stop    func()                  // the guard
	ended   func(error)             // reports the end to Config.Observe
	cut     context.CancelCauseFunc // ends ctx
	quiet   atomic.Int64            // since when a message is waited for, Unix nanoseconds; 0 while none is
	opened  time.Time
	started bool // a message came
}

// NewStream returns a stream that is not open yet. With bounded each message is waited for
// Config.Timeout, else only the first.
func (c *Cluster) NewStream(op Op, bounded bool, open OpenFunc) *Stream {
	return &Stream{c: c, open: open, attempts: c.newAttempts(op, Reading), bounded: bounded,
		deadline: time.Now().Add(c.cfg.Timeout)}
}

// Receive returns the next message, or io.EOF if the node has ended the stream as it
// should; called again, it resumes from there. Any other error is the end.
func (s *Stream) Receive(ctx context.Context) (*ringlogv1.TailResponse, error) {
	// The time for a message begins when it is asked for.
	if s.bounded && s.contacted {
		s.deadline = time.Now().Add(s.c.cfg.Timeout)
	}
	for {
		if s.conn == nil {
			if err := s.connect(ctx); err != nil {
				return nil, err
			}
			continue // it may have failed
		}
		if s.waitMessage() {
			return s.noteMessage(s.conn.in.Msg()), nil
		}
		if err := s.afterBreak(ctx); err != nil {
			return nil, err
		}
	}
}

// connect opens the stream at the next node, if it can. Before a first message that is tried
// for Config.Timeout, later until ctx is done, or if the stream is bounded for
// Config.Timeout again.
func (s *Stream) connect(ctx context.Context) error {
	// choosing limits the choice of a node. The connection lasts as long as ctx.
	choosing := ctx
	if !s.contacted || s.bounded {
		var cancel context.CancelFunc
		choosing, cancel = context.WithDeadline(ctx, s.deadline)
		defer cancel()
	}
	n, err := s.attempts.nextNode(choosing)
	if err != nil {
		return err
	}

	// The connection ends with ctx, at its deadline, or when the node shows no life.
	conn := &connection{node: n, opened: time.Now()}
	// conn.ctx is below this one, so cut ends it, too.
	open, cut := context.WithCancelCause(ctx)
	conn.cut = cut
	conn.ctx, conn.stop = s.c.guard(open, n, func() time.Duration { return quietTime(&conn.quiet) })
	var watched context.Context
	s.attempts.asked++
	var observed context.Context
	observed, conn.ended = s.c.observe(conn.ctx, s.attempts.op, n, s.attempts.asked)
	watched, conn.sent = traceSent(observed)
	// From here on the node is waited for.
	conn.quiet.Store(time.Now().UnixNano())
	release := s.cutAtDeadline(conn)
	conn.in, err = s.open(watched, n, s.next)
	// The deadline is for the opening, not for the stream.
	release()
	if err != nil {
		err = conn.silenced(err)
		conn.end(err)
		// nil means that another attempt may follow.
		_, err = s.attempts.judge(ctx, n, classify(err, conn.sent.Load()))
		return err
	}
	s.conn = conn
	return nil
}

// waitMessage waits for a message, on a bounded stream until its deadline.
func (s *Stream) waitMessage() bool {
	defer s.cutAtDeadline(s.conn)()
	s.conn.quiet.Store(time.Now().UnixNano())
	defer s.conn.quiet.Store(0)
	return s.conn.in.Receive()
}

// cutAtDeadline ends a bounded stream's connection at the deadline, unless release is called
// before: a node that shows life without sending messages is not waited for longer.
func (s *Stream) cutAtDeadline(c *connection) (release func()) {
	if !s.bounded {
		return func() {}
	}
	late := time.AfterFunc(time.Until(s.deadline), func() { c.cut(errSilent) })
	return func() { late.Stop() }
}

// silenced is err, or errSilent if that has ended the connection.
func (c *connection) silenced(err error) error {
	// err would only say that the context was canceled.
	if cause := context.Cause(c.ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// end stops the timers of the connection and hangs up. err is why, nil if it has brought all it should.
func (c *connection) end(err error) {
	c.ended(err)
	c.stop()
	c.cut(context.Canceled)
}

// steady is how long a connection lasts that is no failure when it ends.
const steady = 5 * time.Second

// noteMessage notes how far the stream has come. Failures count as in a row until a
// connection has brought new events or lasted: else it would be opened without a pause at a
// node that always cuts it.
func (s *Stream) noteMessage(m *ringlogv1.TailResponse) *ringlogv1.TailResponse {
	if !s.conn.started {
		s.conn.started, s.contacted = true, true
		s.c.nodes.worked(s.conn.node, s.conn.in.ResponseHeader().Get(leaderHeader))
	}
	// Without a node that was tried, the attempts are new already.
	if len(s.attempts.tried) > 0 && (m.GetNext() > s.next || time.Since(s.conn.opened) > steady) {
		s.attempts = s.c.newAttempts(s.attempts.op, Reading)
	}
	// A node that lags may name a lower offset.
	s.next = max(s.next, m.GetNext())
	return m
}

// afterBreak decides what follows the end of a connection: nil is another attempt.
func (s *Stream) afterBreak(ctx context.Context) error {
	conn := s.conn
	err := conn.silenced(conn.in.Err())
	s.disconnect(err)
	switch {
	case ctx.Err() != nil:
		return s.attempts.end(context.Cause(ctx))
	case err == nil:
		// A node ends a stream when it stops or cannot serve it, so another one is asked next.
		s.c.nodes.declined(conn.node, "")
		s.attempts.skip(conn.node)
		return io.EOF
	}
	f := classify(err, conn.sent.Load())
	if s.next > 0 && f.code() == api.PastTail {
		f.final = false // this node does not have yet what another one had
	}
	s.attempts.skip(conn.node)
	_, err = s.attempts.judge(ctx, conn.node, f)
	return err
}

// Disconnect ends the connection, if there is one.
func (s *Stream) Disconnect() { s.disconnect(nil) }

// disconnect ends the connection, if there is one, for a reason.
func (s *Stream) disconnect(err error) {
	if s.conn == nil {
		return
	}
	s.conn.end(err)
	_ = s.conn.in.Close()
	s.conn = nil
}
