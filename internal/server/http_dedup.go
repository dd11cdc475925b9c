package server

import (
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
)

// dedupHandlers answers what is asked of the dedup policies of types.
type dedupHandlers struct {
	log    *service.Log
	bodies *bodyReader
}

// getPolicies answers GET /v1/dedup/policies with the policies in force, by type.
func (h *dedupHandlers) getPolicies(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]api.DedupPolicy{"policies": h.log.DedupPolicies()})
}

// getPolicy answers GET /v1/dedup/policies/{type} with the policy in force, which may be the default.
func (h *dedupHandlers) getPolicy(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	p, err := h.log.DedupPolicy(r.PathValue("type"))
	return answerJSON(w, p, err)
}

// putPolicy answers PUT /v1/dedup/policies/{type}. The answer is the policy as it is in force, with warnings about its
// fields.
func (h *dedupHandlers) putPolicy(w http.ResponseWriter, r *http.Request) error {
	var body api.NewDedupPolicy
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	p, err := h.log.SetDedupPolicy(r.Context(), r.PathValue("type"), body)
	return answerJSON(w, p, err)
}

// deletePolicy answers DELETE /v1/dedup/policies/{type} with the policy that is in force without the one removed.
func (h *dedupHandlers) deletePolicy(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	p, err := h.log.RemoveDedupPolicy(r.Context(), r.PathValue("type"))
	return answerJSON(w, p, err)
}
