package raftnode

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/frame"
)

// gates cut raft's connections to and from nodes, and leave their HTTP ports alone.
type gates struct {
	mu    sync.Mutex
	homes map[string]string // address to id
	cut   map[string]bool
	conns map[net.Conn][2]string
}

func newGates() *gates {
	return &gates{homes: map[string]string{}, cut: map[string]bool{}, conns: map[net.Conn][2]string{}}
}

var errGateShut = errors.New("the gate is shut")

// raftGate is one node's end. It implements rafttransport.Network.
type raftGate struct {
	*gates
	id string
}

func (g raftGate) Listen(_ context.Context, addr string) (net.Listener, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.homes[addr] = g.id
	return net.Listen("tcp", addr)
}

func (g raftGate) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	ends := [2]string{g.id, g.homes[addr]}
	if g.cut[ends[0]] || g.cut[ends[1]] {
		return nil, errors.Join(errGateShut, c.Close())
	}
	g.conns[c] = ends
	return c, nil
}

func (g *gates) isolate(id string, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut[id] = cut
	for c, ends := range g.conns {
		if g.cut[ends[0]] || g.cut[ends[1]] {
			c.Close()
			delete(g.conns, c)
		}
	}
}

// A deposed leader has entries that were never committed, and the cluster's log begins after
// them: it gets a snapshot, which ends before its own log does, or where that ends. Then it
// takes entries again, while it runs.
func TestASnapshotHealsALogThatContradictsIt(t *testing.T) {
	for name, ahead := range map[string]uint64{"a longer log": 5, "a log of the same length": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for attempts := 0; !healsAContradiction(t, ahead); attempts++ {
				if attempts == 5 {
					t.Fatal("each time entries of the leader's own came between")
				}
			}
		})
	}
}

// healsAContradiction has a deposed leader's log end ahead entries after the cluster's, and
// returns false where entries of the leader's own left none of that length.
func healsAContradiction(t *testing.T, ahead uint64) bool {
	t.Helper()
	g := newGates()
	c := voters(t, 3, func(cfg *Config) {
		cfg.Network = raftGate{g, cfg.ID}
		cfg.Timing.TrailingLogs = 1
	})
	old := c.leader()
	for i := range 5 {
		publish(t, old, i)
	}
	c.settle()
	g.isolate(old.cfg.ID, true)
	for i := range 40 { // entries that never commit
		var b frame.Builder
		r := numbered(1000 + i)
		b.Add(r.Command, r.Batch)
		old.raft.Load().Apply(b.Encode(frame.Seal{Time: old.clock.Stamp(), Proposer: old.cfg.ID}), time.Second)
	}
	eventually(t, "it is deposed", func() bool { return old.proposer.OpenTerm() == 0 })
	next := c.leaderBut(old)
	end := old.raft.Load().LastIndex()
	for i := 0; next.machine.Applied()+ahead < end; i++ {
		publish(t, next, 2000+i)
	}
	for _, n := range c.all() {
		if n == old {
			continue
		}
		eventually(t, "all is applied", func() bool { return n.machine.Applied() == next.machine.Applied() })
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if next.machine.Applied()+ahead != end {
		return false
	}
	before := old.snapshots.Folders()
	g.isolate(old.cfg.ID, false)
	eventually(t, "the deposed leader has caught up", func() bool {
		return old.machine.Applied() == next.machine.Applied()
	})
	for _, n := range c.all() { // one more voter fails: the deposed leader's answer is needed
		if n != old && n != next {
			c.crash(n.cfg.ID)
		}
	}
	publish(t, c.leader(), 3000)
	c.settle()
	if n := old.snapshots.Folders() - before; n > 2 {
		t.Errorf("%d snapshots were sent", n)
	}
	wantOneLog(t, old, c)
	return true
}

// wantOneLog requires that whatever n has in its raft log is what the others have there.
func wantOneLog(t *testing.T, n *Node, c *cluster) {
	t.Helper()
	for _, other := range c.all() {
		first, err := other.stores.Log().FirstIndex()
		own, err2 := n.stores.Log().FirstIndex()
		if err = errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for index := max(first, own); index <= min(n.raft.Load().CommitIndex(), other.raft.Load().CommitIndex()); index++ {
			a, b := entryOf(t, n, index), entryOf(t, other, index)
			if a.Term != b.Term || string(a.Data) != string(b.Data) {
				t.Errorf("entry %d is of term %d on %s and of %d on %s", index, a.Term, n.cfg.ID, b.Term, other.cfg.ID)
			}
		}
	}
}

func entryOf(t *testing.T, n *Node, index uint64) (l raft.Log) {
	t.Helper()
	if err := n.stores.Log().GetLog(index, &l); err != nil {
		t.Fatalf("%s: entry %d: %v", n.cfg.ID, index, err)
	}
	return l
}
