package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// TailOptions say what to read.
type TailOptions struct {
	From        Position     // by default the end, or with NoFollow the start
	Filter      event.Filter // the zero Filter passes every event
	Where       Condition    // chooses among what the Filter passes; nil passes all of it
	Limit       uint64       // events; 0 is no limit
	NoFollow    bool         // stop at the end of the log instead of waiting for more
	Consistency Consistency
	MinOffset   uint64 // wait until the node asked has this offset
}

// Condition chooses events by what a Filter cannot, such as their payload. A *where.Condition of package event/where is
// one: a condition in CEL, of which where.Compile reports the position of an error. It is evaluated here, whatever the
// nodes' version, so what does not meet it is received nonetheless.
type Condition interface {
	// Match reports whether an event meets the condition. It must not retain or change the event.
	Match(ev *event.Event) (bool, error)
}

// Tail reads events in the order of the log, each once, until the limit, the end
// with NoFollow, an error, or the end of ctx. A *GapError reports events that are not kept any
// more, a *WhereError the first event for which Where could not be evaluated, and reading continues
// after them; any other error is the last element. Payloads in a
// batch share a buffer: copy one before retaining it. After failures the tail resumes where it
// was: for Config.Timeout while no node has answered yet, and after that for as long as ctx
// allows, or with NoFollow for Config.Timeout each time that nothing comes.
func (c *Client) Tail(ctx context.Context, o TailOptions) iter.Seq2[event.Event, error] {
	return func(hand func(event.Event, error) bool) {
		ctx, cancel := c.whileOpen(ctx)
		defer cancel()
		r := c.newTailReader(o)
		defer r.stream.Disconnect()
		yield := hand
		if c.events != nil {
			yield = func(ev event.Event, err error) bool {
				if err == nil {
					c.showReceived("tail", &ev)
				}
				return hand(ev, err)
			}
		}
		for {
			// A node ends a stream at the limit, at the end without following, or when it closes.
			m, err := r.stream.Receive(ctx)
			if errors.Is(err, io.EOF) {
				if o.NoFollow || r.full() {
					return
				}
				continue
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			if !r.yieldMessage(m, yield) {
				return
			}
		}
	}
}

// tailReader reads what its options ask for.
type tailReader struct {
	options TailOptions
	// when the tail began; a position by age counts from then, also after a reconnect
	began  time.Time
	taken  uint64 // events received that meet the condition
	failed bool   // the condition could not be evaluated for an event, which was reported
	stream *calls.Stream
}

// newTailReader returns a reader whose stream connects with the first Receive, and again after
// each failure.
func (c *Client) newTailReader(o TailOptions) *tailReader {
	r := &tailReader{options: o, began: time.Now()}
	open := func(ctx context.Context, n *calls.Node, next uint64) (*calls.Messages, error) {
		return n.Log.Tail(ctx, calls.NewRequest(c.cluster, r.request(next, c.sender.Newest())))
	}
	r.stream = c.cluster.NewStream(calls.Op{Name: "tail"}, o.NoFollow, open)
	return r
}

// request asks for what is still to come, from next on; 0 is the position asked for.
// A node that has not yet what this client saw acknowledged waits for it.
func (r *tailReader) request(next, seen uint64) *ringlogv1.TailRequest {
	o := &r.options
	from := older(o.From, time.Since(r.began))
	if next > 0 {
		from = FromOffset(next)
	}

	// Nodes compress and send stored blocks as they are: the client decodes them.
	req := &ringlogv1.TailRequest{From: wirePosition(from), Filter: filterToWire(o.Filter), Follow: !o.NoFollow,
		Consistency: o.Consistency.wire(), MinOffset: o.MinOffset, Packets: true}

	// An offset that this client saw acknowledged exists: a node that lags has to wait for it.
	if from.Kind == api.AtOffset && from.Offset > 0 && from.Offset-1 <= seen {
		req.MinOffset = max(req.MinOffset, from.Offset-1)
	}

	// After a reconnect only the rest of the limit is asked for. A node cannot count what meets a condition.
	if o.Limit > 0 && o.Where == nil {
		req.Limit = o.Limit - r.taken
	}
	return req
}

// full reports whether the limit is reached.
func (r *tailReader) full() bool { return r.options.Limit > 0 && r.taken >= r.options.Limit }

// yieldMessage gives a message's content to yield, and reports whether to continue.
func (r *tailReader) yieldMessage(m *ringlogv1.TailResponse, yield func(event.Event, error) bool) bool {
	if gap := gapOf(m.GetGap()); gap != nil && !yield(event.Event{}, &GapError{*gap}) {
		return false
	}

	// A caller that has enough ends the message in its middle.
	more := true
	err := eachEvent(m.GetRuns(), func(e *event.Event) bool {
		if r.options.Where != nil {
			met, err := r.options.Where.Match(e)
			if err != nil && !r.failed {
				r.failed = true
				more = yield(event.Event{}, &WhereError{e.Offset, err})
			}
			if err != nil || !met {
				return more
			}
		}
		r.taken++
		more = yield(*e, nil) && !r.full()
		return more
	})
	if err != nil {
		yield(event.Event{}, fmt.Errorf("client: tail: %w", err))
		return false
	}
	return more
}
