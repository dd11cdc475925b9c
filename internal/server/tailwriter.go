package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// tailWriter sends what a tail reads: as NDJSON or SSE, and as messages over Connect.
type tailWriter struct {
	metrics *metrics
	errors  *errorWriter
	spans   *spans
}

// writeTail streams what a tail reads until the tail ends or the caller leaves.
func (tw *tailWriter) writeTail(w http.ResponseWriter, r *http.Request, t *tail.Tail, sse bool) error {
	h := w.Header()
	h.Set(headerLastOffset, strconv.FormatUint(t.End(), 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", contentNDJSON)
	// The reader chose the form by its Accept header.
	form := ndjsonForm
	if sse {
		h.Set("Content-Type", contentSSE)
		form = sseForm
	}
	w.WriteHeader(http.StatusOK)
	// HEAD shows the headers, above all the tail.
	if r.Method == http.MethodHead {
		return nil
	}
	out := http.NewResponseController(w)
	if t.Follows() {
		_ = out.Flush() // the reader learns at once that it is connected
	}
	return tw.writeBatches(w, r, t, form, out)
}

// streamForm is how a stream is written. A record is anything but an event: a gap, how far
// the read has come, its end.
type streamForm struct {
	// How one event, and one record, is appended to a batch.
	appendEvent  func(b []byte, e *event.Event) []byte
	appendRecord func(b []byte, name string, value []byte) []byte
	heartbeat    []byte // sent where there is nothing to report
	resumable    bool   // a record of an offset says that a reader may resume after it
}

var (
	// NDJSON has an event as an object a line, and a record as an object with one key:
	//
	// 	{"offset":7,"type":"A",…}
	// 	{"where":{"offset":8,"error":"no such key: loss"}}
	// 	{"scanned":9}
	// 	{"end":{"reason":"limit","scanned":9,"last_offset":12}}
	//
	// SSE has an event as a message with its offset as id, and a record as an event of its name, which does not reach
	// the handlers of plain messages:
	//
	// 	id: 7
	// 	data: {"offset":7,"type":"A",…}
	//
	// 	id: 9
	// 	event: scanned
	// 	data: 9
	//
	// 	event: end
	// 	data: {"reason":"limit","scanned":9,"last_offset":12}
	ndjsonForm = streamForm{appendEvent: appendLine, appendRecord: appendLineRecord, heartbeat: []byte("\n")}
	sseForm    = streamForm{
		appendEvent:  appendSSE,
		appendRecord: appendSSERecord,
		heartbeat:    []byte(": still here\n\n"),
		resumable:    true,
	}
)

// Names of the records of a stream.
const (
	recordGap     = "gap"
	recordWhere   = "where"
	recordScanned = "scanned"
	recordEnd     = "end"
)

// Why a stream ended.
const (
	endLimit    = "limit"      // all events that were asked for are sent
	endOfLog    = "end_of_log" // of a read that does not follow
	endTime     = "timeout"    // the caller asked for no more time
	endStopping = "stopping"   // the node stops
	endError    = "error"
)

// streamEnd is the last record of every stream: a stream without it was cut. A reader
// resumes after Scanned in either case.
type streamEnd struct {
	Reason     string     `json:"reason"`
	Scanned    uint64     `json:"scanned"`     // everything up to it was sent or does not match
	LastOffset uint64     `json:"last_offset"` // the node's tail
	Error      *api.Error `json:"error,omitempty"`
}

// whereFailure reports the first event for which the reader's condition could not be evaluated.
type whereFailure struct {
	Offset uint64 `json:"offset"` // of the event, which is passed over like all others of the kind
	Error  string `json:"error"`
}

// writeBatches writes batches until the tail ends. While no event comes, it writes once in a
// heartbeat how far the read has come, or a sign of life where that is as far as before.
func (tw *tailWriter) writeBatches(
	w io.Writer, r *http.Request, t *tail.Tail, form streamForm, out *http.ResponseController,
) error {
	var b []byte
	reported := t.Next() - 1 // the reader knows that the read has come up to it
	for {
		// Read returns after a heartbeat at the latest.
		found, err := t.Read(r.Context())
		if err != nil {
			return tw.writeEnd(w, t, form, err)
		}
		b, began := b[:0], time.Now()
		// A gap comes before the events that follow it.
		if found.Gap != nil {
			gap, err := json.Marshal(found.Gap)
			if err != nil {
				return err
			}
			b = form.appendRecord(b, recordGap, gap)
			reported = max(reported, found.Gap.To)
		}
		// A condition that fails for every event looks like a log without such events: the reader learns of the first.
		if found.Failure != nil {
			failure, err := json.Marshal(whereFailure{found.Failure.Offset, found.Failure.Err.Error()})
			if err != nil {
				return err
			}
			b = form.appendRecord(b, recordWhere, failure)
		}
		// Events are written as they are decoded, batch by batch.
		for i := range found.Events {
			e := &found.Events[i]
			b = form.appendEvent(b, e)
			reported = e.Offset
			// Text is larger than what it is made of, so a batch may take several writes.
			if len(b) >= tail.BatchBytes {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		// Without events the reader learns how far the read has come, or only that the stream is alive.
		if found.Gap == nil && len(found.Events) == 0 {
			if scanned := found.Next - 1; scanned > reported {
				b = form.appendScanned(b, scanned)
				reported = scanned
			} else {
				b = append(b, form.heartbeat...)
			}
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		tw.metrics.countDelivered(len(found.Events))
		tw.spans.delivered(t.Reader(), found.Events, began)
		// A reader that follows gets each batch at once; net/http sends the rest of a bounded read by itself.
		if t.Follows() {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// writeEnd writes the last record: why the read ended, since the status was sent before, and how far it came.
func (tw *tailWriter) writeEnd(w io.Writer, t *tail.Tail, form streamForm, err error) error {
	end := streamEnd{Reason: endReason(err), Scanned: t.Next() - 1, LastOffset: t.Last()}
	switch {
	// A tail reports its limit and the end of the log by the same error.
	case end.Reason == endOfLog && t.AtLimit():
		end.Reason = endLimit
	case end.Reason == endError:
		end.Error = tw.errors.toAPI(err)
	}
	// The record has the form of the stream.
	value, err := json.Marshal(end)
	if err != nil {
		return err
	}
	_, err = w.Write(form.appendRecord(nil, recordEnd, value))
	return err
}

// endReason returns the reason to send for the error that ended a read.
func endReason(err error) string {
	// Each reason is one that a reader acts upon; anything else is an error, which is shown in full.
	switch {
	case errors.Is(err, io.EOF):
		return endOfLog
	case errors.Is(err, service.ErrStreamTime):
		return endTime
	case errors.Is(err, service.ErrStopping):
		return endStopping
	default:
		return endError
	}
}

// appendScanned reports that everything up to an offset was sent or does not match.
func (f *streamForm) appendScanned(b []byte, offset uint64) []byte {
	// An event source sends the id of the last record as Last-Event-ID when it reconnects.
	if f.resumable {
		b = append(strconv.AppendUint(append(b, "id: "...), offset, 10), '\n')
	}
	return f.appendRecord(b, recordScanned, strconv.AppendUint(nil, offset, 10))
}

// appendLine appends an event and the end of the line.
func appendLine(b []byte, e *event.Event) []byte { return append(e.AppendJSON(b), '\n') }

// appendLineRecord appends {"name":value} and the end of the line.
func appendLineRecord(b []byte, name string, value []byte) []byte {
	b = append(append(append(b, `{"`...), name...), `":`...)
	return append(append(b, value...), "}\n"...)
}

// appendSSE appends an event as a message. An EventSource that reconnects sends the id of the last one.
func appendSSE(b []byte, e *event.Event) []byte {
	b = strconv.AppendUint(append(b, "id: "...), e.Offset, 10)
	return append(e.AppendJSON(append(b, "\ndata: "...)), "\n\n"...)
}

// appendSSERecord appends an event of that name, which does not reach the handlers of plain messages.
func appendSSERecord(b []byte, name string, value []byte) []byte {
	// The name makes it an event of its own kind for an EventSource.
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(append(b, value...), "\n\n"...)
}

// sendTail streams what a tail reads. A message has up to tail.BatchBytes of events, or one event that is larger.
// The last message of a read that ends says how far it came.
func (tw *tailWriter) sendTail(
	ctx context.Context, t *tail.Tail, out *connect.ServerStream[ringlogv1.TailResponse],
) error {
	// One builder for the whole stream reuses the memory of its messages.
	var runs runsBuilder
	for {
		// Read returns after a heartbeat at the latest, with a batch or without.
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return out.Send(&ringlogv1.TailResponse{Next: t.Next(), LastOffset: t.Last()})
		}
		if err != nil {
			return err
		}
		began := time.Now()
		// Spans are sent as they are stored, without decoding their events.
		if len(found.Spans) > 0 {
			// Next and the tail go with each message, so a reader knows where to resume and how far it lags.
			message := &ringlogv1.TailResponse{Next: found.Next, LastOffset: found.Last}
			for i := range found.Spans {
				message.Runs = append(message.Runs, spanToWire(&found.Spans[i]))
				tw.metrics.countDelivered(found.Spans[i].Take)
			}
			if err := out.Send(message); err != nil {
				return err
			}
			for i := range found.Spans {
				tw.spans.deliveredSpan(t.Reader(), &found.Spans[i], began)
			}
			continue
		}
		// A batch may need several messages. One without events is sent as well: it has a gap, or shows that the
		// stream is alive.
		for {
			n := fitting(found.Events)
			message := &ringlogv1.TailResponse{
				Runs:       runs.build(found.Events[:n]),
				Gap:        gapToWire(found.Gap),
				Next:       found.Next,
				LastOffset: found.Last,
			}
			// A reader that is cut off here resumes at the first event that this message does not have.
			if n < len(found.Events) {
				message.Next = found.Events[n].Offset
			}
			if err := out.Send(message); err != nil {
				return err
			}
			tw.metrics.countDelivered(n)
			tw.spans.delivered(t.Reader(), found.Events[:n], began)
			found.Events = found.Events[n:]
			if len(found.Events) == 0 {
				break
			}
		}
	}
}

// spanToWire returns a message that shares the span's memory.
func spanToWire(s *log.Span) *ringlogv1.Run {
	return &ringlogv1.Run{Term: s.Term, AppendedAtUnixNano: s.AppendedAt.UnixNano(), Span: &ringlogv1.Span{
		Packet: &ringlogv1.Packet{Rows: uint32(s.Rows), Types: s.Types, Sources: s.Sources, Body: s.Body,
			Traces: s.Traces},
		Dead: s.Suppressed, First: s.First, Skip: uint32(s.Skip), Take: uint32(s.Take)}}
}

// fitting returns how many of the events one message takes.
func fitting(events []event.Event) int {
	bytes := 0
	for i := range events {
		bytes += tail.EventBytes(&events[i])
		if bytes > tail.BatchBytes && i > 0 {
			return i
		}
	}
	return len(events)
}
