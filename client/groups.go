package client

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
)

// GroupSpec is what a group is made with. The zero Position is the start; any other zero
// field takes the cluster's setting.
type GroupSpec struct {
	From   Position
	Filter event.Filter
	Policy CursorPolicy

	AckWait    time.Duration // how long a member may hold an event without a word of it
	MaxDeliver uint64        // deliveries that may fail, then the event goes to the dead letters
	MaxPending uint64        // how far behind the first open event others are handed out
}

// CreateGroup makes a group: a cursor whose events its members share. Where there is one
// of that name it answers with it if all is the same, and else, or where it is a plain
// cursor, with the code exists. Cursor, Cursors, SeekCursor and DeleteCursor take groups
// as well.
func (c *Client) CreateGroup(ctx context.Context, name string, spec GroupSpec) (CursorInfo, error) {
	req := &ringlogv1.CreateGroupRequest{Name: name, From: spec.From.or(FromStart()).wire(), Filter: filterToWire(spec.Filter),
		Policy: policyToWire(spec.Policy)}
	if spec.AckWait != 0 || spec.MaxDeliver != 0 || spec.MaxPending != 0 {
		req.Group = &ringlogv1.GroupPolicy{AckWait: durationpb.New(spec.AckWait), MaxDeliver: spec.MaxDeliver, MaxPending: spec.MaxPending}
	}
	resp, err := cursorCall(ctx, c, "create group "+name, req, func(e *endpoint) unary[ringlogv1.CreateGroupRequest, ringlogv1.CreateGroupResponse] {
		return e.group.CreateGroup
	})
	return cursorOf(resp.GetCursor()), err
}

// exchange makes one call of a member.
func (c *Client) exchangeGroup(ctx context.Context, req *ringlogv1.ExchangeRequest, r repeat) (*ringlogv1.ExchangeResponse, error) {
	var out *ringlogv1.ExchangeResponse
	err := c.call(ctx, "group "+req.Group, r, func(ctx context.Context, e *endpoint) (http.Header, error) {
		resp, err := e.group.Exchange(ctx, request(c, req))
		if err != nil {
			return nil, err
		}
		out = resp.Msg
		return resp.Header(), nil
	})
	return out, err
}
