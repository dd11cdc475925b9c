package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/platform/transfers"
	"github.com/ringrift/ringlog/internal/service"
)

// transferHandlers answers what is asked of transfers and copies.
type transferHandlers struct{ transfers *service.Transfers }

// getTransfers answers GET /v1/transfers with a page of transfers. A page may be short although it has a next one.
func (h *transferHandlers) getTransfers(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	q := transfers.Query{Host: p.text("host"), State: p.text("state"), Overdue: p.bool("overdue", false)}
	// A misspelt state would otherwise be answered with an empty page.
	if states := transfers.States(); q.State != "" && !slices.Contains(states, q.State) {
		p.fail(api.BadValue("state", q.State, strings.Join(states, ", ")))
	}
	q.After, q.Limit = p.page()
	if err := p.done(); err != nil {
		return err
	}
	page, err := h.transfers.List(r.Context(), q, linearizable(r.Context()))
	return answerJSON(w, page, err)
}

// getWhere answers GET /v1/where/{name} with a page of the copies of a dataset or model.
func (h *transferHandlers) getWhere(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	page, err := h.transfers.Where(r.Context(), r.PathValue("name"), after, limit, linearizable(r.Context()))
	return answerJSON(w, page, err)
}

// getHeld answers GET /v1/where with a page of the copies that a host has.
func (h *transferHandlers) getHeld(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	host := p.text("host")
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	if host == "" {
		return api.Refuse(api.InvalidArgument, "host", "there is none", "name a host, or ask GET /v1/where/NAME")
	}
	page, err := h.transfers.Held(r.Context(), host, after, limit, linearizable(r.Context()))
	return answerJSON(w, page, err)
}
