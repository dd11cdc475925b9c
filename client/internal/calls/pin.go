package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// clusterPin holds a client to one cluster: that of Config.ClusterID, else that of the first node
// that answers. Each request says which cluster it is meant for, so a node of another one
// refuses it before anything happens; as the transport of all requests the pin reads the answers.
type clusterPin struct {
	next     http.RoundTripper
	cluster  atomic.Pointer[string] // nil until it is known
	learning chan struct{}          // holds one element while a node is asked for its cluster
}

// newClusterPin returns a pin of a cluster, of the first one that answers if none is given.
func newClusterPin(next http.RoundTripper, cluster string) *clusterPin {
	if next == nil {
		next = http.DefaultTransport
	}
	p := &clusterPin{next: next, learning: make(chan struct{}, 1)}
	if cluster != "" {
		p.cluster.Store(&cluster)
	}
	return p
}

// RoundTrip implements http.RoundTripper.
func (p *clusterPin) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got := resp.Header.Get(api.ClusterHeader)
	// The first answer that names a cluster decides.
	if got == "" || p.cluster.CompareAndSwap(nil, &got) {
		return resp, nil
	}
	// A node refuses what is meant for another cluster, and its refusal says so. If the request
	// did not say what it is meant for, it may have happened in the other cluster.
	if want := *p.cluster.Load(); got != want && r.Header.Get(api.ClusterHeader) == "" {
		err := fmt.Errorf("the answer comes from cluster %s, not from %s", got, want)
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport below.
func (p *clusterPin) CloseIdleConnections() {
	if t, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// noClusterFor is how long a node that names no cluster is not asked for it again.
const noClusterFor = time.Second

// learnCluster asks n for its cluster if none is known yet. Without that, two first requests
// at two nodes could happen in two clusters. The error is of the way to n.
func (c *Cluster) learnCluster(ctx context.Context, n *Node) error {
	if c.pin.cluster.Load() != nil || time.Now().UnixNano() < n.noCluster.Load() {
		return nil
	}

	// One node is asked at a time, and the first answer counts.
	select {
	case c.pin.learning <- struct{}{}:
		defer func() { <-c.pin.learning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.pin.cluster.Load() != nil {
		// Another call has learned it meanwhile.
		return nil
	}
	// Without the token: the node may be of a foreign cluster.
	if _, err := c.get(ctx, n, "/healthz", false); err != nil {
		return err
	}
	if c.pin.cluster.Load() == nil {
		// The pin reads every answer, and has found no cluster in this one.
		n.noCluster.Store(time.Now().Add(noClusterFor).UnixNano())
	}
	return nil
}

// ClusterID returns the id of the cluster that the client is held to, "" before a node of one
// has answered.
func (c *Cluster) ClusterID() string {
	if id := c.pin.cluster.Load(); id != nil {
		return *id
	}
	return ""
}
