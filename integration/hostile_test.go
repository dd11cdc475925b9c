package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/longtest"
)

// bearer sends a token with every request.
type bearer struct{ token string }

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// CloseIdleConnections is what http.Client calls.
func (bearer) CloseIdleConnections() { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }

// Whatever strangers do to the HTTP port, a node's memory stays bounded, and callers with a token are served before the
// strangers' connections time out.
func TestAPortAmongStrangers(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("set RINGLOG_LONG_TESTS=1: it opens 10 000 connections and sends 100 000 wrong tokens")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < 12_000 {
		t.Skipf("a process may open %d files: %v", files.Max, err)
	}
	const token = "a token that no stranger guesses"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, t.TempDir(), 1)
	node := c.nodes[0]
	node.env = []string{"RINGLOG_TOKEN_FILE=" + file}
	c.web = &http.Client{Transport: bearer{token}}
	node.web = c.web
	c.startAll()

	for _, test := range []struct {
		name string
		by   func(s *strangers)
	}{
		{"10 000 connections that send no whole header", (*strangers).sendNoHeader},
		{"headers without end", (*strangers).sendEndlessHeaders},
		{"100 000 wrong tokens", (*strangers).guess},
	} {
		t.Run(test.name, func(t *testing.T) { amongStrangers(t, c, test.by) })
	}
	c.close()

	// Not in a test of its own: both together would open more files than a process may.
	t.Run("10 000 connections that finish no handshake", func(t *testing.T) {
		s := &tlsCluster{cluster: newCluster(t, t.TempDir(), 1), dir: t.TempDir()}
		ca, node := s.newCA("ca"), s.nodes[0]
		s.write(node.id+"-ca.pem", ca.Cert)
		s.certify(node, ca)
		s.configure(node, certs.Require, trusting(ca))
		s.use(trusting(ca))
		s.startAll()
		amongStrangers(t, s.cluster, (*strangers).sendNoHeader)
	})
}

// amongStrangers has strangers at the port of the only node, while others publish.
func amongStrangers(t *testing.T, c *cluster, what func(s *strangers)) {
	node := c.nodes[0]
	before := node.peakMemory()
	s := &strangers{t: t, at: node.http, secure: node.secure, meanwhile: func() {
		// Each has a connection of its own, and less time than a header may take.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		defer c.web.CloseIdleConnections()
		if _, err := c.client().Publish(ctx, event.New(event.TrainingProgress, nil)); err != nil {
			t.Fatal(err)
		}
	}}
	what(s)
	s.meanwhile()
	peak := node.peakMemory()
	t.Logf("%d MiB of memory, and %d before", peak, before)
	if peak > before+256 {
		t.Error("that is too much")
	}
}

// peakMemory returns the most memory that the process has had, in MiB.
func (p *process) peakMemory() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return kib >> 10
}

// strangers are callers of a port, from many addresses.
type strangers struct {
	t         *testing.T
	at        string
	secure    bool
	meanwhile func() // what must succeed all the time
}

// dial opens a connection from one of many addresses of the loopback network.
func (s *strangers) dial(address int) net.Conn {
	from := net.IPv4(127, 1, byte(address>>8), byte(address))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 20 * time.Second}
	conn, err := d.Dial("tcp", s.at)
	if err != nil {
		s.t.Error(err)
		s.t.FailNow()
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// sendNoHeader opens connections that send nothing, or a part of a header or of a handshake: first from one address,
// then from five. Each is closed once a whole header should have come.
func (s *strangers) sendNoHeader() {
	part := "POST /v1/events HTTP/1.1\r\nHost: " + s.at + "\r\nSent: "
	if s.secure {
		part = "\x16\x03\x01\x02\x00\x01" // a record of 512 bytes, with a ClientHello
	}
	for _, addresses := range []int{1, 5} {
		conns := make([]net.Conn, 10_000)
		for i := range conns {
			conns[i] = s.dial(1 + i%addresses)
			if i%2 == 0 {
				_, _ = io.WriteString(conns[i], part) // it may be closed by now
			}
			if i%1000 == 999 {
				s.meanwhile()
			}
		}
		for _, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if n, err := io.Copy(io.Discard, conn); err != nil && isTimeout(err) {
				s.t.Fatalf("a connection without a header is still open: %d, %v", n, err)
			}
			conn.Close()
		}
	}
}

// sendEndlessHeaders sends headers that do not end, as fast as the node takes them, and a byte at a time.
func (s *strangers) sendEndlessHeaders() {
	var all sync.WaitGroup
	for i := range 200 {
		conn := s.dial(1 + i)
		all.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			line, pause := strings.Repeat("endless: header\r\n", 100), time.Duration(0)
			if i%2 == 0 {
				line, pause = "e", 100*time.Millisecond
			}
			fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: %s\r\n", s.at)
			for sent := 0; ; sent += len(line) {
				if _, err := io.WriteString(conn, line); err != nil {
					if isTimeout(err) {
						s.t.Errorf("a header of %d bytes is still read", sent)
					}
					return
				}
				if sent > 64<<20 {
					s.t.Errorf("a header of %d bytes is taken", sent)
					return
				}
				time.Sleep(pause)
			}
		})
	}
	s.during(all.Wait)
}

// guess sends wrong tokens, over connections from 2 000 addresses.
func (s *strangers) guess() {
	const conns, each = 2000, 50
	var all sync.WaitGroup
	var refused atomic.Int64
	for i := range conns {
		conn := s.dial(1 + i)
		all.Go(func() {
			r := bufio.NewReader(conn)
			for n := range each {
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer guess-%d-%d\r\n\r\n", s.at, i, n)
				answer, err := http.ReadResponse(r, nil)
				if err != nil {
					s.t.Errorf("guess %d of %d: %v", n, i, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				if answer.StatusCode != http.StatusUnauthorized {
					s.t.Errorf("guess %d of %d: %s", n, i, answer.Status)
				}
				refused.Add(1)
			}
		})
	}
	s.during(all.Wait)
	if n := refused.Load(); n != conns*each {
		s.t.Errorf("%d were refused", n)
	}
}

// during requires that others are served until wait returns.
func (s *strangers) during(wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	for {
		s.meanwhile()
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
	}
}

// isTimeout reports whether an error is that of a deadline.
func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
