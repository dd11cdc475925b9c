package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A request for an allocation asks for amounts of one or several resources, and gets all of them or none. It waits in
// the queue of each of its resources, by class and then by arrival. A request is granted once it is the first in all
// of its queues and all amounts are free.
//
//   - So what waits reserves nothing, and nothing overtakes it in the queue of a resource that both want: a large
//     request cannot starve because of small ones.
//   - The order is the same in all queues, so the first request of all is the first in each of its queues. It waits
//     only for those that hold something, who wait for nothing: there is no deadlock.
//   - The class of a request is its priority at first. It rises by one after each allocations.rise_after, so nothing
//     starves because of what arrives later.
//   - A request that was made as CRITICAL, is the first in all of its queues and lacks amounts of preemptible resources
//     alone, ends allocations there that never were more than LOW, those first that arrived last.
//   - A request for more than the capacity, which may have been lowered, is dropped when it is the first in a queue, so
//     that it holds up nobody. Its caller learns why when it renews the request.
//
// As for roles, what is not renewed ends by led time.

// MaxAllocationTTL bounds the TTL of an allocation. The other bounds are those of roles.
const MaxAllocationTTL = 24 * time.Hour

// Reasons of refusals, beside their codes.
const (
	ReasonUnknownResource = "unknown_resource" // not found
	ReasonResourceInUse   = "resource_in_use"  // conflict
	ReasonOverCapacity    = "over_capacity"    // conflict: more than the resource has
	ReasonOtherRequest    = "other_request"    // conflict: the id is that of another request
)

// Allocation is granted, or a request for it waits. The Session of its Claim is its id.
type Allocation struct {
	Claim

	Amounts  []frame.Amount `json:"amounts"`
	Priority frame.Priority `json:"priority"`
	Class    frame.Priority `json:"class"`             // the priority, or what it rose to while it waited
	Rises    int64          `json:"rises_ns,omitzero"` // when it rises next; 0 is never
	Fence    uint64         `json:"fence,omitzero"`    // 0 while it waits

	// As in Role.
	changed  bool
	acquired int
}

// granted reports whether the holder has the amounts.
func (x *Allocation) granted() bool { return x.Fence != 0 || x.acquired != 0 }

// preemptible reports whether a CRITICAL request may end the allocation.
func (x *Allocation) preemptible() bool { return x.Class == frame.PriorityLow }

// AllocationAnswer is an allocation after a command.
type AllocationAnswer struct {
	ID    string        `json:"id"`
	Fence uint64        `json:"fence,omitempty"` // 0 if it is not granted
	TTL   time.Duration `json:"ttl_ns,omitempty"`
	Waits bool          `json:"waits,omitempty"`

	acquired int // as in Role
}

// allocationApplier decides who has how much of which resource. One is made for each entry.
type allocationApplier struct {
	*applying

	steps    int                 // how many more ends, rises and looks at queues the entry may do
	changes  []*Allocation       // in the order of their first change
	marks    []*Resource         // whose Unsettled may have changed
	unfenced []*AllocationAnswer // of allocations that this entry has granted
	settled  []string            // ids that were granted, or are gone
}

// requestAllocation grants amounts, puts the request into its queues, or renews what the caller has. A refusal changes
// nothing. The answer says whether it is granted or waits.
func (a *allocationApplier) requestAllocation(c frame.AllocationRequest) Result {
	ttl := cmp.Or(c.TTL, DefaultRoleTTL)
	refused := refuseClaim(ttl, MaxAllocationTTL, claimText{"id", c.ID}, claimText{"holder", c.Holder})
	if refused == nil {
		refused = refuseAmounts(c)
	}
	if refused != nil {
		return *refused
	}
	// The claim as it would be: held or waiting from now on.
	claim := Claim{Holder: c.Holder, Session: c.ID, TTL: ttl, Since: a.time()}
	a.renewClaim(&claim)

	x := a.s.shares.allocation(c.ID)
	switch {
	case x != nil && (x.Priority != c.Priority || !slices.Equal(x.Amounts, c.Amounts)):
		r := refuse(Conflict, "id", fmt.Sprintf("%s is an allocation with other amounts, or another priority", c.ID),
			"use a new random id for each request")
		r.Refusal.Reason = ReasonOtherRequest
		return r
	// What is granted keeps its amounts, even if the capacity was lowered since.
	case x == nil || !x.granted():
		if refused := a.refuseCapacity(c.Amounts); refused != nil {
			return *refused
		}
	}
	switch {
	// It would have waited, and its caller does not want to any more.
	case x != nil && !x.granted() && !c.Wait:
		a.drop(x)
		a.settle()
		return Result{Allocation: &AllocationAnswer{ID: c.ID}}
	// A repeated request is a renewal. It keeps its place.
	case x != nil:
		claim.Since, claim.Arrival = x.Since, x.Arrival
		a.setClaim(x, claim)
		return a.answer(x)
	}
	// Only what is new takes a place among all.
	if most := a.s.settings.AllocationsMax; uint64(a.s.shares.byID.Len()) >= most {
		return refuse(Overloaded, "id", fmt.Sprintf("%d allocations are granted or wait, which is the limit", most),
			"release some, wait until some end, or raise allocations.max")
	}

	// The command pays for the look at its own request, so that the answer does not depend on what else is in the entry.
	a.s.meta.Arrivals++
	claim.Arrival = a.s.meta.Arrivals
	x = &Allocation{Claim: claim, Amounts: a.s.shares.shared(c.Amounts), Priority: c.Priority, Class: c.Priority}
	a.scheduleRise(x)
	a.s.shares.enter(x)
	a.change(x)
	a.advance(x, c.Wait)
	// Without a wait it is granted at once or not at all.
	if !x.granted() && !c.Wait {
		a.drop(x)
	}
	a.settle()
	return a.answer(x)
}

// refuseAmounts returns what is wrong with the form of a request, and nil for a sound one.
func refuseAmounts(c frame.AllocationRequest) *Result {
	var r Result
	if !c.Priority.Known() {
		r = refuse(Invalid, "priority", c.Priority.String(), "send LOW, NORMAL, HIGH or CRITICAL")
		return &r
	}
	if n := len(c.Amounts); n == 0 || n > frame.MaxAmounts {
		r = refuse(Invalid, "amounts", fmt.Sprintf("%d amounts", n), fmt.Sprintf("send 1 to %d", frame.MaxAmounts))
		return &r
	}
	// Sorted and without repetition, two requests for the same are equal, and no resource has a request twice.
	for i, one := range c.Amounts {
		if one.Amount == 0 || (i > 0 && c.Amounts[i-1].Resource >= one.Resource) {
			r = refuse(Invalid, "amounts", fmt.Sprintf("%d of %q, at place %d", one.Amount, one.Resource, i),
				"send amounts above 0, by the name of their resource, each once")
			return &r
		}
	}
	return nil
}

// refuseCapacity returns which of the amounts can never be granted, and nil if all can.
func (a *allocationApplier) refuseCapacity(amounts []frame.Amount) *Result {
	for _, one := range amounts {
		r := a.s.shares.resource(one.Resource)
		if r == nil {
			refused := unknownResource("amounts", one.Resource)
			return &refused
		}
		if one.Amount > r.Capacity {
			refused := refuse(Conflict, "amounts",
				fmt.Sprintf("%d of %s, which has a capacity of %d", one.Amount, one.Resource, r.Capacity),
				"ask for less, or raise the capacity")
			refused.Refusal.Reason = ReasonOverCapacity
			return &refused
		}
	}
	return nil
}

// renewAllocationClaim renews what a request has made, granted or waiting. If there is none, nothing waits in the
// answer; one that can never be granted is refused with what is wrong, as it may have been dropped for that.
func (a *allocationApplier) renewAllocationClaim(c frame.AllocationRenewClaim) Result {
	x := a.s.shares.allocation(c.ID)
	// What is granted is renewed whatever the capacity is.
	if x == nil || !x.granted() {
		if refused := a.refuseCapacity(c.Amounts); refused != nil {
			return *refused
		}
	}
	if x == nil {
		return Result{Allocation: &AllocationAnswer{ID: c.ID}}
	}
	claim := x.Claim
	a.renewClaim(&claim)
	a.setClaim(x, claim)
	return a.answer(x)
}

// renewAllocations renews leases. The answer has those that are over.
func (a *allocationApplier) renewAllocations(c frame.AllocationRenew) Result {
	r := Result{}
	for i, lease := range c.Leases {
		x := a.s.shares.allocation(lease.ID)
		// A fence that this entry gives out is not known to anybody yet.
		if x == nil || lease.Fence == 0 || x.Fence != lease.Fence {
			r.LostLeases = append(r.LostLeases, i)
			continue
		}
		claim := x.Claim
		a.renewClaim(&claim)
		a.setClaim(x, claim)
	}
	return r
}

// releaseAllocation ends an allocation, or what waits for one. An id that has neither is answered in the same way, so
// a retry is safe.
func (a *allocationApplier) releaseAllocation(c frame.AllocationRelease) Result {
	switch x := a.s.shares.allocation(c.ID); {
	case x == nil:
	case x.granted():
		a.end(x, event.AllocationReleased, nil)
	default:
		a.drop(x)
	}
	// What is free now may be somebody else's turn.
	a.settle()
	return Result{Allocation: &AllocationAnswer{ID: c.ID}}
}

// expireAllocations ends the allocations and requests that were not renewed in time, has others rise, and grants what
// is free now.
func (a *allocationApplier) expireAllocations() {
	// In the order in which they end, so that what is left for the next entry ended last.
	for a.steps > 0 {
		_, x, some := a.s.shares.ends.Min()
		if !some || !a.over(x.Claim) {
			break
		}
		a.steps--
		if x.granted() {
			a.end(x, event.AllocationLost, map[string]any{"cause": causeExpired})
		} else {
			a.drop(x)
		}
	}
	for a.steps > 0 {
		_, x, some := a.s.shares.rises.Min()
		if !some || x.Rises > a.now {
			break
		}
		a.steps--
		a.rise(x)
	}
	// Both may have made another request the first of its queues.
	a.settle()
}

// settle looks at the queues in which the first request may have to be granted, by the names of their resources. What
// the entry has no steps left for is done by the next one.
func (a *allocationApplier) settle() {
	for a.steps > 0 {
		_, r, some := a.s.shares.unsettled.Min()
		if !some {
			return
		}
		a.steps--
		// Whatever is granted or dropped may be followed by another one, so the queue is settled once nothing is.
		if first := r.first(); first == nil || !a.advance(first, true) {
			a.setUnsettled(r, false)
		}
	}
}

// advance grants a request if it is its turn, or drops it if nobody will ever grant it. It reports whether it did
// anything. partly says whether a request may end some of the allocations that are in its way, and wait for the next
// entry to end the others.
func (a *allocationApplier) advance(x *Allocation, partly bool) bool {
	// Its turn is once it is the first in all of its queues. A claim that is over gets nothing.
	first, free, never := true, true, a.over(x.Claim)
	for _, one := range x.Amounts {
		r := a.s.shares.resource(one.Resource)
		first = first && r.first() == x
		free = free && r.lacks(one.Amount) == 0
		never = never || one.Amount > r.Capacity
	}
	switch {
	case never:
		a.drop(x)
		return true
	case !first:
		return false
	case free:
		a.grant(x)
		return true
	}

	// It lacks something, and ends what it may.
	victims, possible, enough := a.victims(x)
	if !possible || (!enough && !partly) {
		return false
	}
	// Each victim is a step, also if another entry has to end the rest.
	for _, v := range victims {
		a.steps--
		a.preempt(v.x, v.of, x)
	}
	if enough {
		a.grant(x)
	} else {
		// The next entry looks at it again.
		a.unsettleAll(x)
	}
	return true
}

// victim is an allocation that is in the way of a CRITICAL request, and a resource of which it lacks an amount.
type victim struct {
	x  *Allocation
	of *Resource
}

// victims returns the allocations that have to end for a request to be granted. That is possible if what may be
// preempted is enough; the list is enough if the entry has steps left for all of them.
func (a *allocationApplier) victims(x *Allocation) (list []victim, possible, enough bool) {
	if x.Priority != frame.PriorityCritical {
		return nil, false, false
	}
	// First whether it can be enough at all: nobody is ended in vain.
	for _, one := range x.Amounts {
		r := a.s.shares.resource(one.Resource)
		if lacks := r.lacks(one.Amount); lacks > 0 && (!r.Preemptible || lacks > r.low) {
			return nil, false, false
		}
	}
	// Then who: a victim frees amounts of all of its resources, so one may be enough for several.
	freed := map[string]uint64{} // by the victims so far; never iterated
	chosen := map[*Allocation]bool{}
	for _, one := range x.Amounts {
		r := a.s.shares.resource(one.Resource)
		lacks := r.lacks(one.Amount)
		for _, v := range r.lows.Descend(btreemap.Max[uint64](), btreemap.Min[uint64]()) {
			if freed[r.Name] >= lacks {
				break
			}
			if chosen[v] {
				continue
			}
			if len(list) >= a.steps {
				return list, true, false
			}
			chosen[v] = true
			list = append(list, victim{v, r})
			for _, amount := range v.Amounts {
				freed[amount.Resource] += amount.Amount
			}
		}
	}
	return list, true, true
}

// grant gives a request its amounts.
func (a *allocationApplier) grant(x *Allocation) {
	// Out of the queues and back among those that have something: enter goes by what the allocation is.
	a.s.shares.leave(x)
	waited := a.time().Sub(x.Since)
	// acquired makes it granted: its fence is not known before the entry's events have offsets.
	x.Since, x.Rises, x.acquired = a.time(), 0, len(a.late)+1
	a.s.shares.enter(x)
	// Whoever is the first in its queues from here on may be granted, too.
	a.unsettleAll(x)
	a.change(x)
	a.report(x, event.AllocationGranted, map[string]any{"risen_to": x.Class.String(), "waited_ms": waited.Milliseconds()})
	a.settled = append(a.settled, x.Session)
}

// end takes the amounts of an allocation from its holder.
func (a *allocationApplier) end(x *Allocation, kind event.Type, payload map[string]any) {
	if payload == nil {
		payload = map[string]any{}
	}
	payload["held_ms"] = a.time().Sub(x.Since).Milliseconds()
	// Reported while it still has its fence.
	a.report(x, kind, payload)
	a.discard(x)
	a.unsettleAll(x)
}

// preempt ends an allocation for a CRITICAL request that lacks an amount of a resource.
func (a *allocationApplier) preempt(x *Allocation, of *Resource, by *Allocation) {
	// How much of that resource the request asks for, as the event says why.
	wanted := uint64(0)
	for _, one := range by.Amounts {
		if one.Resource == of.Name {
			wanted = one.Amount
		}
	}
	a.end(x, event.JobPreempted, map[string]any{
		"resource":  of.Name,
		"capacity":  of.Capacity,
		"granted":   of.Granted,
		"wanted":    wanted,
		"by":        by.Session,
		"by_holder": by.Holder,
	})
}

// drop removes a request that waits. Those after it may have become the first.
func (a *allocationApplier) drop(x *Allocation) {
	for _, one := range x.Amounts {
		if r := a.s.shares.resource(one.Resource); r.first() == x {
			a.unsettle(r)
		}
	}
	a.discard(x)
}

// discard removes an allocation, granted or not. Its id is free from here on.
func (a *allocationApplier) discard(x *Allocation) {
	a.s.shares.leave(x)
	a.tx.Delete(key(prefixAllocation, x.Session))
	a.settled = append(a.settled, x.Session)
}

// rise has a request wait in the next class.
func (a *allocationApplier) rise(x *Allocation) {
	// Its place in all queues depends on the class.
	a.s.shares.leave(x)
	x.Class++
	a.scheduleRise(x)
	a.s.shares.enter(x)
	a.unsettleAll(x)
	a.change(x)
}

// scheduleRise sets when a request rises next. A request in the highest class has nowhere to rise to.
func (a *allocationApplier) scheduleRise(x *Allocation) {
	x.Rises = 0
	if after := a.s.settings.AllocationsRise; after > 0 && x.Class < frame.PriorityCritical {
		x.Rises = a.now + int64(after)
	}
}

// setClaim replaces the claim of an allocation. Its amounts and its place in queues stay.
func (a *allocationApplier) setClaim(x *Allocation, c Claim) {
	a.s.shares.unrank(x)
	x.Claim = c
	a.s.shares.rank(x)
	a.change(x)
}

// unsettleAll has the queues of an allocation looked at.
func (a *allocationApplier) unsettleAll(x *Allocation) {
	for _, one := range x.Amounts {
		a.unsettle(a.s.shares.resource(one.Resource))
	}
}

// unsettle has the queue of a resource looked at, if anything waits there.
func (a *allocationApplier) unsettle(r *Resource) {
	if r.Waiting > 0 {
		a.setUnsettled(r, true)
	}
}

// setUnsettled marks a resource, or removes the mark.
func (a *allocationApplier) setUnsettled(r *Resource, unsettled bool) {
	// It is stored once, at the end of the entry, and only if it differs then.
	if !r.marked {
		r.marked = true
		a.marks = append(a.marks, r)
	}
	r.Unsettled = unsettled
	if unsettled {
		a.s.shares.unsettled.ReplaceOrInsert(r.Name, r)
	} else {
		a.s.shares.unsettled.Delete(r.Name)
	}
}

// change remembers that an allocation has to be stored once its fence is known.
func (a *allocationApplier) change(x *Allocation) {
	if !x.changed {
		x.changed = true
		a.changes = append(a.changes, x)
	}
}

// report adds an event about an allocation. It adds the members that all of them have to payload.
func (a *allocationApplier) report(x *Allocation, kind event.Type, payload map[string]any) {
	amounts := map[string]uint64{}
	for _, one := range x.Amounts {
		amounts[one.Resource] = one.Amount
	}
	payload["allocation"], payload["holder"] = x.Session, x.Holder
	payload["amounts"], payload["priority"] = amounts, x.Priority.String()
	a.reportFenced(kind, x.Session, x.Fence, x.acquired, payload)
}

// answer returns an allocation as its caller sees it.
func (a *allocationApplier) answer(x *Allocation) Result {
	answer := &AllocationAnswer{ID: x.Session, Fence: x.Fence, acquired: x.acquired}
	// One that was dropped has only its id left.
	if a.s.shares.allocation(x.Session) == x {
		answer.TTL, answer.Waits = x.TTL, !x.granted()
	}
	// storeAllocations completes it.
	if x.acquired != 0 {
		a.unfenced = append(a.unfenced, answer)
	}
	return Result{Allocation: answer}
}

// storeAllocations completes the answers about allocations that the entry has granted, and stores what it has changed.
// It is called when all other events of the entry have their offsets and late is appended next, so the fences are
// known.
func (a *allocationApplier) storeAllocations() {
	// The fence is the offset of the event that reports the grant.
	for _, answer := range a.unfenced {
		answer.Fence = a.lateOffset(answer.acquired)
	}
	for _, x := range a.changes {
		x.changed = false
		if x.acquired != 0 {
			x.Fence, x.acquired = a.lateOffset(x.acquired), 0
		}
		// One that has ended since was deleted then.
		if a.s.shares.allocation(x.Session) == x {
			a.tx.setJSON(key(prefixAllocation, x.Session), x)
		}
	}
	// A resource that was removed since is not stored again.
	for _, r := range a.marks {
		r.marked = false
		if r.Unsettled != r.stored && a.s.shares.resource(r.Name) == r {
			a.storeResource(r)
		}
	}
}
