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
	l := &line{server: s, conn: conn, in: buffered.Reader}
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
}

// wake ends a read that waits.
func (l *line) wake() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// expect bounds the next read, unless the server closes.
func (l *line) expect(within time.Duration) error {
	if err := l.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
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
		if err != nil || l.expect(l.server.cfg.BodyTimeout) != nil {
			return
		}
		began := time.Now()
		answer, err := l.take(length)
		if fatal := (*lineError)(nil); errors.As(err, &fatal) {
			return
		}
		if !l.reply(answer, err, began) || length > maxCallMessage {
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
	var request ringlogv1.PublishRequest
	if err := l.read(length, &request); err != nil {
		return nil, err
	}
	if l.server.cfg.Node.Diverged() {
		return nil, raftnode.ErrDiverged
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.server.cfg.RequestTimeout)
	defer cancel()
	return l.server.publish(ctx, &request)
}

// read reads a message within the bounds that hold for any body. One that is refused
// for its size is read over, so that the next one can follow.
func (l *line) read(length int, m proto.Message) error {
	s := l.server
	if length > maxCallMessage {
		return tooLarge(maxCallMessage)
	}
	defer s.bodies.Add(int64(-length))
	if s.bodies.Add(int64(length)) > s.cfg.MaxBodies {
		if _, err := io.CopyN(io.Discard, l.in, int64(length)); err != nil {
			return &lineError{err}
		}
		return errBodies()
	}
	buffer := s.getBuffer()
	defer s.putBuffer(buffer)
	b, err := readAll(io.LimitReader(l.in, int64(length)), *buffer, length, length)
	*buffer = b[:0]
	if err != nil || len(b) < length {
		return &lineError{fmt.Errorf("a message broke off after %d bytes of %d", len(b), length)}
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return &api.Error{Code: api.InvalidArgument, Field: "body", Message: "not a PublishRequest: " + err.Error(), Remedy: "see ringlog/v1/ringlog.proto"}
	}
	return nil
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
