package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// clientsPageBytes bounds one page of clients, beside their number.
const clientsPageBytes = 4 << 20

// clientBody is what a client says of itself.
type clientBody struct {
	Host          string             `json:"host"`
	PID           uint64             `json:"pid"`
	Version       string             `json:"version"`
	TTL           string             `json:"ttl"`
	Subscriptions []subscriptionView `json:"subscriptions"`
}

// putClient answers PUT /v1/clients/{id}: what a client listens to from now on. An
// empty list takes it away.
func (s *Server) putClient(w http.ResponseWriter, r *http.Request) error {
	var body clientBody
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	if body.Subscriptions == nil {
		return missing("subscriptions", "a list of them, which may be empty")
	}
	c := frame.ClientPut{ID: r.PathValue("id"), Host: body.Host, PID: body.PID, Version: body.Version}
	if body.TTL != "" {
		ttl, err := time.ParseDuration(body.TTL)
		if err != nil || ttl < fsm.MinClientTTL || ttl > fsm.MaxClientTTL {
			return badParam("ttl", body.TTL, "a duration from "+fsm.MinClientTTL.String()+" to "+fsm.MaxClientTTL.String()+", such as 5m")
		}
		c.TTL = ttl
	}
	for i, one := range body.Subscriptions {
		sub, err := one.subscription()
		if err != nil {
			return within("subscriptions["+strconv.Itoa(i)+"]", err)
		}
		c.Subscriptions = append(c.Subscriptions, sub)
	}
	made, err := s.ops.putClient(r.Context(), c)
	switch {
	case err != nil:
		return err
	case made == nil || len(c.Subscriptions) == 0:
		return writeJSON(w, http.StatusOK, clientView{ID: c.ID, Subscriptions: []subscriptionView{}})
	}
	return writeJSON(w, http.StatusOK, viewClient(made))
}

// deleteClient answers DELETE /v1/clients/{id} with the client as it was.
func (s *Server) deleteClient(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	c, err := s.ops.removeClient(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewClient(c))
}

// clientsView is a page of clients, and figures of all.
type clientsView struct {
	Clients []clientView    `json:"clients"`
	Next    string          `json:"next,omitempty"` // ask again with after=next for more
	Total   fsm.ClientStats `json:"total"`
}

// getClients answers GET /v1/clients: who listens to what, as this node knows.
func (s *Server) getClients(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	after, limit := p.page()
	if err := p.done(); err != nil {
		return err
	}
	view := clientsView{Clients: []clientView{}, Total: s.ops.machine().ClientStats()}
	bytes := uint64(0)
	err := s.ops.eachClient(after, func(c *fsm.Client) error {
		if len(view.Clients) == limit || bytes > clientsPageBytes {
			view.Next = view.Clients[len(view.Clients)-1].ID
			return errEnough
		}
		bytes += c.Bytes
		view.Clients = append(view.Clients, viewClient(c))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return writeJSON(w, http.StatusOK, view)
}
