package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// neverCompress is a size that no answer reaches. Connect compresses answers from that size on, which would take more
// of a publish's time than storing it. Compressed requests are accepted.
const neverCompress = 1 << 30

// interceptor does for Connect what operation and limitTime do for HTTP: it bounds calls in time where the caller does
// not, counts streams, and completes errors.
type interceptor struct {
	timeout  time.Duration // of a call that has no deadline
	streams  *streamPlaces
	errors   *errorWriter
	stopping context.Context // ends when the server closes
}

// interceptor is installed for all Connect services.
var _ connect.Interceptor = (*interceptor)(nil)

// WrapUnary implements connect.Interceptor.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		// A deadline of the caller replaces the server's default, up to maxTimeout.
		limit := i.timeout
		if _, bounded := ctx.Deadline(); bounded {
			limit = maxTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		// Connect sets the caller's deadline in ctx; without one the server's holds.
		answer, err := next(ctx, r)
		if err != nil {
			return nil, i.toConnect(err)
		}
		return answer, nil
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		// Streams share their places with the HTTP routes.
		release, err := i.streams.enter(ctx)
		if err != nil {
			return i.toConnect(err)
		}
		defer release()
		// Close ends streams, and the cause reports that the node stops.
		ctx, cancel := untilStopped(ctx, i.stopping)
		defer cancel()
		// The places and the context are released however the stream ends.
		if err := next(ctx, conn); err != nil {
			return i.toConnect(err)
		}
		return nil
	}
}

// WrapStreamingClient implements connect.Interceptor; this side has no clients.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// toConnect returns an error as Connect sends it, with all of it in a detail.
func (i *interceptor) toConnect(err error) error {
	// Connect raises errors for what it cannot decode, before a handler runs.
	if _, ready := errors.AsType[*connect.Error](err); ready {
		return err // one that Connect itself raised
	}
	return connectError(i.errors.toAPI(err))
}

// answerMessage answers a call with m, or with err if the operation failed. Callers make m from the result before err
// is looked at, so they have to accept a zero result.
func answerMessage[A any](m *A, err error) (*connect.Response[A], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// answerWarned is answerMessage for a call that gives a filter.
func answerWarned[A any](m *A, warnings []event.Warning, err error) (*connect.Response[A], error) {
	answer, err := answerMessage(m, err)
	if err == nil {
		setWarnings(answer.Header(), warnings)
	}
	return answer, err
}

// logService serves ringlog.v1.LogService.
type logService struct {
	log       *service.Log
	publisher *publisher
	tails     *tailWriter
}

var _ ringlogv1connect.LogServiceHandler = (*logService)(nil)

// Publish implements LogServiceHandler.
func (l *logService) Publish(
	ctx context.Context, r *connect.Request[ringlogv1.PublishRequest],
) (*connect.Response[ringlogv1.PublishResponse], error) {
	answer, err := l.publisher.publish(ctx, r.Msg)
	return answerMessage(answer, err)
}

// Tail implements LogServiceHandler.
func (l *logService) Tail(
	ctx context.Context, r *connect.Request[ringlogv1.TailRequest],
	out *connect.ServerStream[ringlogv1.TailResponse],
) error {
	from, err := positionFromWire("from", r.Msg.From)
	if err != nil {
		return err
	}
	// A filter that is malformed is refused before the log is asked.
	filter := filterFromWire(r.Msg.Filter)
	if err := filter.Validate(); err != nil {
		return err
	}
	// Where nobody filters, blocks are sent as they are stored, to clients that can read them.
	t, err := l.log.OpenTail(ctx, service.TailRequest{
		From:         from,
		Filter:       filter,
		Limit:        r.Msg.Limit,
		Follow:       r.Msg.Follow,
		Linearizable: r.Msg.Consistency == ringlogv1.Consistency_CONSISTENCY_LINEARIZABLE,
		MinOffset:    r.Msg.MinOffset,
		Spans:        r.Msg.Packets,
	})
	if err != nil {
		return err
	}
	setWarnings(out.ResponseHeader(), l.log.FilterWarnings(filter))
	if t.Follows() { // a reader of a quiet log learns at once where the log ends
		if err := out.Send(&ringlogv1.TailResponse{Next: t.Next(), LastOffset: t.End()}); err != nil {
			return err
		}
	}
	return l.tails.sendTail(ctx, t, out)
}

// GetEvent implements LogServiceHandler.
func (l *logService) GetEvent(
	ctx context.Context, r *connect.Request[ringlogv1.GetEventRequest],
) (*connect.Response[ringlogv1.GetEventResponse], error) {
	if r.Msg.Offset == 0 {
		return nil, api.BadValue("offset", "0", "an offset from 1")
	}
	// A local read may be of an earlier state than another node's.
	e, err := l.log.Event(ctx, r.Msg.Offset, r.Msg.Consistency == ringlogv1.Consistency_CONSISTENCY_LINEARIZABLE, 0)
	if err != nil {
		return nil, err
	}
	// An event is sent as a run of one, so clients decode it as those of a tail.
	var runs runsBuilder
	return connect.NewResponse(&ringlogv1.GetEventResponse{Run: runs.build([]event.Event{e})[0]}), nil
}

// ExplainDedup implements LogServiceHandler.
func (l *logService) ExplainDedup(
	ctx context.Context, r *connect.Request[ringlogv1.ExplainDedupRequest],
) (*connect.Response[ringlogv1.ExplainDedupResponse], error) {
	var found api.Explanation
	var err error
	// The subject is a content hash or an offset.
	if hash := r.Msg.GetHash(); hash != "" {
		found, err = l.log.ExplainHash(ctx, strings.TrimSpace(hash))
	} else {
		found, err = l.log.ExplainOffset(ctx, r.Msg.GetOffset())
	}
	if err != nil {
		return nil, err
	}
	// The explanation has one form, that of the HTTP route.
	text, err := json.Marshal(found)
	return answerMessage(&ringlogv1.ExplainDedupResponse{ExplanationJson: string(text)}, err)
}
