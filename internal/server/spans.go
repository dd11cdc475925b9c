package server

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/otlp"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/log"
)

// spans makes spans of what the node does with events whose trace is sampled: one for those of a request or a batch
// that follow each other in the same trace context. The nil spans makes none. The events keep the trace context of
// their publisher, which becomes the parent of the spans here.
type spans struct{ exporter *otlp.Exporter }

// newSpans returns nil where nothing is exported.
func newSpans(e *otlp.Exporter) *spans {
	if e == nil {
		return nil
	}
	return &spans{e}
}

// tracedRun is events that follow each other in one trace context.
type tracedRun struct {
	trace  event.Trace // of all of them
	kind   string      // the type of all of them; "" if it is not known, or differs
	events int         // how many
	offset uint64      // of the only one; 0 is not known
}

// eachRun calls yield with the runs of sampled events. Events that are not sampled cost one comparison each.
func eachRun(events []event.Event, yield func(tracedRun)) {
	for i := 0; i < len(events); {
		run := tracedRun{trace: events[i].Trace, kind: string(events[i].Type), events: 1, offset: events[i].Offset}
		for i++; i < len(events) && events[i].Trace == run.trace; i++ {
			run.events++
			// A span is of one event or of many: it names the offset of one alone.
			run.offset = 0
			if string(events[i].Type) != run.kind {
				run.kind = ""
			}
		}
		if run.trace.Sampled() {
			yield(run)
		}
	}
}

// published records what became of a publish that came in at began. The spans end now. answer is of no meaning if
// failed is not nil.
func (s *spans) published(req *service.PublishRequest, answer *service.Published, began time.Time, failed error) {
	if s == nil {
		return
	}
	// For each run, whichever form the request has.
	record := func(run tracedRun) {
		attrs := []otlp.Attr{{Key: "messaging.operation.name", Text: "append"}}
		// Only where the request is one event its offset is known without a search.
		if failed == nil && run.events == 1 && req.Rows() == 1 {
			run.offset = answer.Offsets(1)[0].Offset
		}
		s.record("append", otlp.Server, run, attrs, began, failed)
	}
	if req.Packet == nil {
		eachRun(req.Events, record)
		return
	}
	// A packet has the types of all of its rows, not which row has which.
	kind := ""
	if len(req.Packet.Types) == 1 {
		kind = req.Packet.Types[0]
	}
	frame.EachTrace(req.Packet.Traces, req.Packet.Rows, func(_, rows int, t event.Trace) {
		if t.Sampled() {
			record(tracedRun{trace: t, kind: kind, events: rows})
		}
	})
}

// delivered records that events were sent to a reader, a cursor or group if it has a name.
func (s *spans) delivered(to string, events []event.Event, began time.Time) {
	if s == nil {
		return
	}
	eachRun(events, func(run tracedRun) { s.deliver(to, run, began) })
}

// deliveredSpan is delivered for a part of a block. The block is sent as it is stored, so it is not decoded here
// either: traces, types and suppressed rows are in its header.
func (s *spans) deliveredSpan(to string, part *log.Span, began time.Time) {
	if s == nil || len(part.Traces) == 0 {
		return
	}
	kind := ""
	if len(part.Types) == 1 {
		kind = part.Types[0]
	}
	// Suppressed rows have no offset, and the span is of some of the others. row counts all rows of the block, nth
	// those that have an offset.
	row, nth := 0, 0
	frame.EachTrace(part.Traces, part.Rows, func(first, rows int, t event.Trace) {
		// Rows between two runs have no trace. They count for the offsets all the same.
		for ; row < first; row++ {
			if !part.Suppressed.Has(row) {
				nth++
			}
		}
		run := tracedRun{trace: t, kind: kind}
		for ; row < first+rows; row++ {
			if part.Suppressed.Has(row) {
				continue
			}
			// Of the block only this part is sent.
			if part.Skip <= nth && nth < part.Skip+part.Take {
				run.offset = part.First + uint64(nth)
				run.events++
			}
			nth++
		}
		// As in eachRun.
		if run.events > 1 {
			run.offset = 0
		}
		if run.events > 0 && t.Sampled() {
			s.deliver(to, run, began)
		}
	})
}

// maxKind is how long a type may be in a span, in bytes.
const maxKind = 256

// deliver records one span of delivered.
func (s *spans) deliver(to string, run tracedRun, began time.Time) {
	attrs := []otlp.Attr{{Key: "messaging.operation.name", Text: "deliver"}}
	if to != "" {
		attrs = append(attrs, otlp.Attr{Key: "messaging.consumer.group.name", Text: to})
	}
	s.record("deliver", otlp.Producer, run, attrs, began, nil)
}

// record records a span of a run, with the attributes of OpenTelemetry's conventions for messaging. The span ends now.
// It is dropped if the exporter has no room.
func (s *spans) record(
	operation string, kind otlp.Kind, run tracedRun, attrs []otlp.Attr, began time.Time, failed error,
) {
	span := otlp.Span{Trace: run.trace.TraceID, Parent: run.trace.SpanID, Name: operation, Kind: kind, Start: began,
		End: time.Now()}
	// Zero is no id.
	binary.BigEndian.PutUint64(span.ID[:], max(rand.Uint64(), 1))
	span.Attrs = append(attrs, otlp.Attr{Key: "messaging.system", Text: "ringlog"})
	// The type of a publish that was refused may be anything.
	if run.kind != "" && len(run.kind) <= maxKind {
		span.Name += " " + run.kind
		span.Attrs = append(span.Attrs, otlp.Attr{Key: "messaging.destination.name", Text: run.kind})
	}
	// Attributes of which nothing is known are left out.
	if run.offset > 0 {
		span.Attrs = append(span.Attrs, otlp.Attr{Key: "messaging.message.id", Text: strconv.FormatUint(run.offset, 10)})
	}
	if run.events > 1 {
		span.Attrs = append(span.Attrs, otlp.Attr{Key: "messaging.batch.message_count", Number: int64(run.events)})
	}
	if failed != nil {
		span.Error = string(service.ToAPI(failed).Code)
		span.Attrs = append(span.Attrs, otlp.Attr{Key: "error.type", Text: span.Error})
	}
	s.exporter.Record(span)
}
