package client

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

type messages = connect.ServerStreamForClient[ringlogv1.TailResponse]

// stream reads messages, from one node after the other where it must. One goroutine
// uses it.
//
// next is where to go on: everything before it was received. It is 0 until a node
// has said where the stream begins, and then only rises.
type stream struct {
	c    *Client
	open func(ctx context.Context, e *endpoint, next uint64) (*messages, error)
	next uint64

	tries     *tries
	bounded   bool      // not only for the first message there is a deadline, but for each
	deadline  time.Time // by which a first message must be there, or where bounded the next
	contacted bool      // one came
	conn      *connection
}

// connection is a stream's present one.
type connection struct {
	node    *endpoint
	in      *messages
	ctx     context.Context
	sent    *atomic.Bool
	stop    func()                  // the guard
	cut     context.CancelCauseFunc // ends ctx
	quiet   atomic.Int64            // since when a message is waited for, Unix nanoseconds; 0 while none is
	opened  time.Time
	started bool // a message came
}

func (c *Client) newStream(op string, open func(context.Context, *endpoint, uint64) (*messages, error)) *stream {
	return &stream{c: c, open: open, tries: c.newTries(op, reading), deadline: time.Now().Add(c.cfg.Timeout)}
}

// recv returns the next message, or io.EOF where the node has ended the stream as it
// should; called again, it goes on from there. Any other error is the end.
func (s *stream) recv(ctx context.Context) (*ringlogv1.TailResponse, error) {
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
		if s.receive() {
			return s.took(s.conn.in.Msg()), nil
		}
		if err := s.broke(ctx); err != nil {
			return nil, err
		}
	}
}

// connect opens the stream at the node whose turn it is, if it can. Before a first message
// that is tried for Config.Timeout, later until ctx is done, or where the stream is bounded
// for Config.Timeout again.
func (s *stream) connect(ctx context.Context) error {
	choosing := ctx
	if !s.contacted || s.bounded {
		var cancel context.CancelFunc
		choosing, cancel = context.WithDeadline(ctx, s.deadline)
		defer cancel()
	}
	e, err := s.tries.next(choosing)
	if err != nil {
		return err
	}
	conn := &connection{node: e, opened: time.Now()}
	open, cut := context.WithCancelCause(ctx)
	conn.cut = cut
	conn.ctx, conn.stop = s.c.guard(open, e, func() time.Duration { return silence(&conn.quiet) })
	var watched context.Context
	watched, conn.sent = traced(conn.ctx)
	conn.quiet.Store(time.Now().UnixNano())
	stop := s.cutLate(conn)
	conn.in, err = s.open(watched, e, s.next)
	stop()
	if err != nil {
		err = conn.silenced(err)
		conn.end()
		_, err = s.tries.judge(ctx, e, classify(err, conn.sent.Load()))
		return err
	}
	s.conn = conn
	return nil
}

// silence is for how long something is waited for, since a time in Unix nanoseconds
// or 0.
func silence(since *atomic.Int64) time.Duration {
	at := since.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// receive waits for a message, on a bounded stream until its deadline.
func (s *stream) receive() bool {
	defer s.cutLate(s.conn)()
	return s.conn.receive()
}

// cutLate ends a bounded stream's connection at the deadline, unless stop is called
// before: a node that shows life without bringing the stream on is not waited for longer.
func (s *stream) cutLate(c *connection) (stop func()) {
	if !s.bounded {
		return func() {}
	}
	late := time.AfterFunc(time.Until(s.deadline), func() { c.cut(errSilent) })
	return func() { late.Stop() }
}

// silenced is err, or errSilent where that has ended the connection.
func (c *connection) silenced(err error) error {
	if cause := context.Cause(c.ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

func (c *connection) end() {
	c.stop()
	c.cut(context.Canceled)
}

func (c *connection) receive() bool {
	c.quiet.Store(time.Now().UnixNano())
	defer c.quiet.Store(0)
	return c.in.Receive()
}

// steady is how long a connection lasts that is no failure when it ends.
const steady = 5 * time.Second

// took notes how far the stream has come. Failures count as in a row until a
// connection has brought it on or lasted: else it would be opened without a pause at a
// node that always cuts it.
func (s *stream) took(m *ringlogv1.TailResponse) *ringlogv1.TailResponse {
	if !s.conn.started {
		s.conn.started, s.contacted = true, true
		s.c.endpoints.worked(s.conn.node, s.conn.in.ResponseHeader().Get(leaderHeader))
	}
	if len(s.tries.tried) > 0 && (m.GetNext() > s.next || time.Since(s.conn.opened) > steady) {
		s.tries = s.c.newTries(s.tries.op, reading)
	}
	s.next = max(s.next, m.GetNext())
	return m
}

// broke decides what follows the end of a connection: nil is another try.
func (s *stream) broke(ctx context.Context) error {
	conn := s.conn
	err := conn.silenced(conn.in.Err())
	s.disconnect()
	switch {
	case ctx.Err() != nil:
		return s.tries.end(context.Cause(ctx))
	case err == nil:
		s.c.endpoints.declined(conn.node, "")
		s.tries.skip(conn.node)
		return io.EOF
	}
	f := classify(err, conn.sent.Load())
	if s.next > 0 && f.code() == api.PastTail {
		f.final = false // this node has not yet what another one had
	}
	s.tries.skip(conn.node)
	_, err = s.tries.judge(ctx, conn.node, f)
	return err
}

func (s *stream) disconnect() {
	if s.conn == nil {
		return
	}
	s.conn.end()
	_ = s.conn.in.Close()
	s.conn = nil
}

// skip keeps a node for the next round.
func (t *tries) skip(e *endpoint) {
	if !has(t.tried, e) {
		t.tried = append(t.tried, e)
	}
}

// isAnswer reports whether err is a node's answer with that code.
func isAnswer(err error, code api.Code) bool {
	var answer *api.Error
	return errors.As(err, &answer) && answer.Code == code
}
