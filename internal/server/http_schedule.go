package server

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
)

// scheduleHandlers answers what is asked of events that are published at a time.
type scheduleHandlers struct {
	schedule *service.Schedule
	bodies   *bodyReader
}

// getSchedule answers GET /v1/scheduled with a page of what is scheduled, by id.
func (h *scheduleHandlers) getSchedule(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.schedule.List(r.Context(), after, limit))
}

// getScheduled answers GET /v1/scheduled/{id}.
func (h *scheduleHandlers) getScheduled(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	one, err := h.schedule.Get(r.Context(), r.PathValue("id"))
	return answerJSON(w, one, err)
}

// putScheduled answers PUT /v1/scheduled/{id}: it schedules an event. A repeated call is answered with what became of
// the event.
func (h *scheduleHandlers) putScheduled(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		At    string          `json:"at"`
		Event json.RawMessage `json:"event"`
	}
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	if body.At == "" {
		return api.Missing("at", "the time at which the event is published, such as 2026-03-01T09:30:00Z")
	}
	// A time without a zone is UTC.
	at, err := api.ParseTime("at", body.At, time.UTC)
	if err != nil {
		return err
	}
	if len(body.Event) == 0 {
		return api.Missing("event", "the event, as POST /v1/events takes it")
	}
	// Errors name the place within the event.
	e, err := event.DecodeOne(body.Event, h.schedule.Limits())
	if err != nil {
		return service.Within("event", err)
	}
	answer, err := h.schedule.Put(r.Context(), r.PathValue("id"), at, e)
	return answerJSON(w, answer, err)
}

// deleteScheduled answers DELETE /v1/scheduled/{id}.
func (h *scheduleHandlers) deleteScheduled(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	answer, err := h.schedule.Remove(r.Context(), r.PathValue("id"))
	return answerJSON(w, answer, err)
}
