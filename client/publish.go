package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Result says where an event stands.
type Result struct {
	Offset     uint64    // its own, or that of the event it repeats
	Duplicate  bool      // the log already had it, nothing was appended
	AppendedAt time.Time // when the log decided, in the cluster's time
	Warnings   []event.Warning

	gate *event.Policy
	sent *event.Event
}

// Hash returns the event's content hash.
func (r Result) Hash() event.Hash {
	if r.sent == nil {
		return event.Hash{}
	}
	e := *r.sent
	hash, _, _ := r.gate.Normalize(&e) // it went through once
	return hash
}

// Publish appends one event. Concurrent calls share requests; each has its own
// answer. A retry after a lost answer appends nothing twice, with dedup off too.
// When ctx ends while the event is under way the error wraps ErrOutcomeUnknown.
func (c *Client) Publish(ctx context.Context, ev event.Event) (Result, error) {
	p, err := c.prepareOne(&ev)
	if err != nil {
		return Result{}, err
	}
	if err := c.shared.add(ctx, p); err != nil {
		return Result{}, fmt.Errorf("client: publish: %w", err)
	}
	if err := c.await(ctx, c.shared, p); err != nil {
		return Result{}, err
	}
	return p.results[0], nil
}

// PublishBatch appends events as one request of their own: all of them or none, the
// new ones with consecutive offsets. The error's field names the event at fault, as
// in events[3].payload. No results come with an error.
func (c *Client) PublishBatch(ctx context.Context, events []event.Event) ([]Result, error) {
	p, err := c.prepareBatch("publish batch", events)
	if err != nil {
		return nil, err
	}
	if err := c.shared.add(ctx, p); err != nil {
		return nil, fmt.Errorf("client: publish batch: %w", err)
	}
	if err := c.await(ctx, c.shared, p); err != nil {
		return nil, err
	}
	return p.results, nil
}

// PublishAsync hands one event over and returns at once, or when there is room for
// it: ctx bounds that wait alone. Events handed over one after the other are
// appended in that order. The payload must not be changed before the answer.
func (c *Client) PublishAsync(ctx context.Context, ev event.Event) *Future {
	p, err := c.prepareOne(&ev)
	if err == nil {
		if err = c.ordered.add(ctx, p); err != nil {
			err = fmt.Errorf("client: publish: %w", err)
		}
	}
	if err != nil {
		p = &pending{err: err, done: make(chan struct{})}
		close(p.done)
	}
	return &Future{p}
}

// Future is an answer to come.
type Future struct{ p *pending }

// Done is closed when the answer is there.
func (f *Future) Done() <-chan struct{} { return f.p.done }

// Wait returns the answer. ctx bounds the wait alone; the event stays under way.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	select {
	case <-f.p.done:
	case <-ctx.Done():
		return Result{}, fmt.Errorf("client: publish: wait: %w", context.Cause(ctx))
	}
	if f.p.err != nil {
		return Result{}, f.p.err
	}
	return f.p.results[0], nil
}

// prepareOne checks what is cheap to check and lays the event out for the wire.
func (c *Client) prepareOne(ev *event.Event) (*pending, error) {
	p := &pending{op: "publish", done: make(chan struct{})}
	p.events, p.results = p.single.events[:], p.single.results[:]
	if _, err := c.admit(c.gate.Check, p, 0, ev); err != nil {
		return nil, invalid(p.op, err)
	}
	return p, nil
}

// prepareBatch does the same for events that share a request with no others.
func (c *Client) prepareBatch(op string, events []event.Event) (*pending, error) {
	n := len(events)
	if n == 0 {
		return nil, fmt.Errorf("client: %s: %w", op, &api.Error{Code: api.InvalidArgument, Field: "events",
			Message: "a request without events", Remedy: "send at least one"})
	}
	p := &pending{op: op, alone: true, done: make(chan struct{}), events: make([]event.Event, n), results: make([]Result, n)}
	if err := c.admitBatch(p, events); err != nil {
		return nil, invalid(op, err)
	}
	return p, nil
}

// admitBatch looks at the payloads of some events, and of all where one of those is not in the form in which it is
// stored. A node checks each of them; what it has to change it had better not be sent, as it then lays the whole batch
// out anew.
func (c *Client) admitBatch(p *pending, events []event.Event) error {
	gate := c.gate.Gate()
	defer gate.Close()
	all := false
	for _, sample := range [...]bool{true, false} {
		for i := range events {
			const first, each = 4, 64
			if sample != (i < first || i%each == 0 || len(events[i].Payload) == 0) {
				continue
			}
			check := gate.CheckEnvelope
			if sample || all {
				check = gate.Check
			}
			changed, err := c.admit(check, p, i, &events[i])
			if err != nil {
				return inRow(err, i)
			}
			all = all || changed
		}
	}
	return nil
}

// admit puts ev into p as its caller made it, but for what check would change: the
// payload is canonical, and what follows from it and from the type is filled in. The
// type stays, so that a node can warn of an alias.
func (c *Client) admit(check func(*event.Event) error, p *pending, i int, ev *event.Event) (changed bool, err error) {
	e := &p.events[i]
	*e = *ev
	if err := check(e); err != nil {
		return false, err
	}
	payload, correlation, value := e.Payload, e.CorrelationID, e.Value
	if e.Type != ev.Type {
		value = ev.Value
	}
	*e = *ev
	e.Payload, e.CorrelationID, e.Value = payload, correlation, value
	p.results[i] = Result{gate: &c.gate, sent: e}
	p.bytes += wireBytes(e)
	return unsafe.SliceData(payload) != unsafe.SliceData(ev.Payload) || correlation != ev.CorrelationID || value != ev.Value, nil
}

// inRow names the event of a batch that an error is about.
func inRow(err error, row int) error {
	var e *event.Error
	if errors.As(err, &e) {
		named := *e
		named.Field = strings.TrimSuffix(fmt.Sprintf("events[%d].%s", row, e.Field), ".")
		return &named
	}
	return err
}

// await waits for the answer to p, which stands in q or is under way.
func (c *Client) await(ctx context.Context, q *queue, p *pending) error {
	timer := takeTimer(c.cfg.Timeout)
	defer giveTimer(timer)
	var why error
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-timer.C:
		why = context.DeadlineExceeded
	}
	switch q.leave(p, why) {
	case wasQueued:
		return &callError{op: p.op, ended: why}
	case leftLast:
		// Nobody else waits for the request: it ends now, and its end tells more.
		<-p.done
		return p.err
	}
	return &callError{op: p.op, unknown: true, ended: why}
}

// timers are stopped ones, for the next call that waits.
var timers sync.Pool

func takeTimer(d time.Duration) *time.Timer {
	if t, ok := timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

func giveTimer(t *time.Timer) {
	t.Stop() // after which nothing is in its channel
	timers.Put(t)
}
