package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
)

// postDeadLetter answers POST /v1/cursors/{name}/deadletter: the event at an offset becomes a dead letter, and the
// cursor moves past it.
func (s *Server) postDeadLetter(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Offset      *uint64   `json:"offset"`
		Generation  *uint64   `json:"generation"`
		Handler     string    `json:"handler"`
		Error       string    `json:"error"`
		Attempts    uint64    `json:"attempts"`
		FirstFailed time.Time `json:"first_failed"`
	}
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	if body.Offset == nil {
		return api.Missing("offset", "the offset of the event that could not be handled")
	}
	if body.Generation == nil {
		return api.Missing("generation", "the generation that opening the cursor answered with")
	}
	answer, err := s.ops.Letters.DeadLetter(r.Context(), r.PathValue("name"), *body.Offset, *body.Generation,
		service.Failure{Handler: body.Handler, Text: body.Error, Attempts: body.Attempts, First: body.FirstFailed})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// Bounds of a list of letters.
const (
	defaultLetters = 100
	maxLetterPage  = 10_000
)

// getLetters answers GET /v1/dlq: with a list if any parameter is given, else with a summary.
func (s *Server) getLetters(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	// An empty value, as in cursor=, asks for a list as well.
	listed := p.any("limit", "after", "type", "cursor", "error", "state")
	limit, after := p.uint("limit"), p.uint("after")
	matcher := s.letterParams(p)
	if limit > maxLetterPage {
		p.fail(api.BadValue("limit", p.text("limit"), "a number up to 10000; go on with after"))
	}
	if err := p.done(); err != nil {
		return err
	}
	var answer any
	var err error
	if listed {
		if limit == 0 {
			limit = defaultLetters
		}
		answer, err = s.ops.Letters.List(r.Context(), matcher, after, int(limit))
	} else {
		answer, err = s.ops.Letters.Summary(r.Context())
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// any reports whether one of the parameters is given.
func (p *params) any(names ...string) bool {
	for _, name := range names {
		if len(p.values[name]) > 0 {
			return true
		}
	}
	return false
}

// letterParams reads the parameters that choose letters.
func (s *Server) letterParams(p *params) service.LetterMatcher {
	// An empty name is not the same as none given, which takes the letters of all cursors.
	var cursor *string
	if name := p.text("cursor"); p.any("cursor") {
		cursor = &name
	}
	state := p.text("state")
	if state != "" && state != api.LetterDead && state != api.LetterRedriven {
		p.fail(api.BadValue("state", state, "dead or redriven"))
	}
	m, err := s.ops.Letters.Matcher(p.text("type"), cursor, p.text("error"), state)
	if err != nil {
		p.fail(err)
	}
	return m
}

// getLetter answers GET /v1/dlq/{id} with the letter and its event.
func (s *Server) getLetter(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	id, err := parseOffset("id", r.PathValue("id"))
	if err != nil || id == 0 {
		p.fail(api.BadValue("id", r.PathValue("id"), "a letter's id, from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	l, e, err := s.ops.Letters.Get(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		api.Letter
		Event json.RawMessage `json:"event"`
	}{l, e.AppendJSON(nil)})
}

// getLetterErrors answers GET /v1/dlq/errors: letters grouped by error, the most frequent first.
func (s *Server) getLetterErrors(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	matcher := s.letterParams(p)
	if err := p.done(); err != nil {
		return err
	}
	groups, err := s.ops.Letters.Errors(r.Context(), matcher)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"errors": groups})
}

// postRedrive answers POST /v1/dlq/redrive: it appends letters again, for their own cursors or for the one in to.
func (s *Server) postRedrive(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		api.LetterSelection
		To string `json:"to"`
	}
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	answer, err := s.ops.Letters.Redrive(r.Context(), &body.LetterSelection, body.To)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// postPurge answers POST /v1/dlq/purge: it removes letters.
func (s *Server) postPurge(w http.ResponseWriter, r *http.Request) error {
	var body api.LetterSelection
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	answer, err := s.ops.Letters.Purge(r.Context(), &body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// postLetterImport answers POST /v1/dlq/import: it stores rows of another system as dead letters. A row that
// cannot be an event is reported and left out.
func (s *Server) postLetterImport(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Source string          `json:"source"`
		Rows   []api.LetterRow `json:"rows"`
		DryRun bool            `json:"dry_run"`
	}
	if err := s.readJSONUpTo(r, &body, requiredBody, s.ops.Machine().Settings().Limits.RequestBytes); err != nil {
		return err
	}
	// An empty table has no rows to import; a missing one is a mistake.
	if body.Rows == nil {
		return api.Missing("rows", "the rows of the table dead_letter_queue")
	}
	answer, err := s.ops.Letters.Import(r.Context(), body.Source, body.Rows, body.DryRun)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}
