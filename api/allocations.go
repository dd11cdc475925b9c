package api

import "time"

// Resource is a resource with its capacity, of which allocations have amounts.
type Resource struct {
	Resource    string `json:"resource"`
	Capacity    uint64 `json:"capacity"`
	Unit        string `json:"unit,omitempty"`
	Preemptible bool   `json:"preemptible"` // a CRITICAL request may end LOW allocations of it
	Granted     uint64 `json:"granted"`     // more than Capacity where that was lowered
	Allocations int    `json:"allocations"` // that are granted
	Waiting     int    `json:"waiting"`     // requests
}

// ResourcePage is a page of the resources, by name.
type ResourcePage struct {
	Resources []Resource `json:"resources"`
	Next      string     `json:"next,omitempty"` // parameter "after" for the next page; "" on the last
}

// NewResource declares a resource, or changes it. A lower capacity takes nothing from those who have more; nothing is
// granted until it fits.
type NewResource struct {
	Capacity    *uint64 `json:"capacity"`       // at most 2^53
	Unit        string  `json:"unit,omitempty"` // a text for people, such as Mbit/s
	Preemptible bool    `json:"preemptible,omitempty"`
}

// Allocation is an allocation that is granted, or a request that waits for one.
type Allocation struct {
	Allocation string            `json:"allocation"` // its id
	Holder     string            `json:"holder"`
	Amounts    map[string]uint64 `json:"amounts"` // by resource
	Priority   string            `json:"priority"`
	RisenTo    string            `json:"risen_to"` // the priority to which it rose while it waited
	Granted    bool              `json:"granted"`
	// Fence is the offset of the event with which it was granted; what is granted later has a higher one.
	Fence   uint64    `json:"fence,omitempty"`
	TTL     string    `json:"ttl"`
	Since   time.Time `json:"since"` // when it was granted, or began to wait
	Renewed time.Time `json:"renewed_at"`
	// Expires is when it ends unless it is renewed. Time without a leader does not count.
	Expires time.Time `json:"expires_at"`
}

// AllocationPage is a page of what is granted or waits, by id.
type AllocationPage struct {
	Allocations []Allocation `json:"allocations"`
	Next        string       `json:"next,omitempty"` // parameter "after" for the next page; "" on the last
}

// AllocationRequest asks for all of some amounts, or none.
type AllocationRequest struct {
	Holder   string            `json:"holder"`             // a name for people, such as host:pid
	Amounts  map[string]uint64 `json:"amounts"`            // by resource, at most 16
	Priority string            `json:"priority,omitempty"` // LOW, NORMAL, HIGH or CRITICAL; "" is NORMAL
	TTL      string            `json:"ttl,omitempty"`      // 2s to 24h; "" is 15s
	// Wait is for how long the call may wait for the allocation, "" not at all. A request that waits keeps its place for
	// the TTL after the call, unless it is released. The call ends then, too.
	Wait string `json:"wait,omitempty"`
}

// AllocationAnswer answers an AllocationRequest, or a release: then nothing is granted, and nothing waits.
type AllocationAnswer struct {
	Allocation string `json:"allocation"` // its id
	Granted    bool   `json:"granted"`
	Waiting    bool   `json:"waiting"`
	Fence      uint64 `json:"fence,omitempty"`
	TTL        string `json:"ttl,omitempty"`
}

// AllocationLease is an allocation as its holder knows it.
type AllocationLease struct {
	Allocation string `json:"allocation"`
	Fence      uint64 `json:"fence"`
}

// AllocationRenewal renews allocations. It grants nothing: one that is lost stays lost.
type AllocationRenewal struct {
	Leases []AllocationLease `json:"leases"` // at most 1000
}

// AllocationRenewed answers an AllocationRenewal.
type AllocationRenewed struct {
	Renewed int               `json:"renewed"`
	Lost    []AllocationLease `json:"lost"` // those that are over
}
