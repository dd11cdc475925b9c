package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// zipped compresses bytes with gzip.
func zipped(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// enveloped frames a message as the streaming protocols do.
func enveloped(flags byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(b))), b...)
}

// allocated returns how many bytes the whole process allocates during a call.
func allocated(call func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// dial opens a connection and sends the head of a POST with a declared length and more header lines.
func (s *site) dial(path string, declared int64, more string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(
		c,
		"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n",
		path, declared, more,
	); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A declared length is only a claim: it takes no memory before the bytes have arrived. This also holds on a
// follower, which would pass the call on.
func TestADeclaredLengthTakesNoMemory(t *testing.T) {
	sites := newSites(t, 3, nil)
	follower := sites[slices.IndexFunc(sites, func(s *site) bool { return s.node.LeadingTerm() == 0 })]
	for _, one := range []struct {
		path     string
		declared int64
	}{{"/v1/events", 4 << 20}, {"/v1/members", maxExchangeBody}, {"/v1/dlq/import", 4 << 20}} {
		const conns = 50
		got := allocated(func() {
			for range conns {
				c := follower.dial(one.path, one.declared, "")
				_, _ = io.WriteString(c, "[")
			}
			// One byte of each body has arrived, so the server has allocated what it will.
			eventually(t, "all are read", func() bool { return follower.server.memory.held.Load() >= conns })
		})
		// All that the process allocates meanwhile is counted. At the race detector's pace, where pools drop
		// some of their values, that alone comes near to firstRead for each body several times.
		if got > conns*one.declared/2 {
			t.Errorf("%s: %d bytes allocated for %d bodies that are not there", one.path, got, conns)
		}
	}
}

// A body that no node takes is refused for its size, whatever else is under way: a retry would be of no use.
func TestABodyThatIsTooLargeIsNotCalledOverload(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, size := range []int64{5 << 20, 200 << 20, 1 << 62} {
		for _, path := range []string{
			"/v1/events", "/v1/members", "/ringlog.v1.LogService/Publish",
			"/ringlog.v1.PeerService/Forward",
		} {
			if size < 41<<20 && strings.Contains(path, "v1.") {
				continue
			}
			c := s.dial(path, size, "Expect: 100-continue\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if again := resp.Header.Get(
				"Retry-After",
			); again != "" || !slices.Contains([]int{http.StatusRequestEntityTooLarge, http.StatusBadRequest}, resp.StatusCode) {
				t.Errorf("%s of %d: %s, Retry-After %q", path, size, resp.Status, again)
			}
			resp.Body.Close()
		}
	}
}

// Bodies that stall are ended, and those of one address take only a part of the memory, so other addresses
// can publish and nodes can forward.
func TestUnfinishedBodiesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.MaxBodies, c.BodyTimeout = 4<<20, 500*time.Millisecond })
	part := strings.Repeat(" ", 300_000)
	var conns []net.Conn
	for range 33 {
		c := s.dial("/v1/events", 310_000, "")
		go func() { _, _ = io.WriteString(c, part) }()
		conns = append(conns, c)
	}
	eventually(t, "the address has its part", func() bool { return s.server.memory.held.Load() >= s.server.memory.each })
	// What is refused counts until its request has ended, which a busy machine delays.
	if held := s.server.memory.held.Load(); held > s.server.memory.most*3/4 {
		t.Errorf("%d bytes held for one address, of %d", held, s.server.memory.most)
	}
	// Somebody at another address is not kept out.
	there := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	defer there.CloseIdleConnections()
	resp, err := (&http.Client{Transport: there}).Post(
		s.url+"/v1/events", contentJSON, strings.NewReader(`{"type":"TRAINING_STARTED"}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("a publish from another address: %s", resp.Status)
	}
	if _, code := s.forward(batchOf(event.Event{Type: "A", Payload: []byte(`{}`)})); code != "" {
		t.Errorf("forwarded: %s", code)
	}
	eventually(t, "they are ended", func() bool { return s.server.memory.held.Load() == 0 })
	s.publish("TRAINING_COMPLETED", 1, 1)
	if len(s.server.memory.from) > 1 {
		t.Errorf("%d addresses are remembered", len(s.server.memory.from))
	}
	for _, c := range conns {
		c.Close()
	}
}

// One address gets at most half of the connections. Beyond that a new one takes the place of the one that has been quiet
// for longest: of those that have sent no request yet, or else of those that wait for their next. It never takes that of
// one with a request under way.
func TestAConnectionTakesThePlaceOfAQuietOne(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.MaxConns = 8 })
	// The site's own calls are from another address.
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	dial := func() net.Conn {
		c, err := from.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	ask := func(c net.Conn, path string) bool {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && answer.StatusCode == http.StatusOK
	}
	ended := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	idle := dial()
	if !ask(idle, "/healthz") {
		t.Fatal("no answer")
	}
	silent := []net.Conn{dial(), dial(), dial()}
	for i := range silent {
		// The longest silent one makes place, and not the one that has sent a request before it.
		if follows := dial(); !ask(follows, "/v1/events?follow=true") {
			t.Fatalf("stream %d: no answer", i)
		}
		if !ended(silent[i]) {
			t.Fatalf("silent connection %d is still open", i)
		}
	}
	// It waits for its next request a moment after the answer to its first.
	eventually(t, "an idle connection makes place", func() bool { return ask(dial(), "/v1/events?follow=true") })
	if !ended(idle) {
		t.Fatal("the idle connection is still open")
	}
	if ask(dial(), "/healthz") {
		t.Error("a fifth connection of one address, beside four with a request under way")
	}
}

// Series are named after routes, never after what a caller puts into a path.
func TestPathsMakeNoSeries(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	series := func() map[string]bool {
		names := map[string]bool{}
		for line := range strings.Lines(s.ok("GET", "/metrics", "").body) {
			if name, _, ok := strings.Cut(line, " "); ok && strings.Contains(name, "route=") {
				names[name] = true
			}
		}
		return names
	}
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		heads := []string{
			"/ringlog.v1.LogService/", "/ringlog.v1.PeerService/", "/ringlog.v1.", "/v1/",
			"/v1/cursors/", "/v1/events/", "/", "/ringlog.v1.LogService/Publish/",
		}
		path := heads[rng.IntN(len(heads))]
		for range 1 + rng.IntN(20) {
			path += fmt.Sprintf("%%%02x", 1+rng.IntN(255))
		}
		return path
	}
	methods := []string{"GET", "POST", "PUT", "DELETE", "PATCH"}
	send := func(n int) {
		for range n {
			r, err := http.NewRequest(methods[rng.IntN(len(methods))], s.url+random(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := s.http.Do(r); err != nil {
				t.Errorf("%s: %v", r.URL, err)
			} else {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	}
	send(1000)
	// Random paths have reached most routes by now: more of them must add next to no series.
	before := series()
	s.do("GET", "/ringlog.v1.LogService/"+strings.Repeat("y", 50_000), "")
	send(1000)
	routes := len(s.server.routes)
	after := slices.Collect(maps.Keys(series()))
	fresh := slices.DeleteFunc(slices.Clone(after), func(name string) bool { return before[name] })
	if len(fresh) > 20 || len(after) > routes*20 {
		t.Errorf("%d series, of which %d are new: %.3v", len(after), len(fresh), fresh)
	}
	for _, name := range after {
		if strings.Contains(name, "yyy") || len(name) > 200 {
			t.Errorf("a series %.200q", name)
		}
	}
	if got := s.do(
		"POST", "/ringlog.v1.LogService/nothing", "{}", "Content-Type", "application/json",
	); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Only a few calls read the whole log at a time, and only one makes a backup. All other calls are served
// meanwhile.
func TestFullReadsOfTheLogWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 5)
	busy := func(path string, taken, free func()) {
		t.Helper()
		s.ok("GET", path, "")
		taken()
		if a := s.do("GET", path, ""); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
		s.ok("GET", "/status", "")
		s.publish("TRAINING_COMPLETED", 6, 6)
		free()
		s.ok("GET", path, "")
	}
	busy("/v1/snapshot", func() { _ = s.server.backups.Acquire(t.Context(), 1) }, func() { s.server.backups.Release(1) })
	all := int64(runtime.GOMAXPROCS(0))
	busy(
		"/v1/audit?from=start", func() { _ = s.server.scans.Acquire(t.Context(), all) },
		func() { s.server.scans.Release(all) },
	)
}

// The time of a Connect call is bounded as that of an HTTP call is, even if the caller asks for more.
func TestACallsTimeIsBounded(t *testing.T) {
	t.Parallel()
	node := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = node })
	for asked, most := range map[string]time.Duration{
		"9999999999": maxTimeout,
		"60000":      time.Minute,
		"":           30 * time.Second,
	} {
		headers := []string{"Content-Type", contentJSON}
		if asked != "" {
			headers = append(headers, "Connect-Timeout-Ms", asked)
		}
		s.ok(
			"POST", "/ringlog.v1.LogService/Publish",
			`{"events":[{"type":"TRAINING_STARTED","payload":"e30="}]}`, headers...,
		)
		if at := time.Unix(
			0, node.deadline.Load(),
		); at.After(time.Now().Add(most)) || at.Before(time.Now().Add(most-most/4)) {
			t.Errorf("asked for %s ms, bounded by %s, should be %s", asked, time.Until(at), most)
		}
	}
}

// A leader that takes a call and never answers does not block a member whose exchange is passed on to it.
func TestAnExchangeThatIsPassedOnEnds(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, as nobody accepts them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	node := &faultyNode{leader: silent.Addr().String()}
	s := newSite(t, func(c *Config) { c.Node = node })
	// The limit must leave an exchange the time that it may wait at the leader.
	if s.server.forward.within < service.MaxExchangeWait || s.server.forward.within > time.Minute {
		t.Errorf("passed on for up to %s", s.server.forward.within)
	}
	s.server.forward.within = 100 * time.Millisecond
	a := s.do("POST", "/v1/groups/g/exchange", `{"member":"m","want":1}`)
	if e := a.err(t); a.status < 500 || e.Code != api.OutcomeUnknown {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The duration of a stream says nothing about how fast the node answers: streams are counted and not timed.
func TestStreamsAreNotTimed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", "")
	s.open("c")
	s.ok("PUT", "/v1/groups/g", "")
	s.ok("GET", "/v1/events?follow=false", "")
	s.ok("GET", "/v1/cursors/c/events?generation=1", "")
	s.ok("GET", "/v1/wait?offset=1&cursors=c&timeout=1ms", "")
	s.ok("POST", "/v1/groups/g/exchange", `{"member":"m","want":1,"wait_ms":1}`)
	s.ok("PUT", "/v1/roles/r", `{"holder":"h","session":"s","wait":"1s"}`)
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":1}`)
	s.ok("PUT", "/v1/allocations/a", `{"holder":"h","amounts":{"net:a":1},"wait":"1s"}`)
	s.ok("PUT", "/v1/views/v", `{"fields":{"n":{"kind":"count"}}}`)
	s.ok("GET", "/v1/views/v/watch?timeout=1ms", "")
	s.ok("GET", "/v1/cluster/outage", "")
	s.ok("GET", "/v1/snapshot", "")
	s.ok("GET", "/v1/incident", "")
	tail := enveloped(0, []byte(`{}`))
	s.ok("POST", "/ringlog.v1.LogService/Tail", string(tail), "Content-Type", "application/connect+json")
	read := enveloped(0, []byte(`{"name":"c","generation":1}`))
	s.ok("POST", "/ringlog.v1.CursorService/ReadCursor", string(read), "Content-Type", "application/connect+json")
	// The metrics show which routes are counted and which are timed.
	counted, timed := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(s.ok("GET", "/metrics", "").body) {
		name, rest, _ := strings.Cut(line, "{")
		_, route, _ := strings.Cut(rest, `route="`)
		route, _, _ = strings.Cut(route, `"`)
		switch name {
		case "ringlog_http_requests_total":
			counted[route] = true
		case "ringlog_http_request_seconds_count":
			timed[route] = true
		}
	}
	// All streams of the route table must have been called above, except publish streams.
	for _, r := range s.server.routes {
		if !r.stream || r.path == api.PublishStreamPath {
			continue
		}
		if name := r.pattern(); !counted[name] || timed[name] {
			t.Errorf("%s: counted %v, timed %v", name, counted[name], timed[name])
		}
	}
	if !timed["PUT /v1/cursors/{name}"] {
		t.Error("what is no stream is not timed")
	}
}
