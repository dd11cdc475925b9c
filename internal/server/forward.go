package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// A call that only the leader can do, made at another node:
//
//	caller          receiving node      leader
//	request    ->
//	                the same       ->              with the caller's name, the cluster's id and the mark
//	                               <-   answer
//	           <-   its status and body
//
// A call that never left the node is answered with no_leader, one whose answer is lost with outcome_unknown.

// forwarder passes calls that only the leader can do on to it, once: the headerForwarded mark keeps the other node
// from passing a call on again.
type forwarder struct {
	node     Node
	identity *identity
	callers  *callers
	// Connections to the leader are kept for the next call.
	client *http.Client
	within time.Duration // bounds a call that has no deadline
}

// newForwarder returns a forwarder that uses the transport of the configuration, or one of its own.
func newForwarder(cfg Config, identity *identity) *forwarder {
	f := &forwarder{
		node:     cfg.Node,
		identity: identity,
		client:   &http.Client{Transport: cfg.Transport},
		// An exchange may wait at the leader for MaxExchangeWait; the rest is for the way there.
		within: service.MaxExchangeWait + 5*time.Second,
	}
	if cfg.Transport == nil {
		f.client.Transport = newTransport(cfg.Token, cfg.security())
	}
	return f
}

// onLeader passes a call on to the leader if this node does not lead. It refuses a call that was passed on
// before: two nodes that disagree on the leader would pass it on without end.
func (f *forwarder) onLeader(handle handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		// Who leads may change until the call arrives; the other node then refuses it.
		st := f.node.Status()
		// There is nobody whom an incident could be passed on to. Otherwise only the leader handles the call itself.
		switch {
		case st.Role == raftnode.RoleLeader, st.Role == raftnode.RoleSealed:
			return handle(w, r)
		case r.Header.Get(headerForwarded) != "":
			return fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, raftnode.ErrNotLeader)
		case st.LeaderID == "" || st.LeaderHTTP == "":
			return fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, f.node.NoLeaderError())
		}
		return f.passOn(w, r, raftnode.URL(st.LeaderHTTP))
	}
}

// passOn passes a call on to the leader, and answers with the leader's answer.
func (f *forwarder) passOn(w http.ResponseWriter, r *http.Request, leader string) error {
	if r.ContentLength > maxExchangeBody {
		return api.RequestTooLarge(maxExchangeBody)
	}
	// The body is read in full before it is sent: a retry on a broken connection needs it again.
	text, err := readAll(r.Body, nil, maxExchangeBody, int(r.ContentLength))
	if err != nil {
		return err
	}
	target, err := url.Parse(leader)
	if err != nil {
		return fmt.Errorf("leader's address: %w: %w", raftnode.ErrNoLeader, err)
	}
	// Path and query are those of the caller.
	target = target.JoinPath(r.URL.EscapedPath())
	target.RawQuery = r.URL.RawQuery
	ctx := r.Context()
	// Only exchanges have no deadline; without one, a leader that is cut off would keep it waiting forever.
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.within)
		defer cancel()
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("pass on to %s: %w", leader, err)
	}
	for _, name := range []string{"Content-Type", "Accept"} {
		if value := r.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	f.vouch(ctx, r.Header, out.Header)
	answer, err := f.client.Do(out)
	if err != nil {
		// The error says whether the call may have reached the leader.
		return fmt.Errorf("pass on to %s: %w", leader, asUnreached(err))
	}
	defer answer.Body.Close()
	// The caller is not to be blamed for an address that now belongs to another cluster.
	if answer.StatusCode == api.OtherCluster.Status() {
		return otherCluster(leader)
	}
	return copyAnswer(w, answer)
}

// vouch says in the headers of a call that is passed on whose call it is. This node has let the caller in, and says so
// by its name: what the caller has shown may be a certificate, which cannot be passed on. The cluster token, or the
// certificate of this node, makes the leader believe it.
func (f *forwarder) vouch(ctx context.Context, from, to http.Header) {
	to.Set(headerForwarded, "1")
	to.Set(api.ClusterHeader, f.identity.clusterID())
	who, _ := callerOf(ctx)
	shown := from.Get("Authorization")
	named := who != nil && who.id != ""
	if named {
		to.Set(headerPrincipal, who.String())
	}
	switch {
	// A browser's session may have been made of the cluster token: then it is root's, and nothing was shown.
	case named, shown == "" && who != nil && who.May(access.Administer):
		if f.callers.token != "" {
			to.Set("Authorization", "Bearer "+f.callers.token)
		}
	// Everybody, or somebody with the cluster token.
	case shown != "":
		to.Set("Authorization", shown)
	}
}

// otherCluster is the error of a call that a node of another cluster has refused.
func otherCluster(leader string) error {
	return fmt.Errorf("%w: %s is a node of another cluster by now", raftnode.ErrNoLeader, leader)
}

// copyAnswer answers with the leader's answer. One that breaks off leaves the outcome of the call unknown.
func copyAnswer(w http.ResponseWriter, answer *http.Response) error {
	// Only calls with a bounded answer are passed on.
	body, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("the leader's answer: %w: %w", raftnode.ErrOutcomeUnknown, err)
	}
	// Headers about the connection between the nodes are not the caller's.
	if after := answer.Header.Get("Retry-After"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	return writeBytes(w, answer.StatusCode, answer.Header.Get("Content-Type"), body)
}

// newTransport returns the transport by which nodes call each other. It keeps few connections, each to a node that
// has proved to have the token; calls are bounded by their contexts.
func newTransport(token string, security Security) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	dial := (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	return &http.Transport{
		// Each connection proves the token before it carries it.
		DialContext:         proveOnDial(security.plainly(dial), token),
		DialTLSContext:      proveOnDial(security.secured(dial), token),
		Protocols:           &protocols,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
	}
}

// passExchange passes an exchange on to the leader. The interceptor has bounded it in
// time.
func (f *forwarder) passExchange(
	ctx context.Context, r *connect.Request[ringlogv1.ExchangeRequest],
) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	st := f.node.Status()
	if st.LeaderID == "" || st.LeaderHTTP == "" || st.LeaderID == st.NodeID {
		return nil, fmt.Errorf("exchange: %w", f.node.NoLeaderError())
	}
	// Uses the same connections as passOn.
	leader := ringlogv1connect.NewGroupServiceClient(
		f.client, raftnode.URL(st.LeaderHTTP), connect.WithReadMaxBytes(maxPeerMessage),
	)
	// The message is the member's own; headers are set again.
	out := connect.NewRequest(r.Msg)
	f.vouch(ctx, r.Header(), out.Header())
	answer, err := leader.Exchange(ctx, out)
	if err == nil {
		return connect.NewResponse(answer.Msg), nil
	}
	refusal, ok := apiError(err)
	switch {
	// As in passOn, the member is not to be blamed for that.
	case ok && refusal.Code == api.OtherCluster:
		return nil, otherCluster(st.LeaderHTTP)
	// The leader's own refusal reaches the member as it is.
	case ok:
		return nil, refusal
	}
	// The error says whether the call may have reached the leader.
	return nil, fmt.Errorf("pass on to %s: %w", st.LeaderHTTP, asUnreached(err))
}
