package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// FlowsRegistered is what Admin.RegisterFlows returns.
type FlowsRegistered = api.FlowsRegistered

// Flows returns the flows that runs are followed through: the built-in ones, then the registered ones by name.
func (a *Admin) Flows(ctx context.Context) ([]event.Flow, error) {
	var answer api.Flows
	err := a.Do(ctx, http.MethodGet, "/v1/flows", url.Values{"consistency": {"linearizable"}}, nil, &answer)
	// A node of an earlier build has no such route, and the built-in flows alone.
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Code == api.NotFound {
		return event.Builtin().Flows(), nil
	}
	return answer.Flows, err
}

// RegisterFlows registers flows on all nodes, all of them or none, and replaces those of the same name. One with the
// name of a built-in flow has RunBy alone.
func (a *Admin) RegisterFlows(ctx context.Context, flows ...event.Flow) (done FlowsRegistered, err error) {
	err = a.Do(ctx, http.MethodPost, "/v1/flows", nil, flows, &done)
	return done, err
}

// RemoveFlow removes a registered flow and returns it. A built-in one stays, and gets back how its runs are found.
func (a *Admin) RemoveFlow(ctx context.Context, name string) (f event.Flow, err error) {
	err = a.Do(ctx, http.MethodDelete, "/v1/flows/"+url.PathEscape(name), nil, nil, &f)
	return f, err
}
