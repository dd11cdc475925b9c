package server

import (
	"encoding/json"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/service"
)

// cursorHandlers answers what is asked of durable cursors.
type cursorHandlers struct {
	cursors *service.Cursors
	bodies  *bodyReader
	streams *streamPlaces
	tails   *tailWriter
}

// getCursors answers GET /v1/cursors with a page of cursors, by name.
func (h *cursorHandlers) getCursors(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	// Lists are pages by name, so a cluster may have any number of cursors.
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.cursors.List(r.Context(), after, limit))
}

// getCursor answers GET /v1/cursors/{name} with the cursor as this node knows it.
func (h *cursorHandlers) getCursor(w http.ResponseWriter, r *http.Request) error {
	return answerCursor(w, r, func() (api.Cursor, error) { return h.cursors.Get(r.Context(), r.PathValue("name")) })
}

// answerCursor answers with the cursor that an operation returns.
func answerCursor(w http.ResponseWriter, r *http.Request, do func() (api.Cursor, error)) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	c, err := do()
	setWarnings(w.Header(), c.Warnings)
	return answerJSON(w, c, err)
}

// cursorBody is what a cursor is created with.
type cursorBody struct {
	From   json.RawMessage `json:"from"` // see parseJSONPosition
	Filter event.Filter    `json:"filter"`
	Policy policyBody      `json:"policy"`
}

// policyBody is a frame.CursorPolicy whose duration is as people write it.
type policyBody struct {
	HoldEvents uint64 `json:"hold_events"`
	HoldBytes  uint64 `json:"hold_bytes"`
	// Zero fields take the cluster's settings.
	HoldFor string `json:"hold_for"`
}

// policy returns the policy of a body.
func (p policyBody) policy() (frame.CursorPolicy, error) {
	out := frame.CursorPolicy{HoldEvents: p.HoldEvents, HoldBytes: p.HoldBytes}
	if p.HoldFor != "" {
		age, err := api.ParseAge("policy.hold_for", p.HoldFor)
		if err != nil {
			return out, err
		}
		out.HoldFor = age
	}
	return out, nil
}

// spec returns what a cursor of that name is to be. Errors name the place in the body.
func (b *cursorBody) spec(name string) (service.CursorSpec, error) {
	// An empty body is a cursor that begins at the start and passes everything.
	from, err := parseJSONPosition("from", b.From)
	if err != nil {
		return service.CursorSpec{}, err
	}
	policy, err := b.Policy.policy()
	return service.CursorSpec{Name: name, From: from, Filter: b.Filter, Policy: policy}, err
}

// putCursor answers PUT /v1/cursors/{name}: it creates a cursor, or answers with the one there is if it is the
// same. Without a body everything has its default.
func (h *cursorHandlers) putCursor(w http.ResponseWriter, r *http.Request) error {
	var body cursorBody
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	spec, err := body.spec(r.PathValue("name"))
	if err != nil {
		return err
	}
	return answerCursor(w, r, func() (api.Cursor, error) { return h.cursors.Create(r.Context(), spec) })
}

// putCursorFilter answers PUT /v1/cursors/{name}/filter: it replaces filter and policy together.
func (h *cursorHandlers) putCursorFilter(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Filter *event.Filter `json:"filter"`
		Policy policyBody    `json:"policy"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// {} passes all events, so a missing filter must not mean the same.
	if body.Filter == nil {
		return api.Missing("filter", "the events that the cursor is to get; {} is all")
	}
	// A policy that is left out takes the cluster's settings.
	policy, err := body.Policy.policy()
	if err != nil {
		return err
	}
	return answerCursor(w, r, func() (api.Cursor, error) {
		return h.cursors.Change(r.Context(), r.PathValue("name"), *body.Filter, policy)
	})
}

// deleteCursor answers DELETE /v1/cursors/{name} with the cursor as it was.
func (h *cursorHandlers) deleteCursor(w http.ResponseWriter, r *http.Request) error {
	return answerCursor(w, r, func() (api.Cursor, error) { return h.cursors.Delete(r.Context(), r.PathValue("name")) })
}

// postCursorOpen answers POST /v1/cursors/{name}/open: the generation increases, and the reader before is fenced. A
// repeated call with the same opener is answered as the first.
func (h *cursorHandlers) postCursorOpen(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Opener string `json:"opener"`
	}
	// Without an opener each call takes the cursor from the reader before.
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	return answerCursor(w, r, func() (api.Cursor, error) {
		return h.cursors.Open(r.Context(), r.PathValue("name"), body.Opener)
	})
}

// postCursorCommit answers POST /v1/cursors/{name}/commit with the commit after it, which is higher than the
// offset if that was committed before.
func (h *cursorHandlers) postCursorCommit(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Offset     *uint64 `json:"offset"`
		Generation *uint64 `json:"generation"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// A number that was not sent must not count as zero.
	if body.Offset == nil {
		return api.Missing("offset", "the last offset that was handled")
	}
	if body.Generation == nil {
		return api.Missing("generation", "the generation that opening the cursor answered with")
	}
	lease, err := leaseHeaders(r.Header)
	if err != nil {
		return err
	}
	return answerCursor(w, r, func() (api.Cursor, error) {
		return h.cursors.Commit(r.Context(), r.PathValue("name"), *body.Offset, *body.Generation, lease)
	})
}

// postCursorSeek answers POST /v1/cursors/{name}/seek. A repeated call with the same seeker is answered as the
// first.
func (h *cursorHandlers) postCursorSeek(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To     json.RawMessage `json:"to"` // see parseJSONPosition
		Offset *uint64         `json:"offset"`
		Seeker string          `json:"seeker"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// to has all forms of a position.
	to, err := parseJSONPosition("to", body.To)
	if err != nil {
		return err
	}
	// offset is a shorter form of to, and wins over it; 0 is as good as 1.
	if body.Offset != nil {
		to = api.Position{Kind: api.AtOffset, Offset: max(*body.Offset, 1)}
	}
	return answerCursor(w, r, func() (api.Cursor, error) {
		return h.cursors.Seek(r.Context(), r.PathValue("name"), to, body.Seeker)
	})
}

// getCursorEvents answers GET /v1/cursors/{name}/events with the events after the cursor's commit, in the forms of
// getEvents.
func (h *cursorHandlers) getCursorEvents(w http.ResponseWriter, r *http.Request) error {
	// An EventSource follows, unless the caller says otherwise.
	sse := acceptsSSE(r)
	p := newParams(r)
	req := service.ReadCursor{Name: r.PathValue("name"), Generation: p.uint("generation"), From: p.uint("from"),
		Limit: p.uint("limit"), Follow: p.bool("follow", sse)}
	if err := p.done(); err != nil {
		return err
	}
	// An event source that reconnects repeats its first URL; the header says how far it has come since.
	if sse {
		var from api.Position
		if err := resumeFrom(r, &from); err != nil {
			return err
		}
		req.From = max(req.From, from.Offset)
	}
	// A HEAD request has no body to wait for.
	req.Follow = req.Follow && r.Method != http.MethodHead
	// The place among the streams is taken before anything is read for this one.
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	// The generation is checked before the first batch, and before each later one.
	t, _, err := h.cursors.OpenTail(r.Context(), req)
	if err != nil {
		return err
	}
	return h.tails.writeTail(w, r, t, sse)
}

// getExplain answers GET /v1/explain: what became of an event for a cursor.
func (h *cursorHandlers) getExplain(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	name, offset := p.text("cursor"), p.uint("offset")
	// Offsets begin at 1.
	if offset == 0 {
		p.fail(api.BadValue("offset", r.URL.Query().Get("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	v, err := h.cursors.ExplainDelivery(r.Context(), name, offset)
	return answerJSON(w, v, err)
}
