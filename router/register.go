package router

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// Registrar is a Log with which subscriptions can be registered. OnClient is one.
type Registrar interface {
	// Register replaces what a process is registered to listen to; without subscriptions the
	// process is removed.
	Register(ctx context.Context, r client.Registration) error
}

// Register implements Registrar.
func (l clientLog) Register(ctx context.Context, r client.Registration) error {
	return markFinal(l.c.Admin().RegisterSubscriptions(ctx, r))
}

// keepRegistered begins to register the subscriptions with the log, if Options.Register is set.
func (r *Router) keepRegistered() error {
	if !r.options.Register {
		return nil
	}
	registrar, ok := r.log.(Registrar)
	if !ok {
		return fmt.Errorf("option Register: a %T registers no subscriptions", r.log)
	}

	// The keeper sends nothing before the first subscription is made.
	host, _ := os.Hostname() // it may have none
	registration := client.Registration{ID: r.options.Source, Host: host, PID: os.Getpid()}
	r.keeper = client.NewKeeper(registrar.Register, registration, r.options.Logger)
	return nil
}

// registerSubscriptions registers what is subscribed to now.
// mu is held, so the keeper gets the lists in the order of the changes.
func (r *Router) registerSubscriptions() {
	if r.keeper == nil {
		return
	}

	// The keeper sends the whole list a moment later: several changes are one call.
	var list []client.SubscriptionInfo
	coordinator := ""
	subs := r.subscribers()
	for _, s := range subs {
		list = append(list, s.info())
		coordinator = cmp.Or(coordinator, s.spec.Coordinator)
	}
	r.keeper.SetAs(coordinator, func() []client.SubscriptionInfo {
		// What the handlers have done changes all the time: it is sent along with what is sent anyway.
		now := slices.Clone(list)
		for i, s := range subs {
			now[i].Health = s.health()
		}
		return now
	})
}

// health is what the cluster is to know of the handler.
func (s *subscriber) health() *api.HandlerHealth {
	// Before the lock is taken: the breaker reports to the subscriber while it holds its own.
	state := s.breaker.Status().State
	s.mu.Lock()
	defer s.mu.Unlock()
	return &api.HandlerHealth{
		TimedOut:       s.counts.TimedOut,
		FailedAttempts: s.counts.FailedAttempts,
		Breaker:        state,
		LastError:      api.ClipError(s.last.err),
		LastErrorAt:    s.last.errAt,
	}
}

// info describes the subscription for the cluster.
func (s *subscriber) info() client.SubscriptionInfo {
	state, _ := s.stateNow()
	info := client.SubscriptionInfo{
		Name:           s.spec.Name,
		Filter:         s.spec.filter(),
		Where:          s.spec.Where,
		Mode:           "live",
		Critical:       s.spec.Critical,
		State:          string(state),
		TimeoutSeconds: s.spec.Timeout.Seconds(),
	}

	// All others read the log from its end on.
	switch {
	case s.spec.Direct:
		info.Mode = "direct"
	case s.spec.Durable:
		info.Mode, info.Cursor = "durable", s.spec.Name
	case s.spec.Group != "":
		info.Mode, info.Cursor = "group", s.spec.Group
	}
	return info
}
