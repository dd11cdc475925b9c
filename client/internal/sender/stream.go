package sender

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
	"github.com/ringrift/ringlog/client/internal/calls"
)

const (
	// streamIdle is how long a stream that nothing was sent on is trusted: nodes, and proxies
	// in front of them, hang up after a while.
	streamIdle = 90 * time.Second
	// streamRetry is how long a node that gave no stream is published to with requests.
	streamRetry = time.Minute
	// maxReply bounds the length that a reply may claim.
	maxReply = 64 << 20
	// keptBuffer bounds the memory that a stream keeps from one request to the next.
	keptBuffer = 1 << 20
)

// publishStream is a publish stream to one node, see api.PublishStreamProtocol. One goroutine at a time
// uses it, and not again after a publish that failed without the node's answer.
type publishStream struct {
	to   *calls.Node
	conn io.ReadWriteCloser
	in   *bufio.Reader
	// The message of the request, then its reply.
	buf []byte
}

// openStream asks n for a stream and returns nil if it gives none: n is an older node, has
// too many, or something between does not let it through.
func openStream(ctx context.Context, c *calls.Cluster, n *calls.Node) *publishStream {
	// What ctx traces is the publishing, of which this sends nothing. Half of the
	// attempt's time is left for a request in its place.
	opening, cancel := context.WithTimeout(context.Background(), c.AttemptTimeout()/2)
	defer cancel()
	// Only the opening ends with ctx. The stream is used for later requests, too.
	defer context.AfterFunc(ctx, cancel)()
	path := api.PublishStreamPath + "?timeout=" + c.AttemptTimeout().String()
	conn, err := c.Upgrade(opening, n, path, api.PublishStreamProtocol)
	if err != nil {
		// No more than Debug: requests do the same without a stream.
		c.Logger().Debug("no publish stream", "endpoint", n.URL, "error", err)
		if ctx.Err() == nil && !failedDial(err) {
			n.DenyStream(streamRetry)
		}
		return nil
	}
	return &publishStream{to: n, conn: conn, in: bufio.NewReader(conn)}
}

// failedDial reports that no node was reached that could have refused.
func failedDial(err error) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == "dial"
}

// publish sends a request and waits for its reply. usable reports whether another may
// follow on the stream.
func (s *publishStream) publish(ctx context.Context,
	m *ringlogv1.PublishRequest) (out *ringlogv1.PublishResponse, usable bool, err error) {
	// An exchange under way fails once the connection is closed.
	release := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	out, usable, err = s.exchange(ctx, m)
	if !usable && ctx.Err() != nil {
		err = ctx.Err() // says more than a closed connection
	}
	// release is false if ctx has ended: then the connection is closed, whatever the exchange returned.
	return out, release() && usable, err
}

// exchange writes the request and reads its reply. usable is false once the two ends may
// disagree about where a message begins.
func (s *publishStream) exchange(ctx context.Context,
	m *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, bool, error) {
	var err error
	s.buf, err = api.AppendPublishMessage(s.buf[:0], m)
	if err != nil {
		// Nothing was written, so the stream can be used.
		return nil, true, err
	}

	// From here on the request may have happened, as the trace of ctx reports.
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Reused: true})
	}
	if _, err := s.conn.Write(s.buf); err != nil {
		return nil, false, err
	}

	// Read the reply into the buffer of the request.
	length, err := api.ReadPublishHead(s.in)
	if err != nil {
		return nil, false, err
	}
	if length > maxReply {
		return nil, false, fmt.Errorf("a reply of %d bytes", length)
	}
	if cap(s.buf) < length {
		s.buf = make([]byte, length)
	}
	// A large reply is rare: its buffer is not kept.
	defer func() {
		if cap(s.buf) > keptBuffer {
			s.buf = nil
		}
	}()
	if _, err := io.ReadFull(s.in, s.buf[:length]); err != nil {
		return nil, false, err
	}
	var reply ringlogv1.PublishReply
	if err := proto.Unmarshal(s.buf[:length], &reply); err != nil {
		return nil, false, fmt.Errorf("malformed reply: %w", err)
	}
	if d := reply.GetError(); d != nil {
		// The form of an answer to a request, which the caller reads alike.
		wait := http.Header{}
		wait.Set("Retry-After", fmt.Sprint(reply.GetRetryAfterSeconds()))
		return nil, true, &calls.AnswerError{API: calls.ErrorOf(d), Header: wait}
	}
	if reply.GetPublished() == nil {
		// The other end has another idea of the protocol.
		return nil, false, errors.New("an empty reply")
	}
	return reply.GetPublished(), true, nil
}

// close hangs up. Whatever was sent on the stream has its answer, or counts as lost.
func (s *publishStream) close() { _ = s.conn.Close() }
