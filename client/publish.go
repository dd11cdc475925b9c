package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/client/internal/sender"
	"github.com/ringrift/ringlog/event"
)

// Result says where an event is in the log.
type Result struct {
	Offset     uint64          // its own, or that of the event it repeats
	Duplicate  bool            // the log already had it, nothing was appended
	AppendedAt time.Time       // when the log decided, in the cluster's time
	Warnings   []event.Warning // shared by results: do not change them

	// what Hash needs; nil in the zero Result
	gate *event.Policy
	sent content
}

// String is the result for people.
func (r Result) String() string {
	s := fmt.Sprintf("offset %d, appended at %s", r.Offset, r.AppendedAt.UTC().Format(time.RFC3339Nano))
	if r.Duplicate {
		s = fmt.Sprintf("offset %d, a duplicate", r.Offset)
	}
	for _, w := range r.Warnings {
		s += fmt.Sprintf(", warning: %s", w.Message)
	}
	return s
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
// When ctx ends while the event is in flight the error wraps ErrOutcomeUnknown. The
// payload must not be changed before it returns, nor before the last Hash.
func (c *Client) Publish(ctx context.Context, ev event.Event) (Result, error) {
	ev, ended := c.tracedOne(ctx, ev)
	item, err := c.sender.Publish(ctx, &ev)
	if c.events != nil {
		c.showPublished(item, []event.Event{ev}, err)
	}
	if err != nil {
		if ended != nil {
			ended(nil, err)
		}
		return Result{}, err
	}

	// The result has all that is needed of the item, which the sender uses again after Release.
	result := c.resultOf(item, 0)
	item.Release()
	if ended != nil {
		ended([]Result{result}, nil)
	}
	return result, nil
}

// PublishBatch appends events as one request of their own: all of them or none, the
// new ones with consecutive offsets. The error's field names the event at fault, as
// in events[3].payload. No results come with an error. Events need not be copied: they
// must not be changed before it returns, nor their payloads before the last Hash.
func (c *Client) PublishBatch(ctx context.Context, events []event.Event) ([]Result, error) {
	events, ended := c.traced(ctx, events)
	results, err := c.publishBatch(ctx, events)
	if ended != nil {
		ended(results, err)
	}
	return results, err
}

// publishBatch is PublishBatch for events that have all that they inherit.
func (c *Client) publishBatch(ctx context.Context, events []event.Event) ([]Result, error) {
	item, err := c.sender.PublishBatch(ctx, events)
	if c.events != nil {
		c.showPublished(item, events, err)
	}
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(item.Outcomes))
	for i := range results {
		results[i] = c.resultOf(item, i)
	}
	return results, nil
}

// PublishAsync hands one event over and returns at once, or when there is room for it: ctx
// bounds that wait alone. Events handed over one after the other are
// appended in that order. The payload must not be changed before the answer, nor before
// the last Hash.
func (c *Client) PublishAsync(ctx context.Context, ev event.Event) *Future {
	ev, ended := c.tracedOne(ctx, ev)
	item := c.sender.PublishOrdered(ctx, &ev, c.endOf(ended))
	if len(item.Events) == 0 { // it was refused at once
		if c.events != nil {
			c.showPublished(nil, []event.Event{ev}, item.Err())
		}
		if ended != nil {
			ended(nil, item.Err())
		}
	}
	return &Future{c, item}
}

// Future is an answer to come.
type Future struct {
	c    *Client
	item *sender.Item
}

// Done is closed when the answer is there.
func (f *Future) Done() <-chan struct{} { return f.item.Done() }

// Wait returns the answer. ctx bounds the wait alone; the event stays in flight.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	select {
	case <-f.item.Done():
	case <-ctx.Done():
		return Result{}, fmt.Errorf("client: publish: wait: %w", context.Cause(ctx))
	}
	if err := f.item.Err(); err != nil {
		return Result{}, err
	}
	return f.c.resultOf(f.item, 0), nil
}

// resultOf is the result of one of an item's events.
func (c *Client) resultOf(item *sender.Item, i int) Result {
	o, ev := &item.Outcomes[i], &item.Events[i]
	return Result{Offset: o.Offset, Duplicate: o.Duplicate, AppendedAt: item.AppendedAt, Warnings: o.Warnings,
		gate: &c.gate, sent: content{ev.Type, ev.Value, ev.Payload}}
}

// showAnswer shows events of PublishAsync.
func (c *Client) showAnswer(item *sender.Item) { c.showPublished(item, item.Events, item.Err()) }

// showPublished shows events that were published, with their offsets, or the error with which they were not.
func (c *Client) showPublished(item *sender.Item, events []event.Event, err error) {
	for i, ev := range events {
		if err != nil {
			c.events.Show("not published", &ev, "error", err)
			continue
		}
		ev.Offset = item.Outcomes[i].Offset
		c.events.Show("published", &ev, "duplicate", item.Outcomes[i].Duplicate)
	}
}

// showReceived shows events that a tail, cursor or group hands out.
func (c *Client) showReceived(from string, ev *event.Event) {
	c.events.Show("received", ev, "from", from)
}
