// Package lifetime holds the two ends of a node, and the waits that end with them: first the node begins to close
// and still hands over, then it has retired and nothing of it waits any more.
//
// It promises that a wait on a node that has retired returns batcher.ErrClosed, whatever it waits for.
package lifetime

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/raftnode/batcher"
)

// pollEvery is how often Poll asks.
const pollEvery = 10 * time.Millisecond

// Lifetime is that of one node. It is safe for concurrent use.
//
// retired ends no later than closing does: a node that retires without having begun to close, since it failed to
// open, ends both.
type Lifetime struct {
	closing      context.Context
	beginClosing context.CancelFunc
	retired      context.Context
	retire       context.CancelFunc

	changing chan struct{} // has room for one, the holder; see Exclusively
}

// New begins a lifetime.
func New() *Lifetime {
	l := &Lifetime{changing: make(chan struct{}, 1)}
	l.retired, l.retire = context.WithCancel(context.Background())
	l.closing, l.beginClosing = context.WithCancel(l.retired)
	return l
}

// BeginClosing ends the waits that must not delay the end of the node, such as for a member to catch up.
func (l *Lifetime) BeginClosing() { l.beginClosing() }

// Retire ends all waits.
func (l *Lifetime) Retire() { l.retire() }

// Context ends when the node has retired. The node's goroutines run under it.
func (l *Lifetime) Context() context.Context { return l.retired }

// Closing reports whether the node has begun to close.
func (l *Lifetime) Closing() bool { return l.closing.Err() != nil }

// Retired reports whether the node has retired.
func (l *Lifetime) Retired() bool { return l.retired.Err() != nil }

// UntilRetired returns ctx, also ended when the node has retired, then with the cause ErrClosed. The caller has to
// call the function returned.
func (l *Lifetime) UntilRetired(ctx context.Context) (context.Context, func()) {
	return until(ctx, l.retired)
}

// UntilClosing returns ctx, also ended when the node begins to close, then with the cause ErrClosed. The caller has
// to call the function returned.
func (l *Lifetime) UntilClosing(ctx context.Context) (context.Context, func()) {
	return until(ctx, l.closing)
}

// until returns ctx, also ended when end ends, then with the cause ErrClosed.
func until(ctx, end context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(end, func() { cancel(batcher.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Poll waits for a condition that raft does not signal. It returns ctx's error if ctx ends first, and ErrClosed
// if the node retires.
func (l *Lifetime) Poll(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.retired.Done():
			return batcher.ErrClosed
		}
	}
	return nil
}

// Exclusively waits until no other change of members or hand-over is under way: at most one caller is between the
// return of Exclusively and its own call of release, which it has to make. It is not reentrant. The end of the wait
// is ctx's error, or ErrClosed if the node retires.
func (l *Lifetime) Exclusively(ctx context.Context) (release func(), err error) {
	select {
	case l.changing <- struct{}{}:
		return func() { <-l.changing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.retired.Done():
		return nil, batcher.ErrClosed
	}
}
