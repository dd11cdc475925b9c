package api

import "time"

// Role is a role, who holds it and who waits for it.
type Role struct {
	Role   string `json:"role"`
	Holder string `json:"holder,omitempty"` // "" if nobody holds it
	// Fence is the offset of the event with which the holder acquired it; a later holder has a higher one.
	Fence   uint64    `json:"fence,omitempty"`
	TTL     string    `json:"ttl,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed_at,omitzero"`
	// Expires is when the holder loses the role unless it renews its lease. Time without a leader does not count.
	Expires time.Time `json:"expires_at,omitzero"`
	Waiting int       `json:"waiting"` // claims in the queue
	// Queue has the first MaxRoleQueue claims, in the order in which they get the role. A list of roles has none.
	Queue []RoleClaim `json:"queue,omitempty"`
}

// MaxRoleQueue bounds Role.Queue.
const MaxRoleQueue = 100

// RoleClaim is a claim that waits for a role.
type RoleClaim struct {
	Holder  string    `json:"holder"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires_at"` // unless renewed
}

// RolePage is a page of the roles that are held, by name.
type RolePage struct {
	Roles []Role `json:"roles"`
	Next  string `json:"next,omitempty"` // parameter "after" for the next page; "" on the last
}

// RoleAcquire asks for a role.
type RoleAcquire struct {
	Holder string `json:"holder"` // a name for people, such as host:pid
	// Session is the caller's own random id of this claim. The same call again renews the claim.
	Session string `json:"session"`
	TTL     string `json:"ttl,omitempty"` // 2s to 1h; "" is 15s
	// Wait is for how long the call may wait for the role, "" not at all. A claim that waits keeps its place in the queue
	// for the TTL after the call, unless it is released. The call ends then, too.
	Wait string `json:"wait,omitempty"`
}

// RoleAcquired answers a RoleAcquire.
type RoleAcquired struct {
	Role     string `json:"role"`
	Acquired bool   `json:"acquired"` // the caller holds the role
	Holder   string `json:"holder"`   // of the role
	Fence    uint64 `json:"fence"`    // of the holder
	TTL      string `json:"ttl"`      // of the holder's lease
	// Place is the caller's in the queue, from 1; 0 if it holds the role, or does not wait.
	Place   int `json:"place"`
	Waiting int `json:"waiting"` // callers in the queue
}

// RoleReleased answers a release or a revocation.
type RoleReleased struct {
	Role
	Released bool `json:"released"` // false if the session neither held the role nor waited for it
}

// RoleLease is a lease as its holder knows it.
type RoleLease struct {
	Role  string `json:"role"`
	Fence uint64 `json:"fence"`
}

// RoleRenewal renews leases. It never acquires a role: a lost one stays lost.
type RoleRenewal struct {
	Leases []RoleLease `json:"leases"` // at most 1000
}

// RoleRenewed answers a RoleRenewal.
type RoleRenewed struct {
	Renewed int         `json:"renewed"`
	Lost    []RoleLease `json:"lost"` // those that are over
}
