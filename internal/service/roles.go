package service

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/joint"
)

// Roles holds the operations on roles: who holds which, and for how long. The state machine decides who holds a role;
// this waits for it and shows it.
type Roles struct {
	*core
	renewals *joint.Calls[frame.RoleLease] // of all callers
}

// renewalsPerTTL is how often a claim that waits within a call is renewed within its TTL.
const renewalsPerTTL = 3

// Acquire asks for a role, and waits for up to wait until the caller holds it. The error is nil also if another one
// does.
func (rs *Roles) Acquire(ctx context.Context, c frame.RoleAcquire, wait time.Duration) (api.RoleAcquired, error) {
	var out api.RoleAcquired
	if err := rs.checkClaim(c); err != nil {
		return out, err
	}
	c.Wait = wait > 0
	// The watch begins before the claim, so no change after the answer is missed.
	watch := rs.Machine().WatchClaim(c.Role, c.Session)
	defer watch.Close()
	waited := time.NewTimer(wait)
	defer waited.Stop()
	var command frame.Command = c
	// Each round proposes: the claim first, then its renewal, whose answer says as well who holds the role.
	for {
		result, err := rs.proposeAndApply(ctx, command)
		if err != nil {
			return out, err
		}
		// As this session sees it.
		out = acquired(result.Role, c.Session)
		// A claim without a place was released meanwhile.
		if out.Acquired || out.Place == 0 {
			return out, nil
		}
		// It waits in the queue. This node's state shows when its turn has come.
		again, err := rs.awaitTurn(ctx, cmp.Or(c.TTL, fsm.DefaultRoleTTL), watch, waited.C, func() (holds, waits bool) {
			return rs.Machine().Claims(c.Role, c.Session)
		})
		if err != nil {
			return out, err
		}
		if !again {
			// The claim may have ended meanwhile.
			if _, waits := rs.Machine().Claims(c.Role, c.Session); !waits {
				out.Place = 0
			}
			return out, nil
		}
		// A renewal that is under way while the claim is released must not make it again.
		if rs.Machine().FeatureLevel() >= frame.LevelFences {
			command = frame.RoleRenewClaim{Role: c.Role, Session: c.Session}
		}
	}
}

// checkClaim refuses a claim that no role takes.
func (rs *Roles) checkClaim(c frame.RoleAcquire) error {
	// A claim that there is already is renewed, also if limits.name_bytes is lower now.
	limit := rs.Machine().Settings().Limits.NameBytes
	if holds, waits := rs.Machine().Claims(c.Role, c.Session); holds || waits {
		limit = fsm.MaxRoleText
	}
	// All three are stored in the state.
	for _, one := range []struct{ field, text string }{
		{"role", c.Role}, {"holder", c.Holder}, {"session", c.Session},
	} {
		if err := api.CheckName(one.field, one.text, limit); err != nil {
			return err
		}
	}
	return checkRole(c.Role)
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
	renewed := make([]frame.RoleLease, len(leases))
	for i, l := range leases {
		if err := checkRole(l.Role); err != nil {
			return api.RoleRenewed{}, Within(fmt.Sprintf("leases[%d]", i), err)
		}
		renewed[i] = frame.RoleLease(l)
	}
	over, err := rs.renewals.Do(ctx, renewed...)
	if err != nil {
		return api.RoleRenewed{}, err
	}
	out := api.RoleRenewed{Renewed: len(leases) - len(over), Lost: []api.RoleLease{}}
	for _, l := range over {
		out.Lost = append(out.Lost, api.RoleLease(l))
	}
	return out, nil
}

// checkLease refuses half a lease. None at all is one without a role and without a fence.
func checkLease(l frame.RoleLease) error {
	switch {
	case l == frame.RoleLease{}:
		return nil
	case l.Role == "" || l.Fence == 0:
		return api.Refuse(api.InvalidArgument, "fence", "a role without a fence, or a fence without a role",
			"send both, or neither")
	}
	return checkRole(l.Role)
}

// checkRole refuses a name that no role can have. Only where a claim begins, limits.name_bytes counts: a holder has to
// renew, use and release its lease also if that is lowered.
func checkRole(name string) error {
	if name == "" {
		return api.Missing("role", "the name of a role")
	}
	return api.CheckName("role", name, fsm.MaxRoleText)
}

// Release ends the claim of a session to a role; without a session it revokes the lease with that fence.
func (rs *Roles) Release(ctx context.Context, c frame.RoleRelease) (api.RoleReleased, error) {
	if err := checkRole(c.Role); err != nil {
		return api.RoleReleased{}, err
	}
	// One of the two says what is meant: both would be a claim of one's own and of somebody else.
	if (c.Session == "") == (c.Fence == 0) {
		return api.RoleReleased{}, api.Refuse(api.InvalidArgument, "session", "either a session or a fence is needed",
			"send the session that acquired the role, or to revoke a lease its fence")
	}
	// Whoever knows the session has the claim. A revocation takes another's.
	if c.Session == "" && !access.Of(ctx).May(access.Operate) {
		return api.RoleReleased{}, &api.Error{Code: api.Forbidden, Reason: api.ReasonPermission, Field: "fence",
			Message: "to revoke a role takes a token of the role operator", Remedy: "send the session that acquired it"}
	}
	result, err := rs.proposeAndApply(ctx, c)
	if err != nil {
		return api.RoleReleased{}, err
	}
	return api.RoleReleased{Role: rs.view(c.Role), Released: result.Role.Ended}, nil
}

// Get returns a role with the first of its queue, as this node knows it. One that nobody holds has no holder.
func (rs *Roles) Get(name string) (api.Role, error) {
	if err := checkRole(name); err != nil {
		return api.Role{}, err
	}
	return rs.view(name), nil
}

// view returns a role as this node knows it; without a holder it has its name alone.
func (rs *Roles) view(name string) api.Role {
	r, held := rs.Machine().Role(name, api.MaxRoleQueue)
	if !held {
		return api.Role{Role: name}
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

// viewRole is a role as callers see it: the sessions are their owners' own. The queue is the first of it, in order.
func viewRole(r fsm.RoleView) api.Role {
	v := api.Role{
		Role:    r.Name,
		Holder:  r.Held.Holder,
		Fence:   r.Fence,
		TTL:     r.Held.TTL.String(),
		Since:   r.Held.Since,
		Renewed: r.Held.Renewed,
		Expires: time.Unix(0, r.Held.Due).UTC(),
		Waiting: r.Waiting,
	}
	for _, c := range r.Queue {
		v.Queue = append(v.Queue, api.RoleClaim{Holder: c.Holder, Since: c.Since, Expires: time.Unix(0, c.Due).UTC()})
	}
	return v
}
