package server

import (
	"fmt"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// clusterID returns the id of the cluster that this node is in, "" while it is in none. Once
// there is one it never changes, so it is asked of the state machine only until then.
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

// sameCluster refuses a request that is meant for another cluster. Nothing may be done for it:
// it would be acknowledged in the wrong one.
func (s *Server) sameCluster(r *http.Request) error {
	own := s.clusterID()
	switch want := r.Header.Get(api.ClusterHeader); {
	case want == "" || want == own:
		return nil
	case own == "":
		return fmt.Errorf("%w: this node is in no cluster yet, the request is for %.64q", raftnode.ErrNoLeader, want)
	default:
		return &api.Error{Code: api.OtherCluster, Field: api.ClusterHeader,
			Message: fmt.Sprintf("this node is of cluster %s, the request is for cluster %.64q", own, want),
			Remedy: "name endpoints of one cluster; if the new one was restored or recovered in the place of the old one, " +
				"start the client again, or give it the new id"}
	}
}
