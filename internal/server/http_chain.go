package server

import (
	"bytes"
	"cmp"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/internal/service"
)

// getChain answers GET /v1/chain/{correlation_id}: how far a run has come on its way
// through the flows.
func (h *reportHandlers) getChain(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	known := h.node.Machine().Catalogue()
	q := service.ChainQuery{
		ID:        r.PathValue("correlation_id"),
		From:      from,
		MinOffset: p.uint("min_offset"),
		Flow:      p.flow(known),
		Deadlines: p.deadlines(known),
	}
	format := p.chainFormat()
	if err := p.done(); err != nil {
		return err
	}
	// The chain is what the log has now; it does not wait for more.
	chain, err := h.reports.Chain(r.Context(), q)
	if err != nil {
		return err
	}
	// The chain is written in full before the answer begins, so that an error can still be answered.
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

// chainFormat returns the parameter format, by default JSON.
func (p *params) chainFormat() stages.Format {
	text := p.text("format")
	f, err := stages.ParseFormat(cmp.Or(text, string(stages.JSON)))
	if err != nil {
		p.fail(api.BadValue("format", text, "json, text or mermaid"))
	}
	return f
}

// flow returns the flow to judge a run by, a name of the catalogue; "" leaves it open.
func (p *params) flow(c *event.Catalogue) string {
	name := p.text("flow")
	if name == "" {
		return ""
	}
	// The error lists the flows there are.
	if _, err := stages.FindFlow(c.Flows(), name); err != nil {
		p.fail(api.Refuse(api.InvalidArgument, "flow", err.Error(), "name one of these, or none"))
	}
	return name
}

// deadlines returns the deadlines of edges that the caller asks for, one for each parameter deadline.
func (p *params) deadlines(c *event.Catalogue) stages.Deadlines {
	// They take the place of those in the settings.
	d, err := stages.ParseDeadlines(c, p.list("deadline"))
	if err != nil {
		p.fail(api.Refuse(api.InvalidArgument, "deadline",
			err.Error(),
			"send FLOW:CAUSE->EFFECT=DURATION, once for each edge"))
	}
	return d
}
