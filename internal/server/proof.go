package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/raftnode"
)

// A node sends the cluster token only over a connection whose other end has proved to have it,
// at the address that was dialed: an address that a caller or a stranger names is sent nothing
// but a nonce, and one that passes the challenge on to a real node proves that node's address,
// not its own. The answer is useless elsewhere: its key serves nothing else.
//
//	asker                                     node at the address
//	Challenge: nonce              ->
//	                              <-          own nonce, own address, MAC(token, both nonces, own address)
//
// The asker compares the MAC with its own, and the address with the one that it dialed. Only then is the token sent.

// These promise that nothing was sent that a stranger must not have.
var (
	errUnproved = fmt.Errorf("%w that proves to have the cluster token", raftnode.ErrNoLeader)
	// A node of ringlog has answered the challenge.
	errOtherToken = fmt.Errorf("%w: %w", errUnproved, raftnode.ErrOtherToken)
)

// nonceSize is the length of either side's nonce, in bytes.
const nonceSize = 32

// newChallenge returns a challenge with a fresh nonce.
func newChallenge() *ringlogv1.ChallengeRequest {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	return &ringlogv1.ChallengeRequest{Nonce: nonce}
}

// proofOfToken returns a MAC over both nonces and the address of the node that proves.
func proofOfToken(token string, theirs, own []byte, address string) []byte {
	// The key is derived from the token for this purpose alone.
	key := hmac.New(sha256.New, []byte(token))
	key.Write([]byte("ringlog peer challenge v1"))
	mac := hmac.New(sha256.New, key.Sum(nil))
	// Both nonces make each proof good for one challenge alone; the address makes it good for one node.
	for _, part := range [][]byte{theirs, own, []byte(address)} {
		// Lengths keep the parts apart: no two lists of parts have the same bytes.
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// provesToken reports whether a response proves the token for the challenge that was asked and the address in it.
func provesToken(token string, asked *ringlogv1.ChallengeRequest, m *ringlogv1.ChallengeResponse) bool {
	return m.Http != "" && hmac.Equal(m.Proof, proofOfToken(token, asked.Nonce, m.Nonce, m.Http))
}

// Challenge implements PeerServiceHandler.
func (p *peerService) Challenge(
	_ context.Context, r *connect.Request[ringlogv1.ChallengeRequest],
) (*connect.Response[ringlogv1.ChallengeResponse], error) {
	if p.token == "" {
		return nil, api.Refuse(api.Conflict, "nonce", "this node has no cluster token", "give all nodes the same")
	}
	if len(r.Msg.Nonce) != nonceSize {
		return nil, api.BadValue("nonce", fmt.Sprintf("%d bytes", len(r.Msg.Nonce)), fmt.Sprintf("%d bytes", nonceSize))
	}
	// A nonce of its own keeps the asker from choosing all of what the proof is about.
	own := make([]byte, nonceSize)
	_, _ = rand.Read(own) // never fails
	at := p.advertised
	return connect.NewResponse(&ringlogv1.ChallengeResponse{
		Nonce: own,
		Http:  at,
		Proof: proofOfToken(p.token, r.Msg.Nonce, own, at),
	}), nil
}

// hasNoToken reports whether an error is the answer of Challenge of a node that has no token.
func hasNoToken(err error) bool {
	e, answered := apiError(err)
	return answered && e.Code == api.Conflict
}

// clientFor returns the client of the node at a URL. Where there is a cluster token, calls go to the address that the
// node proves to be its own, whose name may differ from the URL. It waits for the proof the first time.
func (p *Peers) clientFor(ctx context.Context, url string) (ringlogv1connect.PeerServiceClient, error) {
	if p.token == "" {
		return p.client(url), nil
	}
	p.mu.Lock()
	address, known := p.proved[url]
	p.mu.Unlock()
	if known {
		return p.client(address), nil
	}
	// The token is not sent until the node has proved to have it. p.mu is free meanwhile: the node may be slow.
	asked := newChallenge()
	answer, err := ringlogv1connect.NewPeerServiceClient(p.plain, url, connect.WithReadMaxBytes(maxProof)).Challenge(
		ctx, connect.NewRequest(asked),
	)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	// Nobody is there; the other cases are about somebody who has no proof.
	case err != nil && failedToDial(err):
		return nil, fmt.Errorf("peer %s: %w", url, asUnreached(err))
	case err != nil && hasNoToken(err):
		return nil, fmt.Errorf("peer %s: %w: %v", url, errOtherToken, err)
	case err != nil:
		return nil, fmt.Errorf("peer %s: %w: %v", url, errUnproved, err)
	case !provesToken(p.token, asked, answer.Msg):
		return nil, fmt.Errorf("peer %s: %w", url, errOtherToken)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Dropped proofs cost one more challenge each.
	if len(p.proved) >= maxPeerURLs {
		clear(p.proved)
	}
	address = raftnode.URL(answer.Msg.Http)
	p.proved[url] = address
	return p.clientLocked(address), nil
}

// forgetProof makes the next call to a URL ask for a proof and an address again.
func (p *Peers) forgetProof(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.proved, url)
}

// maxProof bounds the answer to a challenge, in bytes.
const maxProof = 4 << 10

// proveOnDial wraps dial so that the other end of each connection has proved to have the token. Its errors are those
// of a dial: nothing of the call was sent.
func proveOnDial(
	dial func(ctx context.Context, network, address string) (net.Conn, error), token string,
) func(ctx context.Context, network, address string) (net.Conn, error) {
	if token == "" {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// Only what is written after the proof may carry the token.
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// The end of ctx, or proveWithin, ends a challenge whose answer does not come.
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		_ = conn.SetDeadline(time.Now().Add(proveWithin))
		// The connection is this function's alone until the proof.
		err = challenge(conn, address, token)
		// The deadline in the past may still be set by the hook, which makes the connection unfit for use.
		if !stop() {
			err = errors.Join(err, ctx.Err())
		}
		if err == nil {
			err = conn.SetDeadline(time.Time{})
		}
		if err != nil {
			return nil, errors.Join(&net.OpError{
				Op:   "dial",
				Net:  network,
				Addr: conn.RemoteAddr(),
				Err:  fmt.Errorf("%w: %w", errUnproved, err),
			}, conn.Close())
		}
		return conn, nil
	}
}

// proveWithin bounds a challenge on a new connection.
const proveWithin = 5 * time.Second

// challenge makes the other end of a new connection prove that it has the token and is at the address that was
// dialed. The connection is ready for a request afterwards.
func challenge(conn net.Conn, address, token string) error {
	asked := newChallenge()
	body, err := proto.Marshal(asked)
	if err != nil {
		return err
	}
	// The host is the address that was dialed, for a node that checks it.
	target := "http://" + address + ringlogv1connect.PeerServiceChallengeProcedure
	r, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/proto")
	// The request goes over the very connection that the transport will use.
	if err := r.Write(conn); err != nil {
		return err
	}
	// Nothing may be read past the answer: what this reader buffers is lost to the transport.
	in := bufio.NewReader(io.LimitReader(conn, maxProof))
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return err
	}
	// The answer is small, and read in full.
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var m ringlogv1.ChallengeResponse
	// A connection with bytes left over, or about to be closed, cannot serve the call.
	if answer.StatusCode != http.StatusOK || in.Buffered() > 0 || answer.Close {
		return fmt.Errorf("a challenge was answered with %s", answer.Status)
	}
	if err := proto.Unmarshal(body, &m); err != nil {
		return err
	}
	// A proof of another address was fetched from the node that is there.
	if !provesToken(token, asked, &m) || hostPort(m.Http) != address {
		return errors.New("the answer to a challenge proves nothing")
	}
	return nil
}

// hostPort returns the host:port that is dialed for a URL, "" for none.
func hostPort(address string) string {
	u, err := neturl.Parse(raftnode.URL(address))
	if err != nil {
		return ""
	}
	// The port that HTTP has by default.
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return u.Host
}
