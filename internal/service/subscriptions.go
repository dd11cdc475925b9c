package service

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
)

// Bounds of what /status lists of clients; /v1/clients has all of them.
const (
	statusClients       = 100
	statusSubscriptions = 1000
)

// Subscriptions returns what clients report, and how long their handlers may take,
// in seconds, by client and subscription.
func (cl *Clients) Subscriptions() (api.SubscriptionStatus, map[string]map[string]float64) {
	stats := cl.Machine().ClientStats()
	status := api.SubscriptionStatus{
		ClientStats: api.ClientStats(stats),
		Healthy:     healthy(stats),
		ByClient:    map[string]api.ClientStatus{},
		Unheard:     cl.unheard(statusClients),
	}
	timeouts, listed := map[string]map[string]float64{}, 0
	err := cl.eachClient("", func(c *fsm.Client) error {
		// A client is listed with all of its subscriptions or not at all.
		if len(status.ByClient) == statusClients || listed+len(c.Subscriptions) > statusSubscriptions {
			return errEnough
		}
		// Bounded by both numbers, so the status has a bounded size.
		listed += len(c.Subscriptions)
		one := api.ClientStatus{
			Host:          c.Host,
			PID:           c.PID,
			Seen:          c.Seen,
			Subscriptions: map[string]api.SubscriptionState{},
		}
		limits := map[string]float64{}
		// Only the timeouts that are set are listed.
		for _, sub := range c.Subscriptions {
			one.Subscriptions[sub.Name] = api.SubscriptionState{
				Filter:   sub.Filter,
				Mode:     sub.Mode,
				State:    sub.State,
				Critical: sub.Critical,
				Cursor:   sub.Cursor,
			}
			if sub.HandlerTimeout > 0 {
				limits[sub.Name] = sub.HandlerTimeout.Seconds()
			}
		}
		// Ids are unique, so each client has its own entry.
		status.ByClient[c.ID] = one
		if len(limits) > 0 {
			timeouts[c.ID] = limits
		}
		return nil
	})
	// How many clients are missing in the list is known from the state's counts.
	if errors.Is(err, errEnough) {
		status.LeftOut = max(0, stats.Clients-len(status.ByClient))
	}
	return status, timeouts
}

// healthy reports whether every critical subscription has a client, and is attached.
func healthy(s fsm.ClientStats) bool { return s.CriticalDetached+s.CriticalUnheard == 0 }

// unheard returns the first critical subscriptions without a listener, by name.
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
		"start those clients, or remove a client that is not to come back: ringlog clients rm ID")
}
