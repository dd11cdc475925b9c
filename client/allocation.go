package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
)

// ErrAllocationLost says that an allocation is over: it was preempted, released by an operator, or could not be renewed
// in time. What was allocated may be another's.
var ErrAllocationLost = errors.New("the allocation is lost")

// ErrNotGranted says that amounts are not free, or that others wait for them.
var ErrNotGranted = errors.New("the allocation is not granted")

// What nodes answer about resources and allocations.
type (
	ResourceInfo   = api.Resource    // of Admin.Resources
	NewResource    = api.NewResource // for Admin.SetResource
	AllocationInfo = api.Allocation  // of Admin.Allocations
)

// AllocationOptions say how an allocation is requested. The zero value is useful.
type AllocationOptions struct {
	Holder   string        // a name for people; "" is host:pid
	Priority string        // LOW, NORMAL, HIGH or CRITICAL; "" is NORMAL
	TTL      time.Duration // how long it lasts unless it is renewed, 2 s to 24 h; 0 is 15 s
	// NoWait has Allocate return ErrNotGranted instead of waiting.
	NoWait bool
	// Reserve is as in RoleOptions.
	Reserve time.Duration
}

// Allocation is an allocation that this process holds. It is renewed until Release, or until it is lost. It is safe
// for concurrent use.
type Allocation struct {
	lease
	c     *Client
	id    string // made by this process, so a call that is repeated is the same request
	fence uint64 // set once the allocation is granted
}

// Allocate requests all of some amounts of resources, or none, and keeps them. It waits for its turn until ctx is done,
// also while the cluster cannot be reached or has no leader.
//
// Work that needs what is allocated runs under Allocation.Context, which ends before it can be another's, as far as
// this process runs. A CRITICAL request may end an allocation of priority LOW at any time: its Context ends with the
// next renewal, of which there are three in each TTL.
func (c *Client) Allocate(ctx context.Context, amounts map[string]uint64, o AllocationOptions) (*Allocation, error) {
	ttl := cmp.Or(o.TTL, defaultLeaseTTL)
	ask := api.AllocationRequest{
		Holder:   cmp.Or(o.Holder, thisProcess()),
		Amounts:  amounts,
		Priority: o.Priority,
		TTL:      ttl.String(),
	}
	if !o.NoWait {
		ask.Wait = c.waitOfCall()
	}

	// x.fence is set by the call below, before the lease is renewed or lost.
	x := &Allocation{c: c, id: uuid.NewString()}
	x.lease = lease{ttl: ttl, reserve: o.Reserve, renew: x.renew, lost: ErrAllocationLost, warn: func(err error) {
		c.cfg.Logger.Warn("the allocation is lost", "allocation", x.id, "fence", x.fence, "error", err)
	}}
	what := fmt.Sprintf("allocate %v", amounts)
	err := x.acquire(ctx, c, what, o.NoWait, func(ctx context.Context) (held bool, refused, err error) {
		var answer api.AllocationAnswer
		err = c.putLease(ctx, allocationPath(x.id), ask, &answer)
		switch {
		case answer.Granted || answer.Waiting:
		case o.NoWait:
			refused = ErrNotGranted
		default:
			// Who released it does not want it to be granted.
			refused = fmt.Errorf("the request was released: %w", ErrAllocationLost)
		}
		x.fence = answer.Fence
		return answer.Granted, refused, err
	}, x.release)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// allocationPath is the resource of an allocation.
func allocationPath(id string) string { return "/v1/allocations/" + url.PathEscape(id) }

// ID returns the allocation's id.
func (x *Allocation) ID() string { return x.id }

// Fence returns the offset of the event with which the allocation was granted. What is granted later has a higher one.
func (x *Allocation) Fence() uint64 { return x.fence }

// Context is done once the allocation is over, or AllocationOptions.Reserve before. Its cause is ErrAllocationLost, or
// context.Canceled after a Release.
func (x *Allocation) Context() context.Context { return x.ctx }

// EndedEarly reports whether the cluster has ended the allocation before its lease was over: for a CRITICAL request, or
// by an operator. What it allowed may take a moment to stop then.
func (x *Allocation) EndedEarly() bool { return x.endedEarly.Load() }

// renew renews the allocation once, or finds that it is lost.
func (x *Allocation) renew(ctx context.Context) (lost bool, err error) {
	over, err := x.c.allocations.Do(ctx, api.AllocationLease{Allocation: x.id, Fence: x.fence})
	return len(over) > 0, err
}

// renewAllocations renews allocations in one request, and returns those that are over.
func (c *Client) renewAllocations(
	ctx context.Context, leases []api.AllocationLease,
) (over []api.AllocationLease, err error) {
	var answer api.AllocationRenewed
	err = c.putLease(ctx, "/v1/allocations", api.AllocationRenewal{Leases: leases}, &answer)
	return answer.Lost, err
}

// Release frees what is allocated. Context is done before.
func (x *Allocation) Release(ctx context.Context) error {
	x.stop()
	return x.release(ctx)
}

// release ends the allocation, or its request.
func (x *Allocation) release(ctx context.Context) error {
	return x.c.Admin().ReleaseAllocation(ctx, x.id)
}

// Resources goes through the resources, by name, as the node that answers knows them. An error is the last that it
// yields.
func (a *Admin) Resources(ctx context.Context) iter.Seq2[ResourceInfo, error] {
	open := func(p *api.ResourcePage) ([]ResourceInfo, string) { return p.Resources, p.Next }
	return eachOfPages(ctx, a, "/v1/resources", url.Values{}, open)
}

// resourcePath is the route of a resource.
func resourcePath(name string) string { return "/v1/resources/" + url.PathEscape(name) }

// SetResource declares a resource, or changes it.
func (a *Admin) SetResource(ctx context.Context, name string, r NewResource) (ResourceInfo, error) {
	var set ResourceInfo
	err := a.Do(ctx, http.MethodPut, resourcePath(name), nil, r, &set)
	return set, err
}

// RemoveResource removes a resource of which nobody has or wants anything.
func (a *Admin) RemoveResource(ctx context.Context, name string) error {
	return a.Do(ctx, http.MethodDelete, resourcePath(name), nil, nil, nil)
}

// Allocations goes through what is granted or waits, by id, as the node that answers knows it. An error is the last
// that it yields.
func (a *Admin) Allocations(ctx context.Context) iter.Seq2[AllocationInfo, error] {
	open := func(p *api.AllocationPage) ([]AllocationInfo, string) { return p.Allocations, p.Next }
	return eachOfPages(ctx, a, "/v1/allocations", url.Values{}, open)
}

// ReleaseAllocation ends an allocation, or a request that waits, whoever has it.
func (a *Admin) ReleaseAllocation(ctx context.Context, id string) error {
	return a.Do(ctx, http.MethodDelete, allocationPath(id), nil, nil, nil)
}
