package rafttransport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/certs"
)

// tape is a state machine that keeps what was applied to it.
type tape struct {
	mu   sync.Mutex
	data []byte
}

func (f *tape) Apply(l *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = append(f.data, l.Data...)
	return nil
}

func (f *tape) read() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.data)
}

func (f *tape) Snapshot() (raft.FSMSnapshot, error) { return tapeSnapshot(f.read()), nil }

func (f *tape) Restore(r io.ReadCloser) error {
	data, err := io.ReadAll(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = data
	return err
}

type tapeSnapshot []byte

func (s tapeSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (tapeSnapshot) Release() {}

// wires cuts links between nodes by failing dials and open connections.
type wires struct {
	mu   sync.Mutex
	down map[string]bool // "n1>n2"
	open map[string][]net.Conn
}

func (w *wires) dialer(town *town, from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to, _ := town.resolve(raft.ServerAddress(addr))
		link := from + ">" + to
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down[link] {
			return nil, fmt.Errorf("link %s is cut", link)
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			w.open[link] = append(w.open[link], c)
		}
		return c, err
	}
}

func (w *wires) set(a, b string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, link := range []string{a + ">" + b, b + ">" + a} {
		w.down[link] = cut
		for _, c := range w.open[link] {
			c.Close()
		}
		delete(w.open, link)
	}
}

// voter is a real raft node; disk is what survives its stop.
type voter struct {
	id, incarnation string
	addr            string // "" before the first start
	logs            *raft.InmemStore
	stable          *raft.InmemStore
	snapshots       *raft.InmemSnapshotStore

	fsm  *tape
	tr   *Transport
	raft *raft.Raft
	node atomic.Pointer[raft.Raft] // raft, for the transport's callback
}

func (v *voter) configured() bool {
	r := v.node.Load()
	return r != nil && len(r.GetConfiguration().Configuration().Servers) > 0
}

type cluster struct {
	*testing.T
	town   *town
	wires  *wires
	secure func(id string) *certs.Store // nil: without TLS
}

func newCluster(t *testing.T) *cluster {
	return &cluster{T: t, town: newTown(), wires: &wires{down: make(map[string]bool), open: make(map[string][]net.Conn)}}
}

func (c *cluster) voter(id string) *voter {
	v := &voter{id: id, incarnation: id + "-a"}
	v.wipe()
	c.Cleanup(func() { c.stop(v) })
	return v
}

func (v *voter) wipe() {
	v.logs, v.stable = raft.NewInmemStore(), raft.NewInmemStore()
	v.snapshots = raft.NewInmemSnapshotStore()
}

func (c *cluster) start(v *voter, edit func(*Options)) {
	c.Helper()
	o := c.town.options(v.id)
	incarnation := v.incarnation
	o.Self = func() Identity { return Identity{ClusterID: "c1", NodeID: v.id, Incarnation: incarnation} }
	o.Configured = v.configured
	o.Secret = []byte("token")
	o.Dial = c.wires.dialer(c.town, v.id)
	if c.secure != nil {
		o.TLS = c.secure(v.id)
	}
	if v.addr != "" {
		o.Bind = v.addr
	}
	if edit != nil {
		edit(&o)
	}
	tr, err := New(o)
	if err != nil {
		c.Fatal(err)
	}
	v.tr, v.addr = tr, string(tr.LocalAddr())
	if v.incarnation == v.id+"-a" {
		c.town.settle(v.id, v.incarnation, tr.LocalAddr())
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(v.id)
	conf.HeartbeatTimeout = 300 * time.Millisecond
	conf.ElectionTimeout = 300 * time.Millisecond
	conf.LeaderLeaseTimeout = 150 * time.Millisecond
	conf.CommitTimeout = 10 * time.Millisecond
	conf.TrailingLogs = 1
	conf.Logger = hclog.NewNullLogger()
	v.fsm = &tape{}
	v.raft, err = raft.NewRaft(conf, v.fsm, v.logs, v.stable, v.snapshots, tr)
	if err != nil {
		c.Fatal(err)
	}
	v.node.Store(v.raft)
}

func (c *cluster) stop(v *voter) {
	if v.raft == nil {
		return
	}
	if err := v.raft.Shutdown().Error(); err != nil {
		c.Error(err)
	}
	v.tr.Close()
	v.node.Store(nil)
	v.raft, v.tr = nil, nil
}

// found bootstraps the first voter alone and lets it add the others.
func (c *cluster) found(first *voter, others ...*voter) {
	c.Helper()
	c.start(first, nil)
	only := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(first.id), Address: first.tr.LocalAddr()}}}
	if err := first.raft.BootstrapCluster(only).Error(); err != nil {
		c.Fatal(err)
	}
	c.leader(first)
	founded := []*voter{first}
	for _, v := range others {
		c.start(v, nil)
		c.add(v, founded...)
		founded = append(founded, v)
	}
}

// led does what only a leader can, with whoever leads by then: on a busy machine the
// lead may move at any time. What is done again has to be harmless.
func (c *cluster) led(among []*voter, do func(*raft.Raft) error) {
	c.Helper()
	for {
		switch err := do(c.leader(among...).raft); {
		case err == nil:
			return
		case !errors.Is(err, raft.ErrNotLeader) && !errors.Is(err, raft.ErrLeadershipLost):
			c.Fatal(err)
		}
	}
}

// add makes v a voter of the cluster the others form.
func (c *cluster) add(v *voter, others ...*voter) {
	c.Helper()
	c.led(others, func(r *raft.Raft) error {
		return r.AddVoter(raft.ServerID(v.id), raft.ServerAddress(v.addr), 0, 10*time.Second).Error()
	})
}

func (c *cluster) leader(among ...*voter) (l *voter) {
	c.Helper()
	eventually(c, "a leader", func() bool {
		for _, v := range among {
			if v.raft.State() == raft.Leader && v.raft.VerifyLeader().Error() == nil {
				l = v
				return true
			}
		}
		return false
	})
	return l
}

// apply appends data to what all have applied, which is had, and returns both.
func (c *cluster) apply(had, data []byte, among ...*voter) []byte {
	c.Helper()
	want := append(bytes.Clone(had), data...)
	c.led(among, func(r *raft.Raft) error {
		if err := r.Barrier(10 * time.Second).Error(); err != nil {
			return err
		}
		for _, v := range among {
			if v.raft == r && bytes.Equal(v.fsm.read(), want) {
				return nil // a leader that lost the lead had brought it to a majority
			}
		}
		return r.Apply(data, 10*time.Second).Error()
	})
	return want
}

func (c *cluster) agree(want []byte, among ...*voter) {
	c.Helper()
	for _, v := range among {
		eventually(c, v.id+" has applied all", func() bool { return bytes.Equal(v.fsm.read(), want) })
	}
}

// Two and three real raft nodes elect, replicate, send a snapshot to the last
// that joins, and continue after a cut and after the leader's end.
func TestRaftRunsOverIt(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " voters"), func(t *testing.T) {
			c := newCluster(t)
			voters := []*voter{c.voter("n1"), c.voter("n2"), c.voter("n3")}[:n]
			early, last := voters[:n-1], voters[n-1]
			c.found(early[0], early[1:]...)
			var want []byte
			write := func(size int, among ...*voter) {
				want = c.apply(want, bytes.Repeat([]byte{byte(len(want) + 1)}, size), among...)
			}
			for range 20 {
				write(64<<10, early...)
			}
			c.agree(want, early...)
			for _, v := range early {
				if err := v.raft.Snapshot().Error(); err != nil {
					t.Fatal(err)
				}
			}
			c.start(last, nil)
			c.add(last, early...)
			c.agree(want, voters...)
			if restored, _ := last.snapshots.List(); len(restored) == 0 {
				t.Error("the last joined without a snapshot")
			}
			leader := c.leader(voters...)
			cut := func(is bool) {
				for _, other := range voters {
					if other != leader {
						c.wires.set(leader.id, other.id, is)
					}
				}
			}
			cut(true)
			eventually(t, "the cut leader steps down", func() bool { return leader.raft.State() != raft.Leader })
			cut(false)
			write(100, voters...)
			c.agree(want, voters...)
			if n == 2 {
				return
			}
			leader = c.leader(voters...)
			c.stop(leader)
			rest := make([]*voter, 0, n)
			for _, v := range voters {
				if v != leader {
					rest = append(rest, v)
				}
			}
			write(100, rest...)
			c.agree(want, rest...)
			c.start(leader, nil)
			c.agree(want, voters...)
		})
	}
}

// A leader's request may bring a newer commit index than entries: what it says is
// committed is not what the follower has there from a leader before.
func TestWhatTheLeaderHasNotProvenIsNotCommitted(t *testing.T) {
	c := newCluster(t)
	follower := c.voter("n1")
	c.start(follower, nil)
	leader := c.town.open(t, "n2", func(o *Options) { o.Secret = []byte("token") })
	entry := func(index, term uint64, data string) *raft.Log {
		return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(data)}
	}
	for _, req := range []*raft.AppendEntriesRequest{
		{Term: 1, Entries: []*raft.Log{entry(1, 1, "kept,"), entry(2, 1, "stale,")}, LeaderCommitIndex: 1},
		{Term: 2, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: 3},
		{
			Term:              2,
			PrevLogEntry:      1,
			PrevLogTerm:       1,
			LeaderCommitIndex: 3,
			Entries:           []*raft.Log{entry(2, 2, "right,"), entry(3, 2, "more")},
		},
	} {
		req.RPCHeader = raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax,
			ID:              []byte("n2"),
			Addr:            []byte(leader.LocalAddr()),
		}
		var resp raft.AppendEntriesResponse
		if err := leader.AppendEntries("n1", follower.tr.LocalAddr(), req, &resp); err != nil || !resp.Success {
			t.Fatalf("%+v: %+v, %v", req, resp, err)
		}
	}
	c.agree([]byte("kept,right,more"), follower)
}

// A voter whose disk was lost comes back under its old name while its vote alone
// would make a leader. Each of the two guards is tested with the other one open.
func TestWipedVoterCanNotVote(t *testing.T) {
	tests := []struct {
		name string
		open func(*Options) // at every node
		want error
	}{
		{"its incarnation is refused", func(o *Options) { o.Configured = func() bool { return true } }, ErrOtherIncarnation},
		{"its configuration is empty", func(o *Options) { o.Admit = func(Identity) error { return nil } }, ErrUnconfigured},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			n1, n2, n3 := c.voter("n1"), c.voter("n2"), c.voter("n3")
			c.found(n1, n2, n3)
			acknowledged := c.apply(nil, []byte("acknowledged"), n1, n2, n3)
			c.agree(acknowledged, n1, n2, n3)
			for _, v := range []*voter{n1, n2, n3} {
				c.stop(v)
			}
			n3.wipe()
			n3.incarnation = "n3-b"
			c.start(n3, tt.open)
			c.start(n1, tt.open)

			refuser := n1
			if tt.want == ErrUnconfigured {
				refuser = n3 // the refusal is in the RPC's answer: the refuser counts it
			}
			eventually(t, "several votes were refused", func() bool {
				return refuser.tr.RefusalTotals()[nameOf(tt.want)] >= 5 || n1.raft.State() == raft.Leader
			})
			if n1.raft.State() == raft.Leader {
				t.Fatal("n1 leads by the vote of a voter that had lost its disk")
			}
			if cand, err := n3.stable.Get([]byte("LastVoteCand")); len(cand) > 0 {
				t.Fatalf("n3 voted for %s (%v)", cand, err)
			}
			c.start(n2, nil) // its disk is whole: the two elect, and take n3 in again
			c.led([]*voter{n1, n2}, func(r *raft.Raft) error { return r.RemoveServer("n3", 0, 10*time.Second).Error() })
			c.town.settle("n3", "n3-b", raft.ServerAddress(n3.addr))
			c.add(n3, n1, n2)
			c.agree(acknowledged, n1, n2, n3)
		})
	}
}
