package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Allocation is what a command needs of resources, all of it or nothing.
type Allocation struct {
	Amounts  map[string]uint64 // by resource; empty is no allocation
	Text     string            // the amounts, for people
	Priority string            // of the request, as client.AllocationOptions has it
}

// lease is what a command runs under: a *client.Role, an *allocated, or free.
type lease interface {
	Context() context.Context // is done when the command has to end
	Left() time.Duration      // for how long the command may still run
	Fence() uint64            //
	Publish(ctx context.Context, events ...event.Event) ([]client.Result, error)
	Release(ctx context.Context) error
}

// free is the lease of a daemon without a role. It has no end, and no fence.
type free struct{ c *client.Client }

func (free) Context() context.Context      { return context.Background() }
func (free) Left() time.Duration           { return math.MaxInt64 }
func (free) Fence() uint64                 { return 0 }
func (free) Release(context.Context) error { return nil }

// Publish implements lease.
func (f free) Publish(ctx context.Context, events ...event.Event) ([]client.Result, error) {
	return f.c.PublishBatch(ctx, events)
}

// allocated is a lease together with an allocation: it is over once either is.
type allocated struct {
	lease                      // of the role, or free: fence and reports are its own
	amounts *client.Allocation // renewed by its client until Release
	ctx     context.Context    // done once one of the two contexts is; its cause is theirs
	unhook  func() bool        // unregisters from the context of amounts
}

// newAllocated returns the two as one.
func newAllocated(l lease, amounts *client.Allocation) *allocated {
	ctx, end := context.WithCancelCause(l.Context())
	unhook := context.AfterFunc(amounts.Context(), func() { end(context.Cause(amounts.Context())) })
	return &allocated{lease: l, amounts: amounts, ctx: ctx, unhook: unhook}
}

// Context implements lease.
func (a *allocated) Context() context.Context { return a.ctx }

// Left implements lease. Amounts that were taken from the command are another's already: it has its time to stop.
func (a *allocated) Left() time.Duration {
	if a.amounts.EndedEarly() {
		return a.lease.Left()
	}
	return min(a.lease.Left(), a.amounts.Left())
}

// Release implements lease.
func (a *allocated) Release(ctx context.Context) error {
	// The release ends the context of the amounts, which is no loss.
	a.unhook()
	return errors.Join(a.amounts.Release(ctx), a.lease.Release(ctx))
}

// take acquires the role, if there is one, and then the amounts. Who has amounts never waits for a role, so two
// commands never wait for each other.
func (o *Options) take(ctx context.Context, c *client.Client) (lease, error) {
	var l lease = free{c}
	if o.Role != "" {
		role, err := o.acquire(ctx, c)
		if err != nil {
			return nil, err
		}
		l = role
	}
	if len(o.Allocation.Amounts) == 0 {
		return l, nil
	}
	// While it waits for the amounts, the role is held, and renewed by its client.
	amounts, err := o.allocate(ctx, c, l.Context())
	if err != nil {
		// The role is released even if the caller's ctx is done: others wait for it.
		ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
		defer cancel()
		return nil, errors.Join(err, l.Release(ctx))
	}
	return newAllocated(l, amounts), nil
}

// allocate waits for the amounts, as long as the role is held.
func (o *Options) allocate(ctx context.Context, c *client.Client, role context.Context) (*client.Allocation, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The loss of the role ends the wait, with the role's error as the cause.
	forget := context.AfterFunc(role, func() { cancel(context.Cause(role)) })
	defer forget()
	// As in acquire, the first attempt fails at once if the amounts are not free, so that the wait is announced.
	ask := client.AllocationOptions{Holder: o.Holder, Priority: o.Allocation.Priority, TTL: o.TTL, Reserve: o.StopTimeout,
		NoWait: true}
	amounts, err := c.Allocate(ctx, o.Allocation.Amounts, ask)
	if err == nil || o.NoWait {
		return amounts, err
	}
	// Any other error is one of the call that waits, too, or passes.
	if errors.Is(err, client.ErrNotGranted) {
		o.Say("%s is not free, or others wait for it: waiting", o.Allocation.Text)
	}
	ask.NoWait = false
	return c.Allocate(ctx, o.Allocation.Amounts, ask)
}

// isLost reports whether an error says that a role or an allocation is lost.
func isLost(err error) bool {
	return errors.Is(err, client.ErrRoleLost) || errors.Is(err, client.ErrAllocationLost)
}

// holding describes what the command runs under; "" is nothing.
func (d *daemon) holding() string {
	a, ok := d.role.(*allocated)
	// Each of the two has a fence of its own.
	switch {
	case !ok && d.Role == "":
		return ""
	case !ok:
		return fmt.Sprintf("%s with fence %d", d.Role, d.role.Fence())
	case d.Role == "":
		return fmt.Sprintf("%s with fence %d", d.Allocation.Text, a.amounts.Fence())
	}
	return fmt.Sprintf("%s with fence %d, and %s with fence %d", d.Role, a.Fence(), d.Allocation.Text, a.amounts.Fence())
}

// lostAmounts returns the allocation, if that is what is lost, and the role is not.
func (d *daemon) lostAmounts() (a *allocated, ok bool) {
	a, ok = d.role.(*allocated)
	return a, ok && a.lease.Context().Err() == nil && a.lease.Left() > d.StopTimeout
}

// reportable returns the context in which reports may be published: the role's, which outlasts an allocation.
func reportable(l lease) context.Context {
	if a, ok := l.(*allocated); ok {
		return a.lease.Context()
	}
	return l.Context()
}
