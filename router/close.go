package router

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// enter lets a call in that publishes or replays, and which ends with busy.end. Once the
// router closes only handlers are let in, which may have something to publish yet.
func (r *Router) enter(ctx context.Context) bool {
	_, within := inside(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.closed && !within {
		return false
	}
	r.busy.begin()
	return true
}

// Close refuses what is published from now on, but by handlers, stops reading, and lets
// handlers finish what was read, for as long as ctx allows. What is durable and can not be
// finished at once, as it waits for another attempt or for the breaker, is left in the
// log, as is all that ctx leaves no time for: it comes again to whoever subscribes next.
// Close returns once all that was handled is committed. It may be called again.
func (r *Router) Close(ctx context.Context) error {
	r.closing.Do(func() { r.err = r.close(ctx) })
	return r.err
}

func (r *Router) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	subs := r.subscribers()
	r.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		r.cut()
		for _, s := range subs {
			s.cut()
		}
	})()
	eachAtOnce(subs, (*subscriber).stopReading)
	err := r.drained(ctx, subs)
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	eachAtOnce(subs, (*subscriber).end)
	if r.keeper != nil {
		if err := r.keeper.Close(ctx); err != nil { // it expires
			r.options.Logger.Warn("who listened here is still registered", "error", err)
		}
	}
	close(r.quit)
	<-r.told
	r.cut()
	return err
}

// drained waits until nothing is under way.
func (r *Router) drained(ctx context.Context, subs []*subscriber) error {
	switch overBefore(ctx, &r.busy) {
	case inTime:
		return nil
	case cutOff:
		return fmt.Errorf("router: close: what was under way was cut off: %w", context.Cause(ctx))
	}
	var names []string
	for _, s := range subs {
		if running, _ := s.lanes.load(); running > 0 {
			names = append(names, s.spec.Name)
		}
	}
	return fmt.Errorf("router: close: something goes on regardless, handlers of %q: %w", names, context.Cause(ctx))
}

// ending is how a wait for what is under way went.
type ending byte

const (
	inTime ending = iota
	cutOff        // its context was ended, and it noticed
	never
)

// lastMoment is what handlers have to return once their context has ended with the
// router's time.
const lastMoment = 100 * time.Millisecond

// overBefore waits until nothing is under way, or ctx, with which that is cut off, is
// done and a moment has passed.
func overBefore(ctx context.Context, b *busy) ending {
	over := b.over()
	select {
	case <-over:
		return inTime
	default:
	}
	select {
	case <-over:
		return inTime
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastMoment)
	defer timer.Stop()
	select {
	case <-over:
		return cutOff
	case <-timer.C:
		return never
	}
}

func eachAtOnce(subs []*subscriber, do func(*subscriber)) {
	var all sync.WaitGroup
	for _, s := range subs {
		all.Go(func() { do(s) })
	}
	all.Wait()
}
