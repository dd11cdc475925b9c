package rafttransport

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// town is what the nodes of a test know of each other: membership and addresses.
type town struct {
	mu      sync.Mutex
	members map[string]string // node id -> incarnation
	homes   map[raft.ServerAddress]string
}

func newTown() *town {
	return &town{members: make(map[string]string), homes: make(map[raft.ServerAddress]string)}
}

func (w *town) admit(peer Identity) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch known, ok := w.members[peer.NodeID]; {
	case !ok:
		return fmt.Errorf("%s left: %w", peer.NodeID, ErrRemoved)
	case known != peer.Incarnation:
		return fmt.Errorf("%s is known as %s, not %s: %w", peer.NodeID, known, peer.Incarnation, ErrOtherIncarnation)
	}
	return nil
}

func (w *town) resolve(addr raft.ServerAddress) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.homes[addr]
	return id, ok
}

func (w *town) settle(id, incarnation string, addr raft.ServerAddress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members[id] = incarnation
	w.homes[addr] = id
}

func (w *town) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.members, id)
}

// options are those of a member of cluster c1, as incarnation id-a.
func (w *town) options(id string) Options {
	return Options{
		Bind:       "127.0.0.1:0",
		Self:       func() Identity { return Identity{ClusterID: "c1", NodeID: id, Incarnation: id + "-a"} },
		Admit:      w.admit,
		Resolve:    w.resolve,
		Configured: func() bool { return true },
		Covers:     func(uint64) (applied uint64, covered bool) { return 0, false },
		Timeout:    2 * time.Second,
	}
}

// open starts a transport and settles it in the town.
func (w *town) open(t testing.TB, id string, edit func(*Options)) *Transport {
	t.Helper()
	o := w.options(id)
	if edit != nil {
		edit(&o)
	}
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	w.settle(id, id+"-a", tr.LocalAddr())
	return tr
}

// answer lets tr answer every RPC; it reports what came.
func answer(t testing.TB, tr *Transport) <-chan any {
	came := make(chan any, 64)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case rpc := <-tr.Consumer():
				var resp any = &raft.AppendEntriesResponse{Success: true}
				if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
					_, _ = io.Copy(io.Discard, rpc.Reader)
					resp = &raft.InstallSnapshotResponse{Success: true}
				}
				rpc.Respond(resp, nil)
				came <- rpc.Command
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	return came
}

func appendTo(from, to *Transport) error {
	var resp raft.AppendEntriesResponse
	return from.AppendEntries("", to.LocalAddr(), &raft.AppendEntriesRequest{Term: 1}, &resp)
}

// dialRaw opens a bare connection to tr.
func dialRaw(t testing.TB, tr *Transport) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", string(tr.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// impostor listens, runs script on the first connection, and waits for its end.
func impostor(t testing.TB, script func(net.Conn)) raft.ServerAddress {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		script(c)
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return raft.ServerAddress(ln.Addr().String())
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// refusedFor reports whether tr's last refusal of any peer has this reason.
func refusedFor(tr *Transport, reason error) bool {
	for _, r := range tr.Refusals() {
		if r.Reason == nameOf(reason) {
			return true
		}
	}
	return false
}

func (r *registry) establishedCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.accepted(established)
	return n
}

func (r *registry) pendingCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.accepted(pending)
	m, _ := r.accepted(evicted)
	return n + m
}
