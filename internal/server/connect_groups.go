package server

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/internal/service"
)

// groupService serves ringlog.v1.GroupService.
type groupService struct {
	groups   *service.Groups // the operations
	node     Node
	forward  *forwarder // to the leader
	metrics  *metrics
	spans    *spans
	stopping context.Context // ends when the server closes
}

var _ ringlogv1connect.GroupServiceHandler = (*groupService)(nil)

// CreateGroup implements GroupServiceHandler.
func (g *groupService) CreateGroup(
	ctx context.Context, r *connect.Request[ringlogv1.CreateGroupRequest],
) (*connect.Response[ringlogv1.CreateGroupResponse], error) {
	from, err := positionFromWire("from", r.Msg.From)
	if err != nil {
		return nil, err
	}
	policy, err := policyFromWire(r.Msg.Policy)
	if err != nil {
		return nil, err
	}
	// What is left out is zero, which takes the cluster's settings.
	p := frame.GroupPolicy{
		AckWait:    r.Msg.Group.GetAckWait().AsDuration(),
		MaxDeliver: r.Msg.Group.GetMaxDeliver(),
		MaxPending: r.Msg.Group.GetMaxPending(),
	}
	// The wire format has signed durations.
	if p.AckWait < 0 {
		return nil, api.BadValue("group.ack_wait", p.AckWait.String(), "zero or more")
	}
	// The cursor's part and the group's own are created as one.
	made, err := g.groups.Create(ctx, service.GroupSpec{
		CursorSpec: service.CursorSpec{Name: r.Msg.Name, From: from, Filter: filterFromWire(r.Msg.Filter), Policy: policy},
		Group:      p,
	})
	return answerWarned(&ringlogv1.CreateGroupResponse{Cursor: cursorToWire(made)}, made.Warnings, err)
}

// Exchange implements GroupServiceHandler. Only the leader answers it: another node passes a call on to the
// leader, once.
func (g *groupService) Exchange(
	ctx context.Context, r *connect.Request[ringlogv1.ExchangeRequest],
) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	// An exchange may wait for events, and ends when the server closes.
	ctx, cancel := untilStopped(ctx, g.stopping)
	defer cancel()
	// A call that was passed on is answered here in any case, so two nodes never pass it to and fro.
	if g.node.LeadingTerm() == 0 && r.Header().Get(headerForwarded) == "" {
		return g.forward.passExchange(ctx, r)
	}
	// The engine waits for events as long as the member asks.
	out, err := g.groups.Exchange(ctx, exchangeFromWire(r.Msg))
	if err != nil {
		return nil, err
	}
	g.metrics.countDelivered(len(out.Events))
	// The span is of the encoding, which is what is left to do.
	began := time.Now()
	answer := exchangedToWire(&out)
	g.spans.delivered(r.Msg.Group, out.Events, began)
	// The member knows by it under which lease this was decided.
	answer.Fence = r.Msg.Fence
	return connect.NewResponse(answer), nil
}

// exchangeFromWire decodes an exchange. Want is capped at one above the limit, so it fits an int and is still refused.
func exchangeFromWire(m *ringlogv1.ExchangeRequest) engine.Request {
	// Times are bounded by the operation, which refuses those that are too long.
	r := engine.Request{
		Group:    m.Group,
		Member:   m.Member,
		Session:  m.Session,
		Holding:  rangesFromWire(m.Holding),
		Acks:     rangesFromWire(m.Acks),
		Progress: rangesFromWire(m.Progress),
		Want:     int(min(m.Want, service.MaxWant+1)),
		Wait:     time.Duration(m.WaitMs) * time.Millisecond,
		Ahead:    m.Ahead,
		Leave:    m.Leave,
		Lease:    frame.RoleLease{Role: m.Role, Fence: m.Fence},
	}
	// Delays come in milliseconds, and are bounded so that they cannot overflow.
	for _, n := range m.Nacks {
		r.Nacks = append(r.Nacks, group.Nack{
			Offset:   n.Offset,
			Delivery: n.Delivery,
			Delay:    millis(n.DelayMs),
			Error:    n.Error,
			Handler:  n.Handler,
			Dead:     n.Dead,
			Released: n.Released,
		})
	}
	return r
}

// exchangedToWire encodes the answer. Only events that are redelivered have a delivery count.
func exchangedToWire(x *engine.Answer) *ringlogv1.ExchangeResponse {
	var runs runsBuilder
	// Events go as runs, as in a tail; what differs for a group goes beside them.
	out := &ringlogv1.ExchangeResponse{
		Session:        x.Session,
		Runs:           runs.build(x.Events),
		Revoked:        rangesToWire(x.Revoked),
		Refused:        rangesToWire(x.Refused),
		AckWait:        durationpb.New(x.AckWait),
		SessionTimeout: durationpb.New(x.Silence),
		Committed:      x.Committed,
		LastOffset:     x.Last,
	}
	for i, count := range x.Counts {
		// A first delivery is the rule, and is left out.
		if count > 1 {
			out.Deliveries = append(out.Deliveries, &ringlogv1.Delivery{Offset: x.Events[i].Offset, Count: count})
		}
	}
	// The message has a list for more than one gap; an exchange runs into one at most.
	if x.Gap != nil {
		out.Gaps = append(out.Gaps, gapToWire(x.Gap))
	}
	return out
}

// rangesFromWire returns ranges of offsets as commands have them; none is an empty list.
func rangesFromWire(list []*ringlogv1.OffsetRange) []frame.Range {
	out := make([]frame.Range, len(list))
	for i, r := range list {
		out[i] = frame.Range{From: r.From, To: r.To}
	}
	return out
}

// rangesToWire is rangesFromWire in the other direction.
func rangesToWire(list []frame.Range) []*ringlogv1.OffsetRange {
	out := make([]*ringlogv1.OffsetRange, len(list))
	for i, r := range list {
		out[i] = &ringlogv1.OffsetRange{From: r.From, To: r.To}
	}
	return out
}
