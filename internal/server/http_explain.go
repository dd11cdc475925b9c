package server

import (
	"net/http"

	"github.com/ringrift/ringlog/api"
)

// getExplain answers GET /v1/explain: what became of an event for a cursor.
func (s *Server) getExplain(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	name, offset := p.text("cursor"), p.uint("offset")
	if offset == 0 {
		p.fail(api.BadValue("offset", r.URL.Query().Get("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	v, err := s.ops.Cursors.ExplainDelivery(r.Context(), name, offset)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}
