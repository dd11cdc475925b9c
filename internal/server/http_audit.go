package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// Bounds of what an audit counts.
const (
	auditEvents = 1_000_000 // the newest, where the caller says nothing else
	auditPairs  = 4096      // types and sources that are told apart
)

// getAudit answers GET /v1/audit: who emits what and who listens, as it is declared
// and as this node's log and the cursors show.
func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	format, lists, component := p.auditFormat(), p.auditLists(), p.text("coordinator")
	if err := p.done(); err != nil {
		return err
	}
	evidence, err := s.ops.evidence(r.Context(), from)
	if err != nil {
		return err
	}
	report := audit.Run(s.ops.machine().Catalogue(), evidence)
	if component != "" {
		if report, err = report.About(component); err != nil {
			return &api.Error{Code: api.NotFound, Field: "coordinator", Message: err.Error(), Remedy: "list them with only=components"}
		}
	}
	var out bytes.Buffer
	if err := report.Only(lists).Write(&out, format); err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, auditContent(format), out.Bytes())
}

func (p *params) auditFormat() audit.Format {
	text := p.text("format")
	f, err := audit.ParseFormat(cmp.Or(text, string(audit.JSON)))
	if err != nil {
		p.fail(badParam("format", text, "json, text, dot or mermaid"))
	}
	return f
}

func (p *params) auditLists() []string {
	lists, err := audit.ParseLists(p.text("only"))
	if err != nil {
		p.fail(&api.Error{Code: api.InvalidArgument, Field: "only", Message: err.Error(), Remedy: "send some of these, comma separated"})
	}
	return lists
}

func auditContent(f audit.Format) string {
	switch f {
	case audit.JSON:
		return contentJSON
	case audit.DOT:
		return "text/vnd.graphviz; charset=utf-8"
	default:
		return "text/plain; charset=utf-8"
	}
}

// subscribers are all who know somebody that listens.
func (s *service) subscribers(clients *clientSubscribers) []audit.Subscribers {
	return []audit.Subscribers{cursorSubscribers{s.machine()}, clients}
}

// cursorSubscribers are the cursors, each with its filter.
type cursorSubscribers struct{ machine *fsm.Machine }

// Subscriptions implements audit.Subscribers.
func (c cursorSubscribers) Subscriptions() (list []audit.Subscription) {
	for _, cursor := range c.machine.Cursors() {
		list = append(list, audit.Subscription{Name: cursor.Name, Basis: audit.ByCursor, Filter: cursor.Filter})
	}
	return list
}

// evidence gathers what this node shows: who listens, and what is in its log from a
// position on.
func (s *service) evidence(ctx context.Context, from api.Position) (audit.Evidence, error) {
	if from.Kind == api.AtDefault {
		from = api.Position{Kind: api.AtLast, Last: auditEvents}
	}
	t, err := s.openTail(ctx, tailRequest{from: from})
	if err != nil {
		return audit.Evidence{}, err
	}
	first, _ := s.machine().Log().Bounds()
	e := audit.Evidence{}
	if t.next <= t.end {
		e.Scope = audit.Scope{FirstOffset: max(t.next, first), LastOffset: t.end, KeptFrom: first}
	}
	count := emitterCount{pairs: map[emitted]uint64{}}
	if err := count.all(ctx, t); err != nil {
		return e, err
	}
	e.Seen, e.Scope.Events, e.Scope.Uncounted = count.seen(), count.events, count.uncounted
	clients := &clientSubscribers{service: s}
	for _, list := range s.subscribers(clients) {
		e.Subscriptions = append(e.Subscriptions, list.Subscriptions()...)
	}
	e.Scope.Unheard = clients.leftOut
	return e, nil
}

// emitterCount counts events by type and source.
type emitterCount struct {
	pairs     map[emitted]uint64 // at most auditPairs
	events    uint64
	uncounted uint64
}

type emitted struct {
	kind   event.Type
	source string
}

// all counts what a read of the log gives. What is trimmed meanwhile is passed.
func (c *emitterCount) all(ctx context.Context, t *tail) error {
	for {
		found, err := t.read(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range found.events {
			c.add(emitted{found.events[i].Type, found.events[i].Source})
		}
	}
}

func (c *emitterCount) add(pair emitted) {
	if _, known := c.pairs[pair]; !known && len(c.pairs) >= auditPairs {
		c.uncounted++
		return
	}
	c.pairs[pair]++
	c.events++
}

func (c *emitterCount) seen() []audit.Seen {
	list := make([]audit.Seen, 0, len(c.pairs))
	for pair, n := range c.pairs {
		list = append(list, audit.Seen{Type: pair.kind, Source: pair.source, Events: n})
	}
	slices.SortFunc(list, func(a, b audit.Seen) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Source, b.Source))
	})
	return list
}
