package service

import (
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// Roles holds the operations on roles: who holds which, and for how long.
type Roles struct{ *core }

// renewalsPerTTL is how often a claim that waits within a call is renewed within its TTL.
const renewalsPerTTL = 3

// Acquire asks for a role, and waits for up to wait until the caller holds it. The error is nil also if another one
// does.
func (rs *Roles) Acquire(ctx context.Context, c frame.RoleAcquire, wait time.Duration) (api.RoleAcquired, error) {
	var out api.RoleAcquired
	limit := rs.Machine().Settings().Limits.NameBytes
	if err := rs.checkRole(c.Role); err != nil {
		return out, err
	}
	for _, one := range []struct{ field, text string }{{"holder", c.Holder}, {"session", c.Session}} {
		if err := api.CheckName(one.field, one.text, limit); err != nil {
			return out, err
		}
	}
	c.Wait = wait > 0
	// The watch begins before the claim, so no change after the answer is missed.
	watch := rs.Machine().WatchRole(c.Role)
	defer watch.Close()
	waited := time.NewTimer(wait)
	defer waited.Stop()
	for {
		result, err := rs.proposeAndApply(ctx, c)
		if err != nil {
			return out, err
		}
		out = acquired(result.Role, c.Session)
		if out.Acquired || !c.Wait {
			return out, nil
		}
		if done, err := rs.awaitTurn(ctx, c, watch, waited.C); done {
			return out, err
		}
	}
}

// awaitTurn returns false once the claim may hold its role, or has to be renewed, and true when the wait is over.
func (rs *Roles) awaitTurn(
	ctx context.Context, c frame.RoleAcquire, watch *fsm.Watch, waited <-chan time.Time,
) (done bool, err error) {
	ttl := c.TTL
	if ttl == 0 {
		ttl = fsm.DefaultRoleTTL
	}
	renew := time.NewTimer(ttl / renewalsPerTTL)
	defer renew.Stop()
	alive := time.NewTicker(rs.heartbeat)
	defer alive.Stop()
	for {
		select {
		case <-watch.Moved():
			// Another's renewal changes the role as well.
			if r, held := rs.Machine().Role(c.Role); !held || r.Held.Session == c.Session {
				return false, nil
			}
		case <-renew.C:
			return false, nil
		case <-alive.C:
			if rs.node.Diverged() {
				return true, raftnode.ErrDiverged
			}
		case <-waited:
			return true, nil
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
}

// acquired is a claim's answer as a session sees it.
func acquired(r *fsm.RoleAnswer, session string) api.RoleAcquired {
	return api.RoleAcquired{
		Role:     r.Role,
		Acquired: r.Held.Session == session,
		Holder:   r.Held.Holder,
		Fence:    r.Fence,
		TTL:      r.Held.TTL.String(),
		Place:    r.Place,
		Waiting:  r.Waiting,
	}
}

// Renew renews leases and returns those that are over.
func (rs *Roles) Renew(ctx context.Context, leases []api.RoleLease) (api.RoleRenewed, error) {
	if n := len(leases); n == 0 || n > frame.MaxLeases {
		return api.RoleRenewed{}, api.Refuse(api.InvalidArgument, "leases", fmt.Sprintf("%d leases", n),
			fmt.Sprintf("send 1 to %d in a call", frame.MaxLeases))
	}
	c := frame.RoleRenew{Leases: make([]frame.RoleLease, len(leases))}
	for i, l := range leases {
		if err := rs.checkRole(l.Role); err != nil {
			return api.RoleRenewed{}, Within(fmt.Sprintf("leases[%d]", i), err)
		}
		c.Leases[i] = frame.RoleLease(l)
	}
	result, err := rs.Propose(ctx, frame.Request{Command: c})
	if err != nil {
		return api.RoleRenewed{}, err
	}
	out := api.RoleRenewed{Renewed: len(leases) - len(result.LostLeases), Lost: []api.RoleLease{}}
	for _, i := range result.LostLeases {
		out.Lost = append(out.Lost, leases[i])
	}
	return out, nil
}

// checkLease refuses half a lease. None at all is one without a role and without a fence.
func (c *core) checkLease(l frame.RoleLease) error {
	switch {
	case l == frame.RoleLease{}:
		return nil
	case l.Role == "" || l.Fence == 0:
		return api.Refuse(api.InvalidArgument, "fence", "a role without a fence, or a fence without a role",
			"send both, or neither")
	}
	return c.checkRole(l.Role)
}

// checkRole refuses a name that no role can have.
func (c *core) checkRole(name string) error {
	if name == "" {
		return api.Missing("role", "the name of a role")
	}
	return api.CheckName("role", name, c.Machine().Settings().Limits.NameBytes)
}

// Release ends the claim of a session to a role; without a session it revokes the lease with that fence.
func (rs *Roles) Release(ctx context.Context, c frame.RoleRelease) (api.Role, error) {
	if err := rs.checkRole(c.Role); err != nil {
		return api.Role{}, err
	}
	if (c.Session == "") == (c.Fence == 0) {
		return api.Role{}, api.Refuse(api.InvalidArgument, "session", "either a session or a fence is needed",
			"send the session that acquired the role, or to revoke a lease its fence")
	}
	if _, err := rs.proposeAndApply(ctx, c); err != nil {
		return api.Role{}, err
	}
	return rs.Get(c.Role), nil
}

// Get returns a role as this node knows it. One that nobody holds has no holder.
func (rs *Roles) Get(name string) api.Role {
	r, held := rs.Machine().Role(name)
	if !held {
		return api.Role{Role: name, Waiting: []api.RoleClaim{}}
	}
	return viewRole(r)
}

// List returns the first roles that are held and whose names follow after, up to limit.
func (rs *Roles) List(after string, limit int) api.RolePage {
	page := api.RolePage{Roles: []api.Role{}}
	// One more than the page has shows whether there is another page.
	for _, r := range rs.Machine().Roles(after, limit+1) {
		if len(page.Roles) == limit {
			page.Next = page.Roles[limit-1].Role
			break
		}
		page.Roles = append(page.Roles, viewRole(r))
	}
	return page
}

// viewRole is a role as callers see it: the sessions are their owners' own.
func viewRole(r fsm.Role) api.Role {
	v := api.Role{
		Role:    r.Name,
		Holder:  r.Held.Holder,
		Fence:   r.Fence,
		TTL:     r.Held.TTL.String(),
		Since:   r.Held.Since,
		Renewed: r.Held.Renewed,
		Expires: time.Unix(0, r.Held.Due).UTC(),
		Waiting: []api.RoleClaim{},
	}
	for _, c := range r.Waiting {
		v.Waiting = append(v.Waiting, api.RoleClaim{Holder: c.Holder, Since: c.Since, Expires: time.Unix(0, c.Due).UTC()})
	}
	return v
}
