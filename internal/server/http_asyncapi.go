package server

import (
	"net/http"

	"github.com/ringrift/ringlog/internal/platform/asyncapi"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// asyncAPIHandler answers GET /asyncapi.json.
type asyncAPIHandler struct {
	reports *service.Reports // say who listens
	node    Node             // says which members there are
	version string           // of the program
	token   bool             // callers need the token
}

// getAsyncAPI describes the catalogue, the members, and who listens, as this node knows them. It is the same for all
// callers, whatever their token is good for.
func (h *asyncAPIHandler) getAsyncAPI(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := h.node.Status()
	var members []asyncapi.Member
	// Each member is a server of the document.
	for _, m := range st.Members {
		members = append(members, asyncapi.Member{ID: m.ID, URL: raftnode.URL(m.HTTP)})
	}
	// Only so many listeners are named; the document says how many are not.
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
