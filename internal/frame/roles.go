package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// MaxLeases bounds the leases that one command renews.
const MaxLeases = 1000

// RoleAcquire asks for a role for TTL. Session is the caller's own id of this claim: the same command again renews
// the claim, whether it holds the role or waits for it. With Wait a caller that does not get the role is put at the end
// of the queue; without, it leaves the queue.
type RoleAcquire struct {
	Role    string
	Holder  string // a name for people
	Session string
	TTL     time.Duration // 0 takes the default
	Wait    bool
}

// RoleRenew renews leases that are held. It takes no role: one that is lost stays lost.
type RoleRenew struct{ Leases []RoleLease }

// RoleRenewClaim renews the claim of a session to a role, which holds it or waits for it. It makes none: one that has
// ended, as by a release, stays ended.
type RoleRenewClaim struct {
	Role    string
	Session string
}

// RoleLease is a role as its holder knows it.
type RoleLease struct {
	Role  string
	Fence uint64 // the offset of the event with which it was acquired
}

// RoleRelease ends the claim of a session to a role, held or waiting. Without a Session it revokes the lease with
// that Fence, if it is not over.
type RoleRelease struct {
	Role    string
	Session string
	Fence   uint64
}

// Kind implements Command.
func (RoleAcquire) Kind() Kind    { return KindRoleAcquire }
func (RoleRenew) Kind() Kind      { return KindRoleRenew }
func (RoleRenewClaim) Kind() Kind { return KindRoleRenewClaim }
func (RoleRelease) Kind() Kind    { return KindRoleRelease }

// appendTo writes role, holder, session, TTL, wait.
func (c RoleAcquire) appendTo(b []byte) []byte {
	b = fields.Append(fields.Append(fields.Append(b, c.Role), c.Holder), c.Session)
	return fields.AppendBool(binary.AppendVarint(b, int64(c.TTL)), c.Wait)
}

// appendTo writes the leases after their number.
func (c RoleRenew) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = l.appendTo(b)
	}
	return b
}

// appendTo writes role, session.
func (c RoleRenewClaim) appendTo(b []byte) []byte {
	return fields.Append(fields.Append(b, c.Role), c.Session)
}

// appendTo writes role, fence.
func (l RoleLease) appendTo(b []byte) []byte {
	return binary.AppendUvarint(fields.Append(b, l.Role), l.Fence)
}

// appendIfNamed writes a lease that a caller has named, and nothing for none.
func (l RoleLease) appendIfNamed(b []byte) []byte {
	if l.Role == "" {
		return b
	}
	return l.appendTo(b)
}

// appendTo writes role, session, fence.
func (c RoleRelease) appendTo(b []byte) []byte {
	return binary.AppendUvarint(fields.Append(fields.Append(b, c.Role), c.Session), c.Fence)
}

func (d *decoder) roleAcquire() RoleAcquire {
	return RoleAcquire{
		Role:    d.string(),
		Holder:  d.string(),
		Session: d.string(),
		TTL:     time.Duration(d.Varint()),
		Wait:    d.Bool(),
	}
}

// roleRenew refuses more leases than a command may have.
func (d *decoder) roleRenew() RoleRenew {
	n := d.Count(2)
	if n > MaxLeases {
		d.Fail("%d leases in one command", n)
		return RoleRenew{}
	}
	c := RoleRenew{Leases: make([]RoleLease, 0, n)}
	for range n {
		c.Leases = append(c.Leases, d.roleLease())
	}
	return c
}

// namedLease refuses a lease without a role: its command would be encoded as another kind.
func (d *decoder) namedLease() RoleLease {
	l := d.roleLease()
	if l.Role == "" {
		d.Fail("a lease without a role")
	}
	return l
}

func (d *decoder) roleLease() RoleLease { return RoleLease{Role: d.string(), Fence: d.Uvarint()} }
