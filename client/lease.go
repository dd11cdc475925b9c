package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Times of a lease.
const (
	defaultLeaseTTL = 15 * time.Second
	leaseWait       = 20 * time.Second // of one call
	leaseWaitsApart = time.Second      // at least, from the beginning of one call to the next
	renewalsPerTTL  = 3                // so that after one that fails the next is in time
	renewalsApart   = 100 * time.Millisecond
	mostRenewals    = 1000 // in one request
	// leaseMargin is the share of a lease that its holder does not use: clocks differ in their rates.
	leaseMargin = 0.1
)

// thisProcess names this process to people.
func thisProcess() string {
	host, _ := os.Hostname() // it may be empty
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// putLease acquires or renews a lease. Thousands of processes may do so every few seconds. A node joins their renewals
// into one request to the leader, which saves the leader nothing if it is asked itself.
func (c *Client) putLease(ctx context.Context, path string, in, out any) error {
	return c.Admin().doAside(ctx, true, http.MethodPut, path, nil, in, out)
}

// waitOfCall is how long one call may wait for a lease.
func (c *Client) waitOfCall() string {
	return max(time.Millisecond, min(leaseWait, c.cfg.Timeout/2)).String()
}

// lease is what this process holds of the cluster for as long as it renews it: a role, or an allocation.
type lease struct {
	ttl time.Duration // counted by the cluster from each acquisition or renewal
	// reserve is what is left of the lease when ctx is done because no renewal has succeeded.
	reserve time.Duration
	renew   func(ctx context.Context) (lost bool, err error) // once
	lost    error                                            // the cause of a lease that is over
	warn    func(err error)                                  // reports that

	// endedEarly is set if the cluster has ended the lease while it could still be used.
	endedEarly atomic.Bool
	// renewed is when the last renewal that succeeded was sent, nil once the lease is known to be over. No node can have
	// counted the lease from before.
	renewed atomic.Pointer[time.Time]

	ctx    context.Context // ends with the lease; its cause says why
	end    context.CancelCauseFunc
	done   chan struct{} // closed when nothing renews the lease any more
	unhook func() bool   // from the closing of the client
}

// acquire waits for the lease until ctx is done, also while the cluster cannot be reached, and keeps it. ask makes one
// call: refused says why the cluster has no claim of this caller. release ends a claim.
func (l *lease) acquire(
	ctx context.Context, c *Client, what string, noWait bool,
	ask func(ctx context.Context) (held bool, refused, err error), release func(ctx context.Context) error,
) error {
	if most := MaxReserve(l.ttl); l.reserve < 0 || l.reserve > most {
		return fmt.Errorf("client: %s: Reserve is %s, not between 0 and %s, a third of the TTL", what, l.reserve, most)
	}
	// The claim of a caller that has stopped waiting is released. Otherwise it expires by itself.
	leave := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.AttemptTimeout)
		defer cancel()
		return release(ctx)
	}
	// A caller that waits asks again if no node has refused the call: it keeps its place in the queue.
	again := func(err error) bool {
		failed, ok := errors.AsType[*calls.Error](err)
		return ok && failed.Refusal() == nil && !noWait && ctx.Err() == nil && c.reading.Err() == nil
	}
	for began := (time.Time{}); ; {
		// A wait that is short, or ends early, is not repeated at once: each call is an entry of the log.
		calls.Sleep(ctx, time.Until(began.Add(leaseWaitsApart)))
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("client: %s: %w", what, context.Cause(ctx)), leave())
		}
		began = time.Now()
		switch held, refused, err := askOnce(ctx, ask, leave, c.cfg.AttemptTimeout); {
		case again(err):
			c.cfg.Logger.Warn("waiting to "+what, "error", err)
			continue
		case err != nil:
			return errors.Join(err, leave())
		case refused != nil:
			return fmt.Errorf("client: %s: %w", what, refused)
		case !held:
			continue
		}

		// The answer may have waited on its way: the lease is known from a renewal on.
		sent := time.Now()
		switch lost, err := l.renew(ctx); {
		// The claim may have expired while the answer was on its way: it is asked for again.
		case lost, again(err):
			continue
		case err != nil:
			return errors.Join(err, leave())
		}
		l.start(ctx, c, sent)
		return nil
	}
}

// askOnce makes one call for a lease. If ctx is done meanwhile, it releases the claim, which ends the call, and waits
// up to patience for the answer. A node may have carried the call out after the release, so the caller has to release
// once more.
func askOnce(
	ctx context.Context, ask func(ctx context.Context) (held bool, refused, err error), leave func() error,
	patience time.Duration,
) (held bool, refused, err error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		held, refused, err = ask(call)
	}()
	select {
	case <-answered:
		return held, refused, err
	case <-ctx.Done():
	}
	if err := leave(); err != nil {
		cancel()
	}
	defer time.AfterFunc(patience, cancel).Stop()
	<-answered
	return false, nil, nil
}

// start has the lease renewed from now on. sent is when a renewal that succeeded was sent.
func (l *lease) start(ctx context.Context, c *Client, sent time.Time) {
	// It outlives the call that has acquired it, and keeps its values.
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	l.unhook = context.AfterFunc(c.reading, func() { l.end(ErrClosed) })
	l.done = make(chan struct{})
	l.renewed.Store(&sent)
	go l.keep()
}

// Left returns for how long the lease can still be used if it is not renewed again: 0 once it may be over for the
// cluster.
func (l *lease) Left() time.Duration {
	sent := l.renewed.Load()
	if sent == nil {
		return 0
	}
	usable := l.ttl - time.Duration(float64(l.ttl)*leaseMargin)
	return max(0, usable-calls.Elapsed(*sent))
}

// stop ends the lease for this process, and returns once nothing renews it any more.
func (l *lease) stop() {
	l.end(context.Canceled)
	<-l.done
}

// keep renews the lease until it is over, or no more than the reserve of it is left.
func (l *lease) keep() {
	defer close(l.done)
	defer l.unhook()
	next := time.NewTimer(l.ttl / renewalsPerTTL)
	defer next.Stop()
	for {
		// The lease ends while a renewal is under way, too.
		left, cancel := context.WithTimeoutCause(l.ctx, l.Left()-l.reserve, l.lost)
		select {
		case <-next.C:
		case <-left.Done():
		}
		began := time.Now()
		lost, err := false, left.Err()
		if err == nil {
			lost, err = l.renew(left)
		}
		over := left.Err() != nil
		cancel()
		switch {
		case l.ctx.Err() != nil:
			return
		case lost || over || l.Left() <= l.reserve:
			if lost {
				l.endedEarly.Store(l.Left() > 0)
				l.renewed.Store(nil)
			}
			l.warn(err)
			l.end(l.lost)
			return
		case err == nil:
			l.renewed.Store(&began)
		}
		// A renewal that has failed is repeated at the same pace while the lease lasts.
		next.Reset(l.ttl / renewalsPerTTL)
	}
}
