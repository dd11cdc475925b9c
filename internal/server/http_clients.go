package server

import (
	"net/http"
	"strconv"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
	"github.com/ringrift/ringlog/internal/service"
)

// clientHandlers answers what is asked of registered clients.
type clientHandlers struct {
	clients *service.Clients
	bodies  *bodyReader
}

// putClient answers PUT /v1/clients/{id}: it replaces what a client listens to. An empty list removes the client.
func (h *clientHandlers) putClient(w http.ResponseWriter, r *http.Request) error {
	var body api.Registration
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// A forgotten list must not remove the client, as an empty one does.
	if body.Subscriptions == nil {
		return api.Missing("subscriptions", "a list of them, which may be empty")
	}
	// The client's id is in the path, everything else in the body.
	c := frame.ClientPut{ID: r.PathValue("id"), Host: body.Host, PID: body.PID, Version: body.Version,
		Coordinator: body.Coordinator}
	if body.TTL != "" {
		// Too short a time would lose clients that are merely slow to register again.
		ttl, err := api.ParseAge("ttl", body.TTL)
		if err != nil || ttl < fsm.MinClientTTL || ttl > fsm.MaxClientTTL {
			return api.BadValue(
				"ttl", body.TTL,
				"a duration from "+human.Exact(fsm.MinClientTTL)+" to "+human.Exact(fsm.MaxClientTTL)+", such as 5m",
			)
		}
		c.TTL = ttl
	}
	// Errors name the subscription by its index.
	for i, one := range body.Subscriptions {
		sub, err := service.SubscriptionOf(&one)
		if err != nil {
			return service.Within("subscriptions["+strconv.Itoa(i)+"]", err)
		}
		c.Subscriptions = append(c.Subscriptions, sub)
	}
	// The call registers the client again, too, which keeps it from expiring.
	made, err := h.clients.Put(r.Context(), c)
	if err == nil {
		setWarnings(w.Header(), h.filterWarnings(body.Subscriptions))
	}
	// A client that was removed, or never was there, is answered as one with no subscriptions.
	switch {
	case err != nil:
		return err
	case made == nil || len(c.Subscriptions) == 0:
		return writeJSON(w, http.StatusOK, api.Client{ID: c.ID, Subscriptions: []api.Subscription{}})
	}
	return writeJSON(w, http.StatusOK, service.ViewClient(made))
}

// maxClientWarnings bounds the warnings about the filters of one client: they travel in a header.
const maxClientWarnings = 8

// filterWarnings says what of the filters of subscriptions matches nothing known.
func (h *clientHandlers) filterWarnings(list []api.Subscription) (warnings []event.Warning) {
	for i := range list {
		warnings = append(warnings, h.clients.FilterWarnings(list[i].Filter)...)
	}
	return warnings[:min(len(warnings), maxClientWarnings)]
}

// deleteClient answers DELETE /v1/clients/{id} with the client as it was. What it listened to is not missed afterwards,
// as it is when a client is lost.
func (h *clientHandlers) deleteClient(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	c, err := h.clients.Remove(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, service.ViewClient(c))
}

// getReadiness answers GET /v1/readiness: whether every critical subscription has a listener. It says nothing of this
// node, which /readyz does.
func (h *clientHandlers) getReadiness(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	ready, err := h.clients.Ready()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ready)
}

// getClients answers GET /v1/clients: who listens to what, as this node knows.
func (h *clientHandlers) getClients(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.clients.List(after, limit))
}
