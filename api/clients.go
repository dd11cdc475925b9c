package api

import (
	"time"

	"github.com/ringrift/ringlog/event"
)

// Client is a registered client.
type Client struct {
	ID      string `json:"id"`
	Host    string `json:"host,omitempty"`
	PID     uint64 `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	// Coordinator is the entry of the platform's registry that the client is, "" if it is none.
	Coordinator string `json:"coordinator,omitempty"`
	TTL         string `json:"ttl,omitempty"`
	// Seen is when the client registered last. It is removed at Expires, a TTL later, unless it registers again.
	Registered    time.Time      `json:"registered_at,omitzero"`
	Seen          time.Time      `json:"seen_at,omitzero"`
	Expires       time.Time      `json:"expires_at,omitzero"`
	Subscriptions []Subscription `json:"subscriptions"`
}

// Subscription is what a client listens to.
type Subscription struct {
	Name   string       `json:"name"`
	Filter event.Filter `json:"filter"`
	// Where is a condition on the payload, which the client evaluates itself.
	Where string `json:"where,omitempty"`
	// Mode is how it gets its events, State how it fares; Critical ones that are not attached make the status unhealthy.
	Mode           string  `json:"mode"`
	Critical       bool    `json:"critical"`
	State          string  `json:"state"`
	TimeoutSeconds float64 `json:"handler_timeout_seconds,omitempty"`
	Cursor         string  `json:"cursor,omitempty"`
}

// Registration is what a client says of itself: PUT /v1/clients/{id}.
type Registration struct {
	Host          string         `json:"host,omitempty"`
	PID           uint64         `json:"pid,omitempty"`
	Version       string         `json:"version,omitempty"`
	Coordinator   string         `json:"coordinator,omitempty"`
	TTL           string         `json:"ttl,omitempty"`
	Subscriptions []Subscription `json:"subscriptions"`
}

// ClientStats count clients and their subscriptions.
type ClientStats struct {
	Clients          int    `json:"clients"`
	Subscriptions    int    `json:"subscriptions"`
	Bytes            uint64 `json:"bytes"`
	CriticalDetached int    `json:"critical_detached"` // critical subscriptions that are not attached
	// CriticalUnheard counts critical subscriptions whose client was lost and that no client has since.
	CriticalUnheard int `json:"critical_unheard"`
	Lost            int `json:"lost"` // clients that were lost and may come back
}

// Unheard is a critical subscription that no client has since its client was lost.
type Unheard struct {
	Name   string       `json:"name"`
	Filter event.Filter `json:"filter"` // empty if it is long
	Client string       `json:"client"` // the lost client that had it last
	Host   string       `json:"host,omitempty"`
	Since  time.Time    `json:"since"`
}

// ClientPage is a page of clients, by id, and figures of all: GET /v1/clients.
type ClientPage struct {
	Clients []Client    `json:"clients"`
	Next    string      `json:"next,omitempty"` // ask again with after=next for more
	Total   ClientStats `json:"total"`
	Unheard []Unheard   `json:"unheard"` // on every page
}

// Readiness says whether all that is critical to the platform has a listener: GET /v1/readiness.
type Readiness struct {
	Ready bool        `json:"ready"`
	Total ClientStats `json:"total"`
}

// SubscriptionStatus is what clients report of their subscriptions.
type SubscriptionStatus struct {
	ClientStats
	Healthy  bool                    `json:"healthy"` // all critical ones have a client and are attached
	ByClient map[string]ClientStatus `json:"by_client"`
	LeftOut  int                     `json:"left_out"` // clients that are not listed here
	Unheard  []Unheard               `json:"unheard"`  // the first 100
}

// ClientStatus is one client of a SubscriptionStatus; its subscriptions are by name.
type ClientStatus struct {
	Host          string                       `json:"host,omitempty"`
	PID           uint64                       `json:"pid,omitempty"`
	Seen          time.Time                    `json:"seen_at"`
	Subscriptions map[string]SubscriptionState `json:"subscriptions"`
}

// SubscriptionState is a subscription as its client reported it last.
type SubscriptionState struct {
	Filter   event.Filter `json:"filter"`
	Mode     string       `json:"mode"`
	State    string       `json:"state"`
	Critical bool         `json:"critical"`
	Cursor   string       `json:"cursor,omitempty"`
}
