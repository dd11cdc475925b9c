package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/frame"
)

func post(path, contentType string, more ...string) func(*site, []byte) {
	return func(s *site, body []byte) {
		s.do("POST", path, string(body), append([]string{"Content-Type", contentType}, more...)...)
	}
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

func enveloped(flags byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(b))), b...)
}

// allocated returns the bytes that a call allocates, of this whole process.
func allocated(call func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Whatever comes in, and by whichever way, no more is allocated than a fixed multiple of what
// came, of what it decompresses to within the limit of a request, and of the events that a
// request may have.
func TestNothingIsBuiltBeforeItIsBounded(t *testing.T) {
	s := newSite(t, nil)
	limits := s.node.Machine().Policy().Limits
	const many = 2_000_000
	protoEvents := bytes.Repeat([]byte{0x0a, 0x00}, many)
	protoRanges := append([]byte{0x0a, 0x01, 'g'}, bytes.Repeat([]byte{0x22, 0x00}, many/4)...)
	jsonEvents := append(append([]byte(`{"events":[{}`), bytes.Repeat([]byte(",{}"), many)...), "]}"...)
	objects := append(append([]byte("[{}"), bytes.Repeat([]byte(",{}"), many)...), ']')
	numbers := append(append([]byte(`{"ids":[1`), bytes.Repeat([]byte(",1"), many)...), "]}"...)
	rows := append(append([]byte(`{"source":"s","rows":[{}`), bytes.Repeat([]byte(",{}"), many/2)...), "]}"...)
	zeros := frame.Pack([]event.Event{{Type: "A", Payload: []byte(`{"x": "` + strings.Repeat("0", 3<<20) + `"}`)}})
	packet, err := proto.Marshal(&ringlogv1.PublishRequest{Packet: &ringlogv1.Packet{Rows: 1, Types: zeros.Types, Sources: zeros.Sources, Body: zeros.Body}})
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(random)

	const binaryType, grpc = "application/proto", "application/grpc"
	publish := "/ringlog.v1.LogService/Publish"
	for _, one := range []struct {
		name string
		body []byte
		send func(*site, []byte)
	}{
		{"JSON array", objects, post("/v1/events", contentJSON)},
		{"JSON of nothing", bytes.Repeat([]byte(" "), 1<<20), post("/v1/events", contentJSON)},
		{"NDJSON of empty lines", bytes.Repeat([]byte("\n"), 1<<20), post("/v1/events", contentNDJSON)},
		{"NDJSON of empty events", bytes.Repeat([]byte("{}\n"), 1<<20), post("/v1/events", contentNDJSON)},
		{"Connect", protoEvents, post(publish, binaryType)},
		{"Connect with gzip", zipped(protoEvents), post(publish, binaryType, "Content-Encoding", "gzip")},
		{"Connect with gzip of zeros", zipped(make([]byte, 64<<20)), post(publish, binaryType, "Content-Encoding", "gzip")},
		{"Connect with JSON", jsonEvents, post(publish, contentJSON)},
		{"Connect with JSON and gzip", zipped(jsonEvents), post(publish, contentJSON, "Content-Encoding", "gzip")},
		{"Connect's streams", enveloped(0, protoEvents), post("/ringlog.v1.LogService/Tail", "application/connect+proto")},
		{"Connect's streams with gzip", enveloped(1, zipped(protoEvents)), post("/ringlog.v1.LogService/Tail", "application/connect+proto", "Connect-Content-Encoding", "gzip")},
		{"gRPC with gzip", enveloped(1, zipped(protoEvents)), post(publish, grpc, "Grpc-Encoding", "gzip")},
		{"gRPC-Web with gzip", enveloped(1, zipped(protoEvents)), post(publish, "application/grpc-web+proto", "Grpc-Encoding", "gzip")},
		{"a length that is not so", binary.BigEndian.AppendUint32([]byte{0}, 1<<31), post(publish, grpc)},
		{"a packet that unfolds", packet, post(publish, binaryType)},
		{"ranges", protoRanges, post("/ringlog.v1.GroupService/Exchange", binaryType)},
		{"ranges with gzip", zipped(protoRanges), post("/ringlog.v1.GroupService/Exchange", binaryType, "Content-Encoding", "gzip")},
		{"a cursor's filter", append([]byte{0x1a, 0xff, 0xff, 0x3f}, bytes.Repeat([]byte{0x0a, 0x00}, 1<<19)...), post("/ringlog.v1.CursorService/CreateCursor", binaryType)},
		{"peers with gzip", zipped(make([]byte, 64<<20)), post("/ringlog.v1.PeerService/Forward", binaryType, "Content-Encoding", "gzip")},
		{"peers' JSON", zipped(jsonEvents), post("/ringlog.v1.PeerService/Join", contentJSON, "Content-Encoding", "gzip")},
		{"random", random, post(publish, binaryType)},
		{"random to peers", random, post("/ringlog.v1.PeerService/Forward", binaryType)},
		{"letters", numbers, post("/v1/dlq/purge", contentJSON)},
		{"rows to import", rows, post("/v1/dlq/import", contentJSON)},
		{"definitions", objects, post("/v1/catalogue", contentJSON)},
		{"events to validate", objects, post("/v1/catalogue/validate", contentJSON)},
		{"a line", protoEvents, func(s *site, b []byte) {
			c := s.line()
			c.write(append(head(uint32(len(b))), b...))
			c.reply()
		}},
	} {
		got := allocated(func() { one.send(s, one.body) })
		unfolded := int64(len(one.body))
		if strings.Contains(one.name, "gzip") || strings.Contains(one.name, "unfolds") || strings.Contains(one.name, "peers") {
			unfolded = min(1024*unfolded, int64(limits.RequestBytes)+maxPeerMessage)
		}
		bound := 10*unfolded + int64(limits.RequestEvents)*eventWeight + 4<<20
		t.Logf("%-28s %9d bytes, %10d allocated (%d %%)", one.name, len(one.body), got, 100*got/bound)
		if got > bound {
			t.Errorf("%s: %d bytes allocated for %d received, at most %d", one.name, got, len(one.body), bound)
		}
	}
	if held := s.server.memory.held.Load() + s.server.peerMemory.held.Load(); held != 0 {
		t.Errorf("%d bytes are still counted", held)
	}
	s.publish("TRAINING_COMPLETED", 1, 1)
}

// dial opens a connection and sends the head of a POST.
func (s *site) dial(path string, declared int64, more string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", path, declared, more); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// A declared length is a claim: it takes no memory before the bytes are there, on a follower
// that would pass the call on no more than elsewhere.
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
			eventually(t, "all are read", func() bool { return follower.server.memory.held.Load() >= conns })
		})
		if got > conns*(3*firstRead) {
			t.Errorf("%s: %d bytes allocated for %d bodies that are not there", one.path, got, conns)
		}
	}
}

// A body that no node takes is refused for its size, whatever else is under way; retrying it
// is of no use.
func TestABodyThatIsTooLargeIsNotCalledOverload(t *testing.T) {
	s := newSite(t, nil)
	for _, size := range []int64{5 << 20, 200 << 20, 1 << 62} {
		for _, path := range []string{"/v1/events", "/v1/members", "/ringlog.v1.LogService/Publish", "/ringlog.v1.PeerService/Forward"} {
			if size < 41<<20 && strings.Contains(path, "v1.") {
				continue
			}
			c := s.dial(path, size, "Expect: 100-continue\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if again := resp.Header.Get("Retry-After"); again != "" || !slices.Contains([]int{http.StatusRequestEntityTooLarge, http.StatusBadRequest}, resp.StatusCode) {
				t.Errorf("%s of %d: %s, Retry-After %q", path, size, resp.Status, again)
			}
			resp.Body.Close()
		}
	}
}

// Bodies that stand still are ended, and those of one address take a part of the memory: others
// publish, and nodes forward.
func TestUnfinishedBodiesKeepNobodyOut(t *testing.T) {
	s := newSite(t, func(c *Config) { c.MaxBodies, c.BodyTimeout = 4<<20, 500*time.Millisecond })
	part := strings.Repeat(" ", 300_000)
	var conns []net.Conn
	for range 12 {
		c := s.dial("/v1/events", 310_000, "")
		go func() { _, _ = io.WriteString(c, part) }()
		conns = append(conns, c)
	}
	eventually(t, "the address has its part", func() bool { return s.server.memory.held.Load() >= s.server.memory.each })
	if held := s.server.memory.held.Load(); held > 2*s.server.memory.each {
		t.Errorf("%d bytes held for one address, of %d", held, s.server.memory.most)
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

// One address takes half of the connections.
func TestConnectionsAreBoundedByAddress(t *testing.T) {
	s := newSite(t, func(c *Config) { c.MaxConns = 8 })
	open := 0
	for range 8 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			open++
		}
	}
	if open > 4 || open < 2 {
		t.Errorf("%d connections of one address", open)
	}
}

// Series are made of routes, never of what a caller puts into a path.
func TestPathsMakeNoSeries(t *testing.T) {
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
		heads := []string{"/ringlog.v1.LogService/", "/ringlog.v1.PeerService/", "/ringlog.v1.", "/v1/", "/v1/cursors/", "/v1/events/", "/", "/ringlog.v1.LogService/Publish/"}
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
	before := series()
	s.do("GET", "/ringlog.v1.LogService/"+strings.Repeat("y", 50_000), "")
	send(1000)
	routes := len(s.server.routes()) + len(procedures)
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
	if got := s.do("POST", "/ringlog.v1.LogService/nothing", "{}", "Content-Type", "application/json"); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// What reads the whole log has a few places; backups have one, for as long as their reader takes.
func TestFullReadsOfTheLogWaitForTheirTurn(t *testing.T) {
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
	busy("/v1/audit?from=start", func() { _ = s.server.scans.Acquire(t.Context(), all) }, func() { s.server.scans.Release(all) })
}
