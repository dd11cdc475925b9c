package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// letterHandlers answers what is asked of dead letters.
type letterHandlers struct {
	letters *service.Letters
	bodies  *bodyReader
}

// postDeadLetter answers POST /v1/cursors/{name}/deadletter: the event at an offset becomes a dead letter, and the
// cursor moves past it.
func (h *letterHandlers) postDeadLetter(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Offset      *uint64   `json:"offset"`
		Generation  *uint64   `json:"generation"`
		Handler     string    `json:"handler"`
		Error       string    `json:"error"`
		Attempts    uint64    `json:"attempts"`
		FirstFailed time.Time `json:"first_failed"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// A number that was not sent must not count as zero.
	if body.Offset == nil {
		return api.Missing("offset", "the offset of the event that could not be handled")
	}
	if body.Generation == nil {
		return api.Missing("generation", "the generation that opening the cursor answered with")
	}
	lease, err := leaseHeaders(r.Header)
	if err != nil {
		return err
	}
	// Letter and cursor change in one entry, or neither does.
	answer, err := h.letters.DeadLetter(r.Context(), r.PathValue("name"), *body.Offset, *body.Generation,
		service.Failure{Handler: body.Handler, Text: body.Error, Attempts: body.Attempts, First: body.FirstFailed}, lease)
	return answerJSON(w, answer, err)
}

// Bounds of a list of letters.
const (
	defaultLetters = 100
	maxLetterPage  = 10_000
)

// getLetters answers GET /v1/dlq: with a list if any parameter is given, else with a summary.
func (h *letterHandlers) getLetters(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	// An empty value, as in cursor=, asks for a list as well.
	listed := p.any("limit", "after", "type", "cursor", "error", "state")
	limit, after := p.uint("limit"), p.uint("after")
	matcher := h.letterParams(p)
	if limit > maxLetterPage {
		p.fail(api.BadValue("limit", p.text("limit"), "a number up to 10000, and after for the next page"))
	}
	if err := p.done(); err != nil {
		return err
	}
	h.warnOfType(w, p.text("type"))
	var answer any
	var err error
	if listed {
		// A list has pages, a summary has none.
		if limit == 0 {
			limit = defaultLetters
		}
		answer, err = h.letters.List(r.Context(), matcher, after, int(limit))
	} else {
		answer, err = h.letters.Summary(r.Context())
	}
	return answerJSON(w, answer, err)
}

// any reports whether one of the parameters is given.
func (p *params) any(names ...string) bool {
	// A parameter that is given without a value is given.
	for _, name := range names {
		if len(p.values[name]) > 0 {
			return true
		}
	}
	return false
}

// letterParams reads the parameters that choose letters.
func (h *letterHandlers) letterParams(p *params) service.LetterMatcher {
	// An empty name is not the same as none given, which takes the letters of all cursors.
	var cursor *string
	if name := p.text("cursor"); p.any("cursor") {
		cursor = &name
	}
	// Only the two states that letters have can be asked for.
	state := p.text("state")
	if state != "" && state != api.LetterDead && state != api.LetterRedriven {
		p.fail(api.BadValue("state", state, "dead or redriven"))
	}
	// A pattern that is malformed is refused here.
	m, err := h.letters.Matcher(p.text("type"), cursor, p.text("error"), state)
	if err != nil {
		p.fail(err)
	}
	return m
}

// warnOfType warns of a type or pattern that matches nothing known.
func (h *letterHandlers) warnOfType(w http.ResponseWriter, typ string) {
	if typ != "" {
		setWarnings(w.Header(), h.letters.FilterWarnings(event.Filter{Types: []string{typ}}))
	}
}

// getLetter answers GET /v1/dlq/{id} with the letter and its event.
func (h *letterHandlers) getLetter(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	id, err := parseOffset("id", r.PathValue("id"))
	// Ids begin at 1.
	if err != nil || id == 0 {
		p.fail(api.BadValue("id", r.PathValue("id"), "a letter's id, from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	// The event is the letter's own copy, which stays after the log is trimmed.
	l, e, err := h.letters.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		api.Letter
		Event json.RawMessage `json:"event"`
	}{l, e.AppendJSON(nil)})
}

// getLetterErrors answers GET /v1/dlq/errors: letters grouped by error, the most frequent first.
func (h *letterHandlers) getLetterErrors(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	matcher := h.letterParams(p)
	if err := p.done(); err != nil {
		return err
	}
	h.warnOfType(w, p.text("type"))
	// A scan: all letters are read.
	groups, err := h.letters.Errors(r.Context(), matcher)
	return answerJSON(w, map[string]any{"errors": groups}, err)
}

// postRedrive answers POST /v1/dlq/redrive: it appends letters again, for their own cursors or for the one in to.
func (h *letterHandlers) postRedrive(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		api.LetterSelection
		To string `json:"to"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// Without to each letter goes to the cursor that it came from.
	answer, err := h.letters.Redrive(r.Context(), &body.LetterSelection, body.To)
	if err == nil {
		h.warnOfType(w, body.Type)
	}
	return answerJSON(w, answer, err)
}

// postPurge answers POST /v1/dlq/purge: it removes letters.
func (h *letterHandlers) postPurge(w http.ResponseWriter, r *http.Request) error {
	var body api.LetterSelection
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// A selection without a condition is refused.
	answer, err := h.letters.Purge(r.Context(), &body)
	if err == nil {
		h.warnOfType(w, body.Type)
	}
	return answerJSON(w, answer, err)
}

// postLetterImport answers POST /v1/dlq/import: it stores rows of another system as dead letters. A row that
// cannot be an event is reported and left out.
func (h *letterHandlers) postLetterImport(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Source string          `json:"source"`
		Rows   []api.LetterRow `json:"rows"`
		DryRun bool            `json:"dry_run"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// An empty table has no rows to import; a missing one is a mistake.
	if body.Rows == nil {
		return api.Missing("rows", "the rows of the table dead_letter_queue")
	}
	// Rows that are refused are part of the answer.
	answer, err := h.letters.Import(r.Context(), body.Source, body.Rows, body.DryRun)
	return answerJSON(w, answer, err)
}
