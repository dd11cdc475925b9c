package server

import (
	"context"
	"net/http"

	"github.com/ringrift/ringlog/api"
)

// Replayer is a Node that replays an incident in the place of a cluster. It is read by everybody: whoever could be let
// in by the tokens of its state may be nobody's caller any more.
type Replayer interface {
	Step(ctx context.Context, s api.IncidentStep) (api.IncidentPlace, error)
}

// incidentHandlers answers what is asked of incidents.
type incidentHandlers struct {
	node     Node
	bodies   *bodyReader
	recorded func(ctx context.Context, do func() error) error // reports before that all data leave the node
}

// getIncident answers GET /v1/incident with a slice of the log and the state before it. Its end carries a checksum, as
// that of a backup does.
func (h *incidentHandlers) getIncident(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, to := p.position("from"), p.position("to")
	if err := p.done(); err != nil {
		return err
	}
	// From the first byte on, an error can only cut the connection.
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", `attachment; filename="ringlog.incident"`)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxTimeout)
	defer cancel()
	return h.recorded(ctx, func() error {
		_, err := h.node.Incident(ctx, w, from, to)
		return err
	})
}

// postIncidentStep answers POST /v1/incident/step: a replay continues. Without a body it continues by one entry.
func (h *incidentHandlers) postIncidentStep(w http.ResponseWriter, r *http.Request) error {
	var body api.IncidentStep
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	if body.Entries != 0 && body.Until != 0 {
		return api.Refuse(api.InvalidArgument, "until", "a number of entries, and an offset", "send one of them")
	}
	// Only a node that replays can continue.
	replay, ok := h.node.(Replayer)
	if !ok {
		refused := api.Refuse(api.Conflict, "", "this node serves a cluster, not an incident",
			"ask a node that was started with ringlog dev --incident FILE")
		refused.Reason = api.ReasonNoIncident
		return refused
	}
	place, err := replay.Step(r.Context(), body)
	return answerJSON(w, place, err)
}
