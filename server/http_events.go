package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// getEvents answers GET /v1/events: NDJSON, or SSE where the caller accepts that.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) error {
	sse := acceptsSSE(r)
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	req := tailRequest{from: from, filter: p.filter(), limit: p.uint("limit"), follow: p.bool("follow", sse),
		linearizable: p.consistency(), minOffset: p.uint("min_offset"), redriven: p.bool("redriven", false)}
	if err := p.done(); err != nil {
		return err
	}
	if sse {
		if err := resumeFrom(r, &req.from); err != nil {
			return err
		}
	}
	req.follow = req.follow && r.Method != http.MethodHead
	release, err := s.stream()
	if err != nil {
		return err
	}
	defer release()
	t, err := s.ops.openTail(r.Context(), req)
	if err != nil {
		return err
	}
	return s.writeTail(w, r, t, sse)
}

func (p *params) consistency() (linearizable bool) {
	switch text := p.text("consistency"); text {
	case "", "local":
		return false
	case "linearizable":
		return true
	default:
		p.fail(badParam("consistency", text, "local or linearizable"))
		return false
	}
}

func acceptsSSE(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), contentSSE)
}

// resumeFrom lets an event source go on behind the last event it has got.
func resumeFrom(r *http.Request, from *position) error {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return nil
	}
	last, err := parseOffset("Last-Event-ID", text)
	if err != nil {
		return err
	}
	*from = position{kind: atOffset, n: last + 1}
	return nil
}

// writeTail streams what a tail reads until its end, or the caller's.
func (s *Server) writeTail(w http.ResponseWriter, r *http.Request, t *tail, sse bool) error {
	h := w.Header()
	h.Set(headerLastOffset, strconv.FormatUint(t.end, 10))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	form := lines{appendEvent: appendLine, appendGap: appendGapLine, appendError: appendErrorLine}
	if sse {
		h.Set("Content-Type", contentSSE)
		form = lines{appendEvent: appendSSE, appendGap: appendGapSSE, appendError: appendErrorSSE, quiet: []byte(": still here\n\n")}
	} else {
		h.Set("Content-Type", contentNDJSON)
		h.Set("Trailer", headerNext)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := http.NewResponseController(w)
	if t.follow {
		_ = out.Flush() // the reader learns at once that it is connected
	}
	err := s.pump(w, r, t, form, out)
	if !sse {
		h.Set(headerNext, strconv.FormatUint(t.next, 10))
	}
	return err
}

// lines is how a stream is written.
type lines struct {
	appendEvent func(b []byte, e *event.Event) []byte
	appendGap   func(b, gap []byte) []byte
	appendError func(b, e []byte) []byte
	quiet       []byte // heartbeat
}

// pump writes batches until the tail ends. An error on the way is told as the last
// line: the answer has begun.
func (s *Server) pump(w io.Writer, r *http.Request, t *tail, form lines, out *http.ResponseController) error {
	var b []byte
	for {
		found, err := t.read(r.Context())
		if err != nil {
			_, err = w.Write(s.lastLine(b[:0], err, form))
			return err
		}
		b = b[:0]
		if found.gap != nil {
			gap, err := json.Marshal(found.gap)
			if err != nil {
				return err
			}
			b = form.appendGap(b, gap)
		}
		for i := range found.events {
			b = form.appendEvent(b, &found.events[i])
			if len(b) >= batchBytes {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		if found.gap == nil && len(found.events) == 0 {
			b = append(b, form.quiet...)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		s.metrics.delivered(len(found.events))
		if t.follow {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// lastLine says why a stream ends; nothing where it just does.
func (s *Server) lastLine(b []byte, err error, form lines) []byte {
	if errors.Is(err, io.EOF) || errors.Is(err, errStreamTime) || errors.Is(err, errStopping) {
		return b
	}
	text, jsonErr := json.Marshal(map[string]*api.Error{"error": s.explain(err)})
	if jsonErr != nil {
		return b
	}
	return form.appendError(b, text)
}

func appendLine(b []byte, e *event.Event) []byte { return append(e.AppendJSON(b), '\n') }

func appendGapLine(b, gap []byte) []byte {
	return append(append(append(b, `{"gap":`...), gap...), "}\n"...)
}

func appendErrorLine(b, e []byte) []byte { return append(append(b, e...), '\n') }

func appendSSE(b []byte, e *event.Event) []byte {
	b = strconv.AppendUint(append(b, "id: "...), e.Offset, 10)
	return append(e.AppendJSON(append(b, "\ndata: "...)), "\n\n"...)
}

func appendGapSSE(b, gap []byte) []byte {
	return append(append(append(b, "event: gap\ndata: "...), gap...), "\n\n"...)
}

func appendErrorSSE(b, e []byte) []byte {
	return append(append(append(b, "event: error\ndata: "...), e...), "\n\n"...)
}

// getEvent answers GET /v1/events/{offset}.
func (s *Server) getEvent(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	linearizable, minOffset := p.consistency(), p.uint("min_offset")
	offset, err := parseOffset("offset", r.PathValue("offset"))
	if err != nil || offset == 0 {
		p.fail(badParam("offset", r.PathValue("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	e, err := s.ops.event(r.Context(), offset, linearizable, minOffset)
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, contentJSON, appendLine(nil, &e))
}
