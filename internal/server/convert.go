package server

import (
	"errors"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ringrift/ringlog/api"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// fromWire copies what a publisher may set of an event. The payload is shared.
func fromWire(e *event.Event, m *ringlogv1.Event) *event.Error {
	*e = event.Event{Type: event.Type(m.Type), Value: m.Value, Payload: m.Payload, Source: m.Source, Key: m.Key,
		CorrelationID: m.CorrelationId, CausationID: m.CausationId, DedupID: m.DedupId, NoDedup: m.NoDedup}
	// Zero leaves the time to the append.
	if m.TimeUnixNano != 0 {
		e.Time = time.Unix(0, m.TimeUnixNano).UTC()
	}
	if m.Traceparent == "" {
		return nil
	}
	trace, err := event.ParseTrace(m.Traceparent)
	if bad, ok := errors.AsType[*event.Error](err); ok {
		return bad
	}
	e.Trace = trace
	return nil
}

// fillMessage copies an event into a message; strings and payload are shared.
func fillMessage(m *ringlogv1.Event, e *event.Event) {
	m.Type, m.Value, m.Payload = string(e.Type), e.Value, e.Payload
	m.Source, m.Key = e.Source, e.Key
	m.CorrelationId, m.CausationId, m.DedupId = e.CorrelationID, e.CausationID, e.DedupID
	m.NoDedup, m.OriginalType, m.Foreign, m.Offset = e.NoDedup, string(e.Original), e.Foreign, e.Offset
	m.Target, m.Redrive, m.Traceparent = e.Target, e.Redrive, e.Trace.String()
	// The message is used again, so every field is set, also to zero.
	m.TimeUnixNano = 0
	if !e.Time.IsZero() {
		m.TimeUnixNano = e.Time.UnixNano()
	}
}

// runsBuilder makes messages of batches and reuses its memory for each. The zero value is ready. It is for one
// goroutine.
type runsBuilder struct {
	events []ringlogv1.Event
	refs   []*ringlogv1.Event
	runs   []*ringlogv1.Run
}

// build groups events by term and append time. What it returns is valid until the
// next call.
func (b *runsBuilder) build(events []event.Event) []*ringlogv1.Run {
	// The messages stay where they are, so refs are made only when the memory grows.
	if cap(b.events) < len(events) {
		b.events = make([]ringlogv1.Event, len(events))
		b.refs = make([]*ringlogv1.Event, len(events))
		for i := range b.events {
			b.refs[i] = &b.events[i]
		}
	}
	// The runs are new each time; what they point to is used again.
	b.runs = b.runs[:0]
	start := 0
	for i := range events {
		fillMessage(b.refs[i], &events[i])
		// A run ends where the next event differs in term or time.
		last := i+1 == len(events)
		if last || events[i+1].Term != events[i].Term || !events[i+1].AppendedAt.Equal(events[i].AppendedAt) {
			b.runs = append(b.runs, &ringlogv1.Run{
				Events:             b.refs[start : i+1],
				Term:               events[i].Term,
				AppendedAtUnixNano: events[i].AppendedAt.UnixNano(),
			})
			start = i + 1
		}
	}
	return b.runs
}

// gapToWire returns nil for nil.
func gapToWire(g *log.Gap) *ringlogv1.Gap {
	// Most messages have no gap.
	if g == nil {
		return nil
	}
	return &ringlogv1.Gap{From: g.From, To: g.To, Reason: g.Reason, Types: g.Types, Uncounted: g.Uncounted}
}

// filterToWire copies a filter into a message; its lists are shared.
func filterToWire(f event.Filter) *ringlogv1.Filter {
	return &ringlogv1.Filter{
		Types:          f.Types,
		Categories:     f.Categories,
		Sources:        f.Sources,
		Keys:           f.Keys,
		CorrelationIds: f.CorrelationIDs,
	}
}

// filterFromWire returns the filter of a message, which may be nil: such a filter passes everything. It does not
// check it.
func filterFromWire(f *ringlogv1.Filter) event.Filter {
	return event.Filter{
		Types:          f.GetTypes(),
		Categories:     f.GetCategories(),
		Sources:        f.GetSources(),
		Keys:           f.GetKeys(),
		CorrelationIDs: f.GetCorrelationIds(),
	}
}

// cursorToWire copies what clients need of a cursor into a message; groups, seeks and stalls are shown over HTTP
// alone.
func cursorToWire(c api.Cursor) *ringlogv1.Cursor {
	// Lag is rounded to nanoseconds, since seconds come as a fraction.
	return &ringlogv1.Cursor{
		Name:       c.Name,
		Filter:     filterToWire(c.Filter),
		Committed:  c.Committed,
		Generation: c.Generation,
		Created:    timestamppb.New(c.Created),
		Touched:    timestamppb.New(c.Touched),
		Policy: &ringlogv1.CursorPolicy{
			HoldEvents: c.Policy.HoldEvents,
			HoldBytes:  c.Policy.HoldBytes,
			HoldFor:    durationpb.New(c.Policy.HoldFor),
		},
		Gap:        gapToWire((*log.Gap)(c.Gap)),
		LagEvents:  c.LagEvents,
		LagTime:    durationpb.New(time.Duration(math.Round(c.LagSeconds * float64(time.Second)))),
		LagAtLeast: c.LagAtLeast,
	}
}

// policyFromWire returns a cursor's policy; nil and missing parts are zero.
func policyFromWire(p *ringlogv1.CursorPolicy) (frame.CursorPolicy, error) {
	out := frame.CursorPolicy{
		HoldEvents: p.GetHoldEvents(),
		HoldBytes:  p.GetHoldBytes(),
		HoldFor:    p.GetHoldFor().AsDuration(),
	}
	// The wire format has signed durations.
	if out.HoldFor < 0 {
		return out, api.BadValue("policy.hold_for", out.HoldFor.String(), "zero or more")
	}
	return out, nil
}

// positionFromWire returns a position of a message; none is the zero Position, the default of the operation.
// Errors name the field.
func positionFromWire(field string, p *ringlogv1.Position) (api.Position, error) {
	switch at := p.GetAt().(type) {
	// The operation has a default.
	case nil:
		return api.Position{}, nil
	// Each kind has a field of its own in the message.
	case *ringlogv1.Position_Start:
		return api.Position{Kind: api.AtStart}, nil
	case *ringlogv1.Position_End:
		return api.Position{Kind: api.AtEnd}, nil
	case *ringlogv1.Position_Offset:
		if at.Offset == 0 {
			return api.Position{}, api.Refuse(api.InvalidArgument, field, "offsets begin at 1", "send start")
		}
		return api.Position{Kind: api.AtOffset, Offset: at.Offset}, nil
	case *ringlogv1.Position_Last:
		return api.Position{Kind: api.AtLast, Last: at.Last}, nil
	case *ringlogv1.Position_Time:
		return api.Position{Kind: api.AtTime, Time: at.Time.AsTime()}, nil
	// An age counts back from the clock of the node that resolves it.
	case *ringlogv1.Position_Age:
		if at.Age.AsDuration() < 0 {
			return api.Position{}, api.BadValue(field, at.Age.AsDuration().String(), "an age of zero or more")
		}
		return api.Position{Kind: api.AtAge, Age: at.Age.AsDuration()}, nil
	// A newer client may know kinds of positions that this node does not.
	default:
		return api.Position{}, api.Refuse(api.NotImplemented, field,
			"a kind of position that this node does not know",
			"send an offset")
	}
}
