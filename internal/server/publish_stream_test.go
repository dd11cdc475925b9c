package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

// dialer is the client's end of a publish stream.
type dialer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// call asks for a publish stream. It returns the answer and the connection, which is a stream if the answer is 101.
func (s *site) call(query string, headers ...string) (*http.Response, *dialer) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := &dialer{s.t, conn, bufio.NewReader(conn)}
	c.write([]byte("GET " + api.PublishStreamPath + query + " HTTP/1.1\r\nHost: localhost\r\n" +
		strings.Join(headers, "\r\n") + "\r\n\r\n"))
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, c
}

// openStream opens a publish stream; query may have its timeout.
func (s *site) openStream(query ...string) *dialer {
	s.t.Helper()
	answer, c := s.call(strings.Join(query, ""), "Connection: Upgrade\r\nUpgrade: "+api.PublishStreamProtocol)
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != api.PublishStreamProtocol {
		s.t.Fatalf("%s", answer.Status)
	}
	return c
}

func (c *dialer) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *dialer) send(m proto.Message) {
	c.t.Helper()
	b, err := api.AppendPublishMessage(nil, m)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(b)
}

// reply reads the next reply.
func (c *dialer) reply() *ringlogv1.PublishReply {
	c.t.Helper()
	length, err := api.ReadPublishHead(c.in)
	if err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, length)
	var reply ringlogv1.PublishReply
	if _, err := io.ReadFull(c.in, b); err != nil {
		c.t.Fatal(err)
	}
	if err := proto.Unmarshal(b, &reply); err != nil {
		c.t.Fatal(err)
	}
	return &reply
}

// ends requires that the server ends the stream without another byte.
func (c *dialer) ends() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
		c.t.Fatalf("the stream did not end: %q, %v", rest, err)
	}
}

// head returns the head of a message of a publish stream: its length.
func head(length uint32) []byte { return binary.BigEndian.AppendUint32(nil, length) }

func oneEvent(payload string) *ringlogv1.PublishRequest {
	return &ringlogv1.PublishRequest{Events: []*ringlogv1.Event{{Type: "A", Payload: []byte(payload)}}}
}

func TestAPublishStreamAnswersWhatComes(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.MaxBodies = 100_000 })
	claims := s.openStream()
	claims.write(head(100_000)) // a length alone takes no memory
	c := s.openStream()
	steps := []struct {
		what string
		send func()
		code api.Code // "" is an offset
	}{
		{"an event", func() { c.send(oneEvent(`{"n":1}`)) }, ""},
		{"no event", func() { c.send(&ringlogv1.PublishRequest{}) }, api.InvalidArgument},
		{"an empty message", func() { c.write(head(0)) }, api.InvalidArgument},
		{"no message", func() { c.write(append(head(3), "abc"...)) }, api.InvalidArgument},
		{"broken JSON", func() { c.send(oneEvent(`{`)) }, api.InvalidJSON},
		{"a packet of nothing", func() {
			c.send(&ringlogv1.PublishRequest{Packet: &ringlogv1.Packet{Rows: 3, Body: []byte("abc")}})
		}, api.InvalidArgument},
		{
			"more than there is room for",
			func() { c.send(oneEvent(`{"x":"` + strings.Repeat("x", 100_000) + `"}`)) },
			api.TooLarge,
		},
		{"bytes in pieces", func() {
			b, _ := api.AppendPublishMessage(nil, oneEvent(`{"n":2}`))
			for _, one := range b {
				c.write([]byte{one})
			}
		}, ""},
		{"two at once", func() {
			b, _ := api.AppendPublishMessage(nil, oneEvent(`{"n":3}`))
			b, _ = api.AppendPublishMessage(b, oneEvent(`{"n":4}`))
			c.write(b)
			if offset := c.reply().GetPublished().GetFirst(); offset != 4 {
				t.Errorf("the first of two is at offset %d", offset)
			}
		}, ""},
	}
	offset := uint64(2) // 1 is LEADER_ELECTED
	for _, step := range steps {
		step.send()
		reply := c.reply()
		e := reply.GetError()
		switch {
		case api.Code(e.GetCode()) != step.code:
			t.Fatalf("%s: %v", step.what, reply)
		case e != nil && (e.GetMessage() == "" || e.GetRemedy() == "" || e.GetField() == ""):
			t.Errorf("%s: an error that says too little: %v", step.what, e)
		case (reply.GetRetryAfterSeconds() > 0) != (step.code == api.Overloaded):
			t.Errorf("%s: retry after %d", step.what, reply.GetRetryAfterSeconds())
		case e == nil && step.what == "two at once":
			offset++
			fallthrough
		case e == nil:
			if got := reply.GetPublished().GetFirst(); got != offset {
				t.Errorf("%s: is at offset %d, want %d", step.what, got, offset)
			}
			offset++
		}
	}
	// A message past the limit is answered, and then the stream ends.
	c.write(append(head(api.MaxPublishMessage+1), make([]byte, api.MaxPublishMessage+1)...))
	if e := c.reply().GetError(); api.Code(e.GetCode()) != api.TooLarge {
		t.Errorf("a length past the limit: %v", e)
	}
	c.ends()
	if held := s.server.memory.held.Load(); held != 0 {
		t.Errorf("%d bytes of bodies are still counted", held)
	}
	claims.conn.Close()
	eventually(t, "the stream is not counted any more", func() bool { return len(s.server.streams.places) == 0 })
	text := s.ok("GET", "/metrics", "").body
	for _, want := range []string{
		`ringlog_http_requests_total{code="200",route="/v1/publish"} 4`,
		`ringlog_http_requests_total{code="413",route="/v1/publish"} 2`,
		"ringlog_streams 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestWhoGetsAPublishStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token, c.MaxStreams = "secret", 1 })
	const upgrade, token = "Connection: Upgrade\r\nUpgrade: " + api.PublishStreamProtocol, "Authorization: Bearer secret"
	for _, one := range []struct {
		what, headers string
		status        int
	}{
		{"without the token", upgrade, http.StatusUnauthorized},
		{"without an upgrade", token, http.StatusBadRequest},
		{"for another protocol", token + "\r\nConnection: Upgrade\r\nUpgrade: websocket", http.StatusBadRequest},
		{"the first", token + "\r\n" + upgrade, http.StatusSwitchingProtocols},
		{"one too many", token + "\r\n" + upgrade, http.StatusTooManyRequests},
	} {
		answer, _ := s.call("", one.headers)
		if answer.StatusCode != one.status {
			t.Errorf("%s: %s", one.what, answer.Status)
		}
		if one.status != http.StatusSwitchingProtocols {
			text, err := io.ReadAll(answer.Body)
			if err != nil || !strings.Contains(string(text), `"remedy":`) {
				t.Errorf("%s: %s, %v", one.what, text, err)
			}
		}
	}
}

func TestAPublishStreamThatFallsSilentEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	c := s.openStream()
	c.write(append(head(100), "abc"...)) // the other 97 bytes never come
	c.ends()
	if last := s.node.Machine().Stats().Last; last != 1 {
		t.Errorf("the log ends at %d", last)
	}
}

// A server is closed while streams publish: each request gets its reply or the end of its stream, none waits, and what
// was acknowledged is in the log.
// The timeout that a stream is opened with is that of each request, and no request is under way here.
func TestAPublishStreamOutlivesItsTimeout(t *testing.T) {
	t.Parallel()
	c := newSite(t, nil).openStream("?timeout=1ms")
	c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if b, err := c.in.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q, %v", b, err)
	}
	c.conn.SetReadDeadline(time.Time{})
	c.send(oneEvent(`{}`))
	c.reply() // whether the event was appended in a millisecond or not
}

func TestClosingAnswersWhatAPublishStreamHasUnderWay(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	idle := s.openStream()
	const busy = 4
	acknowledged := make(chan uint64, busy)
	begun := make(chan struct{}, busy)
	for i := range busy {
		c := s.openStream()
		go func() {
			var last uint64
			defer func() { acknowledged <- last }()
			for n := 0; ; n++ {
				b, err := api.AppendPublishMessage(nil, oneEvent(fmt.Sprintf(`{"caller":%d,"n":%d}`, i, n)))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.conn.Write(b); err != nil {
					return
				}
				length, err := api.ReadPublishHead(c.in)
				if err != nil {
					return
				}
				reply := make([]byte, length)
				var m ringlogv1.PublishReply
				if _, err := io.ReadFull(c.in, reply); err != nil || proto.Unmarshal(reply, &m) != nil || m.GetError() != nil {
					t.Errorf("a reply was cut, or is an error: %v, %v", err, m.GetError())
					return
				}
				if last = m.GetPublished().GetFirst(); n == 20 {
					begun <- struct{}{}
				}
			}
		}()
	}
	for range busy {
		<-begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	idle.ends()
	for range busy {
		if last := <-acknowledged; last > s.node.Machine().Stats().Last {
			t.Errorf("acknowledged %d, the log ends at %d", last, s.node.Machine().Stats().Last)
		}
	}
}

func TestAPublishStreamOfANodeInTrouble(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node, c.OnPanic = f, func(any) { seen.Add(1) } })
	c := s.openStream()
	f.diverged.Store(true)
	c.send(oneEvent(`{}`))
	if e := c.reply().GetError(); api.Code(e.GetCode()) != api.Unavailable ||
		!strings.Contains(e.GetMessage(), "majority") {
		t.Errorf("a diverged node says %v", e)
	}
	f.diverged.Store(false)
	f.panics.Store(true)
	c.send(oneEvent(`{}`))
	c.ends()
	eventually(t, "the panic is reported", func() bool { return seen.Load() == 1 && len(s.server.streams.places) == 0 })
	f.panics.Store(false)
	f.hangs.Store(true)
	hurried := s.openStream("?timeout=50ms")
	hurried.send(oneEvent(`{}`))
	if e := hurried.reply().GetError(); api.Code(e.GetCode()) != api.Timeout {
		t.Errorf("after the time that the stream asked for: %v", e)
	}
	f.hangs.Store(false)
	again := s.openStream()
	again.send(oneEvent(`{}`))
	if first := again.reply().GetPublished().GetFirst(); first != 2 {
		t.Errorf("the first event is at offset %d", first)
	}
	if held := s.server.memory.held.Load(); held != 0 {
		t.Errorf("%d bytes of bodies are still counted", held)
	}
}
