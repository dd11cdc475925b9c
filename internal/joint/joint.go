// Package joint joins calls that come within a moment of each other into one, where one of many items costs little more
// than one of a single item. Each caller learns of its own items. A call that comes alone is made at once.
package joint

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Calls are calls of one kind that may be joined. Its fields are set before the first call. It is safe for concurrent
// use.
type Calls[T comparable] struct {
	Context context.Context // ends every call
	Running *sync.WaitGroup // has every call
	Apart   time.Duration   // at least, from one call to the next; calls are joined meanwhile
	Most    int             // items in one call
	// Call makes a call, and returns those of its items that it found.
	Call func(ctx context.Context, items []T) (found []T, err error)

	mu    sync.Mutex
	next  *round[T] // gathers items; nil if there are none
	begun time.Time // when the last call was
}

// round is one call, and its answer once done is closed.
type round[T comparable] struct {
	items []T
	done  chan struct{}
	found []T
	err   error
}

// Do returns those of the items, at most Most, that a call has found which has these and may have others. An error is
// that call's, or that of ctx.
func (c *Calls[T]) Do(ctx context.Context, items ...T) (found []T, err error) {
	if c.Context.Err() != nil {
		return nil, context.Cause(c.Context) // whoever has ended it may wait for Running
	}
	r := c.join(items)
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, item := range items {
		if slices.Contains(r.found, item) {
			found = append(found, item)
		}
	}
	return found, nil
}

// join adds items to the next call.
func (c *Calls[T]) join(items []T) *round[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.next
	if r == nil || len(r.items)+len(items) > c.Most {
		r = &round[T]{done: make(chan struct{})}
		c.next = r
		c.Running.Go(func() { c.run(r) })
	}
	r.items = append(r.items, items...)
	return r
}

// run gathers a call, and makes it.
func (c *Calls[T]) run(r *round[T]) {
	defer close(r.done)
	c.mu.Lock()
	wait := time.NewTimer(time.Until(c.begun.Add(c.Apart)))
	c.mu.Unlock()
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.Context.Done():
	}
	c.mu.Lock()
	if c.next == r {
		c.next = nil
	}
	c.begun = time.Now()
	c.mu.Unlock()
	r.found, r.err = c.Call(c.Context, r.items)
}
