package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// CursorInfo is a durable subscriber as the cluster knows it.
type CursorInfo struct {
	Name       string
	Filter     event.Filter
	Policy     CursorPolicy
	Committed  uint64        // everything up to it is handled
	Generation uint64        // rises with each open
	Created    time.Time     // in the cluster's time, as Touched
	Touched    time.Time     // the last open, commit or seek
	Gap        *Gap          // trimmed before it was committed
	LagEvents  uint64        // that match, and that a group has not settled
	LagTime    time.Duration // how long the oldest of them waits
	// LagAtLeast is set if the node did not look at all of the log that follows: LagEvents
	// is then an upper bound, and LagTime too if this is 0.
	LagAtLeast *uint64
}

// CursorPolicy says how much a cursor may hold back from retention; a zero field is
// the cluster's setting.
type CursorPolicy = api.CursorPolicy

// CursorSpec is what a cursor is made with. The zero Position is the start.
type CursorSpec struct {
	From   Position
	Filter event.Filter
	Policy CursorPolicy
}

// CreateCursor creates a cursor. If there is one of that name it is returned if it has what spec
// gives of filter and policy, and else the code is exists. What is left out is not compared.
func (c *Client) CreateCursor(ctx context.Context, name string, spec CursorSpec) (CursorInfo, error) {
	info, err := c.createCursor(ctx, name, spec)
	return c.orExisting(ctx, name, info, err, api.CursorSettings{Filter: spec.Filter, Policy: spec.Policy})
}

// createCursor creates a cursor. If there is one of that name that has another filter or policy, the code is exists.
func (c *Client) createCursor(ctx context.Context, name string, spec CursorSpec) (CursorInfo, error) {
	req := &ringlogv1.CreateCursorRequest{Name: name, From: wirePosition(orStart(spec.From)),
		Filter: filterToWire(spec.Filter), Policy: policyToWire(spec.Policy)}
	resp, err := cursorCall(ctx, c, calls.Op{Name: "create cursor", Subject: name},
		ringlogv1connect.CursorServiceClient.CreateCursor, req)
	return cursorOf(resp.GetCursor()), err
}

// orExisting returns the answer to a creation, but the cursor that exists if that has all that was given, which nodes
// refuse where it differs in what was left out.
func (c *Client) orExisting(
	ctx context.Context, name string, made CursorInfo, err error, given api.CursorSettings,
) (CursorInfo, error) {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.Exists {
		return made, err
	}
	var found api.Cursor
	query := url.Values{"consistency": {"linearizable"}}
	failed := c.Admin().Do(ctx, http.MethodGet, "/v1/cursors/"+url.PathEscape(name), query, nil, &found)
	if failed != nil || !given.FoundIn(&found, refused) {
		return made, err
	}
	return CursorInfo{
		Name: found.Name, Filter: found.Filter, Policy: found.Policy,
		Committed: found.Committed, Generation: found.Generation, Created: found.Created, Touched: found.Touched,
		Gap: found.Gap, LagEvents: found.LagEvents, LagAtLeast: found.LagAtLeast,
		LagTime: time.Duration(found.LagSeconds * float64(time.Second)),
	}, nil
}

// Cursor returns one cursor, or the code not_found.
func (c *Client) Cursor(ctx context.Context, name string) (CursorInfo, error) {
	resp, err := cursorCall(ctx, c, calls.Op{Name: "cursor", Subject: name},
		ringlogv1connect.CursorServiceClient.GetCursor, &ringlogv1.GetCursorRequest{Name: name})
	return cursorOf(resp.GetCursor()), err
}

// Cursors returns all cursors, by name.
func (c *Client) Cursors(ctx context.Context) ([]CursorInfo, error) {
	var list []CursorInfo

	// Nodes answer in pages. The key of the next page is that of the last cursor, so
	// cursors that come and go meanwhile do not shift the others.
	for after := ""; ; {
		resp, err := cursorCall(ctx, c, calls.Op{Name: "cursors"}, ringlogv1connect.CursorServiceClient.ListCursors,
			&ringlogv1.ListCursorsRequest{After: after})
		for _, w := range resp.GetCursors() {
			list = append(list, cursorOf(w))
		}
		after = resp.GetNext()
		if err != nil || after == "" {
			return list, err
		}
	}
}

// ChangeCursor gives a cursor another filter and policy, and does not move it. A reader that
// has it open is fenced off, unless both are unchanged. The code is not_found if there is no
// such cursor, and invalid_argument for a group.
func (c *Client) ChangeCursor(ctx context.Context, name string, f event.Filter, p CursorPolicy) error {
	if err := checkName("cursor", calls.Op{Name: "change cursor", Subject: name}, name); err != nil {
		return err
	}
	body := struct {
		Filter event.Filter `json:"filter"`
		Policy CursorPolicy `json:"policy"`
	}{f, p}
	return c.Admin().Do(ctx, http.MethodPut, "/v1/cursors/"+url.PathEscape(name)+"/filter", nil, body, nil)
}

// DeleteCursor removes a cursor. If an earlier attempt may have removed it, a cursor that does
// not exist counts as removed.
func (c *Client) DeleteCursor(ctx context.Context, name string) error {
	_, err := cursorCall(ctx, c, calls.Op{Name: "delete cursor", Subject: name},
		ringlogv1connect.CursorServiceClient.DeleteCursor, &ringlogv1.DeleteCursorRequest{Name: name})

	// An earlier attempt of this call may have removed it.
	if failed, ok := errors.AsType[*calls.Error](err); ok && failed.Tried && calls.IsAnswer(err, api.NotFound) {
		return nil
	}
	return err
}

// SeekCursor moves a cursor's commit to before a position, backwards too. A reader that has
// the cursor open is not moved; the move shows when the cursor is opened next.
func (c *Client) SeekCursor(ctx context.Context, name string, to Position) (CursorInfo, error) {
	resp, err := cursorCall(ctx, c, calls.Op{Name: "seek cursor", Subject: name},
		ringlogv1connect.CursorServiceClient.SeekCursor,
		&ringlogv1.SeekCursorRequest{Name: name, To: wirePosition(to), Seeker: uuid.NewString()})
	return cursorOf(resp.GetCursor()), err
}

// cursorCall makes one call of the cursor service: each may be repeated.
func cursorCall[Q, R any](ctx context.Context, c *Client, op calls.Op,
	method unary[ringlogv1connect.CursorServiceClient, Q, R], req *Q) (*R, error) {
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	service := func(n *calls.Node) ringlogv1connect.CursorServiceClient { return n.Cursor }
	return serviceCall(ctx, c, op, calls.Idempotent, service, method, req)
}

// cursorOf returns a cursor from the wire; nil, as in an answer that failed, is the zero
// CursorInfo.
func cursorOf(w *ringlogv1.Cursor) CursorInfo {
	if w == nil {
		return CursorInfo{}
	}
	policy := CursorPolicy{HoldEvents: w.Policy.GetHoldEvents(), HoldBytes: w.Policy.GetHoldBytes(),
		HoldFor: w.Policy.GetHoldFor().AsDuration()}
	return CursorInfo{
		Name: w.Name, Filter: filterOf(w.Filter), Policy: policy,
		Committed: w.Committed, Generation: w.Generation, Created: w.Created.AsTime(), Touched: w.Touched.AsTime(),
		Gap: gapOf(w.Gap), LagEvents: w.LagEvents, LagTime: w.LagTime.AsDuration(), LagAtLeast: w.LagAtLeast,
	}
}

// policyToWire returns a policy for a request; the zero one is left out, so the settings
// apply.
func policyToWire(p CursorPolicy) *ringlogv1.CursorPolicy {
	if p == (CursorPolicy{}) {
		return nil
	}
	return &ringlogv1.CursorPolicy{HoldEvents: p.HoldEvents, HoldBytes: p.HoldBytes, HoldFor: durationpb.New(p.HoldFor)}
}
