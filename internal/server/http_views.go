package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// viewHandlers answers what is asked of views.
type viewHandlers struct {
	views   *service.Views // of this node
	bodies  *bodyReader
	streams *streamPlaces // a watch takes one
	errors  *errorWriter  // for the last record of a watch
}

// getViews answers GET /v1/views.
func (h *viewHandlers) getViews(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.views.List())
}

// getView answers GET /v1/views/{name}.
func (h *viewHandlers) getView(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := h.views.Get(r.PathValue("name"))
	return answerJSON(w, one, err)
}

// putView answers PUT /v1/views/{name}, whose body is a declaration. The answer is the view as it is defined, and its
// header warns of types that match nothing.
func (h *viewHandlers) putView(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	read, err := h.bodies.readBody(r, contentJSON)
	if err != nil {
		return err
	}
	defer h.bodies.putBuffer(read.buffer)
	// An empty body would be refused as TOML without fields, which says less.
	if len(bytes.TrimSpace(read.bytes)) == 0 {
		return api.Refuse(api.InvalidJSON, "body", "the body is empty",
			`send a declaration, such as {"types": ["TRAINING_COMPLETED"], "fields": {"n": {"kind": "count"}}}`)
	}
	one, err := h.views.Define(r.Context(), r.PathValue("name"), read.bytes)
	// A view of types that nobody publishes stays empty.
	var folded struct {
		Types []string `json:"types"`
	}
	if err == nil && json.Unmarshal(one.Declaration, &folded) == nil {
		setWarnings(w.Header(), h.views.FilterWarnings(event.Filter{Types: folded.Types}))
	}
	return answerJSON(w, one, err)
}

// deleteView answers DELETE /v1/views/{name} with the view as it was.
func (h *viewHandlers) deleteView(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := h.views.Remove(r.Context(), r.PathValue("name"))
	return answerJSON(w, one, err)
}

// getRows answers GET /v1/views/{name}/rows with a page of rows, or with key the one of it.
func (h *viewHandlers) getRows(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	// The parameter consistency has been served by withConsistency. The view may lag the state, so the service waits
	// for it.
	req := service.ViewRead{Name: r.PathValue("name"), Key: p.text("key"), At: p.uint("at"),
		MinOffset: p.uint("min_offset"), Current: linearizable(r.Context())}
	req.After, req.Limit = p.page()
	if err := p.done(); err != nil {
		return err
	}
	rows, err := h.views.Rows(r.Context(), req)
	return answerJSON(w, rows, err)
}

// errHead ends a watch that was asked for its headers alone.
var errHead = errors.New("the headers are all that was asked for")

// watchRows answers GET /v1/views/{name}/watch with rows as they change, as NDJSON or SSE. The last record says why it
// ended, and at which offset a row was sent last.
func (h *viewHandlers) watchRows(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	req := service.ViewWatch{Name: r.PathValue("name"), Keys: p.list("key"), Initial: p.bool("initial", true)}
	if err := p.done(); err != nil {
		return err
	}
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	// One form for programs, one for event sources of browsers.
	form, content := ndjsonForm, contentNDJSON
	if acceptsSSE(r) {
		form, content = sseForm, contentSSE
	}
	out := http.NewResponseController(w)
	// began says that the status was sent: from there on an error is a record.
	began, at := false, uint64(0)
	err = h.views.Watch(r.Context(), req, func(offset uint64, rows []json.RawMessage) error {
		var b []byte
		// The first call only says that the view is there.
		if !began {
			// A proxy or browser must neither keep nor guess at what is sent.
			began = true
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Content-Type", content)
			w.WriteHeader(http.StatusOK)
		} else if len(rows) == 0 {
			b = form.heartbeat
		}
		for _, row := range rows {
			at = offset
			b = form.appendRow(b, offset, row)
		}
		// The headers have been set by the first call.
		if r.Method == http.MethodHead {
			return errHead
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		return out.Flush()
	})
	if err == errHead {
		return nil
	}
	// Without a beginning the error has a status of its own.
	if !began {
		return err
	}
	// Scanned is where a reader has got to: it may read the rows that changed since.
	end := streamEnd{Reason: endReason(err), Scanned: at, LastOffset: h.views.LastOffset()}
	if end.Reason == endError {
		end.Error = h.errors.toAPI(err)
	}
	value, err := json.Marshal(end)
	if err != nil {
		return err
	}
	_, err = w.Write(form.appendRecord(nil, recordEnd, value))
	return err
}

// appendRow appends a row as it is at an offset. For an event source the offset is the id of the message.
func (f *streamForm) appendRow(b []byte, at uint64, row json.RawMessage) []byte {
	// The row is JSON already, so the record is written around it.
	line := append(strconv.AppendUint(append([]byte(nil), `{"at":`...), at, 10), `,"row":`...)
	line = append(append(line, row...), '}')
	// An event source gets plain messages; a line of its own is the form of the others.
	if f.resumable {
		b = strconv.AppendUint(append(b, "id: "...), at, 10)
		return append(append(append(b, "\ndata: "...), line...), "\n\n"...)
	}
	return append(append(b, line...), '\n')
}
