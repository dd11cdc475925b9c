package client_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/server"
	"github.com/ringrift/ringlog/raftnode"
)

// Most tests wait for elections, timeouts and other nodes, so more of them run in parallel than there are processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// node is a real one: raft, state machine and server, alone in its cluster.
type node struct {
	raft   *raftnode.Node
	server *server.Server
}

func startNode(t testing.TB, change ...func(*server.Config)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringlog-client")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	n.raft, err = raftnode.Open(
		t.Context(),
		raftnode.Config{ID: "n1", Dir: dir, RaftBind: "127.0.0.1:0", BootstrapExpect: 1,
			Timing: raftnode.Timing{
				Heartbeat:     150 * time.Millisecond,
				Election:      150 * time.Millisecond,
				Lease:         150 * time.Millisecond,
				CommitTimeout: 5 * time.Millisecond,
			},
			Disk: raftnode.Disk{MinFree: -1, Reserve: -1}, Fatal: func(err error) { panic(err) }},
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Node: n.raft, Heartbeat: 50 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	n.server, err = server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(n.server.Close(ctx), n.raft.Close(ctx), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	if err := n.raft.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) clusterID() string { return n.raft.Machine().ClusterID() }

// door is an address of a node, with faults on the way in and out.
type door struct {
	url   string
	next  http.Handler
	seen  atomic.Int64 // publish requests
	mu    sync.Mutex
	fault func(r *http.Request) fault
	shut  chan struct{} // not nil while nothing is answered; closed to continue
}

// fault says what a door does with one request.
type fault struct {
	cutBefore bool // the connection, before the node sees the request
	cutAfter  bool // after the node has done it
	cutBytes  int  // after this many bytes of the answer
	hold      bool // does it, and answers only when the caller has left
	answer    *api.Error
}

func openDoor(t testing.TB, next http.Handler) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{url: "http://" + l.Addr().String(), next: next}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: d, Protocols: &protocols}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		d.resume()
		_ = srv.Close()
		<-served
	})
	return d
}

// faults decides each request by a function.
func (d *door) faults(f func(r *http.Request) fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// pause makes the door what a stopped process is: it takes connections and requests,
// and answers nothing.
func (d *door) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = make(chan struct{})
}

func (d *door) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut != nil {
		close(d.shut)
		d.shut = nil
	}
}

func (d *door) decide(r *http.Request) (fault, chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault == nil {
		return fault{}, d.shut
	}
	return d.fault(r), d.shut
}

func isPublish(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/Publish") }
func isStream(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/Tail") || strings.HasSuffix(r.URL.Path, "/ReadCursor")
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isPublish(r) {
		d.seen.Add(1)
	}
	f, shut := d.decide(r)
	if shut != nil {
		select {
		case <-shut:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	switch {
	case f.cutBefore:
		panic(http.ErrAbortHandler)
	case f.answer != nil:
		refuse(w, r, f.answer)
	case f.cutAfter, f.hold:
		d.next.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		if f.hold {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	case f.cutBytes > 0:
		d.next.ServeHTTP(&cutter{ResponseWriter: w, left: f.cutBytes}, r)
	default:
		d.next.ServeHTTP(&stopper{w, d}, r)
	}
}

// cutter cuts an answer.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		c.Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

// stopper stops an answer that is under way when its door is paused.
type stopper struct {
	http.ResponseWriter
	d *door
}

func (s *stopper) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stopper) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }

func (s *stopper) Write(b []byte) (int, error) {
	s.d.mu.Lock()
	shut := s.d.shut
	s.d.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return s.ResponseWriter.Write(b)
}

// dial returns a client of these doors, with short times, that is closed with the
// test.
func dial(t testing.TB, cfg client.Config, doors ...*door) *client.Client {
	t.Helper()
	for _, d := range doors {
		cfg.Endpoints = append(cfg.Endpoints, d.url)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	if cfg.AttemptTimeout == 0 {
		cfg.AttemptTimeout = 300 * time.Millisecond
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// numbered is an event that no other is like, and that dedup does not look at.
func numbered(n int) event.Event {
	ev := event.New(event.TrainingProgress, map[string]int{"n": n})
	ev.NoDedup = true
	return ev
}

// numberOf returns the number of an event of numbered, and -1 for any other. It may be called
// from goroutines that outlive a failed test.
func numberOf(ev event.Event) int {
	var n int
	if _, err := fmt.Sscanf(string(ev.Payload), `{"n": %d}`, &n); err != nil {
		return -1
	}
	return n
}

// publishN publishes the events numbered [from, to) and returns the last offset.
func publishN(t testing.TB, c *client.Client, from, to int) uint64 {
	t.Helper()
	var events []event.Event
	for n := from; n < to; n++ {
		events = append(events, numbered(n))
	}
	results, err := c.PublishBatch(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	return results[len(results)-1].Offset
}

// mine are the numbers of the test's own events, in the order of the log.
func mine(t testing.TB, c *client.Client) []int {
	t.Helper()
	var all []int
	for ev, err := range c.Tail(
		t.Context(),
		client.TailOptions{
			NoFollow:    true,
			Filter:      event.Filter{Types: []string{"TRAINING_PROGRESS"}},
			Consistency: client.Linearizable,
		},
	) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, numberOf(ev))
	}
	return all
}

func wantCode(t testing.TB, err error, code api.Code) *api.Error {
	t.Helper()
	var answer *api.Error
	if !errors.As(err, &answer) || answer.Code != code {
		t.Fatalf("error is %v, want the code %s", err, code)
	}
	return answer
}

// until polls a condition.
func until(t testing.TB, what string, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
