package server

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/raftnode"
)

// groupService serves ringlog.v1.GroupService.
type groupService struct{ server *Server }

var _ ringlogv1connect.GroupServiceHandler = (*groupService)(nil)

// CreateGroup implements GroupServiceHandler.
func (g *groupService) CreateGroup(ctx context.Context, r *connect.Request[ringlogv1.CreateGroupRequest]) (*connect.Response[ringlogv1.CreateGroupResponse], error) {
	from, err := positionFromWire("from", r.Msg.From)
	if err != nil {
		return nil, err
	}
	policy, err := policyFromWire(r.Msg.Policy)
	if err != nil {
		return nil, err
	}
	p := frame.GroupPolicy{AckWait: r.Msg.Group.GetAckWait().AsDuration(), MaxDeliver: r.Msg.Group.GetMaxDeliver(), MaxPending: r.Msg.Group.GetMaxPending()}
	if p.AckWait < 0 {
		return nil, api.BadValue("group.ack_wait", p.AckWait.String(), "zero or more")
	}
	made, err := g.server.ops.Groups.Create(ctx, service.GroupSpec{CursorSpec: service.CursorSpec{Name: r.Msg.Name, From: from, Filter: filterFromWire(r.Msg.Filter), Policy: policy}, Group: p})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ringlogv1.CreateGroupResponse{Cursor: cursorToWire(made)}), nil
}

// Exchange implements GroupServiceHandler. Only the leader answers it: another node passes a call on to the
// leader, once.
func (g *groupService) Exchange(ctx context.Context, r *connect.Request[ringlogv1.ExchangeRequest]) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	s := g.server
	// An exchange may wait for events, and ends when the server closes.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(service.ErrStopping) })()
	if s.cfg.Node.LeadingTerm() == 0 && r.Header().Get(headerForwarded) == "" {
		return s.passExchange(ctx, r)
	}
	out, err := s.ops.Groups.Exchange(ctx, exchangeFromWire(r.Msg))
	if err != nil {
		return nil, err
	}
	s.metrics.delivered(len(out.Events))
	return connect.NewResponse(exchangedToWire(&out)), nil
}

// passExchange passes an exchange on to the leader, with the member's own token.
func (s *Server) passExchange(ctx context.Context, r *connect.Request[ringlogv1.ExchangeRequest]) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	st := s.cfg.Node.Status()
	if st.LeaderID == "" || st.LeaderHTTP == "" || st.LeaderID == st.NodeID {
		return nil, fmt.Errorf("server: exchange: %w", raftnode.ErrNoLeader)
	}
	leader := ringlogv1connect.NewGroupServiceClient(s.forward, raftnode.URL(st.LeaderHTTP), connect.WithReadMaxBytes(maxPeerMessage))
	out := connect.NewRequest(r.Msg)
	// The mark keeps the other node from passing the call on again when it does not lead, either.
	out.Header().Set(headerForwarded, "1")
	if token := r.Header().Get("Authorization"); token != "" {
		out.Header().Set("Authorization", token)
	}
	answer, err := leader.Exchange(ctx, out)
	if err == nil {
		return connect.NewResponse(answer.Msg), nil
	}
	// The leader's own refusal reaches the member as it is. Any other error says whether the call may have been
	// done.
	if told, ok := apiError(err); ok {
		return nil, told
	}
	return nil, fmt.Errorf("server: pass on to %s: %w", st.LeaderHTTP, unreached(err))
}

// exchangeFromWire caps Want at one more than is allowed, which fits an int and is still refused.
func exchangeFromWire(m *ringlogv1.ExchangeRequest) engine.Request {
	r := engine.Request{Group: m.Group, Member: m.Member, Session: m.Session, Holding: rangesFromWire(m.Holding), Acks: rangesFromWire(m.Acks),
		Progress: rangesFromWire(m.Progress), Want: int(min(m.Want, service.MaxWant+1)), Wait: time.Duration(m.WaitMs) * time.Millisecond, Ahead: m.Ahead, Leave: m.Leave}
	for _, n := range m.Nacks {
		r.Nacks = append(r.Nacks, group.Nack{Offset: n.Offset, Delay: millis(n.DelayMs), Error: n.Error, Handler: n.Handler, Dead: n.Dead, Released: n.Released})
	}
	return r
}

// exchangedToWire lists delivery counts only of events that are delivered again.
func exchangedToWire(x *engine.Answer) *ringlogv1.ExchangeResponse {
	var runs runsBuilder
	out := &ringlogv1.ExchangeResponse{Session: x.Session, Runs: runs.build(x.Events), Revoked: rangesToWire(x.Revoked), Refused: rangesToWire(x.Refused),
		AckWait: durationpb.New(x.AckWait), SessionTimeout: durationpb.New(x.Silence), Committed: x.Committed, LastOffset: x.Last}
	for i, count := range x.Counts {
		// A first delivery is the rule, and is left out.
		if count > 1 {
			out.Deliveries = append(out.Deliveries, &ringlogv1.Delivery{Offset: x.Events[i].Offset, Count: count})
		}
	}
	if x.Gap != nil {
		out.Gaps = append(out.Gaps, gapToWire(x.Gap))
	}
	return out
}

func rangesFromWire(list []*ringlogv1.OffsetRange) []frame.Range {
	out := make([]frame.Range, len(list))
	for i, r := range list {
		out[i] = frame.Range{From: r.From, To: r.To}
	}
	return out
}

func rangesToWire(list []frame.Range) []*ringlogv1.OffsetRange {
	out := make([]*ringlogv1.OffsetRange, len(list))
	for i, r := range list {
		out[i] = &ringlogv1.OffsetRange{From: r.From, To: r.To}
	}
	return out
}
