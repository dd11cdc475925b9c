package server

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// getFlows answers GET /v1/flows with the built-in flows and the registered ones.
func (h *catalogueHandlers) getFlows(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.Flows{Flows: h.log.Machine().Catalogue().Flows()})
}

// getFlow answers GET /v1/flows/{name}. Names are compared as they are written.
func (h *catalogueHandlers) getFlow(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	name, flows := r.PathValue("name"), h.log.Machine().Catalogue().Flows()
	at := slices.IndexFunc(flows, func(f event.Flow) bool { return f.Name == name })
	if at < 0 {
		return api.Refuse(api.NotFound, "name", fmt.Sprintf("there is no flow %q", name),
			"list them: GET /v1/flows, or ringlog flow ls")
	}
	return writeJSON(w, http.StatusOK, flows[at])
}

// postFlows answers POST /v1/flows: it registers flows on every node, or with dry_run only checks them. The answer
// names the flows, with warnings about their stages.
func (h *catalogueHandlers) postFlows(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	dryRun := p.bool("dry_run", false)
	if err := p.done(); err != nil {
		return err
	}
	read, err := h.bodies.readBody(r, contentJSON)
	if err != nil {
		return err
	}
	defer h.bodies.putBuffer(read.buffer)
	// An example says more than the error of a parser.
	if len(bytes.TrimSpace(read.bytes)) == 0 {
		return api.Refuse(api.InvalidJSON, "body", "the body is empty",
			`send a flow, {"name": "my_flow", "edges": [["CAUSE", "EFFECT"]]}, or an array of them`)
	}
	done, err := h.log.RegisterFlows(r.Context(), read.bytes, dryRun)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}

// deleteFlow answers DELETE /v1/flows/{name} with the flow as it was.
func (h *catalogueHandlers) deleteFlow(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	f, err := h.log.RemoveFlow(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, f)
}
