package server

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// cursorService serves ringlog.v1.CursorService.
type cursorService struct {
	cursors *service.Cursors
	letters *service.Letters
	tails   *tailWriter // sends what is read
}

var _ ringlogv1connect.CursorServiceHandler = (*cursorService)(nil)

// CreateCursor implements CursorServiceHandler.
func (c *cursorService) CreateCursor(
	ctx context.Context, r *connect.Request[ringlogv1.CreateCursorRequest],
) (*connect.Response[ringlogv1.CreateCursorResponse], error) {
	from, err := positionFromWire("from", r.Msg.From)
	if err != nil {
		return nil, err
	}
	// Negative times are refused here; everything else is the operation's to check.
	policy, err := policyFromWire(r.Msg.Policy)
	if err != nil {
		return nil, err
	}
	// The operation checks name and filter.
	made, err := c.cursors.Create(ctx, service.CursorSpec{
		Name:   r.Msg.Name,
		From:   from,
		Filter: filterFromWire(r.Msg.Filter),
		Policy: policy,
	})
	return answerWarned(&ringlogv1.CreateCursorResponse{Cursor: cursorToWire(made)}, made.Warnings, err)
}

// GetCursor implements CursorServiceHandler.
func (c *cursorService) GetCursor(
	ctx context.Context, r *connect.Request[ringlogv1.GetCursorRequest],
) (*connect.Response[ringlogv1.GetCursorResponse], error) {
	found, err := c.cursors.Get(ctx, r.Msg.Name)
	return answerMessage(&ringlogv1.GetCursorResponse{Cursor: cursorToWire(found)}, err)
}

// ListCursors implements CursorServiceHandler.
func (c *cursorService) ListCursors(
	ctx context.Context, r *connect.Request[ringlogv1.ListCursorsRequest],
) (*connect.Response[ringlogv1.ListCursorsResponse], error) {
	limit := r.Msg.Limit
	// A client that sets no limit gets the largest page.
	switch {
	case limit > pageItemsMost:
		return nil, api.BadValue("limit", strconv.FormatUint(uint64(limit), 10), "up to "+strconv.Itoa(pageItemsMost))
	case limit == 0:
		limit = pageItemsMost
	}
	// A client asks for the next page with the name that this one ends with.
	page := c.cursors.List(ctx, r.Msg.After, int(limit))
	out := &ringlogv1.ListCursorsResponse{Next: page.Next, Total: uint64(page.Total)}
	for _, one := range page.Cursors {
		out.Cursors = append(out.Cursors, cursorToWire(one))
	}
	return connect.NewResponse(out), nil
}

// DeleteCursor implements CursorServiceHandler.
func (c *cursorService) DeleteCursor(
	ctx context.Context, r *connect.Request[ringlogv1.DeleteCursorRequest],
) (*connect.Response[ringlogv1.DeleteCursorResponse], error) {
	if _, err := c.cursors.Delete(ctx, r.Msg.Name); err != nil {
		return nil, err
	}
	return connect.NewResponse(&ringlogv1.DeleteCursorResponse{}), nil
}

// OpenCursor implements CursorServiceHandler.
func (c *cursorService) OpenCursor(
	ctx context.Context, r *connect.Request[ringlogv1.OpenCursorRequest],
) (*connect.Response[ringlogv1.OpenCursorResponse], error) {
	opened, err := c.cursors.Open(ctx, r.Msg.Name, r.Msg.Opener)
	return answerMessage(&ringlogv1.OpenCursorResponse{Cursor: cursorToWire(opened)}, err)
}

// CommitCursor implements CursorServiceHandler.
func (c *cursorService) CommitCursor(
	ctx context.Context, r *connect.Request[ringlogv1.CommitCursorRequest],
) (*connect.Response[ringlogv1.CommitCursorResponse], error) {
	after, err := c.cursors.Commit(ctx, r.Msg.Name, r.Msg.Offset, r.Msg.Generation, frame.RoleLease{})
	// Clients commit often, so the answer has the commit alone.
	return answerMessage(&ringlogv1.CommitCursorResponse{Committed: after.Committed}, err)
}

// DeadLetter implements CursorServiceHandler.
func (c *cursorService) DeadLetter(
	ctx context.Context, r *connect.Request[ringlogv1.DeadLetterRequest],
) (*connect.Response[ringlogv1.DeadLetterResponse], error) {
	f := service.Failure{Handler: r.Msg.Handler, Text: r.Msg.Error, Attempts: r.Msg.Attempts}
	// Zero leaves the time of the first failure open.
	if r.Msg.FirstFailedUnixNano != 0 {
		f.First = time.Unix(0, r.Msg.FirstFailedUnixNano).UTC()
	}
	// The event is copied by this node, from its own log.
	done, err := c.letters.DeadLetter(ctx, r.Msg.Name, r.Msg.Offset, r.Msg.Generation, f, frame.RoleLease{})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ringlogv1.DeadLetterResponse{
		Letter:    done.Letter.ID,
		Committed: done.Cursor.Committed,
		Replayed:  done.Replayed,
	}), nil
}

// SeekCursor implements CursorServiceHandler.
func (c *cursorService) SeekCursor(
	ctx context.Context, r *connect.Request[ringlogv1.SeekCursorRequest],
) (*connect.Response[ringlogv1.SeekCursorResponse], error) {
	to, err := positionFromWire("to", r.Msg.To)
	if err != nil {
		return nil, err
	}
	// A repeated call with the same seeker moves nothing.
	after, err := c.cursors.Seek(ctx, r.Msg.Name, to, r.Msg.Seeker)
	return answerMessage(&ringlogv1.SeekCursorResponse{Cursor: cursorToWire(after)}, err)
}

// ReadCursor implements CursorServiceHandler.
func (c *cursorService) ReadCursor(
	ctx context.Context, r *connect.Request[ringlogv1.ReadCursorRequest],
	out *connect.ServerStream[ringlogv1.TailResponse],
) error {
	t, cursor, err := c.cursors.OpenTail(ctx, service.ReadCursor{Name: r.Msg.Name, Generation: r.Msg.Generation,
		From: r.Msg.From, Limit: r.Msg.Limit, Follow: r.Msg.Follow, Spans: r.Msg.Packets})
	if err != nil {
		return err
	}
	// The first message shows the cursor as it was opened, before any event.
	first := &ringlogv1.TailResponse{Cursor: cursorToWire(cursor), Next: t.Next(), LastOffset: t.End()}
	if err := out.Send(first); err != nil {
		return err
	}
	// From here on the answer is that of a tail.
	return c.tails.sendTail(ctx, t, out)
}
