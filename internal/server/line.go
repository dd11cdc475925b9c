package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/raftnode"
)

// openLine answers GET /v1/publish: the connection becomes a publishing line. It counts
// as a stream, and half of those are left to readers, who have nothing else.
func (s *Server) openLine(w http.ResponseWriter, r *http.Request) error {
	if r.ProtoMajor != 1 || !strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") || r.Header.Get("Upgrade") != api.LineProtocol {
		w.Header().Set("Upgrade", api.LineProtocol)
		return &api.Error{Code: api.InvalidArgument, Field: "Upgrade", Message: "this is where a connection of HTTP/1.1 becomes a publishing line",
			Remedy: "send Connection: Upgrade and Upgrade: " + api.LineProtocol + ", or publish with POST /v1/events"}
	}
	if 2*len(s.streams) >= cap(s.streams) {
		return &api.Error{Code: api.Overloaded, Field: "Upgrade", Message: "there are as many publishing lines and reads as this node serves at a time",
			Remedy: "publish with requests, POST /v1/events"}
	}
	release, err := s.stream()
	if err != nil {
		return err
	}
	defer release()
	control := http.NewResponseController(w)
	conn, buffered, err := control.Hijack()
	if err != nil {
		return fmt.Errorf("server: line: %w", err)
	}
	if out, ok := w.(*response); ok {
		out.status = http.StatusSwitchingProtocols
	}
	l := &line{server: s, conn: conn, in: buffered.Reader, timeout: s.cfg.RequestTimeout, hold: s.memory.open(r.RemoteAddr)}
	defer l.hold.close()
	if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil {
		l.timeout = min(l.timeout, d) // after which nobody waits
	}
	defer conn.Close()
	defer context.AfterFunc(s.ctx, l.wake)()
	if l.send([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.LineProtocol+"\r\n\r\n")) == nil {
		l.serve()
	}
	return nil
}

// line is one client's connection, served by one goroutine.
type line struct {
	server *Server
	conn   net.Conn
	in     *bufio.Reader
	out    []byte

	timeout time.Duration // of each request
	hold    *hold
}

// wake ends a read that waits.
func (l *line) wake() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// expect bounds the next read, unless the server closes.
func (l *line) expect(within time.Duration) error { return l.until(time.Now().Add(within)) }

func (l *line) until(at time.Time) error {
	if err := l.conn.SetReadDeadline(at); err != nil {
		return err
	}
	return context.Cause(l.server.ctx) // asked after the deadline is set, which wake may have been before
}

func (l *line) send(b []byte) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.server.cfg.WriteTimeout)); err != nil {
		return err
	}
	_, err := l.conn.Write(b)
	return err
}

// serve answers requests until the client hangs up, falls silent or breaks the
// protocol, or the server closes.
func (l *line) serve() {
	for {
		if l.expect(idleTimeout) != nil {
			return
		}
		length, err := api.ReadLineHead(l.in)
		if err != nil {
			return
		}
		began := time.Now()
		answer, err := l.take(length)
		if fatal := (*lineError)(nil); errors.As(err, &fatal) {
			return
		}
		if !l.reply(answer, err, began) || length > api.MaxLineMessage {
			return
		}
	}
}

// lineError ends a line on which no request can follow.
type lineError struct{ err error }

func (e *lineError) Error() string { return "server: line: " + e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

// take reads a request of that length and does it.
func (l *line) take(length int) (*ringlogv1.PublishResponse, error) {
	defer l.hold.release()
	var request ringlogv1.PublishRequest
	if err := l.read(length, &request); err != nil {
		return nil, err
	}
	if l.server.cfg.Node.Diverged() {
		return nil, raftnode.ErrDiverged
	}
	ctx, cancel := context.WithTimeout(withHold(context.Background(), l.hold), l.timeout)
	defer cancel()
	return l.server.publish(ctx, &request)
}

// read reads a message within the bounds that hold for any body. One that is refused
// for its size is read over: the client may write all of it before it reads, and would
// else find the connection reset in place of the reply.
func (l *line) read(length int, m proto.Message) error {
	s := l.server
	if length > api.MaxLineMessage {
		_, _ = io.CopyN(io.Discard, l.in, min(int64(length), maxDiscard))
		return api.RequestTooLarge(api.MaxLineMessage)
	}
	rest := &io.LimitedReader{R: l.in, N: int64(length)}
	buffer := s.getBuffer()
	defer s.putBuffer(buffer)
	b, err := readAll(&charged{from: rest, line: l, pace: pace{idle: s.cfg.BodyTimeout}}, *buffer, length, length)
	*buffer = b[:0]
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Code != api.Timeout {
		l.hold.release()
		if _, err := io.Copy(io.Discard, rest); err != nil || rest.N > 0 {
			return &lineError{io.ErrUnexpectedEOF}
		}
		return refusal
	}
	if err != nil || len(b) < length {
		return &lineError{fmt.Errorf("a message broke off after %d bytes of %d", len(b), length)}
	}
	if err := s.takeMessage(l.hold, publishMessage, b, api.MaxLineMessage, false); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return &api.Error{Code: api.InvalidArgument, Field: "body", Message: "not a PublishRequest: " + err.Error(), Remedy: "see ringlog/v1/ringlog.proto"}
	}
	return nil
}

// charged counts what is read against the server's memory for requests, and bounds the time
// in which it must arrive.
type charged struct {
	from io.Reader
	line *line
	pace pace
}

func (c *charged) Read(p []byte) (int, error) {
	if err := c.line.until(c.pace.deadline()); err != nil {
		return 0, err
	}
	n, err := c.from.Read(p)
	c.pace.got += int64(n)
	if full := c.line.hold.receive(n); full != nil && (err == nil || err == io.EOF) {
		err = full
	}
	return n, err
}

// reply answers one request and reports whether the line can go on.
func (l *line) reply(answer *ringlogv1.PublishResponse, err error, began time.Time) bool {
	reply, status := &ringlogv1.PublishReply{Published: answer}, http.StatusOK
	if err != nil {
		e := l.server.explain(err)
		reply, status = &ringlogv1.PublishReply{Error: errorDetail(e), RetryAfterSeconds: retryAfter(e.Code)}, e.Code.Status()
	}
	l.server.metrics.answered(api.LinePath, status, began, false)
	if l.out, err = api.AppendLineMessage(l.out[:0], reply); err != nil {
		l.server.logger.Error("request failed", "error", err)
		return false
	}
	if err := l.send(l.out); err != nil {
		return false
	}
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	return true
}
