package server

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// catalogueHandlers answers what is asked of the catalogue of event types.
type catalogueHandlers struct {
	log    *service.Log
	bodies *bodyReader
}

// catalogueView is the catalogue, or the part that was asked for.
type catalogueView struct {
	Types      []*event.Definition   `json:"types"`
	Aliases    map[string]event.Type `json:"aliases"`
	Categories []string              `json:"categories"`
}

// getCatalogue answers GET /v1/catalogue. The parameters category and status choose types; aliases and categories
// are always complete.
func (h *catalogueHandlers) getCatalogue(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	category, status := p.text("category"), p.text("status")
	if known := event.DefinitionStatuses(); status != "" && !slices.Contains(known, status) {
		p.fail(api.BadValue("status", status, strings.Join(known, " or ")))
	}
	if err := p.done(); err != nil {
		return err
	}
	// The catalogue of this node: the built-in one and what was registered.
	c := h.log.Machine().Catalogue()
	view := catalogueView{Types: []*event.Definition{}, Aliases: c.Aliases(), Categories: c.Categories()}
	// Categories are compared as people write them.
	for _, d := range c.Definitions() {
		if (category == "" || strings.EqualFold(d.Category, category)) && (status == "" || d.Status == status) {
			view.Types = append(view.Types, d)
		}
	}
	return writeJSON(w, http.StatusOK, view)
}

// definition finds the type that the path names, in any of its spellings.
func (h *catalogueHandlers) definition(r *http.Request) (event.Resolved, error) {
	c := h.log.Machine().Catalogue()
	name := r.PathValue("type")
	found, known := c.Resolve(name)
	// Most unknown types are misspelled.
	if !known {
		return found, api.Refuse(api.NotFound, "type",
			fmt.Sprintf("%s is not in the catalogue", found.Type),
			"nearest known types: "+strings.Join(c.Nearest(name, 3), ", "))
	}
	return found, nil
}

// getCatalogueType answers GET /v1/catalogue/{type} with the definition, and how the spelling led to it.
func (h *catalogueHandlers) getCatalogueType(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	found, err := h.definition(r)
	if err != nil {
		return err
	}
	// The definition's own fields, with two more.
	return writeJSON(w, http.StatusOK, struct {
		*event.Definition
		Via     event.Via `json:"via"`
		Renamed bool      `json:"renamed,omitempty"`
	}{found.Definition, found.Via, found.Renamed})
}

// getCatalogueSchema answers GET /v1/catalogue/{type}/schema with a JSON Schema of the payload.
func (h *catalogueHandlers) getCatalogueSchema(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	found, err := h.definition(r)
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, "application/schema+json", append(found.Definition.JSONSchema(), '\n'))
}

// postCatalogue answers POST /v1/catalogue: it registers event types on every node, or with dry_run only checks
// them.
func (h *catalogueHandlers) postCatalogue(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	dryRun := p.bool("dry_run", false)
	if err := p.done(); err != nil {
		return err
	}
	// Definitions are checked by package event, which names the place of what is wrong.
	read, err := h.bodies.readBody(r, contentJSON)
	if err != nil {
		return err
	}
	defer h.bodies.putBuffer(read.buffer)
	if len(bytes.TrimSpace(read.bytes)) == 0 {
		return api.Refuse(api.InvalidJSON, "body",
			"the body is empty",
			`send a definition, {"name": "MY_TYPE", "category": …, "payload": […]}, or an array of them`)
	}
	// All definitions are registered, or none.
	names, err := h.log.Register(r.Context(), read.bytes, dryRun)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"registered": names, "dry_run": dryRun})
}

// postCatalogueValidate answers POST /v1/catalogue/validate with what a publish would answer for each event, and
// appends nothing.
func (h *catalogueHandlers) postCatalogueValidate(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	strict := p.bool("strict", false)
	if err := p.done(); err != nil {
		return err
	}
	// A caller may ask for strict checks where the cluster's setting is lenient, not the other way round.
	policy := h.log.Machine().Policy()
	policy.Strict = policy.Strict || strict
	read, err := h.bodies.readBody(r, contentJSON, contentNDJSON)
	if err != nil {
		return err
	}
	defer h.bodies.putBuffer(read.buffer)
	// The events are decoded as for a publish, so errors of form are the same.
	req, err := decodeEvents(read, policy.Limits)
	if err != nil {
		return err
	}
	// Errors of single events are part of the answer.
	return writeJSON(w, http.StatusOK, service.Validate(&policy, req.Events))
}
