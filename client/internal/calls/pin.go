package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// clusterPin holds a client to one cluster: that of Config.ClusterID, else that of the first node
// that answers. Each request says which cluster it is meant for, so a node of another one
// refuses it before anything happens; as the transport of all requests the pin reads the answers.
type clusterPin struct {
	next     http.RoundTripper
	held     atomic.Pointer[hold] // nil until the cluster is known
	learning chan struct{}        // holds one element while a node is asked for its cluster
}

// hold is the cluster to which a client is held, and why.
type hold struct {
	cluster string
	by      string // the address of the node that answered first; "" if the cluster is that of Config.ClusterID
}

// String says which cluster it is, and why, for an error.
func (h *hold) String() string {
	if h == nil {
		return "this client has met no cluster"
	}
	if h.by == "" {
		return fmt.Sprintf("this client is configured for cluster %s", h.cluster)
	}
	return fmt.Sprintf("this client is held to cluster %s, of which %s answered first", h.cluster, h.by)
}

// newClusterPin returns a pin of a cluster, of the first one that answers if none is given.
func newClusterPin(next http.RoundTripper, cluster string) *clusterPin {
	if next == nil {
		next = http.DefaultTransport
	}
	p := &clusterPin{next: next, learning: make(chan struct{}, 1)}
	if cluster != "" {
		p.held.Store(&hold{cluster: cluster})
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
	if got == "" {
		if resp.StatusCode == http.StatusMisdirectedRequest || foreignServer(resp) {
			// It is no node's port for clients. Whoever asked gets the reason, whatever its protocol is.
			return nil, errors.Join(errorAnswer(resp), resp.Body.Close())
		}
		return resp, nil
	}
	if p.held.Load() == nil && p.held.CompareAndSwap(nil, &hold{got, r.URL.Scheme + "://" + r.URL.Host}) {
		return resp, nil
	}
	// A node refuses what is meant for another cluster, and its refusal says so. If the request
	// did not say what it is meant for, it may have happened in the other cluster.
	if held := p.held.Load(); got != held.cluster && r.Header.Get(api.ClusterHeader) == "" {
		err := fmt.Errorf("the answer comes from cluster %s: %s", got, held)
		return nil, errors.Join(err, resp.Body.Close())
	}
	return resp, nil
}

// foreignServer reports whether a web server answered that can do nothing that nodes are asked for. A retry does not
// help.
func foreignServer(resp *http.Response) bool {
	// Nodes answer with a message, whatever is wrong.
	page := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/")
	return page && (resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusMethodNotAllowed)
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
	if c.pin.held.Load() != nil || time.Now().UnixNano() < n.noCluster.Load() {
		return nil
	}

	// One node is asked at a time, and the first answer counts.
	select {
	case c.pin.learning <- struct{}{}:
		defer func() { <-c.pin.learning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.pin.held.Load() != nil {
		// Another call has learned it meanwhile.
		return nil
	}
	// Without the token: the node may be of a foreign cluster.
	if _, err := c.get(ctx, n, "/healthz", false); err != nil {
		return err
	}
	if c.pin.held.Load() == nil {
		// The pin reads every answer, and has found no cluster in this one.
		n.noCluster.Store(time.Now().Add(noClusterFor).UnixNano())
	}
	return nil
}

// ClusterID returns the id of the cluster that the client is held to, "" before a node of one
// has answered.
func (c *Cluster) ClusterID() string {
	if held := c.pin.held.Load(); held != nil {
		return held.cluster
	}
	return ""
}
