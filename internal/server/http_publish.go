package server

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/service"
)

// decodeEvents reads a body of either content type; the events share its memory.
func decodeEvents(b requestBody, limits event.Limits) (req service.PublishRequest, err error) {
	if b.contentType == contentNDJSON {
		// Each line is an event, and errors name the line's place in the list.
		req.Events, err = event.DecodeNDJSON(b.bytes, limits)
		return req, err
	}
	// A single object is not a list of one: its errors name no row.
	text := bytes.TrimLeft(b.bytes, " \t\r\n")
	req.Alone = len(text) > 0 && text[0] != '['
	req.Events, err = event.DecodeArray(b.bytes, limits)
	return req, err
}

// headerTrace is the header of W3C Trace Context.
const headerTrace = "traceparent"

// takeTrace gives the trace context of the headers to the events that have none of their own. As the standard asks for,
// one that cannot be read is ignored: whoever passes a request on may have added it.
func takeTrace(h http.Header, events []event.Event) {
	values := h.Values(headerTrace)
	if len(values) != 1 {
		return
	}
	trace, err := event.ParseTrace(values[0])
	if err != nil {
		return
	}
	for i := range events {
		if !events[i].Trace.Valid() {
			events[i].Trace = trace
		}
	}
}

// publishHeaders takes the producer and its sequence number, and the lease of a role, from the headers. All are
// optional; the operation refuses one of a pair without the other.
func publishHeaders(h http.Header, req *service.PublishRequest) (err error) {
	req.Producer = h.Get(headerProducer)
	req.Sequence, err = numberHeader(h, headerSequence)
	if err == nil {
		req.Lease, err = leaseHeaders(h)
	}
	return err
}

// leaseHeaders takes the lease of a role from the headers.
func leaseHeaders(h http.Header) (lease frame.RoleLease, err error) {
	lease.Role = h.Get(headerRole)
	lease.Fence, err = numberHeader(h, headerFence)
	return lease, err
}

// numberHeader returns the number in a header, 0 if it is missing.
func numberHeader(h http.Header, name string) (uint64, error) {
	text := h.Get(name)
	if text == "" {
		return 0, nil
	}
	// The first sequence number of a producer is 1, as is the first fence.
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, api.BadValue(name, text, "a whole number from 1")
	}
	return n, nil
}

// appendPublished writes the answer by hand: it is the busiest one.
//
//	{"results":[{"offset":7,"duplicate":false,"hash":"…","appended_at":"…","warnings":[…]}],"cluster_id":"…"}
func appendPublished(
	b []byte, a *service.Published, appendedAt func(place fsm.Placement) time.Time,
	cluster string,
) []byte {
	b = slices.Grow(b, len(a.Hashes)*160+64)
	warnings := warningsText{rows: a.Warnings}
	var at time.Time
	var atText []byte
	b = append(b, `{"results":[`...)
	for i, place := range a.Offsets(len(a.Hashes)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, `{"offset":`...), place.Offset, 10)
		// A duplicate is answered with the offset of the event that it duplicates.
		b = strconv.AppendBool(append(b, `,"duplicate":`...), place.Duplicate)
		b = hex.AppendEncode(append(b, `,"hash":"`...), a.Hashes[i][:])
		// Most events of a request have one append time, which is formatted once.
		if t := appendedAt(place); i == 0 || t != at {
			at, atText = t, t.UTC().AppendFormat(atText[:0], time.RFC3339Nano)
		}
		b = append(append(append(b, `","appended_at":"`...), atText...), '"')
		b = append(warnings.appendRow(b, i), '}')
	}
	b = append(append(append(b, `],"cluster_id":"`...), cluster...), '"')
	// A client may want to know that it was answered from the results of its first request.
	if a.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return append(b, "}\n"...)
}

// warningsText prints the warnings of rows that come one after the other. A list that rows share is printed once
// and copied.
type warningsText struct {
	rows    []service.RowWarnings
	printed map[*event.Warning][]byte
}

// appendRow appends the warnings of a row, if it has any. Rows must be asked for in ascending order.
func (w *warningsText) appendRow(b []byte, row int) []byte {
	if len(w.rows) == 0 || w.rows[0].Row != row {
		return b
	}
	list := w.rows[0].List
	w.rows = w.rows[1:]
	// Rows with the same list share its slice, so its address finds the text.
	text, ok := w.printed[&list[0]]
	if !ok {
		// The list is opened by its first warning.
		separator := `,"warnings":[`
		for _, warning := range list {
			text = appendQuoted(append(append(text, separator...), `{"reason":`...), warning.Reason)
			text = appendQuoted(append(text, `,"field":`...), warning.Field)
			text = appendQuoted(append(text, `,"message":`...), warning.Message)
			text = append(text, '}')
			separator = ","
		}
		text = append(text, ']')
		if w.printed == nil {
			w.printed = make(map[*event.Warning][]byte)
		}
		// Rows that come later and share the list copy the text.
		w.printed[&list[0]] = text
	}
	return append(b, text...)
}

// appendQuoted appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	// Ranging over a string replaces what is not UTF-8.
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		// Control characters have no literal form in JSON.
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
