package sinks

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/breaker"
)

// notices publishes a reactor's own events, in the order they happened, without holding it up.
type notices struct {
	o       *Options
	dropped atomic.Uint64 // events that were not published, for whatever reason

	mu     sync.Mutex
	queue  chan event.Event
	closed bool // queue is
}

const (
	maxNotices  = 1024             // that wait for the log; what comes then is dropped and counted
	noticeGrace = 10 * time.Second // for those that wait at the end
)

// newNotices returns notices that queue until start is called.
func newNotices(o *Options) *notices {
	return &notices{o: o, queue: make(chan event.Event, maxNotices)}
}

// start publishes until quit is called, which waits for the rest and returns how many were
// not published.
func (n *notices) start(ctx context.Context) (quit func() (dropped uint64)) {
	// The last events come when ctx has ended already.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range n.queue {
			if err := n.o.Publish(ctx, ev); err != nil {
				n.dropped.Add(1)
				n.o.Logger.Warn("not published", "type", ev.Type, "payload", string(ev.Payload), "error", err)
			}
		}
	}()

	// The rest has noticeGrace; then the calls that still run are canceled and fail.
	return func() uint64 {
		n.mu.Lock()
		n.closed = true // the breaker may still change
		close(n.queue)
		n.mu.Unlock()
		timer := time.AfterFunc(noticeGrace, cancel)
		<-done
		timer.Stop()
		cancel()
		return n.dropped.Load()
	}
}

// put queues an event, or counts it as dropped where too many wait.
func (n *notices) put(t event.Type, correlation string, payload map[string]any) {
	if n.o.Publish == nil {
		return
	}
	payload["handler"], payload["timestamp"] = n.o.Group, float64(time.Now().UnixMicro())/1e6
	ev := event.New(t, payload)
	ev.Source, ev.Key, ev.CorrelationID, ev.Time = n.o.Source, n.o.Group, correlation, time.Now()
	ev.NoDedup = true // each happened

	// closed and the send are under one lock, so nothing is sent on a closed channel.
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	select {
	case n.queue <- ev:
	default:
		n.dropped.Add(1)
	}
}

// breaker reports a change of the breaker.
func (n *notices) breaker(ch breaker.Change) {
	t, payload := ch.Notice()
	n.put(t, "", payload)
}

// timedOut reports an attempt that ran out of time.
func (n *notices) timedOut(d client.Delivery, o Outcome) {
	n.putHandler(event.HandlerTimeout, d, o, map[string]any{
		"attempt": o.Attempt, "timeout_seconds": n.o.Timeout.Seconds()})
}

// failed reports a delivery that failed.
func (n *notices) failed(d client.Delivery, o Outcome) {
	n.putHandler(event.HandlerFailed, d, o, map[string]any{
		"error": o.Error, "attempts": o.Attempt, "dead_letter": o.Result == Dead})
}

// putHandler adds the fields that both have. An event about a handler is not reported, or a
// sink of such events would feed itself.
func (n *notices) putHandler(t event.Type, d client.Delivery, o Outcome, payload map[string]any) {
	if !n.o.Record || strings.HasPrefix(string(d.Type), "HANDLER_") {
		return
	}
	payload["event"], payload["offset"] = d.Type, d.Offset
	payload["delivery"], payload["duration_seconds"] = d.Count, o.Took.Seconds()
	if d.Key != "" {
		payload["event_key"] = d.Key
	}
	n.put(t, d.CorrelationID, payload)
}
