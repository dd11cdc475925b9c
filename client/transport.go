package client

import (
	"context"
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

// newHTTPClient keeps connections of HTTP/1.1 alive: a lane's requests follow each
// other on one connection, which costs less than streams sharing one of HTTP/2.
func newHTTPClient(cfg *Config) *http.Client {
	dialer := &net.Dialer{Timeout: cfg.AttemptTimeout, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   cfg.AttemptTimeout,
		MaxIdleConnsPerHost:   cfg.MaxInFlight + 16,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
	}}
}

func (c *Client) dial(base string) *endpoint {
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return &endpoint{
		url:    base,
		log:    ringlogv1connect.NewLogServiceClient(c.http, base, plain),
		cursor: ringlogv1connect.NewCursorServiceClient(c.http, base, plain),
		group:  ringlogv1connect.NewGroupServiceClient(c.http, base, plain),
	}
}

// request wraps a message with the headers every request has.
func request[T any](c *Client, message *T) *connect.Request[T] {
	r := connect.NewRequest(message)
	c.authorize(r.Header())
	return r
}

func (c *Client) authorize(h http.Header) {
	if id := c.ClusterID(); id != "" {
		h.Set(api.ClusterHeader, id)
	}
	if c.cfg.Token != "" {
		h.Set("Authorization", "Bearer "+c.cfg.Token)
	}
}

// leaderHeader names the leader's HTTP address in answers.
const leaderHeader = "Ringlog-Leader"

// traced returns a context that tells whether a request may have left: without a
// connection nothing has.
func traced(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}), sent
}

// life is what a probe found.
type life int

const (
	dead life = iota
	alive
	ready // serves, knows a leader and is not far behind
)

// probe asks a node whether it is ready.
func (c *Client) probe(ctx context.Context, e *endpoint) life {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/readyz", nil)
	if err != nil {
		return dead
	}
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return dead
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	if resp.StatusCode == http.StatusOK {
		return ready
	}
	return alive
}

// guard ends the returned context when e has been quiet for long and then does not
// show life, or is not ready while another node is: a stopped process keeps its
// connections open. stop ends the watch and waits for it.
func (c *Client) guard(ctx context.Context, e *endpoint, quiet func() time.Duration) (guarded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(c.cfg.AttemptTimeout)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if quiet() >= c.cfg.AttemptTimeout && !c.trusted(ctx, e) {
				cancel(errSilent)
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-done
	}
}

// trusted reports whether a quiet node is worth waiting for.
func (c *Client) trusted(ctx context.Context, e *endpoint) bool {
	switch c.probe(ctx, e) {
	case ready:
		return true
	case dead:
		return false
	}
	for _, other := range c.endpoints.others(e) {
		if c.probe(ctx, other) == ready {
			return false
		}
	}
	return true
}
