package client

import (
	"context"

	"github.com/ringrift/ringlog/client/internal/sender"
	"github.com/ringrift/ringlog/event"
)

// traced returns events as they are published with ctx: what they inherit is filled in, and where Config.TracePublish
// is set, those without a trace of their own get the one that it returns. ended, which may be nil, is to be called with
// the outcome. Events that it changes are copies.
func (c *Client) traced(ctx context.Context, events []event.Event) (_ []event.Event, ended func([]Result, error)) {
	inherited := event.InheritAll(ctx, events)
	if c.cfg.TracePublish == nil {
		return inherited, nil
	}

	// The hook sees the events with all that they inherit.
	trace, ended := c.cfg.TracePublish(ctx, inherited)
	if !trace.Valid() {
		return inherited, ended
	}
	from, out := event.TraceOf(ctx), make([]event.Event, len(inherited))
	for i, ev := range inherited {
		// The trace of the cause is nobody's own: the span in which the event is published belongs to it.
		if !ev.Trace.Valid() || ev.Trace == from {
			ev.Trace = trace
		}
		out[i] = ev
	}
	return out, ended
}

// tracedOne is traced for one event.
func (c *Client) tracedOne(ctx context.Context, ev event.Event) (event.Event, func([]Result, error)) {
	// Without a hook nothing is allocated.
	if c.cfg.TracePublish == nil {
		return event.Inherit(ctx, ev), nil
	}
	events, ended := c.traced(ctx, []event.Event{ev})
	return events[0], ended
}

// endOf returns what ends the trace of an item of PublishAsync; nil if ended is.
func (c *Client) endOf(ended func([]Result, error)) func(*sender.Item) {
	if ended == nil {
		return nil
	}
	return func(item *sender.Item) {
		if err := item.Err(); err != nil {
			ended(nil, err)
			return
		}
		ended([]Result{c.resultOf(item, 0)}, nil)
	}
}
