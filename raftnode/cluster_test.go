package raftnode

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/testaddr"
)

// Most of these tests wait for elections, so more of them run at once than there
// are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(4-raceEnabled)); err != nil {
		panic(err)
	}
	warmUp()
	goleak.VerifyTestMain(m)
}

// warmUp has the process-wide compressors make their channels now: made inside a
// synctest bubble they could be used nowhere else.
func warmUp() {
	r := publishing(`{"x": "` + strings.Repeat("x", 1<<20) + `"}`)
	if _, err := frame.DecodeRequest(r.Encode()); err != nil {
		panic(err)
	}
	var b frame.Builder
	b.Add(r.Command, r.Batch)
	b.Encode(frame.Seal{Time: time.Unix(0, 0), Compress: true})
}

// network lets nodes of one process reach each other as Peers: by direct calls
// to the node at a URL.
type network struct {
	mu    sync.Mutex
	nodes map[string]*Node
}

var errUnreachable = fmt.Errorf("%w: nobody answers", ErrNoLeader)

func (w *network) at(url string) (*Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[strings.TrimPrefix(url, "http://")]
	if n == nil {
		return nil, errUnreachable
	}
	return n, nil
}

func (w *network) Identify(_ context.Context, url string, q Question) (Report, error) {
	n, err := w.at(url)
	if err != nil {
		return Report{}, err
	}
	return n.Report(q), nil
}

func (w *network) Forward(ctx context.Context, url string, request []byte) ([]byte, error) {
	n, err := w.at(url)
	if err != nil {
		return nil, err
	}
	return n.ProposeForwarded(ctx, request)
}

func (w *network) Join(ctx context.Context, url string, m frame.Member, opts MemberOptions) error {
	n, err := w.at(url)
	if err != nil {
		return err
	}
	_, err = n.AddMember(ctx, m, opts)
	if errors.Is(err, ErrNotLeader) {
		_, leader := n.roster.Leader()
		if n, err = w.at(leader); err == nil {
			_, err = n.AddMember(ctx, m, opts)
		}
	}
	return err
}

func (w *network) ReadIndex(ctx context.Context, url string) (uint64, error) {
	n, err := w.at(url)
	if err != nil {
		return 0, err
	}
	return n.ReadIndex(ctx)
}

// cluster is a set of nodes of one process, over real sockets and folders.
type cluster struct {
	t      testing.TB
	net    *network
	dir    string
	raft   *simnet // of raft's connections; nil is real sockets
	nodes  map[string]*Node
	config map[string]Config
	change func(*Config)
}

// raceFactor slows the clocks down where the race detector slows the program.
const raceFactor = 1 + 2*raceEnabled

func quick() Timing {
	const unit = raceFactor * time.Millisecond
	return Timing{Heartbeat: 1000 * unit, Election: 1000 * unit, Lease: 800 * unit, CommitTimeout: 5 * unit,
		Ping: 50 * unit, SnapshotInterval: time.Hour}
}

func newCluster(t testing.TB, change func(*Config)) *cluster {
	if change == nil {
		change = func(*Config) {}
	}
	c := &cluster{t: t, net: &network{nodes: map[string]*Node{}}, dir: t.TempDir(),
		nodes: map[string]*Node{}, config: map[string]Config{}, change: change}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if t.Failed() {
				index, digest := n.machine.Digest()
				leader, _ := n.roster.Leader()
				t.Logf("%s: index %d, digest %s, follows %q; raft: %v", n.cfg.ID, index, digest, leader, n.raft.Load().Stats())
			}
			c.crash(n.cfg.ID)
		}
	})
	return c
}

// voters starts a cluster of n1, n2, … that form it by themselves.
func voters(t testing.TB, count int, change func(*Config)) *cluster {
	c := newCluster(t, change)
	c.form(count)
	return c
}

// votersInBubble runs a test with such a cluster in a bubble, where time goes by only while
// all wait: how busy the machine is makes no difference.
func votersInBubble(t *testing.T, count int, change func(*Config), test func(testing.TB, *cluster)) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, change)
		c.dir, c.raft = dir, newSimnet()
		c.form(count)
		test(t, c)
	})
}

func (c *cluster) form(count int) {
	var join []string
	for i := range count {
		join = append(join, fmt.Sprintf("http://n%d", i+1))
	}
	for i := range count {
		cfg := c.member(fmt.Sprintf("n%d", i+1))
		cfg.BootstrapExpect, cfg.Join = count, join
		c.config[cfg.ID] = cfg
		c.start(cfg.ID)
	}
	c.leader()
}

func (c *cluster) member(id string) Config {
	cfg := Config{ID: id, Dir: filepath.Join(c.dir, id), HTTPAdvertise: id, Secret: []byte("token"),
		Version: "test", Timing: quick(), Peers: c.net, Disk: Disk{Reserve: -1}, Logger: testLogger(c.t, id),
		Fatal: func(err error) { c.t.Errorf("%s: fatal: %v", id, err) }}
	if c.raft == nil {
		cfg.RaftBind = testaddr.Free(c.t)
	} else {
		cfg.RaftBind, cfg.Network = id+":1", simHost{c.raft, id}
	}
	c.change(&cfg)
	return cfg
}

// testLogger is silent unless RINGLOG_TEST_LOG is set.
func testLogger(t testing.TB, id string) hclog.Logger {
	if os.Getenv("RINGLOG_TEST_LOG") == "" {
		return nil
	}
	return hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.Debug, Output: t.Output()})
}

func (c *cluster) start(id string) *Node {
	c.t.Helper()
	n, err := Open(context.Background(), c.config[id])
	if err != nil {
		c.t.Fatalf("open %s: %v", id, err)
	}
	c.nodes[id] = n
	c.net.mu.Lock()
	c.net.nodes[id] = n
	c.net.mu.Unlock()
	return n
}

// joins starts a new node whose seeds are n1 and n2.
func (c *cluster) joins(id string, change func(*Config)) *Node {
	cfg := c.member(id)
	cfg.Join = []string{"http://n1", "http://n2"}
	if change != nil {
		change(&cfg)
	}
	c.config[id] = cfg
	return c.start(id)
}

func (c *cluster) gone(id string) *Node {
	n := c.nodes[id]
	delete(c.nodes, id)
	c.net.mu.Lock()
	delete(c.net.nodes, id)
	c.net.mu.Unlock()
	return n
}

// crash ends a node without notice to anybody.
func (c *cluster) crash(id string) {
	n := c.gone(id)
	n.transport.Close()
	n.closeOnce.Do(func() { n.closeErr = n.release() })
}

// stop ends a node gracefully.
func (c *cluster) stop(id string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n := c.nodes[id]
	if err := n.Close(ctx); err != nil {
		c.t.Errorf("close %s: %v", id, err)
	}
	c.gone(id)
}

// remove takes a member out of the cluster, and tries again where an operator would.
func (c *cluster) remove(id string) {
	c.t.Helper()
	eventually(c.t, id+" is removed", func() bool {
		_, err := c.leader().Remove(c.t.Context(), id)
		switch {
		case err == nil, errors.Is(err, ErrUnknownMember):
			return true
		case errors.Is(err, ErrNotLeader), errors.Is(err, ErrNoLeader), errors.Is(err, ErrOutcomeUnknown),
			errors.Is(err, ErrBreaksQuorum): // a voter on a busy machine answers later
			return false
		}
		c.t.Fatal(err)
		return false
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(raceFactor * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leader waits for one that all nodes of its cluster follow.
func (c *cluster) leader() *Node {
	c.t.Helper()
	var leader *Node
	eventually(c.t, "one leader whom all follow", func() bool {
		leader = nil
		for _, n := range c.nodes {
			if n.proposer.OpenTerm() != 0 {
				leader = n
			}
		}
		return leader != nil && !slices.ContainsFunc(c.all(), func(n *Node) bool {
			id, _ := n.roster.Leader()
			m, known := leader.machine.Member(n.cfg.ID)
			if _, listed := leader.roster.Server(n.cfg.ID); !listed || (known && m.Incarnation != n.roster.Self().Incarnation) {
				return false
			}
			return id != leader.cfg.ID || n.machine.Leadership().Leader != id
		})
	})
	return leader
}

func (c *cluster) all() (list []*Node) {
	for _, n := range c.nodes {
		list = append(list, n)
	}
	return list
}

func (c *cluster) followers() (list []*Node) {
	leader := c.leader()
	for _, n := range c.nodes {
		if n != leader {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *Node) int { return strings.Compare(a.cfg.ID, b.cfg.ID) })
	return list
}

// settle waits until all nodes have applied what the leader has, and requires
// equal digests there.
func (c *cluster) settle() {
	c.t.Helper()
	eventually(c.t, "equal digests at an equal index", func() bool {
		index, sum := c.leader().machine.Digest()
		return !slices.ContainsFunc(c.all(), func(n *Node) bool {
			i, s := n.machine.Digest()
			return i != index || s != sum
		})
	})
}

func publishing(payload string) frame.Request {
	e := event.New(event.TrainingCompleted, []byte(payload))
	var b frame.Batch
	b.Add(&e, e.Hash())
	return frame.Request{Command: frame.Publish{Count: 1}, Batch: &b}
}

func numbered(i int) frame.Request { return publishing(fmt.Sprintf(`{"n": %d}`, i)) }

// publish appends event i.
func publish(t testing.TB, n *Node, i int) fsm.Result {
	t.Helper()
	return publishPayload(t, n, fmt.Sprintf(`{"n": %d}`, i))
}

// publishPayload appends an event, whoever leads meanwhile; the same again is a
// duplicate with the first offset, so trying again is safe.
func publishPayload(t testing.TB, n *Node, payload string) fsm.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), raceFactor*15*time.Second)
	defer cancel()
	for {
		r, err := n.Propose(ctx, publishing(payload))
		switch {
		case err == nil && len(r.Duplicates) == 1:
			r.First = r.Duplicates[0].Offset
			return r
		case err == nil:
			return r
		case !errors.Is(err, ErrNoLeader) && !errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil:
			t.Fatalf("publish %.40s at %s: %v", payload, n.cfg.ID, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leaderEvents are the log's leadership events and payloads, in order.
func leaderEvents(t testing.TB, n *Node) (types []string) {
	t.Helper()
	first, last := n.machine.Log().Bounds()
	for offset := first; offset <= last; offset++ {
		e, err := n.machine.Log().Get(offset)
		if err != nil {
			t.Fatal(err)
		}
		leads := e.Type == event.LeaderElected || e.Type == event.LeaderLost || e.Type == event.LeaderStepdown
		if leads && e.Source == fsm.EmittedBy {
			types = append(types, string(e.Type))
		}
	}
	return types
}

// requireLeaderEvents checks what the log of all nodes has of leaders: that many stepped
// down, at least so many were lost (a busy machine may lose more), and each was
// followed by an election.
func (c *cluster) requireLeaderEvents(stepdowns, lost int) {
	c.t.Helper()
	c.settle()
	for _, n := range c.all() {
		types := leaderEvents(c.t, n)
		count := map[string]int{}
		for i, kind := range types {
			count[kind]++
			if wantElected := i%2 == 0; (kind == "LEADER_ELECTED") != wantElected {
				c.t.Errorf("%s: the log has %v", n.cfg.ID, types)
			}
		}
		if len(types)%2 == 0 || count["LEADER_STEPDOWN"] != stepdowns || count["LEADER_LOST"] < lost {
			c.t.Errorf("%s: the log has %v, want %d stepdowns and %d lost", n.cfg.ID, types, stepdowns, lost)
		}
	}
}
