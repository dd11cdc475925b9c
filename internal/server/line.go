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

// openLine answers GET /v1/publish: the connection becomes a publishing line, and openLine returns when that ends.
// A line counts as a stream. Lines leave half of the places to readers, who have no other way to follow the log.
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
	// From here on the connection is this function's to close, and net/http answers nothing more on it.
	conn, buffered, err := control.Hijack()
	if err != nil {
		return fmt.Errorf("server: line: %w", err)
	}
	// observe counts the status that the line itself sends.
	if out, ok := w.(*response); ok {
		out.status = http.StatusSwitchingProtocols
	}
	l := &line{server: s, conn: conn, in: buffered.Reader, timeout: s.cfg.RequestTimeout, hold: s.memory.open(r.RemoteAddr)}
	defer l.hold.close()
	if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil {
		l.timeout = min(l.timeout, d) // after which nobody waits
	}
	defer conn.Close()
	// Close ends a line that waits for its next request.
	defer context.AfterFunc(s.ctx, l.wake)()
	if l.send([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.LineProtocol+"\r\n\r\n")) == nil {
		l.serve()
	}
	return nil
}

// line is one client's connection, served by one goroutine. Only wake is called by another one.
type line struct {
	server *Server
	conn   net.Conn
	in     *bufio.Reader
	out    []byte // the last reply, its memory kept for the next

	timeout time.Duration // of each request
	hold    *hold
}

// wake ends a read that waits, and makes the next ones fail until a deadline is set again.
func (l *line) wake() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) }

// expect gives the reads that follow their time. It fails once the server closes.
func (l *line) expect(within time.Duration) error { return l.until(time.Now().Add(within)) }

// until sets the deadline of the reads that follow. It fails once the server closes.
func (l *line) until(at time.Time) error {
	if err := l.conn.SetReadDeadline(at); err != nil {
		return err
	}
	// Asked after the deadline is set, which may have replaced the one of wake.
	return context.Cause(l.server.ctx)
}

// send writes within the time of one write. A line whose write failed has to end.
func (l *line) send(b []byte) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.server.cfg.WriteTimeout)); err != nil {
		return err
	}
	_, err := l.conn.Write(b)
	return err
}

// serve answers one request after the other until the client hangs up, stays silent for idleTimeout or breaks the
// protocol, or until the server closes.
func (l *line) serve() {
	for {
		if l.expect(idleTimeout) != nil {
			return
		}
		length, err := api.ReadLineHead(l.in)
		if err != nil {
			return
		}
		// The time to answer counts from the head: the client decides when it comes.
		began := time.Now()
		answer, err := l.take(length)
		// Where in the stream the next request begins is not known, so that no reply makes sense.
		if fatal := (*lineError)(nil); errors.As(err, &fatal) {
			return
		}
		// A request that is too large is answered, but may not have been read to its end.
		if !l.reply(answer, err, began) || length > api.MaxLineMessage {
			return
		}
	}
}

// lineError ends a line on which no request can follow.
type lineError struct{ err error }

func (e *lineError) Error() string { return "server: line: " + e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

// take reads a request of that many bytes and publishes its events. It returns a *lineError where the line has to
// end without a reply.
func (l *line) take(length int) (*ringlogv1.PublishResponse, error) {
	defer l.hold.release()
	var request ringlogv1.PublishRequest
	if err := l.read(length, &request); err != nil {
		return nil, err
	}
	if l.server.cfg.Node.Diverged() {
		return nil, raftnode.ErrDiverged
	}
	// The server's end does not interrupt a publish: its outcome would be unknown to the client.
	ctx, cancel := context.WithTimeout(withHold(context.Background(), l.hold), l.timeout)
	defer cancel()
	return l.server.publish(ctx, &request)
}

// read reads a message of length bytes within the bounds that hold for any body. It skips a message that is
// refused for its size: the client may write all of it before it reads, and would otherwise find the connection
// reset in place of the reply.
func (l *line) read(length int, m proto.Message) error {
	s := l.server
	// serve ends the line after this refusal, so that skipping a part is enough.
	if length > api.MaxLineMessage {
		_, _ = io.CopyN(io.Discard, l.in, min(int64(length), maxDiscard))
		return api.RequestTooLarge(api.MaxLineMessage)
	}
	rest := &io.LimitedReader{R: l.in, N: int64(length)}
	buffer := s.getBuffer()
	defer s.putBuffer(buffer)
	b, err := readAll(&charged{from: rest, line: l, pace: pace{idle: s.cfg.BodyTimeout}}, *buffer, length, length)
	*buffer = b[:0]
	// A refusal for want of memory leaves the line intact, once the rest of the message is skipped. What was read
	// is released first: it is of no use any more.
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
	// Room is made for the decoded message before it is built.
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

// Read implements io.Reader. It reports missing room after the bytes it has read, which are counted.
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

// reply answers one request, and reports whether the line can take another.
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
	// One large reply must not occupy memory for as long as the line lasts.
	if cap(l.out) > keptBuffer {
		l.out = nil
	}
	return true
}
