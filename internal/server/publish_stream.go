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
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/raftnode"
)

// publishStreams opens publish streams, see api.PublishStreamProtocol. Its fields are what each of them needs.
type publishStreams struct {
	cfg       Config
	publisher *publisher
	bodies    *bodyReader
	messages  *messageReader
	streams   *streamPlaces
	callers   *callers
	memory    *memory
	metrics   *metrics
	errors    *errorWriter
	stopping  context.Context // ends when the server closes
}

// open answers GET /v1/publish: the connection becomes a publish stream, and open returns when that ends. Publish
// streams leave half of the places to readers, who have no other way to follow the log.
func (h *publishStreams) open(w http.ResponseWriter, r *http.Request) error {
	upgrades := strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
	if r.ProtoMajor != 1 || !upgrades || r.Header.Get("Upgrade") != api.PublishStreamProtocol {
		w.Header().Set("Upgrade", api.PublishStreamProtocol)
		return api.Refuse(api.InvalidArgument, "Upgrade",
			"this is where a connection of HTTP/1.1 becomes a publish stream",
			"send Connection: Upgrade and Upgrade: "+api.PublishStreamProtocol+", or publish with POST /v1/events")
	}
	// A publisher can fall back to requests, a reader cannot.
	if h.streams.halfTaken() {
		return api.Refuse(api.Overloaded, "Upgrade",
			"there are as many publish streams and reads as this node serves at a time",
			"publish with requests, POST /v1/events")
	}
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	who, err := callerOf(r.Context())
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	// From here on the connection is this function's to close, and net/http answers nothing more on it.
	conn, buffered, err := control.Hijack()
	if err != nil {
		return fmt.Errorf("publish stream: %w", err)
	}
	// countRequest counts the status that the stream itself sends.
	if out, ok := w.(*response); ok {
		out.status = http.StatusSwitchingProtocols
	}
	// The stream has a hold of its own, which is released after each message.
	s := &publishStream{
		publishStreams: h,
		conn:           conn,
		in:             buffered.Reader,
		timeout:        h.cfg.RequestTimeout,
		hold:           h.memory.openHold(payer(who, r.RemoteAddr)),
		who:            who,
	}
	defer s.hold.close()
	if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil {
		s.timeout = min(s.timeout, d) // after which nobody waits
	}
	defer conn.Close()
	// Close ends a stream that waits for its next request.
	defer context.AfterFunc(h.stopping, s.unblockReads)()
	// So does the end of the caller's token.
	defer context.AfterFunc(r.Context(), func() {
		s.over.Store(true)
		s.unblockReads()
	})()
	accepted := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.PublishStreamProtocol +
		"\r\n\r\n"
	// net/http has given the connection away, so the answer is written here.
	if s.send([]byte(accepted)) == nil {
		s.serve()
	}
	return nil
}

// publishStream is one client's connection, served by one goroutine. Only unblockReads is called by another one.
type publishStream struct {
	*publishStreams
	conn net.Conn
	in   *bufio.Reader
	out  []byte // the last reply, its memory kept for the next

	timeout time.Duration // of each request
	hold    *hold         // what the request under way has in memory
	who     *caller
	over    atomic.Bool // the caller's token is not good any more
}

// errOver ends a stream whose caller's token is not good any more.
var errOver = errors.New("the token is not good any more")

// unblockReads ends a read that waits, and makes the next ones fail until a deadline is set again.
func (s *publishStream) unblockReads() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }

// readWithin bounds the reads that follow in time. It fails once the server closes.
func (s *publishStream) readWithin(limit time.Duration) error {
	return s.readUntil(time.Now().Add(limit))
}

// readUntil sets the deadline of the reads that follow. It fails once the server closes.
func (s *publishStream) readUntil(at time.Time) error {
	if err := s.conn.SetReadDeadline(at); err != nil {
		return err
	}
	// Asked after the deadline is set, which may have replaced the one of unblockReads.
	if s.over.Load() {
		return errOver
	}
	return context.Cause(s.stopping)
}

// send writes within the time of one write. A stream whose write failed has to end.
func (s *publishStream) send(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// serve answers one request after the other until the client hangs up, stays silent for idleTimeout or breaks the
// protocol, or until the server closes.
func (s *publishStream) serve() {
	for {
		if s.readWithin(idleTimeout) != nil {
			return
		}
		// A client that hangs up between two requests ends the stream here.
		length, err := api.ReadPublishHead(s.in)
		if err != nil {
			return
		}
		// The time to answer counts from the head: the client decides when it comes.
		began := time.Now()
		answer, err := s.publishNext(length)
		// Where in the stream the next request begins is not known, so no reply makes sense.
		if _, fatal := errors.AsType[*brokenStreamError](err); fatal {
			return
		}
		// A request that is too large is answered, but may not have been read to its end.
		if !s.reply(answer, err, began) || length > api.MaxPublishMessage {
			return
		}
	}
}

// brokenStreamError ends a publish stream on which no request can follow.
type brokenStreamError struct{ err error }

// Error implements error; the client does not see it.
func (e *brokenStreamError) Error() string { return "publish stream: " + e.err.Error() }
func (e *brokenStreamError) Unwrap() error { return e.err }

// publishNext reads a request of that many bytes and publishes its events. It returns a *brokenStreamError where the
// stream has to end without a reply.
func (s *publishStream) publishNext(length int) (*ringlogv1.PublishResponse, error) {
	defer s.hold.release()
	// What a message takes is released once it is answered.
	var request ringlogv1.PublishRequest
	if err := s.readMessage(length, &request); err != nil {
		return nil, err
	}
	if s.cfg.Node.Diverged() {
		return nil, raftnode.ErrDiverged
	}
	// A token that was good when the stream began may be none by now.
	if err := s.callers.still(s.who, access.Publish); err != nil {
		return nil, err
	}
	if err := s.callers.count(s.who); err != nil {
		return nil, err
	}
	// The server's end does not interrupt a publish: its outcome would be unknown to the client.
	ctx, cancel := context.WithTimeout(access.With(withHold(context.Background(), s.hold), s.who.Principal), s.timeout)
	defer cancel()
	return s.publisher.publish(ctx, &request)
}

// readMessage reads a message of length bytes within the bounds that hold for any body. It skips a message that is
// refused for its size: the client may write all of it before it reads, and would otherwise find the connection
// reset in place of the reply.
func (s *publishStream) readMessage(length int, m proto.Message) error {
	// serve ends the stream after this refusal, so skipping a part is enough.
	if length > api.MaxPublishMessage {
		_, _ = io.CopyN(io.Discard, s.in, min(int64(length), maxDiscard))
		return api.RequestTooLarge(api.MaxPublishMessage)
	}
	// No more than this message is read, as the next one's head follows it.
	rest := &io.LimitedReader{R: s.in, N: int64(length)}
	buffer := s.bodies.getBuffer()
	defer s.bodies.putBuffer(buffer)
	b, err := readAll(&charged{from: rest, stream: s, pace: pace{idle: s.cfg.BodyTimeout}}, *buffer, length, length)
	*buffer = b[:0]
	// A refusal for want of memory leaves the stream intact, once the rest of the message is skipped. What was read
	// is released first: nobody needs it any more.
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Code != api.Timeout {
		s.hold.release()
		if _, err := io.Copy(io.Discard, rest); err != nil || rest.N > 0 {
			return &brokenStreamError{io.ErrUnexpectedEOF}
		}
		return refusal
	}
	// A message that is cut leaves no place where the next one begins.
	if err != nil || len(b) < length {
		return &brokenStreamError{fmt.Errorf("a message broke off after %d bytes of %d", len(b), length)}
	}
	// Room is made for the decoded message before it is built.
	if err := s.messages.takeMessage(s.hold, publishMessage, b, api.MaxPublishMessage, false); err != nil {
		return err
	}
	// Malformed messages are refused, and the stream continues with the next.
	if err := proto.Unmarshal(b, m); err != nil {
		return api.Refuse(api.InvalidArgument, "body",
			"not a PublishRequest: "+err.Error(),
			"see ringlog/v1/ringlog.proto")
	}
	return nil
}

// charged counts what is read against the server's memory for requests, and bounds the time
// in which it must arrive.
type charged struct {
	from   io.Reader
	stream *publishStream
	pace   pace
}

// Read implements io.Reader. It reports missing room after the bytes it has read, which are counted.
func (c *charged) Read(p []byte) (int, error) {
	if err := c.stream.readUntil(c.pace.deadline()); err != nil {
		return 0, err
	}
	n, err := c.from.Read(p)
	c.pace.got += int64(n)
	if full := c.stream.hold.receiveBody(n); full != nil && (err == nil || err == io.EOF) {
		err = full
	}
	return n, err
}

// reply answers one request, and reports whether the stream can take another.
func (s *publishStream) reply(answer *ringlogv1.PublishResponse, err error, began time.Time) bool {
	// The status is what a POST would have had, for the metrics.
	reply, status := &ringlogv1.PublishReply{Published: answer}, http.StatusOK
	if err != nil {
		e := s.errors.toAPI(err)
		reply, status = &ringlogv1.PublishReply{Error: errorDetail(e), RetryAfterSeconds: retryAfter(e.Code)}, e.Code.Status()
	}
	s.metrics.countAnswer(api.PublishStreamPath, status, began, false)
	// The memory of the reply before is used again.
	s.out, err = api.AppendPublishMessage(s.out[:0], reply)
	if err != nil {
		s.errors.logger.Error("request failed", "error", err)
		return false
	}
	if err := s.send(s.out); err != nil {
		return false
	}
	// One large reply must not occupy memory while the stream lasts.
	if cap(s.out) > keptBuffer {
		s.out = nil
	}
	return true
}
