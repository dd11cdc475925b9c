package server

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/service"
)

// postEvents answers POST /v1/events: one event object, an array of them, or NDJSON. It returns once the events
// are acknowledged, all of them or none.
func (s *Server) postEvents(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	if err := p.done(); err != nil {
		return err
	}
	// One policy is used throughout: the events are decoded and checked by the same limits.
	policy := s.ops.Machine().Policy()
	read, err := s.readBody(r, policy.Limits.RequestBytes, contentJSON, contentNDJSON)
	if err != nil {
		return err
	}
	defer s.putBuffer(read.buffer)
	// Room is made for the decoded events before they are built.
	if err := takeEvents(holdOf(r.Context()), read, policy.Limits); err != nil {
		return err
	}
	req, err := decodeEvents(read, policy.Limits)
	if err != nil {
		return err
	}
	if err := producerHeaders(r.Header, &req); err != nil {
		return err
	}
	answer, err := s.ops.Log.Publish(r.Context(), &policy, req)
	if err != nil {
		return err
	}
	s.metrics.published(len(req.Events), len(answer.Duplicates))
	return writeBytes(w, http.StatusOK, contentJSON, appendPublished(nil, &answer, s.ops.Log.AppendedAt(&answer), s.clusterID()))
}

// decodeEvents reads a body of either content type; the events share its memory.
func decodeEvents(b requestBody, limits event.Limits) (req service.PublishRequest, err error) {
	if b.contentType == contentNDJSON {
		req.Events, err = event.DecodeNDJSON(b.bytes, limits)
		return req, err
	}
	// A single object is no list of one: its errors name no row.
	text := bytes.TrimLeft(b.bytes, " \t\r\n")
	req.Alone = len(text) > 0 && text[0] != '['
	req.Events, err = event.DecodeArray(b.bytes, limits)
	return req, err
}

// producerHeaders takes the producer and its sequence number from the headers; both are optional.
func producerHeaders(h http.Header, req *service.PublishRequest) error {
	req.Producer = h.Get(headerProducer)
	text := h.Get(headerSequence)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return api.BadValue(headerSequence, text, "a whole number from 1")
	}
	req.Sequence = n
	return nil
}

// appendPublished writes the answer by hand: it is the busiest one.
//
//	{"results":[{"offset":7,"duplicate":false,"hash":"…","appended_at":"…","warnings":[…]}],"cluster_id":"…"}
func appendPublished(b []byte, a *service.Published, appendedAt func(place fsm.Placement) time.Time, cluster string) []byte {
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

// appendRow appends the warnings of a row, if it has any. Rows must be asked for in rising order.
func (w *warningsText) appendRow(b []byte, row int) []byte {
	if len(w.rows) == 0 || w.rows[0].Row != row {
		return b
	}
	list := w.rows[0].List
	w.rows = w.rows[1:]
	// Rows with the same list share its slice, so that its address finds the text.
	text, ok := w.printed[&list[0]]
	if !ok {
		separator := `,"warnings":[`
		for _, told := range list {
			text = appendQuoted(append(append(text, separator...), `{"reason":`...), told.Reason)
			text = appendQuoted(append(text, `,"field":`...), told.Field)
			text = appendQuoted(append(text, `,"message":`...), told.Message)
			text = append(text, '}')
			separator = ","
		}
		text = append(text, ']')
		if w.printed == nil {
			w.printed = make(map[*event.Warning][]byte)
		}
		w.printed[&list[0]] = text
	}
	return append(b, text...)
}

// appendQuoted appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
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

// requestBody is a body as it was sent. It is valid until buffer is handed to putBuffer.
type requestBody struct {
	contentType string // the first of the types where the request names none
	bytes       []byte
	buffer      *[]byte // the memory of bytes, for putBuffer
}

// readBody reads a body of one of the content types, up to limit bytes. A request without Content-Type has the
// first of them. If it succeeds, the caller must call putBuffer.
func (s *Server) readBody(r *http.Request, limit int, types ...string) (requestBody, error) {
	b := requestBody{contentType: types[0]}
	if text := r.Header.Get("Content-Type"); text != "" {
		kind, parameters, err := mime.ParseMediaType(text)
		if charset := parameters["charset"]; err != nil || !slices.Contains(types, kind) || charset != "" && !strings.EqualFold(charset, "utf-8") {
			return b, unsupported("Content-Type", text, types)
		}
		b.contentType = kind
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return b, unsupported("Content-Encoding", coding, []string{"identity"})
	}
	// A body that declares itself too large is refused unread.
	if r.ContentLength > int64(limit) {
		return b, api.RequestTooLarge(limit)
	}
	b.buffer = s.getBuffer()
	var err error
	b.bytes, err = readAll(r.Body, *b.buffer, limit, int(r.ContentLength))
	// The pool gets the memory as it has grown.
	*b.buffer = b.bytes[:0]
	if err != nil {
		s.putBuffer(b.buffer)
	}
	return b, err
}

// unsupported refuses the value of a header, and names those that are taken.
func unsupported(header, got string, want []string) *api.Error {
	return &api.Error{Code: api.UnsupportedMedia, Field: header, Message: fmt.Sprintf("%s: %q is not taken here", header, got),
		Remedy: "send " + header + ": " + strings.Join(want, " or ")}
}

// readAll reads up to limit bytes into the memory of buffer and returns them, also with an error. A declared
// length is believed up to firstRead; beyond that the memory grows with what arrives. A length of -1 is unknown.
func readAll(from io.Reader, buffer []byte, limit, length int) ([]byte, error) {
	// One more byte than declared lets Read report the end without growing the buffer.
	b := slices.Grow(buffer[:0], min(max(length+1, 512), firstRead))
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return b, api.RequestTooLarge(limit)
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, bodyError(err, len(b))
		}
	}
}

// firstRead bounds what is allocated before any of a body has arrived.
const firstRead = 64 << 10

// bodyError returns an error of reading a body: this server's own refusal as it is, and anything else as a body
// that broke off after got bytes.
func bodyError(err error, got int) error {
	if own, ok := errors.AsType[*api.Error](err); ok {
		return own
	}
	return &api.Error{Code: api.Timeout, Field: "body", Message: fmt.Sprintf("the body broke off after %d bytes: %v", got, err),
		Remedy: "send it again, in time"}
}

// keptBuffer bounds the buffers that are kept for the next request.
const keptBuffer = 1 << 20

// getBuffer returns an empty buffer, which may have the memory of an earlier request.
func (s *Server) getBuffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// putBuffer keeps a buffer for another request, unless it has grown past keptBuffer.
func (s *Server) putBuffer(b *[]byte) {
	if cap(*b) <= keptBuffer {
		s.buffers.Put(b)
	}
}
