package calls

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// NewHTTPClient returns an HTTP client that keeps that many connections to a node. They are
// of HTTP/1.1: a worker's requests follow each other on one connection, which costs less
// than streams that share one of HTTP/2. secure is for https; nil is Go's default.
func NewHTTPClient(attemptTimeout time.Duration, connections int, secure *tls.Config) *http.Client {
	dialer := &net.Dialer{Timeout: attemptTimeout, KeepAlive: 15 * time.Second}

	// There is no timeout of the client itself: each attempt has its context. Events are
	// compressed already.
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: attemptTimeout,
		// By default two are kept, and each further one is closed after its request.
		MaxIdleConnsPerHost:   connections,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
	}}
}

// dialNode returns a node with its stubs. It does not connect.
func (c *Cluster) dialNode(base string) *Node {
	// gzip is taken out, which the library accepts by default.
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return &Node{
		URL:    base,
		Log:    ringlogv1connect.NewLogServiceClient(c.http, base, plain),
		Cursor: ringlogv1connect.NewCursorServiceClient(c.http, base, plain),
		Group:  ringlogv1connect.NewGroupServiceClient(c.http, base, plain),
	}
}

// NewRequest wraps a message with the headers every request has.
func NewRequest[T any](c *Cluster, message *T) *connect.Request[T] {
	r := connect.NewRequest(message)
	c.authorize(r.Header())
	return r
}

// authorize sets the cluster that is meant, once it is known, and the token.
func (c *Cluster) authorize(h http.Header) {
	if id := c.ClusterID(); id != "" {
		h.Set(api.ClusterHeader, id)
	}
	if token := c.token.current(); token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
}

// leaderHeader names the leader's HTTP address in answers.
const leaderHeader = "Ringlog-Leader"

// traceSent returns a context that reports whether a request may have left: without a
// connection nothing has.
func traceSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// It is called for connections that are used again, too.
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}), sent
}

// health is what a probe found.
type health int

const (
	dead health = iota
	alive
	ready // serves, knows a leader and does not lag far
)

// probe asks a node whether it is ready.
func (c *Cluster) probe(ctx context.Context, n *Node) health {
	resp, err := c.get(ctx, n, "/readyz", true)
	switch {
	case err != nil:
		return dead
	case resp.StatusCode == http.StatusOK:
		return ready
	}
	// It serves requests, and says that it is not ready.
	return alive
}

// get makes a small GET within the time of one attempt. The answer's body is read and dropped.
func (c *Cluster) get(ctx context.Context, n *Node, path string, authorized bool) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if authorized {
		c.authorize(req.Header)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	return resp, nil
}

// guard ends the returned context when n has been quiet for long and then does not
// show life, or is not ready while another node is: a stopped process keeps its
// connections open. stop ends the watch and waits for it.
func (c *Cluster) guard(ctx context.Context, n *Node,
	quiet func() time.Duration) (guarded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A silence is noticed after one to two of these.
		tick := time.NewTicker(c.cfg.AttemptTimeout)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}

			// A probe costs a request, so it is made only after silence.
			if quiet() >= c.cfg.AttemptTimeout && !c.worthWaiting(ctx, n) {
				cancel(errSilent)
				return
			}
		}
	}()
	return ctx, func() {
		// A probe under way ends as well, so the wait is short.
		cancel(context.Canceled)
		<-done
	}
}

// worthWaiting reports whether a quiet node is worth waiting for.
func (c *Cluster) worthWaiting(ctx context.Context, n *Node) bool {
	switch c.probe(ctx, n) {
	case ready:
		return true
	case dead:
		return false
	}

	// It answers but is not ready. Moving on helps only if another node is.
	for _, other := range c.nodes.except(n) {
		if c.probe(ctx, other) == ready {
			return false
		}
	}
	return true
}

// quietTime is how long something has been waited for, since a time in Unix nanoseconds or 0.
func quietTime(since *atomic.Int64) time.Duration {
	at := since.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}
