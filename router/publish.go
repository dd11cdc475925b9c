package router

import (
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Result says where an event is in the log, and which of the subscriptions that Publish waited
// for have not handled it.
type Result struct {
	client.Result      // zero for a local event
	Local         bool // it did not go to the log
	Failed        []HandlerError
}

// String is the result for people.
func (r Result) String() string {
	s := r.Result.String()
	if r.Local {
		s = "local"
	}
	for _, f := range r.Failed {
		s += fmt.Sprintf(", %v", f)
	}
	return s
}

// HandlerError says that a subscription did not handle an event: its handler has failed for
// good, or it could not take the event.
type HandlerError struct {
	Subscription string
	Err          error
}

// Error implements error.
func (e HandlerError) Error() string {
	return fmt.Sprintf("subscription %s: %v", e.Subscription, e.Err)
}

// Unwrap implements errors.Unwrap.
func (e HandlerError) Unwrap() error { return e.Err }

// PublishOption changes how an event is published.
type PublishOption func(*publishing)

// publishing is what the options of one call say.
type publishing struct{ local bool }

// Local keeps an event in this process: it does not reach the log.
func Local() PublishOption { return func(p *publishing) { p.local = true } }

// insideKey marks the context of a handler with its subscriber, and that of the router's
// own events with none.
type insideKey struct{}

// inside returns the subscriber whose handler has ctx, nil for the router's own events, and whether ctx is of one
// of the two at all. The handler may be of another router in this process.
func inside(ctx context.Context) (*subscriber, bool) {
	s, ok := ctx.Value(insideKey{}).(*subscriber)
	return s, ok
}

// Publish gives one event to the log, unless it is local, and to those that listen. The
// error is about the event: with one, nothing was delivered here (and, unless it wraps
// client.ErrOutcomeUnknown, nothing appended). Without, the log has it, and Result.Failed
// names the subscriptions marked Sync that could not handle it and the direct ones that
// had no room for it.
//
// Publish waits for handlers marked Sync, for as long as ctx allows, but never when it is
// called with a handler's context: they may be waiting for that one.
func (r *Router) Publish(ctx context.Context, ev event.Event, opts ...PublishOption) (Result, error) {
	results, err := r.publish(ctx, []event.Event{ev}, opts)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// PublishBatch gives events to the log as one request, all of them or none, and then each
// to those that listen.
func (r *Router) PublishBatch(ctx context.Context, events []event.Event, opts ...PublishOption) ([]Result, error) {
	return r.publish(ctx, events, opts)
}

// item is an event on its way out.
type item struct {
	sent   event.Event // as its producer made it, for the log
	event  event.Event // canonical, for those that listen
	result Result
	waits  []wait // for the handlers marked Sync; empty if a handler publishes
}

// wait is for a handler to be through with an event.
type wait struct {
	s      *subscriber
	result chan error // has room for one
}

// publish checks the events, appends those that are not local, delivers all, and waits for
// handlers marked Sync.
func (r *Router) publish(ctx context.Context, events []event.Event, opts []PublishOption) ([]Result, error) {
	if !r.enter(ctx) {
		return nil, fmt.Errorf("router: publish: %w", ErrClosed)
	}
	defer r.busy.end()
	items, err := r.prepare(ctx, events, opts)
	if err != nil {
		return nil, err
	}
	if err := r.toLog(ctx, items); err != nil {
		return nil, err
	}

	// Only after the log has all of them are they delivered, and only then waited for.
	for i := range items {
		r.deliver(ctx, &items[i])
	}
	results := make([]Result, len(items))
	for i := range items {
		for _, w := range items[i].waits {
			if err := w.outcome(ctx, items[i].event.Offset); err != nil {
				items[i].notHandled(w.s, err)
			}
		}
		results[i] = items[i].result
	}
	return results, nil
}

// notHandled adds a subscription to the failed ones of the result.
func (it *item) notHandled(s *subscriber, err error) {
	it.result.Failed = append(it.result.Failed, HandlerError{s.spec.Name, err})
}

// prepare makes events canonical and sorts out which are local.
func (r *Router) prepare(ctx context.Context, events []event.Event, opts []PublishOption) ([]item, error) {
	var how publishing
	for _, o := range opts {
		o(&how)
	}
	items := make([]item, len(events))
	for i := range events {
		it := &items[i]

		// The log gets the event as its producer made it, subscriptions get the canonical form.
		it.sent = event.Inherit(ctx, events[i])
		it.event = it.sent
		if err := r.gate.Check(&it.event); err != nil {
			return nil, fmt.Errorf("router: publish: event %d of %d: %w", i+1, len(events), err)
		}
		it.result.Local = how.local || r.isLocal(it.event.Type)
		// The log judges who may publish reserved types, and a local event does not reach it.
		if it.result.Local && event.IsReserved(it.event.Type) {
			return nil, fmt.Errorf("router: publish: event %d of %d: %s is emitted by the cluster alone",
				i+1, len(events), it.event.Type)
		}
	}
	return items, nil
}

// isLocal reports whether events of a type never go to the log.
func (r *Router) isLocal(t event.Type) bool {
	return len(r.options.LocalTypes) > 0 && r.localTypes.MatchType(string(t))
}

// toLog appends those that are not local.
func (r *Router) toLog(ctx context.Context, items []item) error {
	var events []event.Event

	// Local events are left out of the request.
	for i := range items {
		if !items[i].result.Local {
			events = append(events, items[i].sent)
		}
	}

	// An empty batch goes to the log, which refuses it.
	if len(events) == 0 && len(items) > 0 {
		return nil
	}
	results, err := r.log.Publish(ctx, events)
	if err != nil {
		return err
	}

	// The results are those of the request, in its order, which lacks the local events.
	for i := range items {
		if it := &items[i]; !it.result.Local {
			it.result.Result, results = results[0], results[1:]
			it.event.Offset, it.event.AppendedAt = it.result.Offset, it.result.AppendedAt
		}
	}
	return nil
}

// deliver gives an event to the subscriptions that do not get it from the log, and notes which
// ones to wait for.
func (r *Router) deliver(ctx context.Context, it *item) {
	if !it.result.Duplicate {
		r.recent.note(&it.event)
	}

	// Events of the log come to subscriptions by their own reading; only direct ones get them
	// here.
	publisher, within := inside(ctx)
	for _, s := range r.subscribers() {
		waits := s.spec.Sync && !within
		switch {
		case !it.result.Local && !s.spec.Direct:
			if waits && s.matcher.Match(&it.event) {
				it.awaitLog(s)
			}
		case it.result.Duplicate || !s.matches(&it.event):
		default:
			it.handDirectly(ctx, s, waits, maxRoomWait(s, publisher, within))
		}
	}
}

// maxRoomWait is how long to wait for room: not at all for a handler that would wait for
// itself, and for the router's own events.
func maxRoomWait(s, publisher *subscriber, within bool) time.Duration {
	if within && (publisher == nil || publisher == s) {
		return -1
	}
	return s.spec.Timeout
}

// handDirectly gives an event to a subscription without the log.
func (it *item) handDirectly(ctx context.Context, s *subscriber, waits bool, maxWait time.Duration) {
	from := direct
	if it.result.Local {
		from = local
	}
	var result chan error
	if waits {
		result = make(chan error, 1)
	}

	// The result is waited for later, after all subscriptions have the event.
	switch err := s.handOver(ctx, it.event, from, result, maxWait); {
	case err != nil:
		it.notHandled(s, err)
	case waits:
		it.waits = append(it.waits, wait{s, result})
	}
}

// awaitLog waits for a subscription to get the event from the log and be through with it.
func (it *item) awaitLog(s *subscriber) {
	// A subscription that does not read now may get the event long after ctx, or never.
	if state, _ := s.stateNow(); state != Attached {
		it.notHandled(s, fmt.Errorf("%w: %s", ErrNotAttached, state))
		return
	}
	// The event may be settled before it is waited for: await then answers at once.
	w := wait{s, make(chan error, 1)}
	s.tracker.await(it.event.Offset, w.result)
	it.waits = append(it.waits, w)
}

// outcome waits for the result.
func (w wait) outcome(ctx context.Context, offset uint64) error {
	var fed <-chan struct{}
	if w.s.tracker != nil && offset > 0 {
		fed = w.s.fed
		defer w.s.tracker.cancelAwait(offset, w.result)
	}

	// A subscription that stops reading before the offset never gets the event.
	for {
		select {
		case err := <-w.result:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-fed:
			if w.s.tracker.position() < offset {
				return ErrClosed // it will not read so far
			}
			fed = nil
		}
	}
}
