package server

import (
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
)

// tokenHandlers answers what is asked of tokens.
type tokenHandlers struct {
	tokens  *service.Tokens
	callers *callers // has the cluster token
	bodies  *bodyReader
}

// getTokens answers GET /v1/tokens with all tokens, by name, without their secrets.
func (h *tokenHandlers) getTokens(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.tokens.List())
}

// putToken answers PUT /v1/tokens/{name}: it makes a token, and shows it this once.
func (h *tokenHandlers) putToken(w http.ResponseWriter, r *http.Request) error {
	var body api.NewToken
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// From the first token on nobody is let in without one. The cluster token is by what the nodes know each other then,
	// and by what an admin comes back in who has lost his own.
	if h.callers.token == "" {
		return api.Refuse(api.Conflict, "name", "this node has no cluster token, which has to be there before any other",
			"start all nodes with --token-file, and make the token again")
	}
	// The answer has the secret.
	w.Header().Set("Cache-Control", "no-store")
	made, err := h.tokens.Create(r.Context(), r.PathValue("name"), body)
	return answerJSON(w, made, err)
}

// postTokenRotate answers POST /v1/tokens/{name}/rotate: the token gets another secret, which is shown this once.
func (h *tokenHandlers) postTokenRotate(w http.ResponseWriter, r *http.Request) error {
	var body api.TokenRotation
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	made, err := h.tokens.Rotate(r.Context(), r.PathValue("name"), body)
	return answerJSON(w, made, err)
}

// deleteToken answers DELETE /v1/tokens/{name} with the token as it was.
func (h *tokenHandlers) deleteToken(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := h.tokens.Revoke(r.Context(), r.PathValue("name"))
	return answerJSON(w, one, err)
}
