package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// TailRequest says what to read.
type TailRequest struct {
	// From is where to begin. The default is the start; for a read that follows, the end.
	From api.Position
	// Filter chooses the events; the zero filter passes all.
	Filter event.Filter
	// Where is a condition in CEL for the events that pass the filter, see package where; "" is none.
	Where string
	Limit uint64 // events; 0 is no limit
	// Follow waits for more at the end of the log, until the caller leaves.
	Follow bool
	// Linearizable waits until this node has all that was acknowledged before the call.
	Linearizable bool
	MinOffset    uint64 // wait until the node has it; 0 is none
	Redriven     bool   // also read events that were redriven for one cursor, whichever it is
	Spans        bool   // events come as they are stored where there is neither a filter nor a condition

	where func(*event.Event) (bool, error) // Where, compiled; nil is none
	types []string                         // patterns of the types that are the caller's; none is all
}

// OpenTail finds the place to read from. It waits until this node has MinOffset; for a linearizable read, until it
// has all that was acknowledged. A read that follows may begin past the tail: the tail waits until the log has come
// there, and reports meanwhile that it is alive.
func (l *Log) OpenTail(ctx context.Context, r TailRequest) (*tail.Tail, error) {
	if r.Linearizable {
		if err := l.node.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	// A filter that can match nothing would look like a quiet log.
	if err := l.checkFilter(ctx, r.Filter); err != nil {
		return nil, err
	}
	var err error
	r.where, err = compileWhere(r.Where)
	if err != nil {
		return nil, err
	}
	stored := l.Machine().Log()
	if err := waitFor(ctx, stored, r.MinOffset); err != nil {
		return nil, err
	}
	// Without a position, a read begins with what is there, or if it follows, with what comes.
	fallback := api.AtStart
	if r.Follow {
		fallback = api.AtEnd
	}
	// From here on the position is an offset: an age is not resolved a second time.
	next, err := resolvePosition(l.Machine(), r.From, fallback)
	if err != nil {
		return nil, err
	}
	// An offset after the tail may still come, but a read that does not follow would end at once: that is refused.
	if _, last := stored.Bounds(); !r.Follow && next > last+1 {
		return nil, api.BeyondTail("from", next, last, "follow the log to wait for it, or read from end")
	}
	// From here on nothing can fail before the first read.
	r.types = access.Of(ctx).Types()
	t := l.newTail(r, next)
	if r.Redriven {
		t.ReadFor(log.EveryCursor)
	}
	return t, nil
}

// compileWhere compiles the condition of a reader; nil is none.
func compileWhere(text string) (met func(*event.Event) (bool, error), err error) {
	if text == "" {
		return nil, nil
	}
	if err := checkWhere(text); err != nil {
		return nil, err
	}
	c, err := where.Compile(text)
	if bad, ok := errors.AsType[*where.Error](err); ok {
		return nil, api.Refuse(api.InvalidArgument, "where", bad.Error(), "correct it at that place")
	}
	if err != nil {
		return nil, err
	}
	return c.Match, nil
}

// newTail returns a tail from next on.
func (c *core) newTail(r TailRequest, next uint64) *tail.Tail {
	// The tail follows the catalogue as it changes, and ends when the node diverges.
	return tail.New(c.Machine(), tail.Options{
		Filter:    r.Filter,
		Types:     r.types,
		Where:     r.where,
		Next:      next,
		Limit:     r.Limit,
		Follow:    r.Follow,
		Spans:     r.Spans,
		Diverged:  c.node.Diverged,
		Heartbeat: c.heartbeat,
	})
}

// waitForTail is how long a read waits for an offset that the node does not have.
const waitForTail = 10 * time.Second

// waitFor returns when the log has reached min_offset; past the time for it the error names the tail.
func waitFor(ctx context.Context, l *log.Log, offset uint64) error {
	// Offset 0 is there at once.
	late, err := waitLog(ctx, l, offset)
	if late {
		_, last := l.Bounds()
		return &api.Error{Code: api.Timeout, Field: "min_offset", Offset: last,
			Message: fmt.Sprintf("offset %d did not come in time; the tail is %d", offset, last),
			Remedy:  "check that it was acknowledged; then this node lags: ask again, or another node"}
	}
	return err
}

// waitLog waits until the log has reached offset; late says that its time was up.
func waitLog(ctx context.Context, l *log.Log, offset uint64) (late bool, err error) {
	// The caller's own time may end earlier, which counts as late, too.
	ctx, cancel := context.WithTimeout(ctx, waitForTail)
	defer cancel()
	err = l.Wait(ctx, offset)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStreamTime), err
}

// ErrStreamTime ends a stream whose caller asked for no more time.
var ErrStreamTime = errors.New("the stream's time is up")

// resolvePosition returns the offset of the next event at p, or at fallback where p is the default.
func resolvePosition(m *fsm.Machine, p api.Position, fallback api.PositionKind) (uint64, error) {
	// An age counts back from this node's clock.
	p.Kind = cmp.Or(p.Kind, fallback)
	return p.Resolve(m.Log(), time.Now())
}
