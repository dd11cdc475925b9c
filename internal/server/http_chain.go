package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// chainMost bounds the events of a chain; the newest are shown.
const chainMost = 10_000

// chainQuery says which chain to follow.
type chainQuery struct {
	id        string
	tail      tailRequest
	flow      string
	deadlines stages.Deadlines
}

// getChain answers GET /v1/chain/{correlation_id}: how far a run has come on its way
// through the documented flows.
func (s *Server) getChain(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	q := chainQuery{id: r.PathValue("correlation_id"), flow: p.flow(), deadlines: p.deadlines()}
	q.tail = tailRequest{from: from, filter: event.Filter{CorrelationIDs: []string{q.id}}, minOffset: p.uint("min_offset")}
	format := p.chainFormat()
	if err := p.done(); err != nil {
		return err
	}
	chain, err := s.ops.chain(r.Context(), q)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := chain.Write(&out, format); err != nil {
		return err
	}
	content := "text/plain; charset=utf-8"
	if format == stages.JSON {
		content = contentJSON
	}
	return writeBytes(w, http.StatusOK, content, out.Bytes())
}

func (p *params) chainFormat() stages.Format {
	text := p.text("format")
	f, err := stages.ParseFormat(cmp.Or(text, string(stages.JSON)))
	if err != nil {
		p.fail(badParam("format", text, "json, text or mermaid"))
	}
	return f
}

func (p *params) flow() string {
	name := p.text("flow")
	if name == "" {
		return ""
	}
	if _, err := stages.FindFlow(event.Builtin().Flows(), name); err != nil {
		p.fail(&api.Error{Code: api.InvalidArgument, Field: "flow", Message: err.Error(), Remedy: "name one of these, or none"})
	}
	return name
}

func (p *params) deadlines() stages.Deadlines {
	d, err := stages.ParseDeadlines(event.Builtin(), p.list("deadline"))
	if err != nil {
		p.fail(&api.Error{Code: api.InvalidArgument, Field: "deadline", Message: err.Error(), Remedy: "send FLOW:CAUSE->EFFECT=DURATION, once for each edge"})
	}
	return d
}

// chain gathers what this node's log has of a run and follows it.
func (s *service) chain(ctx context.Context, q chainQuery) (stages.Chain, error) {
	t, err := s.openTail(ctx, q.tail)
	if err != nil {
		return stages.Chain{}, err
	}
	scope := stages.Scope{From: t.next, To: t.end}
	events, err := linksOf(ctx, t, &scope)
	if err != nil {
		return stages.Chain{}, err
	}
	scope.KeptFrom, _ = s.machine().Log().Bounds() // afterwards: what was trimmed meanwhile is gone too
	scope.From = max(scope.From, scope.KeptFrom)
	if len(events) == 0 {
		return stages.Chain{}, noChain(q.id, scope)
	}
	if len(q.deadlines) == 0 {
		q.deadlines = s.deadlines()
	}
	o := stages.Options{Now: time.Now().UTC(), Flow: q.flow, Deadlines: q.deadlines, Scope: scope}
	return stages.Follow(event.Builtin().Flows(), q.id, events, o), nil
}

// linksOf reads the newest events of a chain.
func linksOf(ctx context.Context, t *tail, scope *stages.Scope) ([]stages.Event, error) {
	var events []stages.Event
	for {
		found, err := t.read(ctx)
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range found.events {
			e := &found.events[i]
			events = append(events, stages.Event{Offset: e.Offset, Type: e.Type, At: e.AppendedAt.UTC(), Source: e.Source, Key: e.Key,
				CausationID: e.CausationID, DedupID: e.DedupID, Hash: e.Hash().String()})
		}
		if extra := len(events) - chainMost; extra > 0 {
			scope.LeftOut += uint64(extra)
			events = append([]stages.Event{}, events[extra:]...)
		}
	}
}

func noChain(id string, scope stages.Scope) *api.Error {
	e := &api.Error{Code: api.NotFound, Field: "correlation_id", Message: fmt.Sprintf("no event from offset %d on has the correlation id %q", scope.From, id),
		Remedy: "check the id: ringlog tail --from start --until-end shows those of each event"}
	if scope.KeptFrom > 1 && scope.From == scope.KeptFrom {
		e.Message += "; what was before is trimmed"
	}
	return e
}
