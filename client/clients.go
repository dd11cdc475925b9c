package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Registration is what a process reports to the cluster: what it listens to, and how long its
// handlers may take. /status shows it, and the wiring audit reads it.
type Registration struct {
	ID            string        // of the process, its own; required
	Host          string        // where it runs
	PID           int           // of the process there
	Version       string        // of its program
	TTL           time.Duration // how long it counts without being sent again, 30 s to 1 h; 0 is 5 min
	Subscriptions []SubscriptionInfo
}

// SubscriptionInfo describes a subscription. Name is required.
type SubscriptionInfo struct {
	Name           string
	Filter         event.Filter
	Where          string // a condition in CEL, for people: nobody but the client evaluates it
	Mode           string // live, durable, direct or group; "" is live
	Critical       bool
	State          string // attached, connecting, fenced, refused or closed; "" is attached
	HandlerTimeout time.Duration
	Cursor         string // its cursor or group
}

// subscriptionJSON is a SubscriptionInfo on the wire.
type subscriptionJSON struct {
	Name           string       `json:"name"`
	Filter         event.Filter `json:"filter"`
	Where          string       `json:"where,omitempty"`
	Mode           string       `json:"mode,omitempty"`
	Critical       bool         `json:"critical"`
	State          string       `json:"state,omitempty"`
	TimeoutSeconds float64      `json:"handler_timeout_seconds,omitempty"`
	Cursor         string       `json:"cursor,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s SubscriptionInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(subscriptionJSON{
		s.Name, s.Filter, s.Where, s.Mode, s.Critical, s.State, s.HandlerTimeout.Seconds(), s.Cursor})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SubscriptionInfo) UnmarshalJSON(text []byte) error {
	var j subscriptionJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	timeout := time.Duration(j.TimeoutSeconds * float64(time.Second))
	*s = SubscriptionInfo{j.Name, j.Filter, j.Where, j.Mode, j.Critical, j.State, timeout, j.Cursor}
	return nil
}

// RegisterSubscriptions replaces what a process is registered to listen to. A registration
// counts for r.TTL, see Keeper; one without subscriptions removes the process at once.
func (c *Client) RegisterSubscriptions(ctx context.Context, r Registration) error {
	// Subscriptions is never null: an empty list removes the registration.
	body := struct {
		Host          string             `json:"host,omitempty"`
		PID           int                `json:"pid,omitempty"`
		Version       string             `json:"version,omitempty"`
		TTL           string             `json:"ttl,omitempty"`
		Subscriptions []SubscriptionInfo `json:"subscriptions"`
	}{r.Host, r.PID, r.Version, "", append([]SubscriptionInfo{}, r.Subscriptions...)}
	if r.TTL != 0 {
		body.TTL = r.TTL.String()
	}
	return c.Do(ctx, http.MethodPut, clientPath(r.ID), nil, body, nil)
}

// UnregisterSubscriptions removes a process. It is no error if it is not registered.
func (c *Client) UnregisterSubscriptions(ctx context.Context, id string) error {
	err := c.Do(ctx, http.MethodDelete, clientPath(id), nil, nil, nil)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		return nil
	}
	return err
}

// clientPath is the resource of one registered process.
func clientPath(id string) string { return "/v1/clients/" + url.PathEscape(id) }

// RegisteredClient is a process that registered, as the cluster knows it.
type RegisteredClient struct {
	ID            string             `json:"id"`
	Host          string             `json:"host,omitempty"`
	PID           int                `json:"pid,omitempty"`
	Version       string             `json:"version,omitempty"`
	TTL           string             `json:"ttl"`
	Registered    time.Time          `json:"registered_at"`
	Seen          time.Time          `json:"seen_at"` // when it said so last
	Expires       time.Time          `json:"expires_at"`
	Subscriptions []SubscriptionInfo `json:"subscriptions"`
}

// RegisteredClients goes through the processes that registered, by id, as the node that
// answers knows them. An error is the last that it yields.
func (c *Client) RegisteredClients(ctx context.Context) iter.Seq2[RegisteredClient, error] {
	type page struct {
		Clients []RegisteredClient `json:"clients"`
		Next    string             `json:"next"`
	}
	open := func(p *page) ([]RegisteredClient, string) { return p.Clients, p.Next }
	return eachOfPages(ctx, c, "/v1/clients", url.Values{}, open)
}

// pageSize is how many elements of a list one call asks for.
const pageSize = 500

// eachOfPages goes through a list that nodes answer in pages. open takes a page apart: into its
// elements and the key of the next page, "" after the last.
func eachOfPages[P, T any](ctx context.Context, c *Client, path string, q url.Values,
	open func(*P) ([]T, string)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(q)
		q.Set("limit", strconv.Itoa(pageSize))
		for {
			var page P
			if err := c.Do(ctx, http.MethodGet, path, q, nil, &page); err != nil {
				var none T
				yield(none, err)
				return
			}

			// The key of a page is that of its last element, so elements that are added or removed
			// meanwhile do not shift the others.
			list, next := open(&page)
			for _, one := range list {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.Set("after", next)
		}
	}
}
