package router

import (
	"context"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/breaker"
)

// notices publishes the router's own events, in the order they happened, without holding up
// their senders.
type notices struct {
	r     *Router
	queue chan event.Event // of maxNotices; run alone takes from it
}

// maxNotices may wait for the log. Those that come then are dropped.
const maxNotices = 1024

// newNotices returns notices that run publishes.
func newNotices(r *Router) *notices { return &notices{r: r, queue: make(chan event.Event, maxNotices)} }

// run publishes until quit is closed.
func (n *notices) run(ctx context.Context, quit <-chan struct{}) {
	// The context marks these events as the router's own: publishing them waits for no handler
	// and for no room.
	ctx = context.WithValue(ctx, insideKey{}, (*subscriber)(nil))
	for {
		select {
		case ev := <-n.queue:
			if _, err := n.r.publish(ctx, []event.Event{ev}, nil); err != nil {
				n.r.options.Logger.Warn("a notice was not published", "type", ev.Type,
					"payload", string(ev.Payload), "error", err)
			}
			n.r.busy.end()
		case <-quit:
			return
		}
	}
}

// put queues an event of the router's own, or drops it if too many wait: a log that is away
// must not hold handlers up. It counts as in flight until it is published, so Close waits
// for it.
func (n *notices) put(t event.Type, key, correlation string, payload map[string]any) {
	payload["timestamp"] = float64(time.Now().UnixMicro()) / 1e6
	ev := event.New(t, payload)
	ev.Source, ev.Key, ev.CorrelationID, ev.Time = n.r.options.Source, key, correlation, time.Now()
	ev.NoDedup = true // each happened

	// Counted before it is queued, as run may be done with it at once.
	n.r.busy.begin()
	select {
	case n.queue <- ev:
	default:
		n.r.busy.end()
		n.r.options.Logger.Warn("a notice was dropped, as too many wait for the log", "type", t)
	}
}

// handlerFailed reports that an event was abandoned.
func (n *notices) handlerFailed(s *subscriber, t *task, tr *trial, deadLettered bool) {
	n.putHandler(event.HandlerFailed, s, t, map[string]any{
		"error": breaker.Bounded(tr.err.Error()), "attempts": tr.attempts, "dead_letter": deadLettered})
}

// handlerTimeout reports that an attempt has run out of time.
func (n *notices) handlerTimeout(s *subscriber, t *task, attempt int) {
	n.putHandler(event.HandlerTimeout, s, t, map[string]any{
		"attempt": attempt, "timeout_seconds": s.spec.Timeout.Seconds()})
}

// putHandler adds the fields that both have. A handler that fails on such an event is not
// reported, or it would feed itself.
func (n *notices) putHandler(kind event.Type, s *subscriber, t *task, payload map[string]any) {
	if strings.HasPrefix(string(t.ev.Type), "HANDLER_") {
		return
	}
	payload["handler"], payload["event"] = s.spec.Name, t.ev.Type

	// A local event has no offset, and not every event has a key.
	if t.ev.Offset > 0 {
		payload["offset"] = t.ev.Offset
	}
	if t.ev.Key != "" {
		payload["event_key"] = t.ev.Key
	}
	if t.origin == replayed {
		payload["replay"] = true
	}
	n.put(kind, s.spec.Name, t.ev.CorrelationID, payload)
}

// breaker reports a change of a circuit breaker.
func (n *notices) breaker(s *subscriber, ch breaker.Change) {
	kind, payload := ch.Notice()
	payload["handler"] = s.spec.Name
	n.put(kind, s.spec.Name, "", payload)
}

// reset reports that a breaker was closed by hand, in the fields the platform has for it.
func (n *notices) reset(s *subscriber, by string) {
	n.put(event.CircuitReset, s.spec.Name, "", map[string]any{"handler": s.spec.Name, "node_id": n.r.options.Source,
		"address": n.r.options.Address, "recovery_source": by})
}
