package client

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/client/internal/sender"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/eventlog"
	"github.com/ringrift/ringlog/internal/joint"
)

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	// complete: validate has filled in the defaults
	cfg Config
	// which node to call; shared by all calls and by the sender
	cluster *calls.Cluster
	sender  *sender.Sender
	// brings events into the stored form before they are sent, see clientGate
	gate event.Policy
	// shows events that pass; nil unless the environment asks for it
	events *eventlog.Log

	// how the leases are renewed that this client holds: those that are due within a moment in one request
	roles       *joint.Calls[api.RoleLease]
	allocations *joint.Calls[api.AllocationLease]

	reading context.Context // ends when Close begins
	stop    context.CancelCauseFunc
	readers sync.WaitGroup
	closing sync.Once
}

// New returns a client. It connects to no node before the first call.
func New(cfg Config) (*Client, error) {
	events := eventlog.New(cfg.Logger)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, gate: clientGate(cfg.Catalogue), events: events}

	// The caller's HTTP client is used as it is. An own one keeps as many connections to a node
	// as may be busy at once.
	base := cfg.HTTPClient
	if base == nil {
		base = calls.NewHTTPClient(cfg.AttemptTimeout, cfg.MaxInFlight+otherConnections, cfg.TLS)
	}
	c.cluster = calls.New(calls.Config{Endpoints: cfg.Endpoints, Token: cfg.Token, TokenFile: cfg.TokenFile,
		ClusterID: cfg.ClusterID, HTTP: base, Timeout: cfg.Timeout, AttemptTimeout: cfg.AttemptTimeout,
		Logger: cfg.Logger, OnWarning: cfg.OnWarning, Observe: observer(cfg.Observe)})

	// Readers end with this context. The sender is ended by Close in its own order, after what
	// it accepted is sent.
	c.reading, c.stop = context.WithCancelCause(context.Background())
	c.roles = &joint.Calls[api.RoleLease]{Context: c.reading, Running: &c.readers, Apart: renewalsApart,
		Most: mostRenewals, Call: c.renewRoles}
	c.allocations = &joint.Calls[api.AllocationLease]{Context: c.reading, Running: &c.readers, Apart: renewalsApart,
		Most: mostRenewals, Call: c.renewAllocations}
	sending := sender.Config{Cluster: c.cluster, Policy: &c.gate, MaxBatchEvents: cfg.MaxBatchEvents,
		MaxBatchBytes: cfg.MaxBatchBytes, MaxInFlight: cfg.MaxInFlight, MaxBuffered: cfg.MaxBuffered}
	if events != nil {
		sending.Answered = c.showAnswer
	}
	c.sender = sender.New(sending)
	return c, nil
}

// otherConnections is how many connections to a node are kept beside those that publish.
const otherConnections = 16

// clientGate brings events into the form in which they are stored, and leaves it to the nodes
// to judge them: their settings may allow more than the defaults.
func clientGate(catalogue *event.Catalogue) event.Policy {
	return event.Policy{Catalogue: catalogue, Reserved: event.ReservedForeign, Limits: event.Limits{
		EventBytes: math.MaxInt, NameBytes: math.MaxInt, Depth: 1024,
		RequestEvents: math.MaxInt, RequestBytes: math.MaxInt,
	}}
}

// Close ends all readers, refuses new calls with ErrClosed and waits until the
// events that were accepted have their answers. When ctx is done before, those
// without one are answered with ErrClosed, and Close returns the context's error.
// It may be called again.
func (c *Client) Close(ctx context.Context) error {
	// Readers end at once. What was accepted is still sent.
	c.stop(ErrClosed)
	c.sender.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.sender.Wait()
		c.readers.Wait()
	}()

	// Without more time the requests in flight end with ErrClosed.
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = fmt.Errorf("client: close: %w", context.Cause(ctx))
	}
	c.sender.Abort(ErrClosed)
	<-drained
	c.closing.Do(func() {
		if c.cfg.HTTPClient == nil {
			c.cluster.CloseIdle()
		}
	})
	return err
}

// whileOpen returns a context that ends with ctx and when Close begins.
func (c *Client) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.reading, func() { cancel(ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// Get returns the event at an offset, and finds every event that was acknowledged
// before the call. If there is none the error is an *api.Error with the code past_tail, or
// trimmed.
func (c *Client) Get(ctx context.Context, offset uint64) (event.Event, error) {
	ev, err := c.get(ctx, offset, Local)
	if calls.IsAnswer(err, api.PastTail) {
		// The node may lag: only the cluster can say that there is no such event.
		ev, err = c.get(ctx, offset, Linearizable)
	}
	return ev, err
}

// get asks for one event at a consistency.
func (c *Client) get(ctx context.Context, offset uint64, level Consistency) (event.Event, error) {
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()

	// The answer must be that one event: a node that sends another one, or none, is taken for a
	// failure, and the call is repeated.
	op := calls.Op{Name: "get", Subject: fmt.Sprint(offset)}
	var found event.Event
	err := c.cluster.Call(ctx, op, calls.Reading, func(ctx context.Context, n *calls.Node) (http.Header, error) {
		req := &ringlogv1.GetEventRequest{Offset: offset, Consistency: level.wire()}
		resp, err := n.Log.GetEvent(ctx, calls.NewRequest(c.cluster, req))
		if err != nil {
			return nil, err
		}
		events, err := eventsOf([]*ringlogv1.Run{resp.Msg.GetRun()})
		if err != nil || len(events) != 1 || events[0].Offset != offset {
			return nil, fmt.Errorf("the answer has %d events, not the one asked for", len(events))
		}
		found = events[0]
		return resp.Header(), nil
	})
	return found, err
}

// ClusterID returns the id of the cluster that the client is held to, "" before a node of one
// has answered.
func (c *Client) ClusterID() string { return c.cluster.ClusterID() }
