package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/internal/tail"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

const (
	// neverCompress leaves answers as they are: compressing them takes more of a
	// publish's time than storing it. Compressed requests are taken.
	neverCompress = 1 << 30
)

// mountConnect adds the Connect services to the routes. Each method is a route of its own, so that other paths
// below a service create no series in the metrics.
func (s *Server) mountConnect() {
	options := connect.WithHandlerOptions(connect.WithInterceptors(&gate{s}), connect.WithCompressMinBytes(neverCompress),
		connect.WithCompression("gzip", nil, nil)) // metered decompresses
	mount := func(service string, handler http.Handler) {
		for path := range procedures {
			if strings.HasPrefix(path, service) {
				s.mux.Handle(path, s.metered(path, handler))
			}
		}
	}
	mount(ringlogv1connect.NewLogServiceHandler(&logService{s}, options))
	mount(ringlogv1connect.NewCursorServiceHandler(&cursorService{s}, options))
	mount(ringlogv1connect.NewGroupServiceHandler(&groupService{s}, options))
	mount(ringlogv1connect.NewPeerServiceHandler(&peerService{s}, options))
}

// gate does for Connect what handler and bounded do for HTTP: it bounds calls in time where the caller does not,
// refuses them where the node serves nobody, and completes errors.
type gate struct{ server *Server }

var _ connect.Interceptor = (*gate)(nil)

// WrapUnary implements connect.Interceptor.
func (g *gate) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := g.admit(r.Spec().Procedure); err != nil {
			return nil, g.refuse(err)
		}
		// A deadline of the caller replaces the server's default, up to maxTimeout.
		limit := g.server.cfg.RequestTimeout
		if _, bounded := ctx.Deadline(); bounded {
			limit = maxTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		answer, err := next(ctx, r)
		if err != nil {
			return nil, g.refuse(err)
		}
		return answer, nil
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (g *gate) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := g.admit(conn.Spec().Procedure); err != nil {
			return g.refuse(err)
		}
		// Streams share their places with the HTTP routes.
		release, err := g.server.stream()
		if err != nil {
			return g.refuse(err)
		}
		defer release()
		// Close ends streams, and the cause reports that the node stops.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(g.server.ctx, func() { cancel(service.ErrStopping) })()
		if err := next(ctx, conn); err != nil {
			return g.refuse(err)
		}
		return nil
	}
}

// WrapStreamingClient implements connect.Interceptor; this side has no clients.
func (g *gate) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// admit refuses calls on a node that serves nobody, except those by which other nodes find out what it is.
func (g *gate) admit(procedure string) error {
	if procedure != ringlogv1connect.PeerServiceIdentifyProcedure && procedure != ringlogv1connect.PeerServiceChallengeProcedure && g.server.cfg.Node.Diverged() {
		return raftnode.ErrDiverged
	}
	return nil
}

// refuse returns an error as Connect sends it, with all of it in a detail.
func (g *gate) refuse(err error) error {
	var ready *connect.Error
	if errors.As(err, &ready) {
		return err // one that Connect itself raised
	}
	return connectError(g.server.explain(err))
}

// logService serves ringlog.v1.LogService.
type logService struct{ server *Server }

var _ ringlogv1connect.LogServiceHandler = (*logService)(nil)

// Publish implements LogServiceHandler.
func (l *logService) Publish(ctx context.Context, r *connect.Request[ringlogv1.PublishRequest]) (*connect.Response[ringlogv1.PublishResponse], error) {
	answer, err := l.server.publish(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// publish appends the events of a message, which came over Connect or a publishing line. It returns once they are
// acknowledged.
func (s *Server) publish(ctx context.Context, m *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
	policy := s.ops.Machine().Policy()
	req, err := publishFromWire(m, policy.Limits)
	if err != nil {
		return nil, err
	}
	// A packet is unpacked further in, and counts against the request's memory there.
	req.Reserve = holdOf(ctx).take
	answer, err := s.ops.Log.Publish(ctx, &policy, req)
	if err != nil {
		return nil, err
	}
	s.metrics.published(req.Rows(), len(answer.Duplicates))
	out := publishedToWire(&answer)
	// The client may send its next events straight to the leader.
	if out.LeaderHttp = s.advertised; s.cfg.Node.LeadingTerm() == 0 {
		out.LeaderHttp = s.leaderHTTP()
	}
	return out, nil
}

// publishFromWire returns the request in a message. Payloads and packets share its memory.
func publishFromWire(m *ringlogv1.PublishRequest, limits event.Limits) (service.PublishRequest, error) {
	req := service.PublishRequest{Producer: m.ProducerId, Sequence: m.Sequence}
	// A packet is passed on as it is: the service checks its rows.
	if p := m.Packet; p != nil {
		if len(m.Events) > 0 {
			return req, &api.Error{Code: api.InvalidArgument, Field: "packet", Message: "a packet beside events", Remedy: "send one of them"}
		}
		req.Packet = &frame.Packet{Rows: int(p.Rows), Types: p.Types, Sources: p.Sources, NoDedup: p.NoDedup, Body: p.Body}
		return req, nil
	}
	req.Events = make([]event.Event, len(m.Events))
	bytes := 0
	for i, e := range m.Events {
		fromWire(&req.Events[i], e)
		bytes += tail.EventBytes(&req.Events[i])
	}
	// An event alone is bounded by the limit on events instead.
	if bytes > limits.RequestBytes && len(req.Events) > 1 {
		return req, api.RequestTooLarge(limits.RequestBytes)
	}
	return req, nil
}

// publishedToWire returns the answer to a publish without the leader's address, which publish adds.
func publishedToWire(a *service.Published) *ringlogv1.PublishResponse {
	out := &ringlogv1.PublishResponse{First: a.First, AppendedAtUnixNano: a.Time.UnixNano(), Replayed: a.Replayed}
	for _, d := range a.Duplicates {
		out.Duplicates = append(out.Duplicates, &ringlogv1.Duplicate{Row: uint32(d.Row), Offset: d.Offset})
	}
	out.Warnings = warningsToWire(a.Warnings)
	return out
}

// warningsToWire makes one message of each distinct warning, which lists all rows that have it. Each list of rows
// has at least one warning.
func warningsToWire(rows []service.RowWarnings) (out []*ringlogv1.Warning) {
	texts := map[event.Warning]*ringlogv1.Warning{}
	lists := map[*event.Warning][]*ringlogv1.Warning{} // by the first of a list, which rows share
	for _, r := range rows {
		// Rows with the same list share its slice, so that its address is enough to find the messages.
		messages, shared := lists[&r.List[0]]
		if shared {
			for _, m := range messages {
				m.MoreRows = append(m.MoreRows, uint32(r.Row))
			}
			continue
		}
		for _, w := range r.List {
			m, told := texts[w]
			if told {
				m.MoreRows = append(m.MoreRows, uint32(r.Row))
			} else {
				m = &ringlogv1.Warning{Row: uint32(r.Row), Field: w.Field, Message: w.Message, Reason: w.Reason}
				texts[w], out = m, append(out, m)
			}
			messages = append(messages, m)
		}
		lists[&r.List[0]] = messages
	}
	return out
}

// Tail implements LogServiceHandler.
func (l *logService) Tail(ctx context.Context, r *connect.Request[ringlogv1.TailRequest], out *connect.ServerStream[ringlogv1.TailResponse]) error {
	from, err := positionFromWire("from", r.Msg.From)
	if err != nil {
		return err
	}
	filter := filterFromWire(r.Msg.Filter)
	if err := filter.Validate(); err != nil {
		return err
	}
	t, err := l.server.ops.Log.OpenTail(ctx, service.TailRequest{From: from, Filter: filter, Limit: r.Msg.Limit, Follow: r.Msg.Follow,
		Linearizable: r.Msg.Consistency == ringlogv1.Consistency_CONSISTENCY_LINEARIZABLE, MinOffset: r.Msg.MinOffset, Spans: r.Msg.Packets})
	if err != nil {
		return err
	}
	if t.Follows() { // a reader of a quiet log learns at once where the log ends
		if err := out.Send(&ringlogv1.TailResponse{Next: t.Next(), LastOffset: t.End()}); err != nil {
			return err
		}
	}
	return l.server.sendTail(ctx, t, out)
}

// sendTail streams what a tail reads. A message has up to tail.BatchBytes of events, or one event that is larger.
// The last message of a read that ends says how far it came.
func (s *Server) sendTail(ctx context.Context, t *tail.Tail, out *connect.ServerStream[ringlogv1.TailResponse]) error {
	var runs runsBuilder
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return out.Send(&ringlogv1.TailResponse{Next: t.Next(), LastOffset: t.Last()})
		}
		if err != nil {
			return err
		}
		// Spans are sent as they are stored, without decoding their events.
		if len(found.Spans) > 0 {
			message := &ringlogv1.TailResponse{Next: found.Next, LastOffset: found.Last}
			for i := range found.Spans {
				message.Runs = append(message.Runs, spanToWire(&found.Spans[i]))
				s.metrics.delivered(found.Spans[i].Take)
			}
			if err := out.Send(message); err != nil {
				return err
			}
			continue
		}
		// A batch may need several messages. One without events is sent as well: it has a gap, or shows that the
		// stream is alive.
		for {
			n := fitting(found.Events)
			message := &ringlogv1.TailResponse{Runs: runs.build(found.Events[:n]), Gap: gapToWire(found.Gap), Next: found.Next, LastOffset: found.Last}
			// A reader that is cut off here resumes at the first event that this message does not have.
			if n < len(found.Events) {
				message.Next = found.Events[n].Offset
			}
			if err := out.Send(message); err != nil {
				return err
			}
			s.metrics.delivered(n)
			if found.Events = found.Events[n:]; len(found.Events) == 0 {
				break
			}
		}
	}
}

// spanToWire returns a message that shares the span's memory.
func spanToWire(s *log.Span) *ringlogv1.Run {
	return &ringlogv1.Run{Term: s.Term, AppendedAtUnixNano: s.AppendedAt.UnixNano(), Span: &ringlogv1.Span{
		Packet: &ringlogv1.Packet{Rows: uint32(s.Rows), Types: s.Types, Sources: s.Sources, Body: s.Body},
		Dead:   s.Dead, First: s.First, Skip: uint32(s.Skip), Take: uint32(s.Take)}}
}

// fitting returns how many of the events one message takes.
func fitting(events []event.Event) int {
	bytes := 0
	for i := range events {
		if bytes += tail.EventBytes(&events[i]); bytes > tail.BatchBytes && i > 0 {
			return i
		}
	}
	return len(events)
}

// GetEvent implements LogServiceHandler.
func (l *logService) GetEvent(ctx context.Context, r *connect.Request[ringlogv1.GetEventRequest]) (*connect.Response[ringlogv1.GetEventResponse], error) {
	if r.Msg.Offset == 0 {
		return nil, api.BadValue("offset", "0", "an offset from 1")
	}
	e, err := l.server.ops.Log.Event(ctx, r.Msg.Offset, r.Msg.Consistency == ringlogv1.Consistency_CONSISTENCY_LINEARIZABLE, 0)
	if err != nil {
		return nil, err
	}
	var runs runsBuilder
	return connect.NewResponse(&ringlogv1.GetEventResponse{Run: runs.build([]event.Event{e})[0]}), nil
}

// ExplainDedup implements LogServiceHandler.
func (l *logService) ExplainDedup(ctx context.Context, r *connect.Request[ringlogv1.ExplainDedupRequest]) (*connect.Response[ringlogv1.ExplainDedupResponse], error) {
	var found api.Explanation
	var err error
	if hash := r.Msg.GetHash(); hash != "" {
		found, err = l.server.ops.Log.ExplainHash(ctx, strings.TrimSpace(hash))
	} else {
		found, err = l.server.ops.Log.ExplainOffset(ctx, r.Msg.GetOffset())
	}
	if err != nil {
		return nil, err
	}
	// The explanation has one form, that of the HTTP route.
	text, err := json.Marshal(found)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&ringlogv1.ExplainDedupResponse{ExplanationJson: string(text)}), nil
}
