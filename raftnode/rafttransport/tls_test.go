package rafttransport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/certs"
)

// mint makes the certificates of a test. Its files trust both of its CAs.
type mint struct {
	testing.TB
	ca, foreign *certs.CA
}

func newMint(t testing.TB) mint {
	ca, err := certs.NewCA("ours", 2*time.Hour)
	foreign, err2 := certs.NewCA("foreign", 2*time.Hour)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return mint{t, ca, foreign}
}

// store has a certificate of somebody that ca has signed, and trusts those of trusted.
func (m mint) store(ca *certs.CA, who certs.Identity, valid time.Duration, trusted ...*certs.CA) *certs.Store {
	m.Helper()
	pair, err := ca.Issue(certs.Request{Identity: who, Hosts: []string{"127.0.0.1"}, Valid: valid})
	if err != nil {
		m.Fatal(err)
	}
	var roots []byte
	for _, ca := range trusted {
		roots = append(roots, ca.Cert...)
	}
	dir := m.TempDir()
	files := certs.Files{
		Cert: filepath.Join(dir, "own.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem"),
	}
	err = errors.Join(os.WriteFile(files.Cert, pair.Cert, 0o600), os.WriteFile(files.Key, pair.Key, 0o600),
		os.WriteFile(files.CA, roots, 0o600))
	if err != nil {
		m.Fatal(err)
	}
	s, err := certs.Open(files, func(*x509.Certificate) error { return nil })
	if err != nil {
		m.Fatal(err)
	}
	return s
}

// node has the certificate of a node.
func (m mint) node(id string) *certs.Store {
	return m.store(m.ca, certs.Identity{Kind: certs.Node, Name: id}, time.Hour, m.ca)
}

// Who may open the raft port: nobody without TLS, and nobody but a member with its own, valid certificate of this CA.
// Everybody else is refused by name, and neither asks for a vote nor appends.
func TestWhoOpensTheRaftPort(t *testing.T) {
	n1 := certs.Identity{Kind: certs.Node, Name: "n1"}
	with := func(s *certs.Store) func(*Options) { return func(o *Options) { o.TLS = s } }
	without := func(o *Options) { o.TLS = nil }
	for _, test := range []struct {
		name             string
		dialer, acceptor func(m mint) func(*Options) // nil: its own certificate, which has to be shown
		later            time.Duration               // when n1 dials
		before           func(w *town)
		want             error
		byAcceptor       bool
	}{
		{name: "a member"},
		{name: "no TLS", dialer: func(mint) func(*Options) { return without }, want: ErrNoTLS, byAcceptor: true},
		{name: "no TLS at the acceptor", acceptor: func(mint) func(*Options) { return without }, want: ErrNoTLS},
		{
			name: "another CA's certificate", want: ErrUnknownCA, byAcceptor: true,
			dialer: func(m mint) func(*Options) { return with(m.store(m.foreign, n1, time.Hour, m.ca, m.foreign)) },
		},
		{
			name: "another CA's at the acceptor", want: ErrUnknownCA,
			acceptor: func(m mint) func(*Options) {
				return with(m.store(m.foreign, certs.Identity{Kind: certs.Node, Name: "n2"}, time.Hour, m.ca, m.foreign))
			},
		},
		{
			name: "a client's certificate", want: ErrNotNode, byAcceptor: true,
			dialer: func(m mint) func(*Options) {
				return with(m.store(m.ca, certs.Identity{Kind: certs.Client, Name: "n1"}, time.Hour, m.ca))
			},
		},
		{
			name: "another node's certificate", want: ErrOtherNode, byAcceptor: true,
			dialer: func(m mint) func(*Options) { return with(m.node("n3")) },
		},
		{
			name: "another node's at the acceptor", want: ErrOtherNode,
			acceptor: func(m mint) func(*Options) { return with(m.node("n3")) },
		},
		{
			name: "an expired certificate", want: ErrExpired, byAcceptor: true, later: 2 * time.Minute,
			dialer: func(m mint) func(*Options) { return with(m.store(m.ca, n1, time.Minute, m.ca)) },
		},
		{name: "a removed node's", want: ErrRemoved, byAcceptor: true, before: func(w *town) { w.remove("n1") }},
		{name: "another token", want: ErrBadProof, byAcceptor: true, dialer: func(m mint) func(*Options) {
			return func(o *Options) { o.Secret = []byte("guess") }
		}},
	} {
		run := func(t *testing.T, network func(*Options)) {
			m, w := newMint(t), newTown()
			open := func(id string, edit func(mint) func(*Options)) *Transport {
				return w.open(t, id, func(o *Options) {
					network(o)
					o.Secret, o.TLS = []byte("s"), m.node(id)
					if edit != nil {
						edit(m)(o)
					}
				})
			}
			acceptor, dialer := open("n2", test.acceptor), open("n1", test.dialer)
			if test.before != nil {
				test.before(w)
			}
			time.Sleep(test.later)
			came := answer(t, acceptor)
			appended, voted := appendTo(dialer, acceptor), askVote(dialer, acceptor)
			if test.want == nil {
				if appended != nil || voted != nil {
					t.Fatalf("%v, %v", appended, voted)
				}
				<-came
				<-came
				return
			}
			for _, err := range []error{appended, voted} {
				refusal, is := errors.AsType[*RefusedError](err)
				if !is || !errors.Is(err, test.want) || refusal.ByPeer != test.byAcceptor {
					t.Errorf("dialer: %v; want %v, by the acceptor %v", err, test.want, test.byAcceptor)
				}
			}
			if test.byAcceptor {
				eventually(t, "the acceptor records it", func() bool { return refusedFor(acceptor, test.want) })
			}
			if !refusedFor(dialer, test.want) {
				t.Errorf("dialer's record: %+v", dialer.Refusals())
			}
			if n := acceptor.stream.conns.establishedCount(); n != 0 || len(came) != 0 {
				t.Errorf("%d connections and %d RPCs got through", n, len(came))
			}
		}
		t.Run(test.name, func(t *testing.T) {
			if test.later == 0 {
				run(t, func(*Options) {})
				return
			}
			synctest.Test(t, func(t *testing.T) { run(t, newPipes().use) })
		})
	}
}

func askVote(from, to *Transport) error {
	var resp raft.RequestVoteResponse
	return from.RequestVote("", to.LocalAddr(), &raft.RequestVoteRequest{Term: 1}, &resp)
}

// Somebody between two nodes who has the certificates of both, and not the token, cannot have one prove the token to
// the other.
func TestARelayedHandshakeIsRefused(t *testing.T) {
	m, w := newMint(t), newTown()
	n2 := w.open(t, "n2", func(o *Options) { o.Secret, o.TLS = []byte("s"), m.node("n2") })
	came := answer(t, n2)
	relay := impostor(t, func(c net.Conn) {
		toN1 := tls.Server(c, m.node("n2").MutualConfig())
		toN2 := tls.Client(dialRaw(t, n2), m.node("n1").MutualConfig())
		if err := errors.Join(toN1.Handshake(), toN2.Handshake()); err != nil {
			t.Error(err)
			return
		}
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(toN2, toN1); toN2.CloseWrite() })
		io.Copy(toN1, toN2)
		toN1.CloseWrite()
		wg.Wait()
	})
	n1 := w.open(t, "n1", func(o *Options) {
		o.Secret, o.TLS = []byte("s"), m.node("n1")
		o.Resolve = func(raft.ServerAddress) (string, bool) { return "n2", true }
	})
	var resp raft.AppendEntriesResponse
	if err := n1.AppendEntries("n2", relay, &raft.AppendEntriesRequest{}, &resp); !errors.Is(err, ErrBadProof) {
		t.Errorf("%v, want %v", err, ErrBadProof)
	}
	if !refusedFor(n2, ErrBadProof) || len(came) != 0 {
		t.Errorf("%+v, %d RPCs", n2.Refusals(), len(came))
	}
}

// What a member has sent is sent again, byte by byte.
func TestAReplayedConnectionIsRefused(t *testing.T) {
	m, w := newMint(t), newTown()
	n2 := w.open(t, "n2", func(o *Options) { o.Secret, o.TLS = []byte("s"), m.node("n2") })
	came := answer(t, n2)
	recorded := make(chan []byte, 1)
	tap := impostor(t, func(c net.Conn) {
		var sent bytes.Buffer
		out := dialRaw(t, n2)
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.MultiWriter(out, &sent), c); out.(*net.TCPConn).CloseWrite() })
		io.Copy(c, out)
		c.(*net.TCPConn).CloseWrite()
		wg.Wait()
		recorded <- sent.Bytes()
	})
	n1 := w.open(t, "n1", func(o *Options) { o.Secret, o.TLS = []byte("s"), m.node("n1") })
	var resp raft.AppendEntriesResponse
	if err := n1.AppendEntries("n2", tap, &raft.AppendEntriesRequest{}, &resp); err != nil {
		t.Fatal(err)
	}
	<-came
	n1.Disconnect("n2")
	eventually(t, "the first connection has ended", func() bool { return n2.stream.conns.establishedCount() == 0 })
	sent := <-recorded
	c := dialRaw(t, n2)
	c.Write(sent)
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the replayed connection stays open")
	}
	eventually(t, "it is refused", func() bool { return refusedFor(n2, ErrUnfitForNode) })
	if len(came) != 0 {
		t.Errorf("%d RPCs", len(came))
	}
}

// While nodes are restarted with TLS, one after the other, each reaches each.
func TestTLSIsTurnedOnOneNodeAfterTheOther(t *testing.T) {
	modes := []string{"off", "allow", "require"}
	for i, from := range modes {
		for j, to := range modes {
			t.Run(from+" dials "+to, func(t *testing.T) {
				m, w := newMint(t), newTown()
				open := func(id, mode string) *Transport {
					return w.open(t, id, func(o *Options) {
						o.Secret = []byte("s")
						if mode != "off" {
							o.TLS, o.TLSOptional = m.node(id), mode == "allow"
						}
					})
				}
				n1, n2 := open("n1", from), open("n2", to)
				came := answer(t, n2)
				err := appendTo(n1, n2)
				if apart := max(i-j, j-i) > 1; apart != errors.Is(err, ErrNoTLS) || (!apart && err != nil) {
					t.Fatal(err)
				}
				if err == nil {
					<-came
				}
				// Both have TLS: none falls back to less.
				n2.stream.conns.mu.Lock()
				defer n2.stream.conns.mu.Unlock()
				for c := range n2.stream.conns.open {
					if _, secured := c.Conn.(*tls.Conn); secured != (i > 0 && j > 0) {
						t.Errorf("secured %v", secured)
					}
				}
			})
		}
	}
}

// Raft runs over TLS as it does without: elections, entries, snapshots, cuts.
func TestRaftRunsOverTLS(t *testing.T) {
	m, c := newMint(t), newCluster(t)
	voters := []*voter{c.voter("n1"), c.voter("n2"), c.voter("n3")}
	c.secure = m.node
	c.found(voters[0], voters[1:]...)
	want := c.apply(nil, bytes.Repeat([]byte("entry"), 300_000), voters...)
	c.agree(want, voters...)
	leader := c.leader(voters...)
	c.stop(leader)
	var rest []*voter
	for _, v := range voters {
		if v != leader {
			rest = append(rest, v)
		}
	}
	want = c.apply(want, []byte("more"), rest...)
	c.start(leader, nil)
	c.agree(want, voters...)
}
