package server

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// Most tests wait for elections, timeouts and other nodes, so more of them run in parallel than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(6-2*raceEnabled)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// site is a server in front of a real node, listening on loopback.
type site struct {
	t      testing.TB
	node   *raftnode.Node
	server *Server
	peers  *Peers
	url    string
	http   *http.Client
	token  string
}

// newSite starts a cluster of one.
func newSite(t testing.TB, change func(*Config)) *site {
	return newSites(t, 1, change)[0]
}

// newSites starts a cluster whose nodes reach each other over HTTP.
func newSites(t testing.TB, count int, change func(*Config)) []*site {
	t.Helper()
	sites := make([]*site, count)
	listeners := make([]net.Listener, count)
	var join []string
	for i := range sites {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		join = append(join, "http://"+l.Addr().String())
	}
	dir := t.TempDir()
	for i := range sites {
		id := fmt.Sprintf("n%d", i+1)
		sites[i] = startSite(t, listeners[i], change, raftnode.Config{ID: id, Dir: filepath.Join(dir, id),
			BootstrapExpect: count, Join: join})
	}
	for _, s := range sites {
		if err := s.node.WaitLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return sites
}

// quick returns timing for nodes of one process, longer with the race detector.
func quick() raftnode.Timing {
	const unit = time.Millisecond * (1 + 2*raceEnabled)
	return raftnode.Timing{
		// A machine that is busy must not cause an election, or events, that a test does not expect.
		Heartbeat:     2000 * unit,
		Election:      2000 * unit,
		Lease:         1900 * unit,
		CommitTimeout: 5 * unit,
		Ping:          50 * unit,
		Misses:        20,
	}
}

// startSite opens a node and serves it on a listener, until the test ends. A change that sets Config.Node to a
// faultyNode gets the real node put into it.
func startSite(t testing.TB, l net.Listener, change func(*Config), nodeConfig raftnode.Config) *site {
	t.Helper()
	cfg := Config{Version: "test"}
	if change != nil {
		change(&cfg)
	}
	s := &site{
		t:     t,
		url:   "http://" + l.Addr().String(),
		token: cfg.Token,
		peers: NewPeers(cfg.Token, Security{}),
		http:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	nodeConfig.RaftBind, nodeConfig.HTTPAdvertise = "127.0.0.1:0", l.Addr().String()
	nodeConfig.Version, nodeConfig.Timing = "test", quick()
	if nodeConfig.BootstrapExpect == 1 { // the only wait is for its own election
		timing := &nodeConfig.Timing
		timing.Heartbeat, timing.Election, timing.Lease = 50*time.Millisecond, 50*time.Millisecond, 40*time.Millisecond
	}
	if _, measured := t.(*testing.B); measured {
		nodeConfig.Timing = raftnode.Timing{}
	}
	nodeConfig.Disk, nodeConfig.Peers = raftnode.Disk{Reserve: -1}, s.peers
	nodeConfig.Fatal = func(err error) { t.Errorf("%s: fatal: %v", nodeConfig.ID, err) }
	var err error
	if s.node, err = raftnode.Open(t.Context(), nodeConfig); err != nil {
		t.Fatal(err)
	}
	cfg.Peers = s.peers
	if f, bent := cfg.Node.(*faultyNode); bent {
		f.Node = s.node
	} else {
		cfg.Node = s.node
	}
	if s.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	s.server.refusals.freely = math.MaxInt // tests have many callers refused on purpose
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	// The server closes before the node that it serves.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.http.CloseIdleConnections()
		if err := s.server.Close(ctx); err != nil {
			t.Errorf("close server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := s.node.Close(ctx); err != nil {
			t.Errorf("close node: %v", err)
		}
		s.peers.Close()
	})
	return s
}

// answer is an answer that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are name, value, ….
func (s *site) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.send(r)
}

// send sends a request and reads the answer, trailers included.
func (s *site) send(r *http.Request) answer {
	s.t.Helper()
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	header := resp.Header
	maps.Copy(header, resp.Trailer)
	return answer{resp.StatusCode, header, string(text)}
}

// ok sends a request that must succeed.
func (s *site) ok(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a := s.do(method, path, body, headers...)
	if a.status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

// decode unmarshals the body, which must be JSON.
func (a answer) decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// err returns the error in the body.
func (a answer) err(t testing.TB) api.Error {
	t.Helper()
	var body struct{ Error api.Error }
	a.decode(t, &body)
	return body.Error
}

// lines returns the objects of an NDJSON answer without the last, which says how it ended.
func (a answer) lines(t testing.TB) (list []map[string]any) {
	t.Helper()
	events, _ := a.stream(t)
	for line := range strings.Lines(events) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		list = append(list, v)
	}
	return list
}

// stream splits an NDJSON answer into its events and its end.
func (a answer) stream(t testing.TB) (events string, end streamEnd) {
	t.Helper()
	at := strings.LastIndexByte(strings.TrimSuffix(a.body, "\n"), '\n') + 1
	return a.body[:at], endOf(t, a.body[at:])
}

// endOf reads the last line of a stream, which must be its end.
func endOf(t testing.TB, line string) streamEnd {
	t.Helper()
	var last struct{ End *streamEnd }
	if err := json.Unmarshal([]byte(line), &last); err != nil || last.End == nil {
		t.Fatalf("a stream ends with %q: %v", line, err)
	}
	return *last.End
}

// publish appends one event for each payload number and returns their offsets. Keys are k0 to k2, sources s0 and
// s1.
func (s *site) publish(kind string, from, to int) []uint64 {
	s.t.Helper()
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, `{"type":%q,"payload":{"n":%d},"key":"k%d","source":"s%d"}`+"\n", kind, i, i%3, i%2)
	}
	var got struct{ Results []struct{ Offset uint64 } }
	s.ok("POST", "/v1/events", b.String(), "Content-Type", contentNDJSON).decode(s.t, &got)
	offsets := make([]uint64, len(got.Results))
	for i, r := range got.Results {
		offsets[i] = r.Offset
	}
	return offsets
}

// follow opens a stream and returns its lines as they arrive. The channel is closed when the stream ends.
func (s *site) follow(ctx context.Context, path string, headers ...string) (<-chan string, http.Header) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("GET %s: %d %s", path, resp.StatusCode, text)
	}
	lines := make(chan string, 10_000)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 4<<20)
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	return lines, resp.Header
}

// next returns the next line of a stream that is neither empty nor a comment.
func next(t testing.TB, lines <-chan string) string {
	t.Helper()
	late := time.After(20 * time.Second) // heartbeats do not extend it
	for {
		select {
		case line, open := <-lines:
			if !open {
				t.Fatal("the stream ended")
			}
			if line != "" && line[0] != ':' {
				return line
			}
		case <-late:
			t.Fatal("nothing came")
		}
	}
}

// ends requires that a stream ends, and returns its remaining lines without the empty ones.
func ends(t testing.TB, lines <-chan string) (rest []string) {
	t.Helper()
	late := time.After(20 * time.Second) // heartbeats do not extend it
	for {
		select {
		case line, open := <-lines:
			if !open {
				return rest
			}
			if line != "" {
				rest = append(rest, line)
			}
		case <-late:
			t.Fatal("the stream does not end")
		}
	}
}

// eventually waits until ok returns true, and fails the test after a minute.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute) // a machine may be loaded
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
