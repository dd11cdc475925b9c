package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// getDedup answers GET /v1/dedup/{subject} with what deduplication did. The subject is a content hash of 64 hex
// digits, or an offset.
func (s *Server) getDedup(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	subject := r.PathValue("subject")
	var found api.Explanation
	var err error
	// A hash may happen to consist of decimal digits, but no offset is that long.
	if strings.Trim(subject, "0123456789") == "" && len(subject) != 2*len(event.Hash{}) {
		var offset uint64
		if offset, err = parseOffset("offset", subject); err == nil {
			found, err = s.ops.Log.ExplainOffset(r.Context(), offset)
		}
	} else {
		found, err = s.ops.Log.ExplainHash(r.Context(), subject)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, found)
}

func (s *Server) getSettings(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.Setting{"settings": s.ops.Settings.List()})
}

func (s *Server) getSetting(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := s.ops.Settings.Get(r.PathValue("key"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, one)
}

// putSetting answers PUT /v1/settings/{key}; an empty value restores the default.
func (s *Server) putSetting(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Value any `json:"value"`
	}
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	var value string
	// Settings are text; a number or a boolean is taken as JSON writes it.
	switch v := body.Value.(type) {
	case string:
		value = v
	case float64, bool:
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		value = string(text)
	default:
		return api.Missing("value", `the value as a string; "" restores the default`)
	}
	set, err := s.ops.Settings.Set(r.Context(), r.PathValue("key"), value)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, set)
}

// postCompact answers POST /v1/compact; without a body the retention settings apply.
func (s *Server) postCompact(w http.ResponseWriter, r *http.Request) error {
	var body api.Compaction
	if err := s.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	result, err := s.ops.Log.Compact(r.Context(), body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, result)
}

// catalogueView is the catalogue, or the part that was asked for.
type catalogueView struct {
	Types      []*event.Definition   `json:"types"`
	Aliases    map[string]event.Type `json:"aliases"`
	Categories []string              `json:"categories"`
}

// getCatalogue answers GET /v1/catalogue. The parameters category and status choose types; aliases and categories
// are always complete.
func (s *Server) getCatalogue(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	category, status := p.text("category"), p.text("status")
	if err := p.done(); err != nil {
		return err
	}
	c := s.ops.Machine().Catalogue()
	view := catalogueView{Types: []*event.Definition{}, Aliases: c.Aliases(), Categories: c.Categories()}
	for _, d := range c.Definitions() {
		if (category == "" || strings.EqualFold(d.Category, category)) && (status == "" || d.Status == status) {
			view.Types = append(view.Types, d)
		}
	}
	return writeJSON(w, http.StatusOK, view)
}

// definition finds the type that the path names, in any of its spellings.
func (s *Server) definition(r *http.Request) (event.Resolved, error) {
	c := s.ops.Machine().Catalogue()
	name := r.PathValue("type")
	found, known := c.Resolve(name)
	if !known {
		return found, &api.Error{Code: api.NotFound, Field: "type", Message: fmt.Sprintf("%s is not in the catalogue", found.Type),
			Remedy: "nearest known types: " + strings.Join(c.Nearest(name, 3), ", ")}
	}
	return found, nil
}

// getCatalogueType answers GET /v1/catalogue/{type} with the definition, and how the spelling led to it.
func (s *Server) getCatalogueType(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	found, err := s.definition(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		*event.Definition
		Via     event.Via `json:"via"`
		Renamed bool      `json:"renamed,omitempty"`
	}{found.Definition, found.Via, found.Renamed})
}

func (s *Server) getCatalogueSchema(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	found, err := s.definition(r)
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, "application/schema+json", append(found.Definition.JSONSchema(), '\n'))
}

// postCatalogue answers POST /v1/catalogue: it registers event types on every node, or with dry_run only checks
// them.
func (s *Server) postCatalogue(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	dryRun := p.bool("dry_run", false)
	if err := p.done(); err != nil {
		return err
	}
	read, err := s.readBody(r, s.ops.Machine().Settings().Limits.RequestBytes, contentJSON)
	if err != nil {
		return err
	}
	defer s.putBuffer(read.buffer)
	if len(bytes.TrimSpace(read.bytes)) == 0 {
		return &api.Error{Code: api.InvalidJSON, Field: "body", Message: "the body is empty",
			Remedy: `send a definition, {"name": "MY_TYPE", "category": …, "payload": […]}, or an array of them`}
	}
	names, err := s.ops.Log.Register(r.Context(), read.bytes, dryRun)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"registered": names, "dry_run": dryRun})
}

// postCatalogueValidate answers POST /v1/catalogue/validate with what a publish would answer for each event, and
// appends nothing.
func (s *Server) postCatalogueValidate(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	strict := p.bool("strict", false)
	if err := p.done(); err != nil {
		return err
	}
	// A caller may ask for strict checks where the cluster's setting is lenient, not the other way round.
	policy := s.ops.Machine().Policy()
	policy.Strict = policy.Strict || strict
	read, err := s.readBody(r, policy.Limits.RequestBytes, contentJSON, contentNDJSON)
	if err != nil {
		return err
	}
	defer s.putBuffer(read.buffer)
	req, err := decodeEvents(read, policy.Limits)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, service.Validate(&policy, req.Events))
}

// getSnapshot streams a backup of this node's state. Its end carries a checksum: one
// that broke off does not pass ringlog snapshot verify.
func (s *Server) getSnapshot(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="ringlog.snapshot"`)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxTimeout) // it keeps files that the log no longer needs
	defer cancel()
	_, err := s.cfg.Node.Backup(ctx, w)
	return err
}
