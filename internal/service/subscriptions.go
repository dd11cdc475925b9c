package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of what /status lists of clients; /v1/clients has all of them.
const (
	statusClients       = 100  // clients
	statusSubscriptions = 1000 // subscriptions of these
	statusHandlers      = 100  // handlers
)

// Subscriptions returns what clients report, and what ran out of time in their handlers. Both are bounded, and say how
// much was left out.
func (cl *Clients) Subscriptions() (api.SubscriptionStatus, api.HandlerTimeouts) {
	stats := cl.Machine().ClientStats()
	status := api.SubscriptionStatus{
		ClientStats: api.ClientStats(stats),
		Healthy:     healthy(stats),
		ByClient:    map[string]api.ClientStatus{},
		Unheard:     cl.unheard(statusClients),
	}
	timeouts := api.HandlerTimeouts{Handlers: []api.HandlerTimeout{}}
	// How many subscriptions are listed; once one client did not fit, no other is.
	listed, full := 0, false
	_ = cl.eachClient("", func(c *fsm.Client) error { // it fails with no error
		// Every handler counts, also of the clients that are not listed.
		for i := range c.Subscriptions {
			addHandler(&timeouts, c, &c.Subscriptions[i])
		}
		// A client is listed with all of its subscriptions or not at all. Both numbers bound the size of the status.
		full = full || len(status.ByClient) == statusClients || listed+len(c.Subscriptions) > statusSubscriptions
		if full {
			status.LeftOut++
			return nil
		}
		listed += len(c.Subscriptions)
		status.ByClient[c.ID] = clientStatus(c)
		return nil
	})
	return status, timeouts
}

// clientStatus is a client as /status lists it.
func clientStatus(c *fsm.Client) api.ClientStatus {
	one := api.ClientStatus{
		Host:          c.Host,
		PID:           c.PID,
		Seen:          c.Seen,
		Subscriptions: map[string]api.SubscriptionState{},
	}
	for _, sub := range c.Subscriptions {
		one.Subscriptions[sub.Name] = api.SubscriptionState{
			Filter:   sub.Filter,
			Mode:     sub.Mode,
			State:    sub.State,
			Critical: sub.Critical,
			Cursor:   sub.Cursor,
		}
	}
	return one
}

// addHandler counts the handler of a subscription, and lists it if few have run out of time more often. One of which
// neither a limit nor health is known says nothing.
func addHandler(t *api.HandlerTimeouts, c *fsm.Client, s *frame.ClientSubscription) {
	if s.HandlerTimeout == 0 && s.Health == nil {
		return
	}
	one := api.HandlerTimeout{
		Client:         c.ID,
		Subscription:   s.Name,
		TimeoutSeconds: s.HandlerTimeout.Seconds(),
		Seen:           c.Seen,
	}
	if s.Health != nil {
		one.HandlerHealth = api.HandlerHealth(*s.Health)
	}
	// The sum is of all handlers, also of those that are not listed.
	t.TimedOut += one.TimedOut

	// The list is in order and bounded, so that many clients do not take much memory here.
	at, _ := slices.BinarySearchFunc(t.Handlers, one, compareHandlers)
	if at < statusHandlers {
		t.Handlers = slices.Insert(t.Handlers, at, one)
	}
	// One is beyond the bound: the last of the list, or this one.
	if len(t.Handlers) > statusHandlers || at == statusHandlers {
		t.Handlers = t.Handlers[:statusHandlers]
		t.LeftOut++
	}
}

// compareHandlers puts what timed out most often first, then what failed most often.
func compareHandlers(a, b api.HandlerTimeout) int {
	return cmp.Or(cmp.Compare(b.TimedOut, a.TimedOut), cmp.Compare(b.FailedAttempts, a.FailedAttempts),
		strings.Compare(a.Client, b.Client), strings.Compare(a.Subscription, b.Subscription))
}

// healthy reports whether every critical subscription has a client, and is attached.
func healthy(s fsm.ClientStats) bool { return s.CriticalDetached+s.CriticalUnheard == 0 }

// unheard returns the first critical subscriptions without a listener, by name. limit bounds how many.
func (cl *Clients) unheard(limit int) []api.Unheard {
	list := []api.Unheard{}
	for _, u := range cl.Machine().Unheard() {
		if len(list) == limit {
			break
		}
		list = append(list, api.Unheard(u))
	}
	return list
}

// Ready refuses with Unavailable if a critical subscription has no listener: its client was lost, or reports that it is
// not attached.
func (cl *Clients) Ready() (api.Readiness, error) {
	stats := cl.Machine().ClientStats()
	if healthy(stats) {
		return api.Readiness{Ready: true, Total: api.ClientStats(stats)}, nil
	}

	// Few are named: the message is for people.
	const most = 5
	var names []string
	for _, u := range cl.unheard(most) {
		names = append(names, fmt.Sprintf("%q of the lost client %q", u.Name, u.Client))
	}
	if more := stats.CriticalUnheard - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return api.Readiness{}, api.Refuse(api.Unavailable, "subscriptions", fmt.Sprintf(
		"critical subscriptions without a listener: %d (%s); not attached: %d",
		stats.CriticalUnheard, cmp.Or(strings.Join(names, ", "), "none"), stats.CriticalDetached),
		"start those clients, or remove a client that is not to come back: DELETE /v1/clients/ID, or ringlog clients rm ID")
}
