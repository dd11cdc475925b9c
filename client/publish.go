package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Result says where an event stands.
type Result struct {
	Offset     uint64          // its own, or that of the event it repeats
	Duplicate  bool            // the log already had it, nothing was appended
	AppendedAt time.Time       // when the log decided, in the cluster's time
	Warnings   []event.Warning // shared by results, not to be changed

	gate *event.Policy
	sent content
}

// content is what a hash is of.
type content struct {
	kind    event.Type
	value   string
	payload json.RawMessage
}

// Hash returns the event's content hash.
func (r Result) Hash() event.Hash {
	if r.gate == nil {
		return event.Hash{}
	}
	e := event.Event{Type: r.sent.kind, Value: r.sent.value, Payload: r.sent.payload}
	hash, _, _ := r.gate.Normalize(&e) // a node let it through
	return hash
}

// Publish appends one event. Concurrent calls share requests; each has its own
// answer. A retry after a lost answer appends nothing twice, with dedup off too.
// When ctx ends while the event is under way the error wraps ErrOutcomeUnknown. The
// payload must not be changed before it returns, nor before the last Hash.
func (c *Client) Publish(ctx context.Context, ev event.Event) (Result, error) {
	p := takePending()
	if err := c.prepareOne(p, &ev); err != nil {
		return Result{}, err
	}
	if err := c.shared.add(ctx, p); err != nil {
		return Result{}, fmt.Errorf("client: publish: %w", err)
	}
	if err := c.await(ctx, c.shared, p); err != nil {
		return Result{}, err
	}
	result := p.results[0]
	p.giveBack()
	return result, nil
}

// PublishBatch appends events as one request of their own: all of them or none, the
// new ones with consecutive offsets. The error's field names the event at fault, as
// in events[3].payload. No results come with an error. Events need not be copied: they
// must not be changed before it returns, nor their payloads before the last Hash.
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
// appended in that order. The payload must not be changed before the answer, nor before
// the last Hash.
func (c *Client) PublishAsync(ctx context.Context, ev event.Event) *Future {
	p := &pending{done: make(chan struct{})}
	err := c.prepareOne(p, &ev)
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

// prepareOne checks what is cheap to check and makes ev p's event.
func (c *Client) prepareOne(p *pending, ev *event.Event) error {
	p.op, p.events, p.results = "publish", p.single.events[:], p.single.results[:]
	gate := c.gate.Gate()
	defer gate.Close()
	check := gate.CheckEnvelope
	if c.payloads.look(ev.Payload) {
		check = gate.Check
	}
	err := c.admit(check, p, 0, ev)
	if err != nil {
		err = invalid(p.op, err)
	}
	changed := p.events[0].CorrelationID != ev.CorrelationID || unsafe.SliceData(p.events[0].Payload) != unsafe.SliceData(ev.Payload)
	if err != nil || changed && len(ev.Payload) > 0 {
		c.payloads.suspect()
	}
	return err
}

// payloads decides which ones of single events are looked at before they are sent. A node looks at each; but one that
// it refuses, or has to change, costs others that are in the same request, so where there was one more are looked at.
type payloads struct {
	seen  atomic.Uint64
	until atomic.Uint64 // all are looked at
}

const (
	largePayload = 16 << 10 // is looked at, whatever those before were like
	suspectFor   = 1024     // payloads after one that was not as it is stored
)

func (p *payloads) look(payload json.RawMessage) bool {
	const each = 61 // few callers repeat themselves every 61 events
	seen := p.seen.Add(1)
	return seen%each == 1 || seen <= p.until.Load() || len(payload) == 0 || len(payload) > largePayload
}

func (p *payloads) suspect() { p.until.Store(p.seen.Load() + suspectFor) }

// prepareBatch does the same for events that share a request with no others.
func (c *Client) prepareBatch(op string, events []event.Event) (*pending, error) {
	n := len(events)
	if n == 0 {
		return nil, fmt.Errorf("client: %s: %w", op, &api.Error{Code: api.InvalidArgument, Field: "events",
			Message: "a request without events", Remedy: "send at least one"})
	}
	p := &pending{op: op, alone: true, done: make(chan struct{}), results: make([]Result, n)}
	if err := c.admitBatch(p, events); err != nil {
		return nil, invalid(op, err)
	}
	return p, nil
}

// admitBatch takes events into p as they are, where no payload of those it looks at has to be changed to be in the form
// in which it is stored. Else it looks at all and changes copies. A node checks each payload; what it has to change it
// had better not be sent, as it then lays the whole batch out anew.
func (c *Client) admitBatch(p *pending, events []event.Event) error {
	gate := c.gate.Gate()
	defer gate.Close()
	var checked event.Event
	for i := range events {
		const first, each = 4, 61 // few lists repeat themselves every 61 events
		ev, check := &events[i], gate.CheckEnvelope
		if i < first || i%each == 0 || len(ev.Payload) == 0 || len(ev.Payload) > largePayload {
			check = gate.Check
		}
		checked = *ev
		if err := check(&checked); err != nil {
			return inRow(err, i)
		}
		if unsafe.SliceData(checked.Payload) != unsafe.SliceData(ev.Payload) || checked.CorrelationID != ev.CorrelationID ||
			checked.Type == ev.Type && checked.Value != ev.Value {
			return c.admitCopies(gate, p, events)
		}
		c.put(p, i, ev)
	}
	p.events = events
	return nil
}

func (c *Client) admitCopies(gate *event.Gate, p *pending, events []event.Event) error {
	p.events, p.bytes = make([]event.Event, len(events)), 0
	for i := range events {
		if err := c.admit(gate.Check, p, i, &events[i]); err != nil {
			return inRow(err, i)
		}
	}
	return nil
}

// admit puts ev into p as its caller made it, but for what a node would change: the
// payload is canonical, and what follows from it and from the type is filled in. The
// type stays, so that a node can warn of an alias.
func (c *Client) admit(check func(*event.Event) error, p *pending, i int, ev *event.Event) error {
	e := &p.events[i]
	*e = *ev
	if err := check(e); err != nil {
		return err
	}
	payload, correlation, value := e.Payload, e.CorrelationID, e.Value
	if e.Type != ev.Type {
		value = ev.Value
	}
	*e = *ev
	e.Payload, e.CorrelationID, e.Value = payload, correlation, value
	c.put(p, i, e)
	return nil
}

// refuses reports whether no node can have taken these events, nor ever will.
func (c *Client) refuses(group []*pending) bool {
	for _, p := range group {
		for _, ev := range p.events {
			if c.gate.Check(&ev) != nil {
				return true
			}
		}
	}
	return false
}

// put takes account of p's i-th event.
func (c *Client) put(p *pending, i int, ev *event.Event) {
	p.results[i] = Result{gate: &c.gate, sent: content{ev.Type, ev.Value, ev.Payload}}
	p.bytes += wireBytes(ev)
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
