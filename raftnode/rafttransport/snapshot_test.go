package rafttransport

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// trickle is a snapshot that comes a piece at a time.
type trickle struct {
	left  int
	every time.Duration
}

const piece = 1 << 20

func (s *trickle) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(s.every)
	n := min(len(p), piece, s.left)
	s.left -= n
	return n, nil
}

// follower takes RPCs as raft's main loop does: the next once a snapshot is read to its
// end and has become the state.
type follower struct {
	read time.Time // when the last snapshot was read
	errs []error
}

func (f *follower) run(tr *Transport, swap time.Duration, stop <-chan struct{}) {
	for {
		select {
		case rpc := <-tr.Consumer():
			if rpc.Reader == nil {
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				continue
			}
			_, err := io.Copy(io.Discard, rpc.Reader)
			f.read = time.Now()
			f.errs = append(f.errs, err)
			time.Sleep(swap)
			rpc.Respond(&raft.InstallSnapshotResponse{Success: err == nil}, err)
		case <-stop:
			return
		}
	}
}

// A snapshot may take much longer than HungAfter to arrive and then to become the state.
// Until the latter the leader continues its heartbeats, each on a fresh connection once one
// has failed.
func TestASnapshotThatTakesLongIsInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, hungAfter, transfer, swap = 3 * time.Second, 10 * time.Second, 3 * time.Minute, time.Minute
		w, wire := newTown(), newPipes()
		n1 := w.open(t, "n1", func(o *Options) {
			wire.use(o)
			o.Timeout, o.HungAfter, o.Follows = timeout, hungAfter, func(string, uint64) bool { return true }
		})
		n2 := w.open(t, "n2", func(o *Options) { wire.use(o); o.Timeout = timeout })
		defer n1.Close()
		defer n2.Close()
		stop := make(chan struct{})
		var running sync.WaitGroup
		defer running.Wait()
		defer close(stop)
		var f follower
		running.Go(func() { f.run(n1, swap, stop) })
		header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"), Addr: []byte(n2.LocalAddr())}
		var mu sync.Mutex
		var answered time.Time // the last heartbeat before the swap
		running.Go(func() {
			for {
				var resp raft.AppendEntriesResponse
				err := n2.AppendEntries("n1", n1.LocalAddr(), &raft.AppendEntriesRequest{RPCHeader: header, Term: 3}, &resp)
				if err == nil {
					mu.Lock()
					answered = time.Now()
					mu.Unlock()
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-stop:
					return
				}
			}
		})
		const size = int(transfer/time.Second) * piece
		data := &trickle{left: size, every: time.Second}
		began := time.Now()
		var resp raft.InstallSnapshotResponse
		err := n2.InstallSnapshot("n1", n1.LocalAddr(),
			&raft.InstallSnapshotRequest{RPCHeader: header, Term: 3, Size: int64(size)}, &resp, data)
		if err != nil || !resp.Success {
			t.Errorf("it ended after %v: %+v, %v; the follower: %v", time.Since(began), resp, err, f.errs)
		}
		mu.Lock()
		defer mu.Unlock()
		if gap := f.read.Sub(answered); gap > time.Second {
			t.Errorf("heartbeats were answered until %v before the snapshot was there", gap)
		}
		if n := n1.stream.conns.establishedCount(); n > 5 {
			t.Errorf("%d connections are held", n)
		}
	})
}

// Many connections of a peer do not take away the one that carries its snapshot.
func TestAConnectionThatCarriesASnapshotIsKept(t *testing.T) {
	w := newTown()
	n1, n2 := w.open(t, "n1", nil), w.open(t, "n2", nil)
	stop, began := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(stop)
	var f follower
	running.Go(func() { f.run(n1, 0, stop) })
	data := &gated{left: 4 * piece, gate: began, open: make(chan struct{})}
	installed := make(chan error, 1)
	running.Go(func() {
		var resp raft.InstallSnapshotResponse
		installed <- n2.InstallSnapshot(
			"n1",
			n1.LocalAddr(),
			&raft.InstallSnapshotRequest{Size: int64(data.left)},
			&resp,
			data,
		)
	})
	<-began
	eventually(t, "the snapshot is on its way", func() bool { return n1.stream.conns.installing() == 1 })
	for range maxPerPeer + 10 {
		c, err := n2.stream.Dial(n1.LocalAddr(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "n2 is down to its share", func() bool { return n1.stream.conns.establishedCount() <= maxPerPeer })
	close(data.open)
	if err := <-installed; err != nil {
		t.Errorf("the snapshot was broken off: %v", err)
	}
}

// gated is a snapshot whose end waits.
type gated struct {
	left       int
	gate, open chan struct{}
	once       sync.Once
}

func (g *gated) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF
	}
	if g.left == piece {
		g.once.Do(func() { close(g.gate) })
		<-g.open
	}
	n := min(len(p), piece, g.left)
	g.left -= n
	return n, nil
}

func (r *registry) installing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for c := range r.open {
		if c.installing.Load() {
			n++
		}
	}
	return n
}

// pipes is a network inside of a bubble: what is dialled reaches who listens there.
type pipes struct {
	mu   sync.Mutex
	next int
	at   map[string]*pipeListener
}

func newPipes() *pipes { return &pipes{at: map[string]*pipeListener{}} }

func (p *pipes) use(o *Options) {
	o.Listen = func(context.Context, string) (net.Listener, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next++
		l := &pipeListener{
			addr:    pipeAddr(fmt.Sprintf("host%d:1", p.next)),
			dialled: make(chan net.Conn),
			closed:  make(chan struct{}),
		}
		p.at[string(l.addr)] = l
		return l, nil
	}
	o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		p.mu.Lock()
		l := p.at[addr]
		p.mu.Unlock()
		near, far := net.Pipe()
		select {
		case l.dialled <- far:
			return near, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

type pipeListener struct {
	addr    pipeAddr
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *pipeListener) Addr() net.Addr { return l.addr }
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
