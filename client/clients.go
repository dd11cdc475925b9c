package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Registration is what a process tells the cluster of itself: what it listens to, and
// how long its handlers may take. /status shows it, and the wiring audit takes it in.
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
	Cursor         string // the cursor or group behind it
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
	return json.Marshal(subscriptionJSON{s.Name, s.Filter, s.Where, s.Mode, s.Critical, s.State, s.HandlerTimeout.Seconds(), s.Cursor})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SubscriptionInfo) UnmarshalJSON(text []byte) error {
	var j subscriptionJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*s = SubscriptionInfo{j.Name, j.Filter, j.Where, j.Mode, j.Critical, j.State, time.Duration(j.TimeoutSeconds * float64(time.Second)), j.Cursor}
	return nil
}

// RegisterSubscriptions says what a process listens to, in place of what it said before.
// It counts for r.TTL, see Keeper; without subscriptions the process is forgotten at
// once.
func (c *Client) RegisterSubscriptions(ctx context.Context, r Registration) error {
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

// UnregisterSubscriptions lets a process be forgotten. It is no error where it is not
// registered.
func (c *Client) UnregisterSubscriptions(ctx context.Context, id string) error {
	err := c.Do(ctx, http.MethodDelete, clientPath(id), nil, nil, nil)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		return nil
	}
	return err
}

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
	const atOnce = 500
	return func(yield func(RegisteredClient, error) bool) {
		q := url.Values{"limit": {strconv.Itoa(atOnce)}}
		for {
			var page struct {
				Clients []RegisteredClient `json:"clients"`
				Next    string             `json:"next"`
			}
			if err := c.Do(ctx, http.MethodGet, "/v1/clients", q, nil, &page); err != nil {
				yield(RegisteredClient{}, err)
				return
			}
			for _, one := range page.Clients {
				if !yield(one, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("after", page.Next)
		}
	}
}
