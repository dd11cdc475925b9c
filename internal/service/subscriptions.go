package service

import (
	"errors"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// Bounds of what /status lists of clients; /v1/clients has all of them.
const (
	statusClients       = 100
	statusSubscriptions = 1000
)

// SubscriptionStatus is what clients report of their subscriptions.
type SubscriptionStatus struct {
	fsm.ClientStats
	Healthy  bool                    `json:"healthy"` // all critical ones are attached
	ByClient map[string]clientStatus `json:"by_client"`
	LeftOut  int                     `json:"left_out"` // clients that are not listed here
}

type clientStatus struct {
	Host          string                       `json:"host,omitempty"`
	PID           uint64                       `json:"pid,omitempty"`
	Seen          time.Time                    `json:"seen_at"`
	Subscriptions map[string]subscriptionState `json:"subscriptions"`
}

type subscriptionState struct {
	Filter   event.Filter `json:"filter"`
	Mode     string       `json:"mode"`
	State    string       `json:"state"`
	Critical bool         `json:"critical"`
	Cursor   string       `json:"cursor,omitempty"`
}

// SubscriptionStatus returns what clients report, and how long their handlers may take,
// in seconds, by client and subscription.
func (s *Service) SubscriptionStatus() (SubscriptionStatus, map[string]map[string]float64) {
	stats := s.Machine().ClientStats()
	status := SubscriptionStatus{ClientStats: stats, Healthy: stats.CriticalDetached == 0, ByClient: map[string]clientStatus{}}
	timeouts, listed := map[string]map[string]float64{}, 0
	if err := s.eachClient("", func(c *fsm.Client) error {
		if len(status.ByClient) == statusClients || listed+len(c.Subscriptions) > statusSubscriptions {
			return errEnough
		}
		listed += len(c.Subscriptions)
		one, limits := clientStatus{c.Host, c.PID, c.Seen, map[string]subscriptionState{}}, map[string]float64{}
		for _, sub := range c.Subscriptions {
			one.Subscriptions[sub.Name] = subscriptionState{sub.Filter, sub.Mode, sub.State, sub.Critical, sub.Cursor}
			if sub.HandlerTimeout > 0 {
				limits[sub.Name] = sub.HandlerTimeout.Seconds()
			}
		}
		status.ByClient[c.ID] = one
		if len(limits) > 0 {
			timeouts[c.ID] = limits
		}
		return nil
	}); errors.Is(err, errEnough) {
		status.LeftOut = max(0, stats.Clients-len(status.ByClient))
	}
	return status, timeouts
}
