package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// eventHandlers answers what is asked of the log itself: publish, read, follow, wait, trim, and what deduplication
// did.
type eventHandlers struct {
	log      *service.Log
	bodies   *bodyReader
	streams  *streamPlaces
	tails    *tailWriter
	metrics  *metrics
	spans    *spans
	identity *identity
}

// postEvents answers POST /v1/events: one event object, an array of them, or NDJSON. It returns once the events
// are acknowledged, all of them or none.
func (h *eventHandlers) postEvents(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	if err := p.done(); err != nil {
		return err
	}
	// The events are decoded and checked by one policy; the table of routes bounds the body by the present one.
	policy := h.log.Machine().Policy()
	// The body's memory is shared with the events until the publish has returned.
	read, err := h.bodies.readBody(r, contentJSON, contentNDJSON)
	if err != nil {
		return err
	}
	defer h.bodies.putBuffer(read.buffer)
	// Room is made for the decoded events before they are built.
	if err := takeEvents(holdOf(r.Context()), read, policy.Limits); err != nil {
		return err
	}
	req, err := decodeEvents(read, policy.Limits)
	if err != nil {
		return err
	}
	takeTrace(r.Header, req.Events)
	if err := publishHeaders(r.Header, &req); err != nil {
		return err
	}
	began := time.Now()
	answer, err := h.log.Publish(r.Context(), &policy, req)
	h.spans.published(&req, &answer, began, err)
	if err != nil {
		return err
	}
	h.metrics.countPublished(len(req.Events), len(answer.Duplicates))
	text := appendPublished(nil, &answer, h.log.AppendedAt(&answer), h.identity.clusterID())
	return writeBytes(w, http.StatusOK, contentJSON, text)
}

// getEvents answers GET /v1/events: NDJSON, or SSE where the caller accepts that.
func (h *eventHandlers) getEvents(w http.ResponseWriter, r *http.Request) error {
	sse := acceptsSSE(r)
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	// An EventSource always follows, unless the caller says otherwise.
	req := service.TailRequest{From: from, Filter: p.filter(), Where: p.text("where"), Limit: p.uint("limit"),
		Follow: p.bool("follow", sse), Linearizable: p.consistency(), MinOffset: p.uint("min_offset"),
		Redriven: p.bool("redriven", false)}
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
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	// The tail is opened before the answer begins, so its errors have a status of their own.
	t, err := h.log.OpenTail(r.Context(), req)
	if err != nil {
		return err
	}
	setWarnings(w.Header(), h.log.FilterWarnings(req.Filter))
	return h.tails.writeTail(w, r, t, sse)
}

// consistency reports whether the read is to include all that was acknowledged before it.
func (p *params) consistency() (linearizable bool) {
	// Local reads may be of an earlier state than another node's.
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

// acceptsSSE reports whether the caller is an EventSource, or reads like one.
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
	// The header has the offset of the last event that was received, or of the last record with an id.
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

// getEvent answers GET /v1/events/{offset}.
func (h *eventHandlers) getEvent(w http.ResponseWriter, r *http.Request) error {
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
	// min_offset lets a caller wait for an event that it has just published through another node.
	e, err := h.log.Event(r.Context(), offset, false, minOffset)
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, contentJSON, appendLine(nil, &e))
}

// getDedup answers GET /v1/dedup/{subject} with what deduplication did. The subject is a content hash of 64 hex
// digits, or an offset.
func (h *eventHandlers) getDedup(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	subject := r.PathValue("subject")
	var found api.Explanation
	var err error
	// A hash may happen to consist of decimal digits, but no offset is that long.
	if strings.Trim(subject, "0123456789") == "" && len(subject) != 2*len(event.Hash{}) {
		offset, invalid := parseOffset("offset", subject)
		if invalid != nil {
			return invalid
		}
		found, err = h.log.ExplainOffset(r.Context(), offset)
	} else {
		found, err = h.log.ExplainHash(r.Context(), subject)
	}
	return answerJSON(w, found, err)
}

// postCompact answers POST /v1/compact; without a body the retention settings apply.
func (h *eventHandlers) postCompact(w http.ResponseWriter, r *http.Request) error {
	var body api.Compaction
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	// Only a forced compaction passes cursors that still hold events.
	result, err := h.log.Compact(r.Context(), body)
	return answerJSON(w, result, err)
}

// Bounds of a wait.
const (
	waitDefault = 30 * time.Second // for a wait that does not say how long
	waitCursors = 256              // at most in one wait
)

// getWait answers GET /v1/wait once all cursors have committed an offset, which may be one to come. When the time
// is up it answers how far they are, with reached false.
func (h *eventHandlers) getWait(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	offset, timed := p.uint("offset"), p.text("timeout") != ""
	names := p.cursorNames()
	if offset == 0 {
		p.fail(api.BadValue("offset", r.URL.Query().Get("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	// A wait may last as long as a stream, and takes one of their places.
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	ctx := r.Context()
	// Its own limit has the cause that limitTime gives to a timeout parameter.
	if !timed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, waitDefault, service.ErrStreamTime)
		defer cancel()
	}
	// Time that is up is an answer, not an error: it says of each cursor how far it is.
	v, err := h.log.WaitCommitted(ctx, offset, names)
	if err != nil && !errors.Is(err, service.ErrStreamTime) {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// cursorNames returns the distinct names in cursors, which are comma separated, and in each cursor parameter.
func (p *params) cursorNames() (names []string) {
	// Both parameters may be used, also together.
	for _, name := range slices.Concat(p.list("cursor"), strings.Split(p.text("cursors"), ",")) {
		// A cursor that is named twice is one to wait for.
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := len(names); n == 0 || n > waitCursors {
		p.fail(api.Refuse(api.InvalidArgument, "cursors",
			fmt.Sprintf("%d cursors to wait for", n),
			fmt.Sprintf("name 1 to %d, comma separated", waitCursors)))
	}
	return names
}
