package rafttransport

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
)

// A proof covers the role of its sender, so no side's proof can be sent back to it
// as the other's.
const (
	roleDialer   = "ringlog raft handshake: dialer\x00"
	roleAcceptor = "ringlog raft handshake: acceptor\x00"
)

// handshake is one side's state of one handshake; wire.go draws the exchange. It is
// used once, by one goroutine. The caller sets the deadlines of rw.
type handshake struct {
	rw     io.ReadWriter
	self   Identity
	target string // the node that should answer; "" is any, and always for an acceptor
	secret []byte // the cluster token; empty: none
	admit  func(peer Identity) error
	speaks versions // of this side

	// Of the connection, if it is TLS: the node that the peer's certificate is of, and what both ends of this
	// connection know and those of no other do. "" and nil without TLS.
	certified string
	binding   []byte

	peer    Identity // set as soon as its hello is read; proven when the handshake ends
	version byte     // the newest that both sides speak, once both hellos are known
}

// dial runs the dialer's side. If this side refuses, the caller sends the
// *RefusedError with refuse.
func (h *handshake) dial() error {
	mine, err := h.sendHello(h.target)
	if err != nil {
		return err
	}
	theirs, err := h.readHello()
	if err != nil {
		return err
	}

	// The dialer proves first and asks membership last: neither side asks its membership
	// about a peer that has proven nothing.
	if err := h.send(newFrame(h.version, kindProof, h.proof(roleDialer, mine, theirs))); err != nil {
		return err
	}
	if err := h.checkProof(roleAcceptor, mine, theirs); err != nil {
		return err
	}
	if err := h.askMembership(); err != nil {
		return err
	}
	return h.send(newFrame(h.version, kindReady, nil))
}

// accept runs the acceptor's side; refusals are sent as in dial.
func (h *handshake) accept() error {
	theirs, err := h.readHello()
	if err != nil {
		return err
	}
	mine, err := h.sendHello(h.peer.NodeID)
	if err != nil {
		return err
	}

	// Nothing derived from the token is sent before the dialer's proof is checked.
	if err := h.checkProof(roleDialer, theirs, mine); err != nil {
		return err
	}
	if err := h.askMembership(); err != nil {
		return err
	}
	if err := h.send(newFrame(h.version, kindProof, h.proof(roleAcceptor, theirs, mine))); err != nil {
		return err
	}
	f, err := h.read(kindReady)
	if err == nil && len(f.body()) > 0 {
		return refusef(ErrMalformed, "ready with a body")
	}
	return err
}

// refuse sends the peer the reason. An error is ignored: the peer may be gone.
func (h *handshake) refuse(e *RefusedError) {
	// Whoever has sent a hello is no client of HTTP, whatever follows.
	if e.web && h.peer == (Identity{}) {
		h.answerWeb()
		return
	}
	_ = h.send(encodeRefusal(e))
}

// sendHello sends this side's hello and returns it, as proofs cover it.
func (h *handshake) sendHello(target string) (frame, error) {
	out := hello{Identity: h.self, speaks: h.speaks, proves: len(h.secret) > 0, target: target}
	rand.Read(out.nonce[:])
	f, err := out.encode()
	if err != nil {
		return nil, fmt.Errorf("own identity: %w", err)
	}
	return f, h.send(f)
}

// readHello reads and checks the peer's hello and returns it, as proofs cover it.
func (h *handshake) readHello() (frame, error) {
	f, err := h.read(kindHello)
	if err != nil {
		return nil, err
	}
	in, err := decodeHello(f.body())
	if err != nil {
		return nil, err
	}
	h.peer, h.version = in.Identity, h.speaks.common(in.speaks)
	return f, h.check(in)
}

// check checks all of a hello that needs neither proof nor membership. Membership is asked
// only after the proof, so a stranger learns nothing about it.
func (h *handshake) check(in hello) error {
	switch {
	case h.version == 0:
		return refusef(ErrVersion, "%s speaks %d to %d, %s %d to %d", h.self.NodeID, h.speaks.oldest, h.speaks.newest,
			in.NodeID, in.speaks.oldest, in.speaks.newest)
	case in.proves && len(h.secret) == 0:
		return refusef(ErrNoProof, "%s has a token, %s has none", in.NodeID, h.self.NodeID)
	case !in.proves && len(h.secret) > 0:
		return refusef(ErrNoProof, "%s has a token, %s has none", h.self.NodeID, in.NodeID)
	case in.ClusterID != "" && h.self.ClusterID != "" && in.ClusterID != h.self.ClusterID:
		return refusef(ErrOtherCluster, "%s is in %s, %s in %s", h.self.NodeID, h.self.ClusterID, in.NodeID, in.ClusterID)
	case in.NodeID == h.self.NodeID:
		// This also keeps a node's proof from being relayed back to itself.
		return refusef(ErrSameNode, "%s, incarnations %s and %s", in.NodeID, h.self.Incarnation, in.Incarnation)
	case h.certified != "" && in.NodeID != h.certified:
		return refusef(ErrOtherNode, "%s has a certificate of %s", in.NodeID, h.certified)
	case h.target != "" && in.NodeID != h.target:
		return refusef(ErrWrongNode, "%s expected, %s answered", h.target, in.NodeID)
	case in.target != "" && in.target != h.self.NodeID:
		return refusef(ErrWrongNode, "%s expected, %s answered", in.target, h.self.NodeID)
	}
	return nil
}

// proof is the MAC that the side of this role proves the secret with; empty without a secret. It covers both
// hellos, and with them both nonces, and under TLS the connection: relayed into another connection it proves nothing,
// even by somebody who has the certificates of both nodes. Hellos have their length in front, so no two lists of
// parts have the same bytes.
func (h *handshake) proof(role string, dialer, acceptor frame) []byte {
	if len(h.secret) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, h.secret)
	io.WriteString(mac, role)
	mac.Write(dialer)
	mac.Write(acceptor)
	mac.Write(h.binding)
	return mac.Sum(nil)
}

// checkProof reads the peer's proof and checks it.
func (h *handshake) checkProof(role string, dialer, acceptor frame) error {
	f, err := h.read(kindProof)
	if err != nil {
		return err
	}
	if !hmac.Equal(f.body(), h.proof(role, dialer, acceptor)) {
		return refusef(ErrBadProof, "%s and %s have different cluster tokens", h.self.NodeID, h.peer.NodeID)
	}
	return nil
}

// askMembership asks admit about the peer, and turns its error into a refusal.
func (h *handshake) askMembership() error {
	if err := h.admit(h.peer); err != nil {
		return refusef(sentinelOf(err), "%v", err)
	}
	return nil
}

func (h *handshake) send(f frame) error {
	_, err := h.rw.Write(f)
	return err
}

// read reads a frame of one kind. If the peer sends a refusal in its place, read returns that as the error.
func (h *handshake) read(kind byte) (frame, error) {
	// The first frame is of a version that every node knows; the version of the others is agreed on by it.
	version := h.version
	if kind == kindHello {
		version = helloVersion
	}
	f, err := readFrame(h.rw, version)
	switch {
	case err != nil:
		return nil, err
	case f.kind() == kind:
		return f, nil
	case f.kind() != kindRefusal:
		return nil, refusef(ErrMalformed, "frame kind %d where %d belongs", f.kind(), kind)
	}
	// The peer's reason is the error, whatever was expected.
	refusal, err := decodeRefusal(f.body())
	if err != nil {
		return nil, err
	}
	return nil, refusal
}
