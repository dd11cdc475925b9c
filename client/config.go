package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// Config says which cluster a client talks to and how. Endpoints is required; any
// other zero field takes its default.
type Config struct {
	// Endpoints are base URLs of nodes, such as http://10.0.0.1:8770; host:port means
	// http. One suffices, as the client learns the leader's, but with all of them it also
	// works while that one is down.
	Endpoints []string
	Token     string // the cluster token, "" is none
	// TokenFile holds the cluster token, in place of Token. It is read by New, and again when a node refuses the token:
	// a client outlives a change of the token if its file is replaced before the nodes start with the new one.
	TokenFile string

	// ClusterID is the cluster that the endpoints must be of; "" is that of the first node that
	// answers. A node of another cluster is not asked again, and if there are only such nodes
	// calls fail with the code other_cluster. A client does not follow a cluster that is restored
	// or recovered under the same addresses: that has a new id, and not all the events.
	ClusterID string

	HTTPClient *http.Client // nil: the client makes its own and closes it
	// TLS is for endpoints with https: which CA is trusted, and the certificate that the client shows. nil trusts the
	// system's CAs. It is for the client's own HTTPClient alone.
	TLS *tls.Config

	Timeout        time.Duration // how long a call is repeated; 30 s, at most 5 min
	AttemptTimeout time.Duration // how long one node may take to answer, or a silent one to show life; 3 s

	MaxBatchEvents int // events of one shared request; 1024
	MaxBatchBytes  int // bytes of one shared request; 1 MiB
	MaxInFlight    int // shared requests in flight at once; 4
	MaxBuffered    int // bytes of events waiting or in flight, past which publishing blocks; 64 MiB

	// Catalogue resolves types for Result.Hash; nil is event.Builtin(). Only types
	// added at run time, with a value that is not their name in lower case, need it.
	Catalogue *event.Catalogue
	// Logger is nil to disable logging. With RINGRIFT_DEBUG=true in the environment each event that is published or
	// received is a line of the level debug, on the standard error without a Logger.
	Logger *slog.Logger

	// OnWarning is called for what a node warns about in a filter that a call gives it, such as a misspelt type, and for
	// an endpoint of another cluster, which is passed over: each warning once, perhaps from several goroutines. nil
	// logs it.
	OnWarning func(event.Warning)

	// Observe, for metrics and traces, is called before each request to a node. The request has the context that it
	// returns, and end is called with the request's error, nil for success: an *api.Error is what a node answered, and a
	// reader that is closed ends its request with context.Canceled. It is called by many goroutines at once
	// and must return soon; nil sees nothing.
	Observe func(ctx context.Context, r Request) (_ context.Context, end func(error))

	// TracePublish, for traces, is called before each call that publishes, with its events. Those without a trace of
	// their own are published in the one that it returns, unless that is zero; otherwise a handler's events are of the
	// trace of its event. end, unless nil, is called with the outcome: the results, or why there are none. Package
	// client/otelringlog has one for OpenTelemetry. It is called by many goroutines at once and must return soon.
	TracePublish func(ctx context.Context, events []event.Event) (_ event.Trace, end func([]Result, error))
}

// maxTimeout stays far below the time for which nodes keep the results of
// producers, by default 15 min: a retry after that could be appended twice.
const maxTimeout = 5 * time.Minute

// validate sets the defaults and checks the configuration.
func (c *Config) validate() error {
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 3*time.Second)
	c.MaxBatchEvents = cmp.Or(c.MaxBatchEvents, 1024)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, 1<<20)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 4)
	c.MaxBuffered = cmp.Or(c.MaxBuffered, 64<<20)
	if c.Catalogue == nil {
		c.Catalogue = event.Builtin()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnWarning == nil {
		logger := c.Logger
		c.OnWarning = func(w event.Warning) {
			logger.Warn("warning of a call", "field", w.Field, "warning", w.Message)
		}
	}

	// Check what the defaults cannot have set right.
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("client: config: Endpoints is empty")
	case c.Timeout < 0 || c.Timeout > maxTimeout:
		return fmt.Errorf("client: config: Timeout is %s, not between 0 and %s", c.Timeout, maxTimeout)
	case c.TLS != nil && c.HTTPClient != nil:
		return errors.New("client: config: TLS is set beside HTTPClient: set it in the transport of that one")
	case c.AttemptTimeout < 0:
		return fmt.Errorf("client: config: AttemptTimeout is %s", c.AttemptTimeout)
	case min(c.MaxBatchEvents, c.MaxBatchBytes, c.MaxInFlight, c.MaxBuffered) < 0:
		return errors.New("client: config: a limit is negative")
	}
	if c.TokenFile != "" {
		var err error
		c.Token, err = calls.ReadToken(c.TokenFile)
		if err != nil {
			return fmt.Errorf("client: config: TokenFile: %w", err)
		}
	}
	if err := api.CheckToken(c.Token); err != nil {
		return fmt.Errorf("client: config: Token: %w", err)
	}
	for _, e := range c.Endpoints {
		if _, err := calls.BaseURL(e, "http"); err != nil {
			return fmt.Errorf("client: config: %w", err)
		}
	}
	return nil
}
