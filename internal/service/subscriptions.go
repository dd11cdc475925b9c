package service

import (
	"errors"

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
		Healthy:     stats.CriticalDetached == 0,
		ByClient:    map[string]api.ClientStatus{},
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
