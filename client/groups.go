package client

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// GroupSpec is what a group is created with. The zero Position is the start; any other zero
// field takes the cluster's setting.
type GroupSpec struct {
	From   Position
	Filter event.Filter
	Policy CursorPolicy

	AckWait    time.Duration // how long a member may hold an event without Progress
	MaxDeliver uint64        // deliveries that may fail, then the event goes to the dead letters
	MaxPending uint64        // how many events past the oldest unacknowledged one may be delivered
}

// CreateGroup creates a group: a cursor whose events its members share. If there is one of
// that name it is returned if it has what spec gives, but for From; else, or if that is a plain
// cursor, the code is exists. What is left out is not compared. Cursor, Cursors, SeekCursor and
// DeleteCursor take groups as well.
func (c *Client) CreateGroup(ctx context.Context, name string, spec GroupSpec) (CursorInfo, error) {
	op := calls.Op{Name: "create group", Subject: name}
	if err := checkName("group", op, name); err != nil {
		return CursorInfo{}, err
	}
	req := &ringlogv1.CreateGroupRequest{Name: name, From: wirePosition(orStart(spec.From)),
		Filter: filterToWire(spec.Filter), Policy: policyToWire(spec.Policy)}

	// A request without a group policy makes a group by the cluster's settings.
	if spec.AckWait != 0 || spec.MaxDeliver != 0 || spec.MaxPending != 0 {
		req.Group = &ringlogv1.GroupPolicy{AckWait: durationpb.New(spec.AckWait), MaxDeliver: spec.MaxDeliver,
			MaxPending: spec.MaxPending}
	}
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	resp, err := serviceCall(ctx, c, op, calls.Idempotent, groupService,
		ringlogv1connect.GroupServiceClient.CreateGroup, req)
	given := api.CursorSettings{Filter: spec.Filter, Policy: spec.Policy, Group: &api.GroupPolicy{
		AckWait: spec.AckWait, MaxDeliver: spec.MaxDeliver, MaxPending: spec.MaxPending}}
	return c.orExisting(ctx, name, cursorOf(resp.GetCursor()), err, given)
}

// exchangeGroup makes one call of a member.
func (c *Client) exchangeGroup(ctx context.Context, req *ringlogv1.ExchangeRequest,
	r calls.Repeat) (*ringlogv1.ExchangeResponse, error) {
	return serviceCall(ctx, c, calls.Op{Name: "group", Subject: req.Group}, r, groupService,
		ringlogv1connect.GroupServiceClient.Exchange, req)
}

// checkName refuses a bad name of a cursor or a group, whichever kind is, as a node would, without a request.
func checkName(kind string, op calls.Op, name string) error {
	if err := api.CheckCursorName(kind, name, api.NoLimit); err != nil {
		return &calls.Error{Op: op.String(), Answer: true, Err: err}
	}
	return nil
}

// groupService selects the stub of a node for serviceCall.
func groupService(n *calls.Node) ringlogv1connect.GroupServiceClient { return n.Group }

// unary is a method of a stub.
type unary[S, Q, R any] func(S, context.Context, *connect.Request[Q]) (*connect.Response[R], error)

// serviceCall makes one call of a node's service.
func serviceCall[S, Q, R any](ctx context.Context, c *Client, op calls.Op, r calls.Repeat, service func(*calls.Node) S,
	method unary[S, Q, R], req *Q) (*R, error) {
	if named, ok := any(req).(interface{ GetName() string }); ok { // of a cursor or a group
		if err := checkName("cursor", op, named.GetName()); err != nil {
			return nil, err
		}
	}
	var out *R
	err := c.cluster.Call(ctx, op, r, func(ctx context.Context, n *calls.Node) (http.Header, error) {
		resp, err := method(service(n), ctx, calls.NewRequest(c.cluster, req))
		if err != nil {
			return nil, err
		}
		out = resp.Msg
		return resp.Header(), nil
	})
	return out, err
}
