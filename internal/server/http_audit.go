package server

import (
	"bytes"
	"cmp"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/platform/audit"
	"github.com/ringrift/ringlog/internal/service"
)

// reportHandlers answers with what is computed from the log, audit, chains and history, and from this node's journal
// of outages.
type reportHandlers struct {
	reports   *service.Reports
	bodies    *bodyReader
	node      Node
	streams   *streamPlaces
	heartbeat time.Duration // a quiet stream shows that it is alive this often
	view      *clusterView
}

// getAudit answers GET /v1/audit: who emits what and who listens, as it is declared (but with live=true)
// and as this node's log and the cursors show.
func (h *reportHandlers) getAudit(w http.ResponseWriter, r *http.Request) error {
	return h.audit(w, r, func() (s audit.Sources, err error) { return s, nil })
}

// postAudit answers POST /v1/audit: GET's report, with what source files show.
func (h *reportHandlers) postAudit(w http.ResponseWriter, r *http.Request) error {
	return h.audit(w, r, func() (s audit.Sources, err error) {
		return s, h.bodies.readObject(r, &s, requiredBody)
	})
}

// audit writes the report that the query asks for. sources returns what the body has of source files.
func (h *reportHandlers) audit(w http.ResponseWriter, r *http.Request, sources func() (audit.Sources, error)) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	format, lists, component := p.auditFormat(), p.auditLists(), p.text("coordinator")
	live := p.bool("live", false)
	if err := p.done(); err != nil {
		return err
	}
	// The parameters are right, so the body is worth reading.
	files, err := sources()
	if err != nil {
		return err
	}
	// What the log, the cursors and the files show is set beside what is declared.
	evidence, err := h.reports.Evidence(r.Context(), from)
	if err != nil {
		return err
	}
	evidence.Sources = files
	run := audit.Run
	if live {
		run = audit.Live
	}
	report := run(h.node.Machine().Catalogue(), evidence)
	// The report is about all components; a caller may want one of them.
	if component != "" {
		report, err = report.About(component)
		if err != nil {
			return api.Refuse(api.NotFound, "coordinator", err.Error(), "list them with only=components")
		}
	}
	// The report is complete before the answer begins, so an error can still be answered.
	var out bytes.Buffer
	if err := report.Only(lists).Write(&out, format); err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, auditContent(format), out.Bytes())
}

// getAuditCoordinator answers GET /v1/audit/coordinators/{name}: what is declared of a coordinator against what is
// live.
func (h *reportHandlers) getAuditCoordinator(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	if err := p.done(); err != nil {
		return err
	}
	// An unknown name is refused before the log is read.
	catalogue := h.node.Machine().Catalogue()
	if _, err := audit.FindCoordinator(catalogue, r.PathValue("name")); err != nil {
		return api.Refuse(api.NotFound, "name", err.Error(), "name one of them")
	}
	evidence, err := h.reports.Evidence(r.Context(), from)
	if err != nil {
		return err
	}
	report, err := audit.CompareCoordinator(catalogue, r.PathValue("name"), evidence)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}

// auditFormat returns the parameter format, by default JSON.
func (p *params) auditFormat() audit.Format {
	text := p.text("format")
	// Programs ask without a format, people with one.
	f, err := audit.ParseFormat(cmp.Or(text, string(audit.JSON)))
	if err != nil {
		p.fail(api.BadValue("format", text, "json, text, dot or mermaid"))
	}
	return f
}

// auditLists returns the parameter only: the lists of the report to answer with.
func (p *params) auditLists() []string {
	// Without the parameter all lists are shown.
	lists, err := audit.ParseLists(p.text("only"))
	if err != nil {
		p.fail(api.Refuse(api.InvalidArgument, "only", err.Error(), "send some of these, comma separated"))
	}
	return lists
}

// auditContent returns the Content-Type of a format.
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
