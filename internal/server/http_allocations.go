package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
	"github.com/ringrift/ringlog/internal/service"
)

// allocationHandlers answers what is asked of resources and of allocations of them.
type allocationHandlers struct {
	allocations *service.Allocations // decided by the cluster
	bodies      *bodyReader
	streams     *streamPlaces // a call that waits takes one
}

// getResources answers GET /v1/resources with a page of the resources, by name.
func (h *allocationHandlers) getResources(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.allocations.Resources(after, limit))
}

// getResource answers GET /v1/resources/{resource}.
func (h *allocationHandlers) getResource(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	answer, err := h.allocations.Resource(r.PathValue("resource"))
	return answerJSON(w, answer, err)
}

// putResource answers PUT /v1/resources/{resource}: it declares the resource, or changes it.
func (h *allocationHandlers) putResource(w http.ResponseWriter, r *http.Request) error {
	var body api.NewResource
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	answer, err := h.allocations.SetResource(r.Context(), r.PathValue("resource"), body)
	return answerJSON(w, answer, err)
}

// deleteResource answers DELETE /v1/resources/{resource} with the resource as it was.
func (h *allocationHandlers) deleteResource(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	answer, err := h.allocations.RemoveResource(r.Context(), r.PathValue("resource"))
	return answerJSON(w, answer, err)
}

// getAllocations answers GET /v1/allocations with a page of what is granted or waits, by id.
func (h *allocationHandlers) getAllocations(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.allocations.List(after, limit))
}

// getAllocation answers GET /v1/allocations/{allocation}.
func (h *allocationHandlers) getAllocation(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	answer, err := h.allocations.Get(r.PathValue("allocation"))
	return answerJSON(w, answer, err)
}

// putAllocation answers PUT /v1/allocations/{allocation}: it asks for the allocation, or renews what the caller has.
// With wait it is answered once the allocation is granted, or after that time.
func (h *allocationHandlers) putAllocation(w http.ResponseWriter, r *http.Request) error {
	var body api.AllocationRequest
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// The id is in the path, so a repeated call is about the same request.
	c := frame.AllocationRequest{ID: r.PathValue("allocation"), Holder: body.Holder,
		Amounts: service.AmountsOf(body.Amounts), Priority: frame.PriorityNormal}
	if body.Holder == "" {
		return api.Missing("holder", "a name for the process, such as host:pid")
	}
	if body.Priority != "" {
		// People type it in lower case.
		if err := c.Priority.UnmarshalText([]byte(strings.ToUpper(body.Priority))); err != nil {
			return api.BadValue("priority", body.Priority, "LOW, NORMAL, HIGH or CRITICAL")
		}
	}
	var err error
	// Times that are left out are those of the state machine.
	c.TTL, err = leaseTTL(body.TTL, fsm.MaxAllocationTTL)
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
	answer, err := h.allocations.Request(r.Context(), c, wait)
	return answerJSON(w, answer, err)
}

// leaseTTL reads the TTL of a lease, 0 if it is not given. most is the longest of its kind.
func leaseTTL(text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < fsm.MinRoleTTL || ttl > most {
		return 0, api.BadValue("ttl", text,
			"a duration from "+human.Exact(fsm.MinRoleTTL)+" to "+human.Exact(most)+", such as 15s")
	}
	return ttl, nil
}

// leaseWait reads how long a call may wait for a lease, 0 if it is not given.
func leaseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > mostRoleWait {
		return 0, api.BadValue("wait", text, "a duration up to "+human.Exact(mostRoleWait)+", such as 30s")
	}
	return wait, nil
}

// putAllocations answers PUT /v1/allocations: it renews allocations. The answer lists those that are over, which is no
// error.
func (h *allocationHandlers) putAllocations(w http.ResponseWriter, r *http.Request) error {
	var body api.AllocationRenewal
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	answer, err := h.allocations.Renew(r.Context(), body.Leases)
	return answerJSON(w, answer, err)
}

// deleteAllocation answers DELETE /v1/allocations/{allocation}. That there is none is no error, so a call may be
// repeated.
func (h *allocationHandlers) deleteAllocation(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	answer, err := h.allocations.Release(r.Context(), r.PathValue("allocation"))
	return answerJSON(w, answer, err)
}
