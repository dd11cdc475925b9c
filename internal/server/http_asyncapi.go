package server

import (
	"net/http"

	"github.com/ringrift/ringlog/internal/platform/asyncapi"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// asyncAPIHandler answers GET /asyncapi.json.
type asyncAPIHandler struct {
	reports *service.Reports
	node    Node
	version string // of the program
	token   bool   // callers need the token
}

// getAsyncAPI describes the catalogue, the members, and who listens, as this node knows them.
func (h *asyncAPIHandler) getAsyncAPI(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := h.node.Status()
	var members []asyncapi.Member
	for _, m := range st.Members {
		members = append(members, asyncapi.Member{ID: m.ID, URL: raftnode.URL(m.HTTP)})
	}
	listeners, leftOut := h.reports.Listeners()
	document, err := asyncapi.Document(asyncapi.Log{
		Catalogue: h.reports.Machine().Catalogue(),
		Version:   h.version,
		ClusterID: st.ClusterID,
		Members:   members,
		Token:     h.token,
		Listeners: listeners,
		Unlisted:  leftOut,
	})
	if err != nil {
		return err
	}
	return writeBytes(w, http.StatusOK, contentJSON, append(document, '\n'))
}
