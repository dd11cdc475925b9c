package api

import (
	"strings"
	"time"
	"unicode"

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
	// Health is what happened to its handler; nil if the client does not report it.
	Health *HandlerHealth `json:"health,omitempty"`
}

// HandlerHealth is what happened to a handler since its process started, as its client reported it last.
type HandlerHealth struct {
	TimedOut       uint64 `json:"timed_out"`         // attempts that ran out of time
	FailedAttempts uint64 `json:"failed_attempts"`   // those among them
	Breaker        string `json:"breaker,omitempty"` // BreakerClosed, …; "" if it has none
	// LastError is that of the last failed attempt, in one line of at most MaxLastError bytes.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// MaxLastError bounds HandlerHealth.LastError, in bytes. A node clips what is longer.
const MaxLastError = 200

// ClipError returns a text as a HandlerHealth has it.
func ClipError(text string) string {
	// No more than needed is looked at: the text may be long.
	text = strings.ToValidUTF8(text[:min(len(text), MaxLastError)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// The states of a circuit breaker.
const (
	BreakerClosed   = "closed"
	BreakerHalfOpen = "half-open"
	BreakerOpen     = "open"
	BreakerOff      = "off"
)

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

// HandlerTimeouts is what ran out of time in the handlers of registered clients, since their processes started.
type HandlerTimeouts struct {
	TimedOut uint64           `json:"timed_out"` // attempts of all handlers
	Handlers []HandlerTimeout `json:"handlers"`  // those with most of them first
	LeftOut  int              `json:"left_out"`  // handlers that are not listed here
}

// HandlerTimeout is a handler of a registered client: the time that it has, and what happened to it.
type HandlerTimeout struct {
	Client         string    `json:"client"`
	Subscription   string    `json:"subscription"`
	TimeoutSeconds float64   `json:"handler_timeout_seconds,omitempty"` // of one attempt; 0 is no limit
	Seen           time.Time `json:"seen_at"`                           // when the client reported that
	HandlerHealth
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
