package rafttransport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestRefusedSideLearnsWhy(t *testing.T) {
	secret := func(s string) func(*Options) { return func(o *Options) { o.Secret = []byte(s) } }
	self := func(id Identity) func(*Options) { return func(o *Options) { o.Self = func() Identity { return id } } }
	admitAll := func(o *Options) { o.Admit = func(Identity) error { return nil } }
	both := func(fs ...func(*Options)) func(*Options) {
		return func(o *Options) {
			for _, f := range fs {
				f(o)
			}
		}
	}
	tests := []struct {
		name             string
		dialer, acceptor func(*Options)
		want             error
		byAcceptor       bool
	}{
		{name: "member", byAcceptor: false},
		{name: "member with the token", dialer: secret("s"), acceptor: secret("s")},
		{name: "joining dialer", dialer: self(Identity{"", "n1", "n1-a"})},
		{name: "joining acceptor", acceptor: self(Identity{"", "n2", "n2-a"})},

		{"other cluster", self(Identity{"c2", "n1", "n1-a"}), nil, ErrOtherCluster, true},
		{"wiped dialer", self(Identity{"c1", "n1", "n1-b"}), nil, ErrOtherIncarnation, true},
		{"wiped dialer without a cluster", self(Identity{"", "n1", "n1-b"}), nil, ErrOtherIncarnation, true},
		{"wiped acceptor", nil, both(admitAll, self(Identity{"", "n2", "n2-b"})), ErrOtherIncarnation, false},
		{"removed dialer", self(Identity{"c1", "n7", "n7-a"}), nil, ErrRemoved, true},
		{"membership's own words", nil, func(o *Options) {
			o.Admit = func(Identity) error { return errors.New("not on Sundays") }
		}, ErrNotAdmitted, true},
		{"other node at the address", func(o *Options) {
			o.Resolve = func(raft.ServerAddress) (string, bool) { return "n3", true }
		}, nil, ErrWrongNode, true},
		{"same id twice", both(admitAll, self(Identity{"c1", "n2", "n2-b"})), admitAll, ErrSameNode, true},
		{"token only at the dialer", secret("s"), nil, ErrNoProof, true},
		{"token only at the acceptor", nil, secret("s"), ErrNoProof, true},
		{"other token", secret("s"), secret("S"), ErrBadProof, true},
		{
			"stranger learns nothing of membership",
			both(self(Identity{"c1", "n7", "n7-a"}), secret("guess")),
			secret("s"),
			ErrBadProof,
			true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTown()
			acceptor := w.open(t, "n2", tt.acceptor)
			dialer := w.open(t, "n1", tt.dialer)
			came := answer(t, acceptor)
			err := appendTo(dialer, acceptor)
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				<-came
				return
			}
			var refusal *RefusedError
			if !errors.Is(err, tt.want) || !errors.As(err, &refusal) || refusal.ByPeer != tt.byAcceptor {
				t.Fatalf("dialer: %v, want %v, by the acceptor %v", err, tt.want, tt.byAcceptor)
			}
			if !refusedFor(dialer, tt.want) {
				t.Errorf("dialer's record: %+v", dialer.Refusals())
			}
			eventually(t, "the acceptor records it too", func() bool { return refusedFor(acceptor, tt.want) })
			if n := acceptor.stream.conns.establishedCount(); n != 0 || len(came) != 0 {
				t.Errorf("%d connections and %d RPCs got through", n, len(came))
			}
		})
	}
}

// script speaks the handshake by hand.
type script struct {
	*testing.T
	net.Conn
}

func (s script) hello(id Identity, proves bool, target string) frame {
	f, err := hello{Identity: id, speaks: spoken, proves: proves, target: target, nonce: [nonceLen]byte{1, 2, 3}}.encode()
	if err != nil {
		s.Error(err)
	}
	s.Conn.Write(f)
	return f
}

func (s script) expect(kind byte) frame {
	f, err := readFrame(s.Conn, spoken.newest)
	if err != nil || f.kind() != kind {
		s.Errorf("frame %x, %v, want kind %d", f, err, kind)
		return newFrame(spoken.newest, kind, nil)
	}
	return f
}

func (s script) expectRefusal(want error) {
	if r, err := decodeRefusal(s.expect(kindRefusal).body()); err != nil || r.Reason != want {
		s.Errorf("refusal %+v, %v, want %v", r, err, want)
	}
	if n, err := io.Copy(io.Discard, s.Conn); n != 0 || err != nil {
		s.Errorf("%d bytes and %v after the refusal", n, err)
	}
}

type lie struct {
	name string
	want error
	play func(s script)
}

func acceptorLies() []lie {
	n2 := Identity{"c1", "n2", "n2-a"}
	return []lie{
		{"answers as another node", ErrWrongNode, func(s script) {
			s.expect(kindHello)
			s.hello(Identity{"c1", "n9", "n9-a"}, true, "n1")
			s.expectRefusal(ErrWrongNode)
		}},
		{"is of another cluster", ErrOtherCluster, func(s script) {
			s.expect(kindHello)
			s.hello(Identity{"c2", "n2", "n2-a"}, true, "n1")
			s.expectRefusal(ErrOtherCluster)
		}},
		{"asks for no proof", ErrNoProof, func(s script) {
			s.expect(kindHello)
			s.hello(n2, false, "n1")
			s.expectRefusal(ErrNoProof)
		}},
		{"gives no proof", ErrBadProof, func(s script) {
			s.expect(kindHello)
			s.hello(n2, true, "n1")
			s.expect(kindProof)
			s.Write(newFrame(spoken.newest, kindProof, nil))
			s.expectRefusal(ErrBadProof)
		}},
		{"sends the dialer's proof back", ErrBadProof, func(s script) {
			s.expect(kindHello)
			s.hello(n2, true, "n1")
			s.Write(s.expect(kindProof))
			s.expectRefusal(ErrBadProof)
		}},
		{"mirrors every byte", ErrSameNode, func(s script) {
			s.Write(s.expect(kindHello))
			s.expectRefusal(ErrSameNode)
		}},
		{"skips the proofs", ErrMalformed, func(s script) {
			s.expect(kindHello)
			s.hello(n2, true, "n1")
			s.expect(kindProof)
			s.Write(newFrame(spoken.newest, kindReady, nil))
			s.expectRefusal(ErrMalformed)
		}},
		{"speaks a later version", ErrVersion, func(s script) {
			s.expect(kindHello)
			f := newFrame(spoken.newest, kindHello, make([]byte, 2000))
			f[4] = spoken.newest + 1
			s.Write(f[:headerLen])
			s.expectRefusal(ErrVersion)
		}},
		{"refuses in a later version", ErrRemoved, func(s script) {
			s.expect(kindHello)
			f := encodeRefusal(refusef(ErrRemoved, "gone"))
			f[4] = spoken.newest + 1
			s.Write(f)
		}},
	}
}

// An acceptor that lies is found out by the dialer, which says so and sends no RPC.
func TestLyingAcceptorIsRefused(t *testing.T) {
	for _, tt := range acceptorLies() {
		t.Run(tt.name, func(t *testing.T) {
			w := newTown()
			addr := impostor(t, func(c net.Conn) { tt.play(script{t, c}) })
			w.settle("n2", "n2-a", addr)
			n1 := w.open(t, "n1", func(o *Options) { o.Secret = []byte("s") })
			var resp raft.AppendEntriesResponse
			err := n1.AppendEntries("n2", addr, &raft.AppendEntriesRequest{}, &resp)
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
		})
	}
}

// A dialer that lies is found out by the acceptor, which never proves first.
func TestLyingDialerIsRefused(t *testing.T) {
	n2 := Identity{"c1", "n2", "n2-a"}
	tests := []lie{
		{"gives no proof", ErrBadProof, func(s script) {
			s.hello(n2, true, "n1")
			s.expect(kindHello)
			s.Write(newFrame(spoken.newest, kindProof, nil))
		}},
		{"replays an earlier proof", ErrBadProof, func(s script) {
			h := handshake{secret: []byte("s")}
			mine := s.hello(n2, true, "n1")
			theirs := s.expect(kindHello)
			earlier := append(frame(nil), theirs...)
			earlier[headerLen+1] ^= 1 // the acceptor's nonce was another then
			s.Write(newFrame(spoken.newest, kindProof, h.proof(roleDialer, mine, earlier)))
		}},
		{"proves as the acceptor", ErrBadProof, func(s script) {
			h := handshake{secret: []byte("s")}
			mine := s.hello(n2, true, "n1")
			theirs := s.expect(kindHello)
			s.Write(newFrame(spoken.newest, kindProof, h.proof(roleAcceptor, mine, theirs)))
		}},
		{"speaks an earlier version", ErrVersion, func(s script) {
			f := newFrame(spoken.newest, kindHello, make([]byte, 900))
			f[4] = spoken.oldest - 1
			s.Write(f)
		}},
		{"speaks SSH", ErrMalformed, func(s script) {
			io.WriteString(s.Conn, "SSH-2.0-"+strings.Repeat("x", 5000)+"\r\n")
		}},
		{"claims the longest frame", ErrMalformed, func(s script) {
			f := newFrame(spoken.newest, kindHello, nil)
			f[6], f[7] = 0xff, 0xff
			s.Write(f)
		}},
		{"forges a log line", ErrMalformed, func(s script) {
			f, _ := hello{Identity: n2, speaks: spoken, proves: true}.encode()
			f[len(f)-4] = '\n'
			s.Write(f)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTown()
			n1 := w.open(t, "n1", func(o *Options) { o.Secret = []byte("s") })
			w.settle("n2", "n2-a", "nowhere:1")
			s := script{t, dialRaw(t, n1)}
			tt.play(s)
			s.expectRefusal(tt.want)
			eventually(t, "recorded", func() bool { return refusedFor(n1, tt.want) })
		})
	}
}

// Sides of different builds speak the newest version that both know.
func TestTheNewestVersionThatBothSpeakIsSpoken(t *testing.T) {
	for _, test := range []struct {
		dialer, acceptor versions
		want             byte // 0 is none
	}{
		{versions{1, 1}, versions{1, 1}, 1},
		{versions{1, 2}, versions{1, 1}, 1},
		{versions{1, 2}, versions{2, 3}, 2},
		{versions{2, 4}, versions{1, 4}, 4},
		{versions{2, 3}, versions{1, 1}, 0},
		{versions{1, 1}, versions{2, 3}, 0},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			near, far := net.Pipe()
			admit := func(Identity) error { return nil }
			dialer := handshake{
				rw:     near,
				self:   Identity{"c1", "n1", "n1-a"},
				secret: []byte("s"),
				admit:  admit,
				speaks: test.dialer,
			}
			acceptor := handshake{
				rw:     far,
				self:   Identity{"c1", "n2", "n2-a"},
				secret: []byte("s"),
				admit:  admit,
				speaks: test.acceptor,
			}
			ended := make(chan error, 1)
			go func() {
				err := acceptor.accept()
				if refusal, ok := errors.AsType[*RefusedError](err); ok {
					acceptor.refuse(refusal)
				}
				far.Close()
				ended <- err
			}()
			err := dialer.dial()
			near.Close()
			other := <-ended
			if test.want == 0 {
				if !errors.Is(other, ErrVersion) {
					t.Errorf("the dialer: %v, the acceptor: %v", err, other)
				}
				return
			}
			if err != nil || other != nil || dialer.version != test.want || acceptor.version != test.want {
				t.Errorf("%d and %d: %v, %v", dialer.version, acceptor.version, err, other)
			}
		})
	}
}

// Someone between relays a node's own handshake to that node's own listener.
func TestNodeIsNotRelayedToItself(t *testing.T) {
	w := newTown()
	victim := make(chan *Transport, 1)
	addr := impostor(t, func(c net.Conn) {
		back := dialRaw(t, <-victim)
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(back, c); back.(*net.TCPConn).CloseWrite() })
		io.Copy(c, back)
		c.(*net.TCPConn).CloseWrite()
		wg.Wait()
	})
	n1 := w.open(t, "n1", func(o *Options) { o.Secret = []byte("s") })
	victim <- n1
	var resp raft.AppendEntriesResponse
	err := n1.AppendEntries("n2", addr, &raft.AppendEntriesRequest{}, &resp)
	if !errors.Is(err, ErrSameNode) {
		t.Fatalf("%v, want %v", err, ErrSameNode)
	}
}

// raft counts a pre-vote error with these words as a granted pre-vote.
func TestRefusalIsNeverTakenForAPreVote(t *testing.T) {
	const words = "unexpected command"
	w := newTown()
	addr := impostor(t, func(c net.Conn) {
		s := script{t, c}
		s.expect(kindHello)
		s.Write(encodeRefusal(refusef(ErrRemoved, words)))
	})
	n1 := w.open(t, "n1", nil)
	var resp raft.RequestPreVoteResponse
	err := n1.RequestPreVote("n2", addr, &raft.RequestPreVoteRequest{}, &resp)
	if !errors.Is(err, ErrRemoved) || strings.Contains(err.Error(), words) {
		t.Fatalf("%v", err)
	}
	if got := n1.Refusals()[0].Detail; got != words {
		t.Fatalf("recorded %q", got)
	}
}

func TestDisconnectAfterRemoval(t *testing.T) {
	w := newTown()
	n1, n2 := w.open(t, "n1", nil), w.open(t, "n2", nil)
	came := answer(t, n1)
	if err := appendTo(n2, n1); err != nil {
		t.Fatal(err)
	}
	<-came
	w.remove("n2")
	n1.Disconnect("n2")
	eventually(t, "its connection is gone", func() bool { return n1.stream.conns.establishedCount() == 0 })
	eventually(t, "and it learns so on the next", func() bool { return errors.Is(appendTo(n2, n1), ErrRemoved) })
}

// Membership changes its word just after it gave it: the connection goes too.
func TestDisconnectReachesHandshakes(t *testing.T) {
	w := newTown()
	var self atomic.Pointer[Transport]
	n1 := w.open(t, "n1", func(o *Options) {
		o.Admit = func(p Identity) error { self.Load().Disconnect(p.NodeID); return nil }
	})
	self.Store(n1)
	answer(t, n1)
	n2 := w.open(t, "n2", nil)
	if err := appendTo(n2, n1); err == nil {
		t.Fatal("an RPC passed on a connection admitted under the old word")
	}
	eventually(t, "no connection is left", func() bool { return n1.stream.conns.establishedCount() == 0 })
}

// A connection made before a node had a cluster is not used once it has one.
func TestConnectionDoesNotOutliveHomelessness(t *testing.T) {
	w := newTown()
	var mu sync.Mutex
	cluster := ""
	n1 := w.open(t, "n1", func(o *Options) {
		o.Self = func() Identity {
			mu.Lock()
			defer mu.Unlock()
			return Identity{cluster, "n1", "n1-a"}
		}
	})
	n2 := w.open(t, "n2", func(o *Options) { o.Self = func() Identity { return Identity{"c2", "n2", "n2-a"} } })
	n1Came, n2Came := answer(t, n1), answer(t, n2)
	for _, err := range []error{appendTo(n1, n2), appendTo(n2, n1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	<-n1Came
	<-n2Came
	mu.Lock()
	cluster = "c1"
	mu.Unlock()
	if err := appendTo(n1, n2); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("past the connection that it had dialled: %v", err)
	}
	if err := appendTo(n2, n1); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("past the connection that it had accepted: %v", err)
	}
	if len(n1Came)+len(n2Came) != 0 {
		t.Error("an RPC between clusters was delivered")
	}
}

func TestCloseIsIdempotentAndPrompt(t *testing.T) {
	w := newTown()
	n1, n2 := w.open(t, "n1", nil), w.open(t, "n2", nil)
	sent := make(chan error, 1)
	go func() { sent <- appendTo(n2, n1) }() // nobody answers it
	eventually(t, "n2 is connected", func() bool { return n1.stream.conns.establishedCount() == 1 })
	dialRaw(t, n1).Write([]byte("RL")) // a handshake that hangs
	start := time.Now()
	for range 2 {
		n1.Close()
	}
	if n := len(n1.stream.conns.open); n != 0 {
		t.Errorf("%d connections outlived Close", n)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-sent; err == nil {
		t.Error("an unanswered RPC succeeded")
	}
	if err := appendTo(n1, n2); !errors.Is(err, raft.ErrTransportShutdown) {
		t.Errorf("after Close: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"no Self":            func(o *Options) { o.Self = nil },
		"no Admit":           func(o *Options) { o.Admit = nil },
		"no Resolve":         func(o *Options) { o.Resolve = nil },
		"no Configured":      func(o *Options) { o.Configured = nil },
		"no Covers":          func(o *Options) { o.Covers = nil },
		"negative timeout":   func(o *Options) { o.Timeout = -1 },
		"wildcard bound":     func(o *Options) { o.Bind = ":0" },
		"wildcard advertise": func(o *Options) { o.Advertise = "0.0.0.0:0" },
		"advertise no port":  func(o *Options) { o.Advertise = "n1.lan" },
	} {
		o := newTown().options("n1")
		spoil(&o)
		if tr, err := New(o); err == nil {
			tr.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	tr := newTown().open(t, "n1", func(o *Options) { o.Bind, o.Advertise = ":0", "n1.lan:0" })
	if host, port, _ := net.SplitHostPort(tr.Addr().String()); host != "n1.lan" || port == "0" {
		t.Errorf("advertised %v", tr.Addr())
	}
}
