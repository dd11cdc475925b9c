package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// TailOptions say what to read.
type TailOptions struct {
	From        Position     // the zero Position is the end, or with NoFollow the start
	Filter      event.Filter // the zero Filter passes every event
	Limit       uint64       // events; 0 is no limit
	NoFollow    bool         // stop at the end of the log instead of waiting for more
	Consistency Consistency
	MinOffset   uint64 // wait until the node asked has this offset
}

// Tail reads events in the order of the log, each once, until the limit, the end
// with NoFollow, an error, or the end of ctx. A *GapError tells what is not kept any
// more, and reading goes on behind it; any other error is the last thing that comes.
// Payloads of events that came together share their memory: copy one to keep it long.
// Through failures it goes on where it was: for Config.Timeout while no node has
// answered yet, and after that for as long as ctx allows, or with NoFollow for
// Config.Timeout each time that nothing comes.
func (c *Client) Tail(ctx context.Context, o TailOptions) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		ctx, cancel := c.whileOpen(ctx)
		defer cancel()
		r := c.newTailReader(o)
		defer r.stream.Disconnect()
		for {
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
			if !r.hand(m, yield) {
				return
			}
		}
	}
}

// tailReader reads what its options ask for.
type tailReader struct {
	options TailOptions
	began   time.Time
	taken   uint64 // events received
	stream  *calls.Stream
}

func (c *Client) newTailReader(o TailOptions) *tailReader {
	r := &tailReader{options: o, began: time.Now()}
	r.stream = c.cluster.NewStream("tail", o.NoFollow, func(ctx context.Context, n *calls.Node, next uint64) (*calls.Messages, error) {
		return n.Log.Tail(ctx, calls.NewRequest(c.cluster, r.request(next, c.sender.Newest())))
	})
	return r
}

// request asks for what is still to come, from next on; 0 is the position asked for.
// A node that has not yet what this client saw acknowledged waits for it.
func (r *tailReader) request(next, seen uint64) *ringlogv1.TailRequest {
	o := &r.options
	from := o.From.older(time.Since(r.began))
	if next > 0 {
		from = FromOffset(next)
	}
	req := &ringlogv1.TailRequest{From: from.wire(), Filter: filterToWire(o.Filter), Follow: !o.NoFollow,
		Consistency: o.Consistency.wire(), MinOffset: o.MinOffset, Packets: true}
	if from.kind == atOffset && from.n > 0 && from.n-1 <= seen {
		req.MinOffset = max(req.MinOffset, from.n-1)
	}
	if o.Limit > 0 {
		req.Limit = o.Limit - r.taken
	}
	return req
}

// full reports whether the limit is reached.
func (r *tailReader) full() bool { return r.options.Limit > 0 && r.taken >= r.options.Limit }

// hand gives a message's content to yield, and reports whether to go on.
func (r *tailReader) hand(m *ringlogv1.TailResponse, yield func(event.Event, error) bool) bool {
	if gap := gapOf(m.GetGap()); gap != nil && !yield(event.Event{}, &GapError{*gap}) {
		return false
	}
	more := true
	err := eachEvent(m.GetRuns(), func(e *event.Event) bool {
		r.taken++
		more = yield(*e, nil)
		return more
	})
	if err != nil {
		yield(event.Event{}, fmt.Errorf("client: tail: %w", err))
		return false
	}
	return more && !r.full()
}
