package router

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// enter admits a call that publishes or replays, and ends with busy.end. Once the router closes
// only handlers are admitted, which may have something to publish yet.
func (r *Router) enter(ctx context.Context) bool {
	_, within := inside(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || (r.closed && !within) {
		return false
	}

	// Counted under the lock that close sets closed under, so drained waits for every call that was let in.
	r.busy.begin()
	return true
}

// Close refuses further publishes, except by handlers, stops reading, and lets handlers finish
// what was read, for as long as ctx allows. Events of durable subscriptions that cannot be
// finished at once, as they wait for another attempt or for the breaker, are left in the log,
// as are all that ctx leaves no time for: they are redelivered to the next subscriber of that
// name. Close returns once all that was handled is committed. It may be called again.
func (r *Router) Close(ctx context.Context) error {
	r.closing.Do(func() { r.err = r.close(ctx) })
	return r.err
}

// close ends the router in the order in which its parts depend on each other.
func (r *Router) close(ctx context.Context) error {
	// From here on only handlers publish.
	r.mu.Lock()
	r.closed = true
	subs := r.subscribers()
	r.mu.Unlock()

	// When ctx is done, handlers and all calls to the log are cut off.
	defer context.AfterFunc(ctx, func() {
		r.cut()
		for _, s := range subs {
			s.cut()
		}
	})()

	// First nothing more is read, then what was read is handled, and at last it is committed.
	eachAtOnce(subs, (*subscriber).stopReading)
	err := r.drained(ctx, subs)
	// Handlers have returned or were cut off: what they publish after that is refused as well.
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	eachAtOnce(subs, (*subscriber).commitAndRelease)

	// The cluster learns that nobody listens here any more. Without that it waits until the registration expires.
	if r.keeper != nil {
		if err := r.keeper.Close(ctx); err != nil { // it expires
			r.options.Logger.Warn("the subscriptions are still registered", "error", err)
		}
	}

	// drained has waited for the router's own events. Those that came after it are dropped, and letters that still wait
	// are counted as lost.
	close(r.quit)
	<-r.noticed
	r.cut()
	return err
}

// drained waits until nothing is in flight.
func (r *Router) drained(ctx context.Context, subs []*subscriber) error {
	switch overBefore(ctx, &r.busy) {
	case inTime:
		return nil
	case cutOff:
		return fmt.Errorf("router: close: handlers were cut off: %w", context.Cause(ctx))
	}

	// The error names the handlers that do not return.
	var names []string
	for _, s := range subs {
		if running, _ := s.lanes.load(); running > 0 {
			names = append(names, s.spec.Name)
		}
	}
	return fmt.Errorf("router: close: handlers of %q have not returned: %w", names, context.Cause(ctx))
}

// ending is how a wait for what is in flight went.
type ending byte

const (
	inTime ending = iota // nothing was in flight before its context was done
	cutOff               // its context was ended, and it noticed
	never                // something is in flight after lastMoment, too
)

// lastMoment is what handlers have to return once their context has ended with the
// router's time.
const lastMoment = 100 * time.Millisecond

// overBefore waits until nothing is in flight, or until ctx, which cuts that off, is done and
// lastMoment has passed.
func overBefore(ctx context.Context, b *busy) ending {
	// Asked without ctx first: with two channels that are ready select may choose either.
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

	// Handlers see the end of their context, and get a moment to return.
	timer := time.NewTimer(lastMoment)
	defer timer.Stop()
	select {
	case <-over:
		return cutOff
	case <-timer.C:
		return never
	}
}

// eachAtOnce calls do for all subscribers concurrently, and returns once all have returned.
func eachAtOnce(subs []*subscriber, do func(*subscriber)) {
	var all sync.WaitGroup
	for _, s := range subs {
		all.Go(func() { do(s) })
	}
	all.Wait()
}
