package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// pin holds a client to one cluster: that of Config.ClusterID, else that of the first node that
// answers. Each request says which cluster it is meant for, so that a node of another one refuses
// it before anything happens; as the transport of all requests it looks at the answers.
type pin struct {
	next     http.RoundTripper
	cluster  atomic.Pointer[string] // nil until it is known
	learning chan struct{}          // holds one element while a node is asked for its cluster
}

func newPin(next http.RoundTripper, cluster string) *pin {
	if next == nil {
		next = http.DefaultTransport
	}
	p := &pin{next: next, learning: make(chan struct{}, 1)}
	if cluster != "" {
		p.cluster.Store(&cluster)
	}
	return p
}

// RoundTrip implements http.RoundTripper.
func (p *pin) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got := resp.Header.Get(api.ClusterHeader)
	if got == "" || p.cluster.CompareAndSwap(nil, &got) {
		return resp, nil
	}
	// A node refuses what is meant for another cluster, and its refusal says so. Where the request
	// did not say what it is meant for, it may have happened in the other cluster.
	if want := *p.cluster.Load(); got != want && r.Header.Get(api.ClusterHeader) == "" {
		return nil, errors.Join(fmt.Errorf("the answer comes from cluster %s, not from %s", got, want), resp.Body.Close())
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport below.
func (p *pin) CloseIdleConnections() {
	if t, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// namelessFor is how long a node that names no cluster is not asked for it again.
const namelessFor = time.Second

// learn asks e for its cluster where none is known yet. Without that, two first requests at two
// nodes could happen in two clusters. The error is of the way to e.
func (c *Client) learn(ctx context.Context, e *endpoint) error {
	if c.pin.cluster.Load() != nil || time.Now().UnixNano() < e.nameless.Load() {
		return nil
	}
	select {
	case c.pin.learning <- struct{}{}:
		defer func() { <-c.pin.learning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.pin.cluster.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if c.pin.cluster.Load() == nil {
		e.nameless.Store(time.Now().Add(namelessFor).UnixNano())
	}
	return nil
}

// ClusterID returns the id of the cluster that the client is held to, "" before a node of one
// has answered.
func (c *Client) ClusterID() string {
	if id := c.pin.cluster.Load(); id != nil {
		return *id
	}
	return ""
}
