package client

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
)

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	cfg       Config
	http      *http.Client
	pin       *pin // its transport
	endpoints *endpoints
	gate      event.Policy
	payloads  payloads

	shared  *queue        // of concurrent calls, any lane takes from it
	ordered *queue        // of PublishAsync, one lane takes from it
	seen    atomic.Uint64 // the newest offset this client was told as appended

	publishing context.Context // ends when a Close has waited long enough
	abort      context.CancelCauseFunc
	reading    context.Context // ends when Close begins
	stop       context.CancelCauseFunc
	lanes      sync.WaitGroup
	readers    sync.WaitGroup
	closing    sync.Once
}

// New returns a client. It connects to no node before the first call.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg}
	base := cfg.HTTPClient
	if base == nil {
		base = newHTTPClient(&cfg)
	}
	held := *base
	c.pin = newPin(base.Transport, cfg.ClusterID)
	held.Transport = c.pin
	c.http = &held
	c.gate = clientGate(cfg.Catalogue)
	c.endpoints = newEndpoints(cfg.Endpoints, c.dial)
	c.publishing, c.abort = context.WithCancelCause(context.Background())
	c.reading, c.stop = context.WithCancelCause(context.Background())
	c.shared, c.ordered = newQueue(&cfg), newQueue(&cfg)
	c.shared.gathers = true
	c.ordered.room = c.shared.room
	for range cfg.MaxInFlight {
		c.startLane(c.shared)
	}
	c.startLane(c.ordered)
	return c, nil
}

// clientGate computes what an event is stored as, and leaves it to the nodes to
// judge it: their settings may allow more than the defaults.
func clientGate(catalogue *event.Catalogue) event.Policy {
	return event.Policy{Catalogue: catalogue, Reserved: event.ReservedForeign, Limits: event.Limits{
		EventBytes: math.MaxInt, NameBytes: math.MaxInt, Depth: 1024, RequestEvents: math.MaxInt, RequestBytes: math.MaxInt}}
}

func (c *Client) startLane(q *queue) {
	c.lanes.Go(func() {
		l := &lane{c: c, q: q}
		for b := q.take(c.publishing, c.cfg.Timeout); b != nil; b = q.take(c.publishing, c.cfg.Timeout) {
			l.deliver(b)
			b.cancel(nil)
		}
		l.hangUp()
	})
}

// Close ends all readers, refuses new calls with ErrClosed and waits until the
// events that were accepted have their answers. When ctx is done before, those
// without one are answered with ErrClosed, and Close returns the context's error.
// It may be called again.
func (c *Client) Close(ctx context.Context) error {
	c.stop(ErrClosed)
	c.shared.close()
	c.ordered.close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.lanes.Wait()
		c.readers.Wait()
	}()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = fmt.Errorf("client: close: %w", context.Cause(ctx))
	}
	c.abort(ErrClosed)
	<-drained
	c.closing.Do(func() {
		if c.cfg.HTTPClient == nil {
			c.http.CloseIdleConnections()
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
// before the call. Where there is none the error is an *api.Error with the code
// past_tail, or trimmed.
func (c *Client) Get(ctx context.Context, offset uint64) (event.Event, error) {
	ev, err := c.get(ctx, offset, Local)
	if isAnswer(err, api.PastTail) {
		// The node may be behind: only the cluster can say that it is not there.
		ev, err = c.get(ctx, offset, Linearizable)
	}
	return ev, err
}

func (c *Client) get(ctx context.Context, offset uint64, level Consistency) (event.Event, error) {
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	op := fmt.Sprintf("get %d", offset)
	var found event.Event
	err := c.call(ctx, op, reading, func(ctx context.Context, e *endpoint) (http.Header, error) {
		resp, err := e.log.GetEvent(ctx, request(c, &ringlogv1.GetEventRequest{Offset: offset, Consistency: level.wire()}))
		if err != nil {
			return nil, err
		}
		events, err := eventsOf([]*ringlogv1.Run{resp.Msg.GetRun()})
		if err != nil || len(events) != 1 || events[0].Offset != offset {
			return nil, fmt.Errorf("%d events came back, not the one asked for", len(events))
		}
		found = events[0]
		return resp.Header(), nil
	})
	return found, err
}

func (c *Client) sawOffset(offset uint64) {
	for {
		old := c.seen.Load()
		if offset <= old || c.seen.CompareAndSwap(old, offset) {
			return
		}
	}
}
