package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/internal/frame"
)

// MaxCapacity bounds the capacity of a resource, so that JSON readers of any language have it exactly.
const MaxCapacity = 1 << 53

// maxUnit bounds the text of a unit, in bytes.
const maxUnit = 64

// Resource has a capacity, of which allocations have amounts.
//
// Granted <= Capacity, unless the capacity was lowered: then nothing is granted until that holds again.
type Resource struct {
	Name        string `json:"-"`
	Capacity    uint64 `json:"capacity"`             // in its unit
	Unit        string `json:"unit,omitempty"`       // for people
	Preemptible bool   `json:"preemptible,omitzero"` // whether CRITICAL requests may end LOW allocations of it
	// Unsettled is set while the first in the queue may have to be granted, and no entry has tried. It is stored,
	// because a machine that loads the state must try in the same entries.
	Unsettled bool `json:"unsettled,omitzero"`

	// What follows is computed from the allocations.
	Granted uint64 `json:"-"` // the amounts of all that is granted
	Grants  int    `json:"-"` // how many that are
	Waiting int    `json:"-"` // requests

	low   uint64                                   // of Granted: what preemptible allocations have
	lows  orderedMap[uint64, *Allocation]          // these, by arrival
	queue orderedMap[allocationPlace, *Allocation] // the requests that wait

	marked bool // whether the entry may have changed Unsettled, which was stored at its beginning as
	stored bool
}

// allocationPlace is the place of a request in each queue that it is in: by class, the highest first, then by arrival.
type allocationPlace struct {
	class   frame.Priority
	arrival uint64
}

// place is that of a request that waits.
func (x *Allocation) place() allocationPlace { return allocationPlace{x.Class, x.Arrival} }

// newResource returns a resource that nobody has anything of. The highest class comes first in its queue, and in a
// class who arrived first.
func newResource(name string) *Resource {
	return &Resource{
		Name: name,
		lows: btreemap.New[uint64, *Allocation](8, cmp.Compare[uint64]),
		queue: btreemap.New[allocationPlace, *Allocation](8, func(a, b allocationPlace) int {
			return cmp.Or(cmp.Compare(b.class, a.class), cmp.Compare(a.arrival, b.arrival))
		}),
	}
}

// first returns the first request in the queue; nil if nobody waits.
func (r *Resource) first() *Allocation {
	_, x, _ := r.queue.Min()
	return x
}

// lacks returns how much more would have to be free for n to be granted. The sum cannot overflow: both are at most
// MaxCapacity.
func (r *Resource) lacks(n uint64) uint64 {
	if r.Granted+n <= r.Capacity {
		return 0
	}
	return r.Granted + n - r.Capacity
}

// put adds an allocation: to those that are granted, or to the queue. n is what the allocation has or wants of the
// resource.
func (r *Resource) put(x *Allocation, n uint64) {
	if !x.granted() {
		r.queue.ReplaceOrInsert(x.place(), x)
		r.Waiting++
		return
	}
	r.Granted, r.Grants = r.Granted+n, r.Grants+1
	if x.preemptible() {
		r.low += n
		r.lows.ReplaceOrInsert(x.Arrival, x)
	}
}

// remove is the opposite of put.
func (r *Resource) remove(x *Allocation, n uint64) {
	if !x.granted() {
		r.queue.Delete(x.place())
		r.Waiting--
		return
	}
	r.Granted, r.Grants = r.Granted-n, r.Grants-1
	if x.preemptible() {
		r.low -= n
		r.lows.Delete(x.Arrival)
	}
}

// allocationDue is when an allocation ends, or rises to the next class.
type allocationDue struct {
	at int64
	id string // makes the order of equal times the same on every node
}

// allocations are the resources, and what is granted of them or waits.
type allocations struct {
	resources orderedMap[string, *Resource]          // by name
	byID      orderedMap[string, *Allocation]        // granted and waiting
	ends      orderedMap[allocationDue, *Allocation] // when each ends, in led time
	rises     orderedMap[allocationDue, *Allocation] // when those that wait rise, in replicated time
	unsettled orderedMap[string, *Resource]          // the resources that are Unsettled
}

// newAllocations returns no resources and no allocations.
func newAllocations() allocations {
	byTime := func() orderedMap[allocationDue, *Allocation] {
		return btreemap.New[allocationDue, *Allocation](32, func(a, b allocationDue) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
		})
	}
	return allocations{
		resources: btreemap.New[string, *Resource](32, strings.Compare),
		byID:      btreemap.New[string, *Allocation](32, strings.Compare),
		unsettled: btreemap.New[string, *Resource](32, strings.Compare),
		ends:      byTime(),
		rises:     byTime(),
	}
}

// resource returns a resource by its name, and nil for one that is not declared.
func (l *allocations) resource(name string) *Resource {
	_, r, _ := l.resources.Get(name)
	return r
}

// allocation returns an allocation by its id, and nil for one that is neither granted nor waiting.
func (l *allocations) allocation(id string) *Allocation {
	_, x, _ := l.byID.Get(id)
	return x
}

// shared returns amounts whose names are those of the resources, so that a thousand allocations have them once. All
// resources are declared.
func (l *allocations) shared(amounts []frame.Amount) []frame.Amount {
	list := make([]frame.Amount, len(amounts))
	for i, one := range amounts {
		list[i] = frame.Amount{Resource: l.resource(one.Resource).Name, Amount: one.Amount}
	}
	return list
}

// enter adds an allocation to everything that has it. Whether it is granted, its class and its arrival must not change
// until leave.
func (l *allocations) enter(x *Allocation) {
	l.byID.ReplaceOrInsert(x.Session, x)
	l.rank(x)
	for _, one := range x.Amounts {
		l.resource(one.Resource).put(x, one.Amount)
	}
}

// leave is the opposite of enter.
func (l *allocations) leave(x *Allocation) {
	l.byID.Delete(x.Session)
	l.unrank(x)
	for _, one := range x.Amounts {
		l.resource(one.Resource).remove(x, one.Amount)
	}
}

// rank enters when an allocation ends and rises.
func (l *allocations) rank(x *Allocation) {
	l.ends.ReplaceOrInsert(allocationDue{x.Due, x.Session}, x)
	// Only a request that waits rises.
	if x.Rises != 0 {
		l.rises.ReplaceOrInsert(allocationDue{x.Rises, x.Session}, x)
	}
}

// unrank is the opposite of rank. What does not rise is not in rises, and deleting it does nothing.
func (l *allocations) unrank(x *Allocation) {
	l.ends.Delete(allocationDue{x.Due, x.Session})
	l.rises.Delete(allocationDue{x.Rises, x.Session})
}

// sharesDue reports when requests have to be looked at or rise, if any have.
func (s *state) sharesDue(due func(at int64)) {
	if s.shares.unsettled.Len() > 0 {
		due(s.meta.Time)
	}
	if first, _, some := s.shares.rises.Min(); some {
		due(first.at)
	}
}

// loadResource reads a stored Resource. It is called before loadAllocation, which computes what is granted of it.
func (s *state) loadResource(name string, value []byte) error {
	r := newResource(name)
	if err := json.Unmarshal(value, r); err != nil {
		return err
	}
	r.stored = r.Unsettled
	s.shares.resources.ReplaceOrInsert(name, r)
	if r.Unsettled {
		s.shares.unsettled.ReplaceOrInsert(name, r)
	}
	return nil
}

// loadAllocation reads a stored Allocation, after the resources.
func (s *state) loadAllocation(id string, value []byte) error {
	x := &Allocation{}
	if err := json.Unmarshal(value, x); err != nil {
		return err
	}
	// shared and enter rely on it.
	for _, one := range x.Amounts {
		if s.shares.resource(one.Resource) == nil {
			return fmt.Errorf("%w: an allocation %q of %q, which is not declared", ErrDamaged, id, one.Resource)
		}
	}
	x.Amounts = s.shares.shared(x.Amounts)
	s.shares.enter(x)
	return nil
}

// setResource declares a resource, or changes it.
func (a *allocationApplier) setResource(c frame.ResourceSet) Result {
	if refused := (claimText{"resource", c.Name}).refuse(); refused != nil {
		return *refused
	}
	switch {
	case c.Capacity > MaxCapacity:
		return refuse(Invalid, "capacity", fmt.Sprintf("a capacity of %d", c.Capacity),
			fmt.Sprintf("send at most %d", uint64(MaxCapacity)))
	case len(c.Unit) > maxUnit:
		return refuse(Invalid, "unit", fmt.Sprintf("a unit of %d bytes", len(c.Unit)),
			fmt.Sprintf("send at most %d", maxUnit))
	}
	r := a.s.shares.resource(c.Name)
	// A new one takes a place.
	if r == nil {
		if most := a.s.settings.ResourcesMax; uint64(a.s.shares.resources.Len()) >= most {
			return refuse(Overloaded, "resource", fmt.Sprintf("%d resources are declared, which is the limit", most),
				"remove some, or raise allocations.resources_max")
		}
		r = newResource(c.Name)
		a.s.shares.resources.ReplaceOrInsert(r.Name, r)
	}
	r.Capacity, r.Unit, r.Preemptible = c.Capacity, c.Unit, c.Preemptible
	// With another capacity, the first in the queue may be granted, or never be.
	a.unsettle(r)
	// What wants more than that is dropped where it is the first in the queue of another resource, too.
	for _, x := range r.queue.Ascend(btreemap.Min[allocationPlace](), btreemap.Max[allocationPlace]()) {
		if slices.ContainsFunc(x.Amounts, func(one frame.Amount) bool {
			return one.Resource == r.Name && one.Amount > r.Capacity
		}) {
			a.unsettleAll(x)
		}
	}
	a.settle()
	a.storeResource(r)
	return Result{}
}

// removeResource removes a resource of which nobody has or wants anything.
func (a *allocationApplier) removeResource(c frame.ResourceRemove) Result {
	r := a.s.shares.resource(c.Name)
	switch {
	case r == nil:
		return unknownResource("resource", c.Name)
	case r.Grants+r.Waiting > 0:
		refused := refuse(Conflict, "resource",
			fmt.Sprintf("%s is in use: %d allocations granted, %d waiting", c.Name, r.Grants, r.Waiting),
			"set its capacity to 0, and release its allocations or wait until they end")
		refused.Refusal.Reason = ReasonResourceInUse
		return refused
	}
	// Nothing waits, so it is in no queue.
	a.s.shares.resources.Delete(r.Name)
	a.s.shares.unsettled.Delete(r.Name)
	a.tx.Delete(key(prefixResource, r.Name))
	return Result{}
}

// unknownResource refuses a command about a resource that is not declared.
func unknownResource(field, name string) Result {
	r := refuse(NotFound, field, fmt.Sprintf("there is no resource %q", name),
		"declare it: PUT /v1/resources/NAME, or ringlog allocation resource set NAME CAPACITY")
	r.Refusal.Reason = ReasonUnknownResource
	return r
}

// storeResource stores a resource.
func (a *allocationApplier) storeResource(r *Resource) {
	r.stored = r.Unsettled
	a.tx.setJSON(key(prefixResource, r.Name), r)
}

// copied returns a copy that readers may keep.
func (r *Resource) copied() Resource {
	c := *r
	c.lows, c.queue = nil, nil
	return c
}

// Resource returns a resource that is declared.
func (v *views) Resource(name string) (Resource, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r := v.s.shares.resource(name)
	if r == nil {
		return Resource{}, false
	}
	return r.copied(), true
}

// Resources returns up to limit resources whose names follow after, by name. They are copies, without their queues.
func (v *views) Resources(after string, limit int) []Resource {
	return read(v, func(s *state) []Resource {
		list := make([]Resource, 0, min(s.shares.resources.Len(), limit))
		for _, r := range s.shares.resources.Ascend(followers(after), btreemap.Max[string]()) {
			if len(list) == limit {
				break
			}
			list = append(list, r.copied())
		}
		return list
	})
}

// viewAllocation returns an allocation as readers see it. Its Due is replicated time, as readers know no other.
func (s *state) viewAllocation(x *Allocation) Allocation {
	c := *x
	c.Due = s.atLed(c.Due)
	return c
}

// Allocation returns an allocation that is granted or waits.
func (v *views) Allocation(id string) (Allocation, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x := v.s.shares.allocation(id)
	if x == nil {
		return Allocation{}, false
	}
	return v.s.viewAllocation(x), true
}

// Allocations returns up to limit allocations whose ids follow after, by id.
func (v *views) Allocations(after string, limit int) []Allocation {
	return read(v, func(s *state) []Allocation {
		list := make([]Allocation, 0, min(s.shares.byID.Len(), limit))
		for _, x := range s.shares.byID.Ascend(followers(after), btreemap.Max[string]()) {
			if len(list) == limit {
				break
			}
			list = append(list, s.viewAllocation(x))
		}
		return list
	})
}

// followers is the lower bound of the names that follow after.
func followers(after string) btreemap.LowerBound[string] {
	if after == "" {
		return btreemap.Min[string]()
	}
	return btreemap.GT(after)
}
