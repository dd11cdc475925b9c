package server

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/internal/tail"
)

// getEvents answers GET /v1/events: NDJSON, or SSE where the caller accepts that.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) error {
	sse := acceptsSSE(r)
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	req := service.TailRequest{From: from, Filter: p.filter(), Limit: p.uint("limit"), Follow: p.bool("follow", sse),
		Linearizable: p.consistency(), MinOffset: p.uint("min_offset"), Redriven: p.bool("redriven", false)}
	if err := p.done(); err != nil {
		return err
	}
	// An event source that reconnects repeats its first URL; the header says how far it has come since.
	if sse {
		if err := resumeFrom(r, &req.From); err != nil {
			return err
		}
	}
	// A HEAD request has no body to wait for.
	req.Follow = req.Follow && r.Method != http.MethodHead
	// The place among the streams is taken before anything is read for this one.
	release, err := s.stream()
	if err != nil {
		return err
	}
	defer release()
	t, err := s.ops.Log.OpenTail(r.Context(), req)
	if err != nil {
		return err
	}
	return s.writeTail(w, r, t, sse)
}

// consistency reports whether the read is to include all that was acknowledged before it.
func (p *params) consistency() (linearizable bool) {
	switch text := p.text("consistency"); text {
	case "", "local":
		return false
	case "linearizable":
		return true
	default:
		p.fail(api.BadValue("consistency", text, "local or linearizable"))
		return false
	}
}

func acceptsSSE(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), contentSSE)
}

// resumeFrom moves from to the event after Last-Event-ID, the last one that an event source has received. Without
// that header it leaves from as it is.
func resumeFrom(r *http.Request, from *api.Position) error {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return nil
	}
	last, err := parseOffset("Last-Event-ID", text)
	if err != nil {
		return err
	}
	// There is no offset after the largest.
	if last == math.MaxUint64 {
		return api.BadValue("Last-Event-ID", text, "an offset that was read")
	}
	*from = api.Position{Kind: api.AtOffset, Offset: last + 1}
	return nil
}

// writeTail streams what a tail reads until the tail ends or the caller leaves.
func (s *Server) writeTail(w http.ResponseWriter, r *http.Request, t *tail.Tail, sse bool) error {
	h := w.Header()
	h.Set(headerLastOffset, strconv.FormatUint(t.End(), 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", contentNDJSON)
	form := ndjsonForm
	if sse {
		h.Set("Content-Type", contentSSE)
		form = sseForm
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := http.NewResponseController(w)
	if t.Follows() {
		_ = out.Flush() // the reader learns at once that it is connected
	}
	return s.pump(w, r, t, form, out)
}

// streamForm is how a stream is written. A record is anything but an event: a gap, how far
// the read has come, its end.
type streamForm struct {
	appendEvent  func(b []byte, e *event.Event) []byte
	appendRecord func(b []byte, name string, value []byte) []byte
	heartbeat    []byte // sent where there is nothing to report
	resumable    bool   // a record of an offset says that a reader may resume after it
}

var (
	ndjsonForm = streamForm{appendEvent: appendLine, appendRecord: appendLineRecord, heartbeat: []byte("\n")}
	sseForm    = streamForm{appendEvent: appendSSE, appendRecord: appendSSERecord, heartbeat: []byte(": still here\n\n"), resumable: true}
)

// Names of the records of a stream.
const (
	recordGap     = "gap"
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

// pump writes batches until the tail ends. While no event comes, it writes once in a
// heartbeat how far the read has come, or a sign of life where that is as far as before.
func (s *Server) pump(w io.Writer, r *http.Request, t *tail.Tail, form streamForm, out *http.ResponseController) error {
	var b []byte
	reported := t.Next() - 1 // the reader knows that the read has come up to it
	for {
		// Read returns after a heartbeat at the latest.
		found, err := t.Read(r.Context())
		if err != nil {
			return s.writeEnd(w, t, form, err)
		}
		b = b[:0]
		// A gap comes before the events that follow it.
		if found.Gap != nil {
			gap, err := json.Marshal(found.Gap)
			if err != nil {
				return err
			}
			b = form.appendRecord(b, recordGap, gap)
			reported = max(reported, found.Gap.To)
		}
		for i := range found.Events {
			e := &found.Events[i]
			b = form.appendEvent(b, e)
			reported = e.Offset
			// Text is larger than what it is made of, so that a batch may take several writes.
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
		s.metrics.delivered(len(found.Events))
		// A reader that follows gets each batch at once; net/http sends the rest of a bounded read by itself.
		if t.Follows() {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// writeEnd writes the last record: why the read ended, since the status was sent before, and how far it came.
func (s *Server) writeEnd(w io.Writer, t *tail.Tail, form streamForm, err error) error {
	end := streamEnd{Reason: endReason(err), Scanned: t.Next() - 1, LastOffset: t.Last()}
	switch {
	// A tail reports its limit and the end of the log by the same error.
	case end.Reason == endOfLog && t.AtLimit():
		end.Reason = endLimit
	case end.Reason == endError:
		end.Error = s.explain(err)
	}
	value, err := json.Marshal(end)
	if err != nil {
		return err
	}
	_, err = w.Write(form.appendRecord(nil, recordEnd, value))
	return err
}

// endReason returns the reason to send for the error that ended a read.
func endReason(err error) string {
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

func appendLine(b []byte, e *event.Event) []byte { return append(e.AppendJSON(b), '\n') }

// appendLineRecord appends {"name":value} and the end of the line.
func appendLineRecord(b []byte, name string, value []byte) []byte {
	b = append(append(append(b, `{"`...), name...), `":`...)
	return append(append(b, value...), "}\n"...)
}

func appendSSE(b []byte, e *event.Event) []byte {
	b = strconv.AppendUint(append(b, "id: "...), e.Offset, 10)
	return append(e.AppendJSON(append(b, "\ndata: "...)), "\n\n"...)
}

// appendSSERecord appends an event of that name, which does not reach the handlers of plain messages.
func appendSSERecord(b []byte, name string, value []byte) []byte {
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(append(b, value...), "\n\n"...)
}

// getEvent answers GET /v1/events/{offset}.
func (s *Server) getEvent(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	minOffset := p.uint("min_offset")
	offset, err := parseOffset("offset", r.PathValue("offset"))
	// Offsets begin at 1.
	if err != nil || offset == 0 {
		p.fail(api.BadValue("offset", r.PathValue("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	e, err := s.ops.Log.Event(r.Context(), offset, false, minOffset)
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, contentJSON, appendLine(nil, &e))
}
