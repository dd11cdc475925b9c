package router

import (
	"context"
	"fmt"
	"os"

	"github.com/ringrift/ringlog/client"
)

// Registrar is a Log that takes the word of who listens to what. OnClient is one.
type Registrar interface {
	// Register says what a process listens to, in place of what it said before; without
	// subscriptions it is forgotten.
	Register(ctx context.Context, r client.Registration) error
}

// Register implements Registrar.
func (l clientLog) Register(ctx context.Context, r client.Registration) error {
	return judged(l.c.RegisterSubscriptions(ctx, r))
}

// keepRegistered begins to tell the log what is subscribed to here, where that is asked
// for.
func (r *Router) keepRegistered() error {
	if !r.options.Register {
		return nil
	}
	registrar, ok := r.log.(Registrar)
	if !ok {
		return fmt.Errorf("option Register: a %T can not be told who listens", r.log)
	}
	host, _ := os.Hostname() // it may have none
	r.keeper = client.NewKeeper(registrar.Register, client.Registration{ID: r.options.Source, Host: host, PID: os.Getpid()}, r.options.Logger)
	return nil
}

// tellSubscriptions has the log told what is subscribed to now.
func (r *Router) tellSubscriptions() {
	if r.keeper == nil {
		return
	}
	var list []client.SubscriptionInfo
	for _, s := range r.subscribers() {
		list = append(list, s.info())
	}
	r.keeper.Set(list)
}

func (s *subscriber) info() client.SubscriptionInfo {
	state, _ := s.stateNow()
	info := client.SubscriptionInfo{Name: s.spec.Name, Filter: s.spec.filter(), Where: s.spec.Where, Mode: "live", Critical: s.spec.Critical,
		State: string(state), HandlerTimeout: s.spec.Timeout}
	switch {
	case s.spec.Direct:
		info.Mode = "direct"
	case s.spec.Durable:
		info.Mode, info.Cursor = "durable", s.spec.Name
	}
	return info
}
