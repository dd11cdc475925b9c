package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// peerPath begins the path of every call between nodes.
const peerPath = "/" + ringlogv1connect.PeerServiceName + "/"

// Peers reaches other nodes through their PeerService. It is safe for concurrent
// use.
type Peers struct {
	// Both clients keep connections, to nodes that have answered before.
	http  *http.Client // each of its connections leads to a node that has proved to have the token
	plain *http.Client // for nodes that have proved nothing yet: it carries no token
	token string
	own   atomic.Pointer[identity] // of the node whose calls these are; nil until New

	mu sync.Mutex
	// mu guards both maps. Calls are made without it.
	clients map[string]ringlogv1connect.PeerServiceClient // by URL
	proved  map[string]string                             // by URL: where the node is that proved to have the token
}

var _ raftnode.Peers = (*Peers)(nil)

// NewPeers returns the Peers of a node with this token; "" is no token.
func NewPeers(token string, security Security) *Peers {
	// The plain client carries challenges alone.
	return &Peers{
		http:    &http.Client{Transport: newTransport(token, security)},
		plain:   &http.Client{Transport: newTransport("", security)},
		token:   token,
		clients: map[string]ringlogv1connect.PeerServiceClient{},
		proved:  map[string]string{},
	}
}

// Close releases idle connections.
func (p *Peers) Close() {
	p.http.CloseIdleConnections()
	p.plain.CloseIdleConnections()
}

// maxPeerURLs bounds the clients and proofs kept. It is more than any cluster has nodes; past it all are dropped
// and made again as needed.
const maxPeerURLs = 1024

// client returns the client of a URL. It locks p.mu.
func (p *Peers) client(url string) ringlogv1connect.PeerServiceClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clientLocked(url)
}

// clientLocked returns the client of a URL, made once; p.mu is held.
func (p *Peers) clientLocked(url string) ringlogv1connect.PeerServiceClient {
	c, known := p.clients[url]
	if !known {
		// A cluster whose members move for long would fill the map otherwise.
		if len(p.clients) >= maxPeerURLs {
			clear(p.clients)
		}
		c = ringlogv1connect.NewPeerServiceClient(p.http, url, connect.WithReadMaxBytes(maxPeerMessage))
		p.clients[url] = c
	}
	return c
}

// method is one of the calls that a PeerService takes, as a method expression of its client.
type method[Q, A any] = func(
	ringlogv1connect.PeerServiceClient, context.Context, *connect.Request[Q],
) (*connect.Response[A], error)

// callPeer makes one call. It sends the token, the cluster that is meant, and the mark that keeps the other node from
// passing the call on; but none of the headers in without. Errors are those of fromPeer.
func callPeer[Q, A any](
	ctx context.Context, p *Peers, url string, message *Q, call method[Q, A], without ...string,
) (*A, error) {
	// Where there is a token, the node has to prove first that it has it.
	client, err := p.clientFor(ctx, url)
	if err != nil {
		return nil, err
	}
	// Headers say who asks, of which cluster, and that nobody else is to be asked.
	request := connect.NewRequest(message)
	if p.token != "" {
		request.Header().Set("Authorization", "Bearer "+p.token)
	}
	if own := p.own.Load(); own != nil {
		request.Header().Set(api.ClusterHeader, own.clusterID())
	}
	request.Header().Set(headerForwarded, "1")
	// A few calls leave some of them out.
	for _, name := range without {
		request.Header().Del(name)
	}
	// The answer, or an error of the way there or of the other node.
	answer, err := call(client, ctx, request)
	if err != nil {
		// Another node may have the address by now, so the next call asks for a proof again.
		if _, answered := apiError(err); !answered && ctx.Err() == nil {
			p.forgetProof(url)
		}
		return nil, fmt.Errorf("peer: %w", fromPeer(err))
	}
	return answer.Msg, nil
}

// Identify implements raftnode.Peers.
func (p *Peers) Identify(ctx context.Context, url string, q raftnode.Question) (raftnode.Report, error) {
	message := &ringlogv1.IdentifyRequest{DigestAt: q.DigestAt}
	// How far the asker's own log is, where that is part of the question.
	if s := q.Standing; s != nil {
		message.Standing = &ringlogv1.Standing{
			ClusterId:   s.ClusterID,
			Incarnation: s.Incarnation,
			Term:        s.Term,
			LastIndex:   s.LastIndex,
		}
	}
	// No cluster is named: the answer says which one the node belongs to.
	answer, err := callPeer(ctx, p, url, message, ringlogv1connect.PeerServiceClient.Identify, api.ClusterHeader)
	if err != nil {
		return raftnode.Report{}, ofRead(ctx, err)
	}
	// The report is JSON within the message: it grows with each version, and unknown fields are ignored.
	var report raftnode.Report
	if err := json.Unmarshal(answer.ReportJson, &report); err != nil {
		return raftnode.Report{}, fmt.Errorf("peer %s: report: %w", url, err)
	}
	return report, nil
}

// Digests returns the digests of a node's state that it keeps, by index.
func (p *Peers) Digests(ctx context.Context, url string) ([]api.Digest, error) {
	report, err := p.Identify(ctx, url, raftnode.Question{})
	digests := make([]api.Digest, len(report.Digests))
	// Digests are compared as text, by tools as well.
	for i, d := range report.Digests {
		digests[i] = api.Digest{Index: d.Index, Hex: d.Digest.String()}
	}
	return digests, err
}

// Forward implements raftnode.Peers.
func (p *Peers) Forward(ctx context.Context, url string, request []byte) ([]byte, error) {
	answer, err := callPeer(
		ctx, p, url, &ringlogv1.ForwardRequest{Request: request},
		ringlogv1connect.PeerServiceClient.Forward,
	)
	if err != nil {
		return nil, err
	}
	return answer.Result, nil
}

// ReadIndex implements raftnode.Peers.
func (p *Peers) ReadIndex(ctx context.Context, url string) (uint64, error) {
	answer, err := callPeer(ctx, p, url, &ringlogv1.ReadIndexRequest{}, ringlogv1connect.PeerServiceClient.ReadIndex)
	if err != nil {
		return 0, ofRead(ctx, err)
	}
	return answer.Index, nil
}

// Join implements raftnode.Peers. The node that is asked may pass it on, once.
func (p *Peers) Join(ctx context.Context, url string, m frame.Member, opts raftnode.MemberOptions) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return p.join(ctx, url, &ringlogv1.JoinRequest{MemberJson: text, Voter: opts.Voter, ClusterId: opts.ClusterID}, false)
}

// join sends a request to join. One that is not forwarded may still be passed on by the node that gets it.
func (p *Peers) join(ctx context.Context, url string, message *ringlogv1.JoinRequest, forwarded bool) error {
	var without []string
	if !forwarded {
		// The message names the cluster, and its refusal says more.
		without = []string{headerForwarded, api.ClusterHeader}
	}
	_, err := callPeer(ctx, p, url, message, ringlogv1connect.PeerServiceClient.Join, without...)
	return err
}

// ofRead returns the error of a call that changes nothing. Such a call has no outcome that could be unknown: a
// lost answer counts as that of no leader.
func ofRead(ctx context.Context, err error) error {
	switch {
	// The caller's own end is not the other node's fault.
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, raftnode.ErrOutcomeUnknown):
		return fmt.Errorf("%w that answers: %v", raftnode.ErrNoLeader, err)
	}
	return err
}

// fromPeer returns another node's error as one of this node's own, so callers need not know where it arose.
func fromPeer(err error) error {
	if e, ok := apiError(err); ok {
		// The caller can do nothing about a node with another token or cluster: for this node there is no leader.
		if e.Code == api.Unauthenticated {
			return fmt.Errorf("%w that takes this node's token: %w: %s", raftnode.ErrNoLeader, raftnode.ErrOtherToken, e.Message)
		}
		if e.Code == api.OtherCluster {
			return fmt.Errorf("%w at that address: %s", raftnode.ErrNoLeader, e.Message)
		}
		// Errors that this node knows are wrapped as its own, so errors.Is finds them.
		if is := service.NodeError(e); is != nil {
			return &peerError{answer: e, is: is}
		}
		return e
	}
	return asUnreached(err)
}

// peerError is another node's answer, and which of this node's own errors it is. Its text is the answer's alone, which
// has that of the error in it.
type peerError struct {
	answer *api.Error
	is     error
}

// Error implements error.
func (e *peerError) Error() string { return e.answer.Error() }

// Unwrap lets errors.Is and errors.As find both.
func (e *peerError) Unwrap() []error { return []error{e.is, e.answer} }

// failedToDial reports whether a call failed before there was a connection, so nothing of it was sent.
func failedToDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// asUnreached returns ErrNoLeader for a call that never left this node, and ErrOutcomeUnknown for one whose answer
// is lost.
func asUnreached(err error) error {
	if failedToDial(err) {
		return fmt.Errorf("%w: %w", raftnode.ErrNoLeader, err)
	}
	return fmt.Errorf("%w: %w", raftnode.ErrOutcomeUnknown, err)
}

// peerService answers the calls of other nodes.
type peerService struct {
	node       Node
	peers      raftnode.Peers // nil for a node that runs alone
	token      string         // of the cluster; "" is none
	advertised string         // the address of this node, as it proves it
}

var _ ringlogv1connect.PeerServiceHandler = (*peerService)(nil)

// Identify answers with what this node is, as JSON: other nodes ask it to find their members and to compare states.
func (p *peerService) Identify(
	_ context.Context, r *connect.Request[ringlogv1.IdentifyRequest],
) (*connect.Response[ringlogv1.IdentifyResponse], error) {
	q := raftnode.Question{DigestAt: r.Msg.DigestAt}
	// How far the asker's own log is, if that is part of the question.
	if s := r.Msg.Standing; s != nil {
		q.Standing = &raftnode.Standing{
			ClusterID:   s.ClusterId,
			Incarnation: s.Incarnation,
			Term:        s.Term,
			LastIndex:   s.LastIndex,
		}
	}
	text, err := json.Marshal(p.node.Report(q))
	if err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	return connect.NewResponse(&ringlogv1.IdentifyResponse{ReportJson: text}), nil
}

// Forward proposes a request of another node. Room is made for it before it is decoded.
func (p *peerService) Forward(
	ctx context.Context, r *connect.Request[ringlogv1.ForwardRequest],
) (*connect.Response[ringlogv1.ForwardResponse], error) {
	if err := holdOf(ctx).reserve(int64(frame.UnfoldedSize(r.Msg.Request))); err != nil {
		return nil, err
	}
	result, err := p.node.ProposeForwarded(ctx, r.Msg.Request)
	// The other node has sent what this one cannot take, as a newer build may.
	if isAny(err, frame.ErrCorrupt, frame.ErrUnsupported, raftnode.ErrNotForwarded, raftnode.ErrNotStoredForm) {
		err = api.Refuse(api.InvalidArgument, "request", err.Error(), "run the same version on all nodes")
	}
	return answerMessage(&ringlogv1.ForwardResponse{Result: result}, err)
}

// isAny reports whether err is of one of the kinds.
func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// ReadIndex answers with the index that a linearizable read on another node has to wait for. Only the leader knows
// it.
func (p *peerService) ReadIndex(
	ctx context.Context, _ *connect.Request[ringlogv1.ReadIndexRequest],
) (*connect.Response[ringlogv1.ReadIndexResponse], error) {
	index, err := p.node.ReadIndex(ctx)
	return answerMessage(&ringlogv1.ReadIndexResponse{Index: index}, err)
}

// Join admits a node. Only the leader can: another node passes the request on, once.
func (p *peerService) Join(
	ctx context.Context, r *connect.Request[ringlogv1.JoinRequest],
) (*connect.Response[ringlogv1.JoinResponse], error) {
	var m frame.Member
	if err := json.Unmarshal(r.Msg.MemberJson, &m); err != nil {
		return nil, api.Refuse(api.InvalidArgument, "member_json", "it is not a member in JSON",
			"run the same version on all nodes")
	}
	// A node that does not lead refuses. The request is then passed on, unless it was already.
	_, err := p.node.AddMember(ctx, m, raftnode.MemberOptions{Voter: r.Msg.Voter, ClusterID: r.Msg.ClusterId})
	if errors.Is(err, raftnode.ErrNotLeader) && r.Header().Get(headerForwarded) == "" {
		err = p.passJoin(ctx, r.Msg)
	}
	return answerMessage(&ringlogv1.JoinResponse{}, err)
}

// passJoin passes a request to join on to the leader, marked so that it is not passed on again.
func (p *peerService) passJoin(ctx context.Context, message *ringlogv1.JoinRequest) error {
	// Another implementation of raftnode.Peers has no way to pass a message on.
	leader := p.node.LeaderHTTP()
	peers, ok := p.peers.(*Peers)
	if leader == "" || !ok {
		return fmt.Errorf("join: %w", raftnode.ErrNoLeader)
	}
	return peers.join(ctx, leader, message, true)
}
