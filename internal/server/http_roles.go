package server

import (
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/service"
)

// roleHandlers answers what is asked of roles.
type roleHandlers struct {
	roles   *service.Roles // decided by the cluster
	bodies  *bodyReader
	streams *streamPlaces // a call that waits takes one
}

// getRoles answers GET /v1/roles with a page of the roles that are held, by name.
func (h *roleHandlers) getRoles(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.roles.List(after, limit))
}

// getRole answers GET /v1/roles/{role}. A role that nobody holds is one without a holder.
func (h *roleHandlers) getRole(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	role, err := h.roles.Get(r.PathValue("role"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, role)
}

// mostRoleWait bounds how long a call may wait for a role, or an allocation.
const mostRoleWait = 5 * time.Minute

// putRole answers PUT /v1/roles/{role}: it acquires the role, or renews the caller's claim to it.
func (h *roleHandlers) putRole(w http.ResponseWriter, r *http.Request) error {
	var body api.RoleAcquire
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// Both identify the claim. What they may be, the operation checks.
	for _, one := range []struct{ field, value, what string }{
		{"holder", body.Holder, "a name for the process, such as host:pid"},
		{"session", body.Session, "a random id of this claim, the same in each call"},
	} {
		if one.value == "" {
			return api.Missing(one.field, one.what)
		}
	}
	c := frame.RoleAcquire{Role: r.PathValue("role"), Holder: body.Holder, Session: body.Session}
	var err error
	// Times that are left out are those of the state machine.
	c.TTL, err = leaseTTL(body.TTL, fsm.MaxRoleTTL)
	if err != nil {
		return err
	}
	wait, err := leaseWait(body.Wait)
	if err != nil {
		return err
	}
	// A wait takes a place of a stream, since it may last as long.
	if wait > 0 {
		release, err := h.streams.enter(r.Context())
		if err != nil {
			return err
		}
		defer release()
	}
	answer, err := h.roles.Acquire(r.Context(), c, wait)
	return answerJSON(w, answer, err)
}

// putRoles answers PUT /v1/roles: it renews leases. The answer lists those that are over, which is no error.
func (h *roleHandlers) putRoles(w http.ResponseWriter, r *http.Request) error {
	var body api.RoleRenewal
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	answer, err := h.roles.Renew(r.Context(), body.Leases)
	return answerJSON(w, answer, err)
}

// deleteRole answers DELETE /v1/roles/{role}?session=S or ?fence=N with the role after the release. A session gives its
// own claim back; a fence revokes somebody else's lease.
func (h *roleHandlers) deleteRole(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	c := frame.RoleRelease{Role: r.PathValue("role"), Session: p.text("session"), Fence: p.uint("fence")}
	if err := p.done(); err != nil {
		return err
	}
	answer, err := h.roles.Release(r.Context(), c)
	return answerJSON(w, answer, err)
}
