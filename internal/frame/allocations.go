package frame

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// MaxAmounts bounds the resources of which one allocation has an amount.
const MaxAmounts = 16

// Priority is the class in which a request for an allocation waits.
type Priority byte

// The priorities, the lowest first.
const (
	PriorityLow      Priority = 1
	PriorityNormal   Priority = 2
	PriorityHigh     Priority = 3
	PriorityCritical Priority = 4
)

var priorityNames = [...]string{PriorityLow: "LOW", PriorityNormal: "NORMAL", PriorityHigh: "HIGH",
	PriorityCritical: "CRITICAL"}

// Known reports whether p is one of the priorities.
func (p Priority) Known() bool { return p >= PriorityLow && p <= PriorityCritical }

// String returns the name of a priority, such as NORMAL.
func (p Priority) String() string {
	if !p.Known() {
		return fmt.Sprintf("priority %d", byte(p))
	}
	return priorityNames[p]
}

// MarshalText implements encoding.TextMarshaler.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Priority) UnmarshalText(text []byte) error {
	for one := PriorityLow; one.Known(); one++ {
		if string(text) == one.String() {
			*p = one
			return nil
		}
	}
	return fmt.Errorf("%q is none of LOW, NORMAL, HIGH and CRITICAL", text)
}

// Amount is a part of a resource, in its unit.
type Amount struct {
	Resource string `json:"resource"`
	Amount   uint64 `json:"amount"`
}

// ResourceSet declares a resource, or changes it. A lower capacity takes nothing from those who have more.
type ResourceSet struct {
	Name        string
	Capacity    uint64
	Unit        string // a text for people, such as Mbit/s
	Preemptible bool   // a CRITICAL request may end LOW allocations of it
}

// ResourceRemove removes a resource of which nobody has or wants an amount.
type ResourceRemove struct{ Name string }

// AllocationRequest asks for all of the amounts or none. ID is the caller's own, and random: the same command again
// renews the claim, whether it was granted or waits. With Wait a request that cannot be granted waits for its turn;
// without, it leaves the queue.
type AllocationRequest struct {
	ID       string
	Holder   string   // a name for people
	Amounts  []Amount // by resource, each once
	Priority Priority
	TTL      time.Duration // 0 takes the default
	Wait     bool
}

// AllocationRenewClaim renews what an AllocationRequest has made, granted or waiting. It makes none: one that has ended
// stays ended. The amounts are those of the request.
type AllocationRenewClaim struct {
	ID      string
	Amounts []Amount
}

// AllocationRenew renews allocations. It grants nothing: one that is lost stays lost.
type AllocationRenew struct{ Leases []AllocationLease }

// AllocationLease is an allocation as its holder knows it.
type AllocationLease struct {
	ID    string
	Fence uint64 // the offset of the event with which it was granted
}

// AllocationRelease ends an allocation, or takes a request out of the queue.
type AllocationRelease struct{ ID string }

// Kind implements Command.
func (ResourceSet) Kind() Kind          { return KindResourceSet }
func (ResourceRemove) Kind() Kind       { return KindResourceRemove }
func (AllocationRequest) Kind() Kind    { return KindAllocationRequest }
func (AllocationRenewClaim) Kind() Kind { return KindAllocationRenewClaim }
func (AllocationRenew) Kind() Kind      { return KindAllocationRenew }
func (AllocationRelease) Kind() Kind    { return KindAllocationRelease }

// appendTo writes name, capacity, unit, preemptible.
func (c ResourceSet) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(fields.Append(b, c.Name), c.Capacity)
	return fields.AppendBool(fields.Append(b, c.Unit), c.Preemptible)
}

func (c ResourceRemove) appendTo(b []byte) []byte    { return fields.Append(b, c.Name) }
func (c AllocationRelease) appendTo(b []byte) []byte { return fields.Append(b, c.ID) }

// appendTo writes id, holder, the amounts after their number, one byte of priority, TTL, wait.
func (c AllocationRequest) appendTo(b []byte) []byte {
	b = appendAmounts(fields.Append(fields.Append(b, c.ID), c.Holder), c.Amounts)
	return fields.AppendBool(binary.AppendVarint(append(b, byte(c.Priority)), int64(c.TTL)), c.Wait)
}

// appendTo writes id, the amounts after their number.
func (c AllocationRenewClaim) appendTo(b []byte) []byte {
	return appendAmounts(fields.Append(b, c.ID), c.Amounts)
}

// appendAmounts writes amounts after their number, each as resource, amount.
func appendAmounts(b []byte, amounts []Amount) []byte {
	b = binary.AppendUvarint(b, uint64(len(amounts)))
	for _, one := range amounts {
		b = binary.AppendUvarint(fields.Append(b, one.Resource), one.Amount)
	}
	return b
}

// appendTo writes the leases after their number, each as id, fence.
func (c AllocationRenew) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = binary.AppendUvarint(fields.Append(b, l.ID), l.Fence)
	}
	return b
}

func (d *decoder) resourceSet() ResourceSet {
	return ResourceSet{Name: d.string(), Capacity: d.Uvarint(), Unit: d.string(), Preemptible: d.Bool()}
}

// amounts refuses more of them than an allocation may have.
func (d *decoder) amounts() (list []Amount) {
	n := d.Count(2)
	if n > MaxAmounts {
		d.Fail("%d amounts in one command", n)
		return nil
	}
	for range n {
		list = append(list, Amount{Resource: d.string(), Amount: d.Uvarint()})
	}
	return list
}

func (d *decoder) allocationRequest() AllocationRequest {
	c := AllocationRequest{ID: d.string(), Holder: d.string(), Amounts: d.amounts()}
	c.Priority, c.TTL, c.Wait = Priority(d.Byte()), time.Duration(d.Varint()), d.Bool()
	return c
}

// allocationRenew refuses more leases than a command may have.
func (d *decoder) allocationRenew() AllocationRenew {
	n := d.Count(2)
	if n > MaxLeases {
		d.Fail("%d leases in one command", n)
		return AllocationRenew{}
	}
	c := AllocationRenew{Leases: make([]AllocationLease, 0, n)}
	for range n {
		c.Leases = append(c.Leases, AllocationLease{ID: d.string(), Fence: d.Uvarint()})
	}
	return c
}
