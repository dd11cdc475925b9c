package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

const (
	// lineIdle is for how long a line that nothing was sent on is trusted: nodes and what
	// may stand before them hang up after a while.
	lineIdle = 90 * time.Second
	// lineRetry is for how long a node that gave no line is published to with requests.
	lineRetry = time.Minute
	// maxReply bounds what is believed of a reply's length.
	maxReply = 64 << 20
	// keptBuffer bounds the memory that a line keeps from one request to the next.
	keptBuffer = 1 << 20
)

// publishLine is a publishing line to one node, see api.LineProtocol. One goroutine at a time
// uses it, and not again after a publish that failed without the node's answer.
type publishLine struct {
	to   *endpoint
	conn io.ReadWriteCloser
	in   *bufio.Reader
	buf  []byte
}

// openLine asks e for a line and returns nil where there is none to be had: e is an
// older node, has too many, or something between does not let it through.
func (c *Client) openLine(ctx context.Context, e *endpoint) *publishLine {
	// What ctx traces is the publishing, of which this sends nothing. Half of the
	// attempt's time is left for a request in its place.
	opening, cancel := context.WithTimeout(context.Background(), c.cfg.AttemptTimeout/2)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	conn, err := c.upgrade(opening, e)
	if err != nil {
		c.cfg.Logger.Debug("no publishing line", "endpoint", e.url, "error", err)
		if ctx.Err() == nil && !isDial(err) {
			e.lineless.Store(time.Now().Add(lineRetry).UnixNano())
		}
		return nil
	}
	return &publishLine{to: e, conn: conn, in: bufio.NewReader(conn)}
}

// isDial reports that nobody was reached, who could have refused.
func isDial(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

func (c *Client) upgrade(ctx context.Context, e *endpoint) (io.ReadWriteCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+api.LinePath+"?timeout="+c.cfg.AttemptTimeout.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", api.LineProtocol)
	c.authorize(r.Header)
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	conn, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != api.LineProtocol || !ok {
		return nil, errors.Join(fmt.Errorf("%s answered %s", e.url, answer.Status), answer.Body.Close())
	}
	return conn, nil
}

// publish sends a request and waits for its reply. usable tells whether another may
// follow on the line.
func (l *publishLine) publish(ctx context.Context, m *ringlogv1.PublishRequest) (out *ringlogv1.PublishResponse, usable bool, err error) {
	release := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	out, usable, err = l.exchange(ctx, m)
	if !usable && ctx.Err() != nil {
		err = ctx.Err() // more telling than a closed connection
	}
	return out, release() && usable, err
}

func (l *publishLine) exchange(ctx context.Context, m *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, bool, error) {
	var err error
	if l.buf, err = api.AppendLineMessage(l.buf[:0], m); err != nil {
		return nil, true, err
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Reused: true})
	}
	if _, err := l.conn.Write(l.buf); err != nil {
		return nil, false, err
	}
	length, err := api.ReadLineHead(l.in)
	if err != nil {
		return nil, false, err
	}
	if length > maxReply {
		return nil, false, fmt.Errorf("a reply of %d bytes", length)
	}
	if cap(l.buf) < length {
		l.buf = make([]byte, length)
	}
	defer func() {
		if cap(l.buf) > keptBuffer {
			l.buf = nil
		}
	}()
	var reply ringlogv1.PublishReply
	if _, err := io.ReadFull(l.in, l.buf[:length]); err != nil {
		return nil, false, err
	}
	if err := proto.Unmarshal(l.buf[:length], &reply); err != nil {
		return nil, false, fmt.Errorf("the reply is none: %w", err)
	}
	if d := reply.GetError(); d != nil {
		wait := http.Header{}
		wait.Set("Retry-After", fmt.Sprint(reply.GetRetryAfterSeconds()))
		return nil, true, &answerError{errorOf(d), wait}
	}
	if reply.GetPublished() == nil {
		return nil, false, errors.New("an empty reply")
	}
	return reply.GetPublished(), true, nil
}

func (l *publishLine) close() { _ = l.conn.Close() }
