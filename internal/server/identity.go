package server

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// identity knows which cluster the node belongs to. It is safe for concurrent use.
type identity struct {
	node Node
	id   atomic.Pointer[string] // nil while the node belongs to no cluster, as far as was asked
}

// clusterID returns the id of the cluster that this node belongs to, "" while it belongs to none. Once there is
// one it never changes, so the state machine is asked only until then.
func (i *identity) clusterID() string {
	if id := i.id.Load(); id != nil {
		return *id
	}
	id := i.node.Machine().ClusterID()
	if id != "" {
		i.id.Store(&id)
	}
	return id
}

// sameCluster refuses a request that names another cluster: what was done for it would be acknowledged by the
// wrong one.
func (i *identity) sameCluster(r *http.Request) error {
	own := i.clusterID()
	switch want := r.Header.Get(api.ClusterHeader); {
	case want == "" || want == own:
		return nil
	// This may pass: the node may be about to join.
	case own == "":
		return fmt.Errorf("%w: this node is in no cluster yet, the request is for %.64q", raftnode.ErrNoLeader, want)
	default:
		return api.Refuse(api.OtherCluster, api.ClusterHeader,
			fmt.Sprintf("this node is of cluster %s, the request is for cluster %.64q", own, want),
			"name endpoints of one cluster; if the new one was restored or recovered in the place of the old one, "+
				"start the client again, or give it the new id")
	}
}
