package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/joint"
)

// Allocations holds the operations on resources, and on the allocations of them. The state machine decides who gets
// what; this waits for it and shows it.
type Allocations struct {
	*core
	renewals *joint.Calls[frame.AllocationLease] // of all callers
}

// SetResource declares a resource, or changes it.
func (as *Allocations) SetResource(ctx context.Context, name string, r api.NewResource) (api.Resource, error) {
	// What is wrong with the request, before it is proposed.
	if err := as.checkNew("resource", name); err != nil {
		return api.Resource{}, err
	}
	// 0 is a capacity that has to be meant.
	if r.Capacity == nil {
		return api.Resource{}, api.Missing("capacity", "a whole number, in the resource's unit")
	}
	if err := api.CheckName("unit", r.Unit, as.Machine().Settings().Limits.NameBytes); err != nil {
		return api.Resource{}, err
	}
	_, err := as.proposeAndApply(ctx, frame.ResourceSet{Name: name, Capacity: *r.Capacity, Unit: r.Unit,
		Preemptible: r.Preemptible})
	if err != nil {
		return api.Resource{}, err
	}
	return as.Resource(name)
}

// RemoveResource removes a resource of which nobody has or wants anything, and returns it as it was.
func (as *Allocations) RemoveResource(ctx context.Context, name string) (api.Resource, error) {
	before, found := as.Machine().Resource(name)
	if _, err := as.proposeAndApply(ctx, frame.ResourceRemove{Name: name}); err != nil {
		return api.Resource{}, err
	}
	if !found {
		before.Name = name // this node had not applied its declaration yet
	}
	return viewResource(before), nil
}

// Resource returns a resource as this node knows it.
func (as *Allocations) Resource(name string) (api.Resource, error) {
	r, found := as.Machine().Resource(name)
	if !found {
		return api.Resource{}, &api.Error{Code: api.NotFound, Reason: fsm.ReasonUnknownResource, Field: "resource",
			Message: fmt.Sprintf("there is no resource %q", name),
			Remedy:  "list them: GET /v1/resources, or ringlog allocation resource ls"}
	}
	return viewResource(r), nil
}

// Resources returns the first resources whose names follow after, up to limit.
func (as *Allocations) Resources(after string, limit int) api.ResourcePage {
	page := api.ResourcePage{Resources: []api.Resource{}}
	// One more than the page has shows whether there is another page.
	for _, r := range as.Machine().Resources(after, limit+1) {
		if len(page.Resources) == limit {
			page.Next = page.Resources[limit-1].Resource
			break
		}
		page.Resources = append(page.Resources, viewResource(r))
	}
	return page
}

// viewResource is a resource as callers see it.
func viewResource(r fsm.Resource) api.Resource {
	return api.Resource{Resource: r.Name, Capacity: r.Capacity, Unit: r.Unit, Preemptible: r.Preemptible,
		Granted: r.Granted, Allocations: r.Grants, Waiting: r.Waiting}
}

// Request asks for an allocation, and waits for up to wait until it is granted. The error is nil also if it is not.
func (as *Allocations) Request(
	ctx context.Context, c frame.AllocationRequest, wait time.Duration,
) (api.AllocationAnswer, error) {
	out := api.AllocationAnswer{Allocation: c.ID}
	if err := as.checkRequest(c); err != nil {
		return out, err
	}
	// Without a wait the request takes no place in a queue.
	c.Wait = wait > 0
	// The watch begins before the request, so no change after the answer is missed.
	watch := as.Machine().WatchAllocation(c.ID)
	defer watch.Close()
	waited := time.NewTimer(wait)
	defer waited.Stop()
	var command frame.Command = c
	// Each round proposes: the request first, then its renewal, whose answer says as well whether it is granted.
	for {
		result, err := as.proposeAndApply(ctx, command)
		if err != nil {
			return out, err
		}
		// What the state machine has decided of it.
		x := result.Allocation
		out.Granted, out.Waiting, out.Fence = x.Fence != 0, x.Waits, x.Fence
		if x.TTL > 0 {
			out.TTL = x.TTL.String()
		}
		if !out.Waiting {
			return out, nil
		}
		// It waits in a queue. This node's state shows when its turn has come.
		again, err := as.awaitTurn(ctx, cmp.Or(c.TTL, fsm.DefaultRoleTTL), watch, waited.C, func() (holds, waits bool) {
			x, found := as.Machine().Allocation(c.ID)
			return x.Fence != 0 || (!found && as.overCapacity(c)), found
		})
		if err != nil {
			return out, err
		}
		// One that was dropped because it never fits is renewed, and refused with what is wrong. Any other that is not
		// there was released meanwhile.
		_, found := as.Machine().Allocation(c.ID)
		if !again && (found || !as.overCapacity(c)) {
			out.Waiting = found
			return out, nil
		}
		// A renewal that is under way while the request is released must not make it again.
		if as.Machine().FeatureLevel() >= frame.LevelFences {
			command = frame.AllocationRenewClaim{ID: c.ID, Amounts: c.Amounts}
		}
	}
}

// overCapacity reports whether a request asks for more than there is. A resource that is not known has none.
func (as *Allocations) overCapacity(c frame.AllocationRequest) bool {
	return slices.ContainsFunc(c.Amounts, func(one frame.Amount) bool {
		r, _ := as.Machine().Resource(one.Resource)
		return one.Amount > r.Capacity
	})
}

// checkRequest refuses a request that cannot be granted, whatever the state is.
func (as *Allocations) checkRequest(c frame.AllocationRequest) error {
	// What there is already is renewed, also if limits.name_bytes is lower now.
	check := as.checkNew
	if _, found := as.Machine().Allocation(c.ID); found {
		check = checkText
	}
	if err := cmp.Or(check("allocation", c.ID), check("holder", c.Holder)); err != nil {
		return err
	}
	// Whether there are such resources, and enough of them, the state machine decides.
	if n := len(c.Amounts); n == 0 || n > frame.MaxAmounts {
		return api.Refuse(api.InvalidArgument, "amounts", fmt.Sprintf("%d amounts", n),
			fmt.Sprintf(`send 1 to %d, as an object such as {"net:gpu-1": 50}`, frame.MaxAmounts))
	}
	for _, one := range c.Amounts {
		if err := checkText("amounts", one.Resource); err != nil {
			return err
		}
	}
	return nil
}

// checkNew refuses a name that nothing new can have.
func (as *Allocations) checkNew(field, name string) error {
	if err := api.CheckName(field, name, as.Machine().Settings().Limits.NameBytes); err != nil {
		return err
	}
	return checkText(field, name)
}

// checkText refuses a name that nothing can have.
func checkText(field, name string) error {
	if name == "" {
		return api.Missing(field, "a name")
	}
	return api.CheckName(field, name, fsm.MaxRoleText)
}

// AmountsOf returns amounts in the order of a command.
func AmountsOf(amounts map[string]uint64) []frame.Amount {
	list := make([]frame.Amount, 0, len(amounts))
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		list = append(list, frame.Amount{Resource: name, Amount: amounts[name]})
	}
	return list
}

// Renew renews allocations and returns those that are over.
func (as *Allocations) Renew(ctx context.Context, leases []api.AllocationLease) (api.AllocationRenewed, error) {
	if n := len(leases); n == 0 || n > frame.MaxLeases {
		return api.AllocationRenewed{}, api.Refuse(api.InvalidArgument, "leases", fmt.Sprintf("%d leases", n),
			fmt.Sprintf("send 1 to %d in a call", frame.MaxLeases))
	}
	renewed := make([]frame.AllocationLease, len(leases))
	for i, l := range leases {
		if err := checkText("allocation", l.Allocation); err != nil {
			return api.AllocationRenewed{}, Within(fmt.Sprintf("leases[%d]", i), err)
		}
		renewed[i] = frame.AllocationLease{ID: l.Allocation, Fence: l.Fence}
	}
	over, err := as.renewals.Do(ctx, renewed...)
	if err != nil {
		return api.AllocationRenewed{}, err
	}
	out := api.AllocationRenewed{Renewed: len(leases) - len(over), Lost: []api.AllocationLease{}}
	for _, l := range over {
		out.Lost = append(out.Lost, api.AllocationLease{Allocation: l.ID, Fence: l.Fence})
	}
	return out, nil
}

// Release ends an allocation, or takes a request out of its queues. That there is none is no error: a retry is safe.
func (as *Allocations) Release(ctx context.Context, id string) (api.AllocationAnswer, error) {
	out := api.AllocationAnswer{Allocation: id}
	if err := checkText("allocation", id); err != nil {
		return out, err
	}
	_, err := as.proposeAndApply(ctx, frame.AllocationRelease{ID: id})
	return out, err
}

// Get returns an allocation, or a request that waits, as this node knows it.
func (as *Allocations) Get(id string) (api.Allocation, error) {
	x, found := as.Machine().Allocation(id)
	if !found {
		return api.Allocation{}, api.Refuse(api.NotFound, "allocation", fmt.Sprintf("there is no allocation %q", id),
			"list them: GET /v1/allocations, or ringlog allocation ls; it may have ended")
	}
	return viewAllocation(x), nil
}

// List returns the first allocations and waiting requests whose ids follow after, up to limit.
func (as *Allocations) List(after string, limit int) api.AllocationPage {
	page := api.AllocationPage{Allocations: []api.Allocation{}}
	// One more than the page has shows whether there is another page.
	for _, x := range as.Machine().Allocations(after, limit+1) {
		if len(page.Allocations) == limit {
			page.Next = page.Allocations[limit-1].Allocation
			break
		}
		page.Allocations = append(page.Allocations, viewAllocation(x))
	}
	return page
}

// viewAllocation is an allocation as callers see it.
func viewAllocation(x fsm.Allocation) api.Allocation {
	v := api.Allocation{
		Allocation: x.Session,
		Holder:     x.Holder,
		Amounts:    map[string]uint64{},
		Priority:   x.Priority.String(),
		RisenTo:    x.Class.String(),
		Granted:    x.Fence != 0,
		Fence:      x.Fence,
		TTL:        x.TTL.String(),
		Since:      x.Since,
		Renewed:    x.Renewed,
		Expires:    time.Unix(0, x.Due).UTC(),
	}
	// By resource, as they were asked for.
	for _, one := range x.Amounts {
		v.Amounts[one.Resource] = one.Amount
	}
	return v
}
