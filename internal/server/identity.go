package server

import (
	"fmt"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// clusterID returns the id of the cluster that this node belongs to, "" while it belongs to none. Once there is
// one it never changes, so the state machine is asked only until then.
func (s *Server) clusterID() string {
	if id := s.idOfCluster.Load(); id != nil {
		return *id
	}
	id := s.cfg.Node.Machine().ClusterID()
	if id != "" {
		s.idOfCluster.Store(&id)
	}
	return id
}

// sameCluster refuses a request that names another cluster: what was done for it would be acknowledged by the
// wrong one.
func (s *Server) sameCluster(r *http.Request) error {
	own := s.clusterID()
	switch want := r.Header.Get(api.ClusterHeader); {
	case want == "" || want == own:
		return nil
	// This may pass: the node may be about to join.
	case own == "":
		return fmt.Errorf("%w: this node is in no cluster yet, the request is for %.64q", raftnode.ErrNoLeader, want)
	default:
		return &api.Error{Code: api.OtherCluster, Field: api.ClusterHeader,
			Message: fmt.Sprintf("this node is of cluster %s, the request is for cluster %.64q", own, want),
			Remedy: "name endpoints of one cluster; if the new one was restored or recovered in the place of the old one, " +
				"start the client again, or give it the new id"}
	}
}
