package rafttransport

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Many peers that open a handshake and dawdle neither keep a member out nor stay.
func TestSlowLoris(t *testing.T) {
	w := newTown()
	n1 := w.open(t, "n1", func(o *Options) { o.Timeout = time.Second })
	n2 := w.open(t, "n2", nil)
	came := answer(t, n1)
	var slow []net.Conn
	for range 3 * maxPending {
		c := dialRaw(t, n1)
		c.Write([]byte("R"))
		slow = append(slow, c)
		if n := n1.stream.conns.pendingCount(); n > 2*maxPending {
			t.Fatalf("%d handshakes pending", n)
		}
	}
	if err := appendTo(n2, n1); err != nil {
		t.Fatalf("a member among them: %v", err)
	}
	<-came
	for _, c := range slow {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a dawdler was kept for 10 s")
		}
	}
	sums := n1.RefusalTotals()
	if sums["slow"] == 0 || sums["busy"] == 0 || sums["slow"]+sums["busy"] < uint64(len(slow)) {
		t.Errorf("%v for %d dawdlers", sums, len(slow))
	}
	if n := len(n1.Refusals()); n != 1 {
		t.Errorf("%d entries for one host", n)
	}
}

// Handshakes that were evicted and do not end, whatever holds them, count too.
func TestHandshakesThatNeverEndAreBounded(t *testing.T) {
	r := newRegistry(time.Second)
	for range 10 * maxPending {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		if c, _ := r.add(ours, true); c == nil {
			ours.Close()
		}
	}
	if n := r.pendingCount(); n != 2*maxPending {
		t.Errorf("%d handshakes held, at most %d may be", n, 2*maxPending)
	}
	r.close()
}

// Inside an RPC a peer may not stall; between RPCs it may be silent for longer.
func TestStallInsideAnRPCEndsTheConnection(t *testing.T) {
	w := newTown()
	n1 := w.open(t, "n1", func(o *Options) { o.Timeout = 100 * time.Millisecond })
	n2, n3 := w.open(t, "n2", nil), w.open(t, "n3", nil)
	came := answer(t, n1)
	if err := appendTo(n3, n1); err != nil {
		t.Fatal(err)
	}
	<-came
	c, err := n2.stream.Dial(n1.LocalAddr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	c.Write([]byte{0}) // AppendEntries, and no more of it
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the stalled connection was kept for 10 s")
	}
	if took := time.Since(start); took < stallFactor*100*time.Millisecond {
		t.Errorf("ended after %v already", took)
	}
	idle := n1.stream.conns.establishedCount()
	if err := appendTo(n3, n1); err != nil || n1.stream.conns.establishedCount() != idle {
		t.Errorf("the idle connection was not kept: %v", err)
	}
}

// One peer may not fill the table, and its newest connection always works.
func TestOldestConnectionOfAPeerGivesWay(t *testing.T) {
	w := newTown()
	n1, n2, n3 := w.open(t, "n1", nil), w.open(t, "n2", nil), w.open(t, "n3", nil)
	came := answer(t, n1)
	if err := appendTo(n3, n1); err != nil {
		t.Fatal(err)
	}
	<-came
	for range maxPerPeer + 10 {
		c, err := n2.stream.Dial(n1.LocalAddr(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "n2 is down to its share", func() bool { return n1.stream.conns.establishedCount() <= maxPerPeer+1 })
	if err := appendTo(n2, n1); err != nil {
		t.Error(err)
	}
	if err := appendTo(n3, n1); err != nil {
		t.Errorf("the other peer lost its own: %v", err)
	}
}

// widest reads from r and remembers the largest buffer it was given.
type widest struct {
	r   io.Reader
	max int
}

func (w *widest) Read(p []byte) (int, error) {
	w.max = max(w.max, len(p))
	return w.r.Read(p)
}

func TestNoClaimMakesALargeAllocation(t *testing.T) {
	for n := range 1 << 16 {
		f := newFrame(spoken.newest, kindHello, nil)
		f[6], f[7] = byte(n>>8), byte(n)
		w := &widest{r: bytes.NewReader(f)}
		_, err := readFrame(w, spoken.newest)
		if w.max > maxBody {
			t.Fatalf("a claim of %d made a buffer of %d", n, w.max)
		}
		if errors.Is(err, ErrMalformed) != (n > maxBody) {
			t.Fatalf("a claim of %d: %v", n, err)
		}
	}
}

func TestHeartbeatsTakeNoFastPath(t *testing.T) {
	w := newTown()
	n1, n2 := w.open(t, "n1", nil), w.open(t, "n2", nil)
	n1.SetHeartbeatHandler(func(rpc raft.RPC) {
		t.Error("a heartbeat took the fast path")
		rpc.Respond(&raft.AppendEntriesResponse{}, nil)
	})
	came := answer(t, n1)
	beat := &raft.AppendEntriesRequest{Term: 3, RPCHeader: raft.RPCHeader{Addr: []byte(n2.LocalAddr())}}
	var resp raft.AppendEntriesResponse
	if err := n2.AppendEntries("n1", n1.LocalAddr(), beat, &resp); err != nil {
		t.Fatal(err)
	}
	select {
	case rpc := <-came:
		if got := rpc.(*raft.AppendEntriesRequest); got.Term != 3 {
			t.Errorf("%+v", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("the heartbeat never reached raft's own channel")
	}
}

func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		book := newRefusals(hclog.New(&hclog.LoggerOptions{Output: &out}))
		refuse := func(peer string) {
			book.record(&RefusedError{Peer: peer, Addr: "10.0.0.7:1", Reason: ErrBadProof, Detail: "no"})
		}
		for range 1000 {
			refuse("n7")
		}
		refuse("n8")
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Fatalf("%d lines for two peers:\n%s", n, &out)
		}
		time.Sleep(logEvery)
		refuse("n7")
		if s := out.String(); strings.Count(s, "\n") != 3 || !strings.Contains(s, "count=1001") {
			t.Fatalf("a minute later:\n%s", s)
		}
		if got := book.list(); len(got) != 2 || got[0].Peer != "n7" || got[0].Count != 1001 ||
			got[0].Reason != "bad_proof" || !got[0].Last.Equal(time.Now()) {
			t.Fatalf("%+v", got)
		}
		for i := range 100_000 {
			refuse(fmt.Sprint("made-up-", i))
		}
		if n, lines := len(book.list()), strings.Count(out.String(), "\n"); n > maxRefusals || lines > 3+logBurst {
			t.Fatalf("%d entries and %d lines for made-up peers", n, lines)
		}
		if got := book.sums()["bad_proof"]; got != 101_002 {
			t.Fatalf("counted %d", got)
		}
	})
}

// FuzzAccept feeds a whole connection to an acceptor with a token: nothing gets
// through without the token, and nothing the token made comes out.
func FuzzAccept(f *testing.F) {
	n2, _ := hello{Identity: Identity{"c1", "n2", "n2-a"}, speaks: spoken, proves: true, target: "n1"}.encode()
	f.Add([]byte(n2))
	f.Add(append(
		append([]byte(n2), newFrame(spoken.newest, kindProof, make([]byte, proofLen))...),
		newFrame(spoken.newest, kindReady, nil)...,
	))
	f.Add([]byte(encodeRefusal(refusef(ErrBusy, "later"))))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), &out}
		h := &handshake{
			rw: rw, self: Identity{"c1", "n1", "n1-a"}, secret: []byte("s"), speaks: spoken,
			admit: func(Identity) error { t.Fatal("membership was asked about a stranger"); return nil },
		}
		err := h.accept()
		if err == nil {
			t.Fatal("let in")
		}
		var refusal *RefusedError
		if errors.As(err, &refusal) {
			h.refuse(refusal)
		}
		if isWebRequest(in[:min(len(in), headerLen)]) && !bytes.HasPrefix(in, []byte(magic)) {
			if !strings.HasPrefix(out.String(), "HTTP/1.1 421 ") && len(in) >= headerLen {
				t.Fatalf("answered with %q", out.String())
			}
			return
		}
		for out.Len() > 0 {
			f, err := readFrame(&out, spoken.newest)
			if err != nil || f.kind() == kindProof {
				t.Fatalf("answered with %x, %v", f, err)
			}
		}
	})
}

// FuzzDial feeds a whole connection to a dialer with a token: without the token nobody is taken for a member, and all
// that the token made is the dialer's own proof, which is of no use in an acceptor's place.
func FuzzDial(f *testing.F) {
	n1, _ := hello{Identity: Identity{"c1", "n1", "n1-a"}, speaks: spoken, proves: true, target: "n2"}.encode()
	proof := newFrame(spoken.newest, kindProof, make([]byte, proofLen))
	f.Add([]byte(n1))
	f.Add(slices.Concat([]byte(n1), []byte(proof), []byte(newFrame(spoken.newest, kindReady, nil))))
	f.Add(slices.Concat([]byte(n1), []byte(encodeRefusal(refusef(ErrBadProof, "no")))))
	f.Add([]byte(encodeRefusal(refusef(ErrBusy, "later"))))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), &out}
		h := &handshake{
			rw: rw, self: Identity{"c1", "n2", "n2-a"}, target: "n1", secret: []byte("s"), speaks: spoken,
			admit: func(Identity) error { t.Fatal("membership was asked about a stranger"); return nil },
		}
		err := h.dial()
		if err == nil {
			t.Fatal("a stranger was taken for a member")
		}
		var refusal *RefusedError
		if errors.As(err, &refusal) && len(refusal.Error()) > 4*maxBody {
			t.Fatalf("an error of %d bytes", len(refusal.Error()))
		}
		// A hello, and at most one proof, after a hello that was sound.
		mine, err := readFrame(&out, helloVersion)
		if err != nil || mine.kind() != kindHello {
			t.Fatalf("begins with %x, %v", mine, err)
		}
		if out.Len() == 0 {
			return
		}
		f, err := readFrame(&out, h.version)
		if err != nil || f.kind() != kindProof || out.Len() > 0 || h.peer.NodeID != "n1" {
			t.Fatalf("sends %x to %+v, %v", f, h.peer, err)
		}
		theirs := frame(in[:headerLen+int(binary.BigEndian.Uint16(in[6:]))])
		if hmac.Equal(f.body(), h.proof(roleAcceptor, mine, theirs)) {
			t.Fatal("the dialer's proof is good for an acceptor")
		}
	})
}

// FuzzDecodeHello: what is read as a hello is written as the same bytes.
func FuzzDecodeHello(f *testing.F) {
	n2, _ := hello{Identity: Identity{"c1", "n2", "n2-a"}, speaks: spoken, proves: true, target: "n1"}.encode()
	f.Add([]byte(n2.body()))
	f.Add(make([]byte, helloFixed+4))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := decodeHello(body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		again, err := h.encode()
		if err != nil || !bytes.Equal(again.body(), body) {
			t.Fatalf("%x became %x, %v", body, again, err)
		}
	})
}
