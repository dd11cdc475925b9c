package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
)

// Registration is what a process reports to the cluster: what it listens to, and how long its
// handlers may take. /status shows it, and the wiring audit reads it.
type Registration struct {
	ID            string        // of the process, its own; required
	Host          string        // where it runs
	PID           int           // of the process there
	Version       string        // of its program
	Coordinator   string        // the entry of the platform's registry that it is; "" is none
	TTL           time.Duration // how long it counts without being sent again, 30 s to 1 h; 0 is 5 min
	Subscriptions []SubscriptionInfo
}

// SubscriptionInfo describes a subscription. Name is required. Mode is live, durable, direct or group, and "" is
// live. State is attached, connecting, fenced, refused or closed, and "" is attached. Where is a condition in CEL,
// for people: only the client evaluates it.
type SubscriptionInfo = api.Subscription

// RegisteredClient is a process that registered, as the cluster knows it.
type RegisteredClient = api.Client

// RegisterSubscriptions replaces what a process is registered to listen to. A registration
// counts for r.TTL, see Keeper; one without subscriptions removes the process at once.
func (a *Admin) RegisterSubscriptions(ctx context.Context, r Registration) error {
	// Subscriptions is never null: an empty list removes the registration.
	body := api.Registration{
		Host:          r.Host,
		PID:           uint64(r.PID),
		Version:       r.Version,
		Coordinator:   r.Coordinator,
		Subscriptions: append([]SubscriptionInfo{}, r.Subscriptions...),
	}
	if r.TTL != 0 {
		body.TTL = r.TTL.String()
	}
	return a.Do(ctx, http.MethodPut, clientPath(r.ID), nil, body, nil)
}

// UnregisterSubscriptions removes a process. It is no error if it is not registered.
func (a *Admin) UnregisterSubscriptions(ctx context.Context, id string) error {
	err := a.Do(ctx, http.MethodDelete, clientPath(id), nil, nil, nil)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		return nil
	}
	return err
}

// clientPath is the resource of one registered process.
func clientPath(id string) string { return "/v1/clients/" + url.PathEscape(id) }

// RegisteredClients goes through the processes that registered, by id, as the node that
// answers knows them. An error is the last that it yields.
func (a *Admin) RegisteredClients(ctx context.Context) iter.Seq2[RegisteredClient, error] {
	open := func(p *api.ClientPage) ([]RegisteredClient, string) { return p.Clients, p.Next }
	return eachOfPages(ctx, a, "/v1/clients", url.Values{}, open)
}

// pageSize is how many elements of a list one call asks for.
const pageSize = 500

// eachOfPages goes through a list that nodes answer in pages. open takes a page apart: into its
// elements and the key of the next page, "" after the last.
func eachOfPages[P, T any](ctx context.Context, a *Admin, path string, q url.Values,
	open func(*P) ([]T, string)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(q)
		q.Set("limit", strconv.Itoa(pageSize))
		for {
			var page P
			if err := a.Do(ctx, http.MethodGet, path, q, nil, &page); err != nil {
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
