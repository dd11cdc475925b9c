package client

import (
	"context"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Request is one request to one node, as Config.Observe sees it. A call is as many requests as it needs.
type Request struct {
	Name    string // what is asked for, one of a few dozen: publish, get, tail, commit cursor, GET, …
	Subject string // what it is asked about: an offset, the name of a cursor, a path, …
	Node    string // its URL
	Attempt int    // of the call, from 1
	// Events is how many are published. Concurrent calls of Publish share requests, which have a context of the
	// client's own and not that of a caller: an event carries its trace in Trace, which Config.TracePublish gives it.
	Events int
}

// observer returns Config.Observe as package calls has it.
func observer(observe func(context.Context, Request) (context.Context, func(error))) func(
	context.Context, calls.Op, string, int) (context.Context, func(error)) {
	if observe == nil {
		return nil
	}
	return func(ctx context.Context, op calls.Op, node string, attempt int) (context.Context, func(error)) {
		return observe(ctx, Request{Name: op.Name, Subject: op.Subject, Node: node, Attempt: attempt, Events: op.Events})
	}
}
