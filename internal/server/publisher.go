package server

import (
	"context"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/internal/tail"
)

// publisher publishes what comes as a message, over Connect or a publish stream.
type publisher struct {
	log     *service.Log
	node    Node
	metrics *metrics
	spans   *spans
}

// publish appends the events of a message, which came over Connect or a publish stream. It returns once they are
// acknowledged.
func (p *publisher) publish(ctx context.Context, m *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
	// One policy is used throughout, though the settings may change meanwhile.
	policy := p.log.Machine().Policy()
	req, err := publishFromWire(m, policy.Limits)
	if err != nil {
		return nil, err
	}
	// A packet is unpacked further in, and counts against the request's memory there.
	req.Reserve = holdOf(ctx).reserve
	began := time.Now()
	answer, err := p.log.Publish(ctx, &policy, req)
	p.spans.published(&req, &answer, began, err)
	if err != nil {
		return nil, err
	}
	p.metrics.countPublished(req.Rows(), len(answer.Duplicates))
	out := publishedToWire(&answer)
	// The client may send its next events straight to the leader.
	out.LeaderHttp = p.node.LeaderHTTP()
	return out, nil
}

// publishFromWire returns the request in a message. Payloads and packets share its memory.
func publishFromWire(m *ringlogv1.PublishRequest, limits event.Limits) (service.PublishRequest, error) {
	req := service.PublishRequest{Producer: m.ProducerId, Sequence: m.Sequence}
	// A packet is passed on as it is: the service checks its rows.
	if p := m.Packet; p != nil {
		if len(m.Events) > 0 {
			return req, api.Refuse(api.InvalidArgument, "packet", "a packet beside events", "send one of them")
		}
		req.Packet = &frame.Packet{Rows: int(p.Rows), Types: p.Types, Sources: p.Sources, NoDedup: p.NoDedup, Body: p.Body,
			Traces: p.Traces}
		return req, nil
	}
	req.Events = make([]event.Event, len(m.Events))
	bytes := 0
	for i, e := range m.Events {
		// The limit is on what the events take as text, not on the message.
		if err := fromWire(&req.Events[i], e); err != nil {
			return req, err.Under("events[" + strconv.Itoa(i) + "]")
		}
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
	// Rows that are not duplicates follow each other from First on, so the message lists only the exceptions.
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
		// Rows with the same list share its slice, so its address is enough to find the messages.
		messages, shared := lists[&r.List[0]]
		if shared {
			for _, m := range messages {
				m.MoreRows = append(m.MoreRows, uint32(r.Row))
			}
			continue
		}
		// Each warning of a new list is looked up by its text.
		for _, w := range r.List {
			m, known := texts[w]
			if known {
				m.MoreRows = append(m.MoreRows, uint32(r.Row))
			} else {
				m = &ringlogv1.Warning{Row: uint32(r.Row), Field: w.Field, Message: w.Message, Reason: w.Reason}
				texts[w], out = m, append(out, m)
			}
			messages = append(messages, m)
		}
		// Rows that share the list find its messages directly.
		lists[&r.List[0]] = messages
	}
	return out
}
