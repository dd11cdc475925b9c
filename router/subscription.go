package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// Handler handles one event. It returns once that is done, or when its context ends. It
// must not change the payload, and copies what it keeps of it.
type Handler func(ctx context.Context, ev event.Event) error

// Subscription says which events a handler gets and how. Name and Handler are required,
// or Name, Flow and OnStage; a zero number takes the router's default.
type Subscription struct {
	Name    string // unique in its router, and if Durable the name of its cursor
	Handler Handler

	// Which events: those that meet all of these; an empty list allows all.
	Types      []string // names, values, aliases, or patterns such as training.* and *_FAILED
	Categories []string
	Sources    []string
	Keys       []string
	Where      string // a condition in CEL, see where.Condition

	// Of a subscription to stages of a flow, in place of Types and Handler. Its Lane is the
	// run by default, so a run's stages are handled in order.
	Flow    string       // its name: training_pipeline, health_recovery, …, or a registered flow's
	Stages  []string     // types or patterns, as Types; an empty list is all of the flow's
	OnStage StageHandler // called with the stage and the run so far
	Runs    int          // that are remembered, of each 256 stages and those that wait; 256

	// Coordinator is the coordinator of the platform's registry that this process is, by name or class. Without Types
	// and Categories the subscription gets what its entry declares; with them, the difference is logged. With
	// Options.Register the process is registered as the coordinator, so that ringlog audit coordinator compares the
	// two. All subscriptions of a router that have a Coordinator have the same one.
	Coordinator string

	// Group makes the handler a member of the group of that name, which is made if it does not exist: each of its
	// events goes to one member, in this process or another. A delivery whose attempts have failed is redelivered
	// later, until it is a dead letter.
	Group      string
	MaxDeliver uint64 // deliveries that may fail, of a new group; 0 is the cluster's setting

	// From is where a new one begins, see client.Position: by default at the start of the log with Durable or Group,
	// whose place the cluster keeps, and otherwise at its end.
	From    client.Position
	Durable bool // it resumes where it was, in the next process too
	Policy  client.CursorPolicy
	// Change gives a Durable one's cursor, if that has another filter or policy, those of
	// the subscription, from its commit on. Else such a subscription is refused.
	Change bool
	Direct bool // called for what this router publishes, and not fed from the log
	Sync   bool // Publish returns once this handler is through with the event, unless called by a handler

	Critical   bool // Ready waits for it
	Background bool // Subscribe does not wait for the log

	Timeout time.Duration   // of one attempt
	Retries []time.Duration // the waits between attempts; nil is the router's, an empty slice is none
	// MaxOutage is how long an event of a Durable one may fail while no other is handled, before it is a dead letter; with
	// 0 each attempt counts. A shorter outage makes no letter. An event that always fails holds up what waits for it for
	// that time, if nothing is handled beside it. A time shorter than the Retries adds nothing to them.
	MaxOutage   time.Duration
	Concurrency int      // attempts at once
	Queue       int      // events that wait or run
	Breaker     *Breaker // nil is the router's
	// Lane names the sequence in which an event is handled in order; nil is the event's key, see
	// also Flow. Events of lane "" have no order, but with Concurrency 1 all have.
	Lane func(ev *event.Event) string
	// OnGap is called for events that the log does not keep any more, before the events after
	// them are handled; nil counts them only.
	OnGap func(ctx context.Context, gap client.Gap)
}

// filter is which events it is for, without the condition.
func (s *Subscription) filter() event.Filter {
	return event.Filter{Types: s.Types, Categories: s.Categories, Sources: s.Sources, Keys: s.Keys}
}

// complete fills in the defaults and compiles the condition.
func (s *Subscription) complete(o *Options) (condition *where.Condition, err error) {
	s.Timeout = cmp.Or(s.Timeout, o.Timeout)
	s.MaxOutage = cmp.Or(s.MaxOutage, o.MaxOutage)
	s.Concurrency = cmp.Or(s.Concurrency, o.Concurrency)
	s.Queue = cmp.Or(s.Queue, max(o.Queue, s.Concurrency))
	// A group replaces the Queue that was just set.
	if err := s.checkGroup(); err != nil {
		return nil, err
	}
	if s.Retries == nil {
		s.Retries = o.Retries
	}

	// A Breaker of its own replaces the router's as a whole: its zero fields take the defaults, not the router's
	// values.
	breaker := o.Breaker
	if s.Breaker != nil {
		breaker = s.Breaker.orDefault()
	}
	s.Breaker = &breaker

	// Refuse what is missing or contradicts itself.
	maxName := event.DefaultLimits().NameBytes - len(liveCursor)
	switch {
	case s.Name == "":
		return nil, errors.New("it has no Name")
	case len(s.Name) > maxName:
		return nil, fmt.Errorf("its Name has %d bytes, and the limit is %d, as dead letters are redriven to the cursor "+
			"%sNAME; shorten it", len(s.Name), maxName, liveCursor)
	case s.Handler == nil && s.OnStage == nil:
		return nil, errors.New("it has no Handler")
	case s.Direct && s.Durable:
		return nil, errors.New("both Direct and Durable: what is not fed from the log has no cursor")
	case s.Direct && s.From != client.Position{}:
		return nil, errors.New("both Direct and From: what is not fed from the log has no position")
	}
	if err := checkLimits(s.Timeout, s.MaxOutage, s.Retries, s.Concurrency, s.Queue, breaker); err != nil {
		return nil, err
	}
	if err := s.filter().Validate(); err != nil {
		return nil, err
	}
	if s.Where == "" {
		return nil, nil
	}
	return where.Compile(s.Where)
}

// Attempt is one call of a handler.
type Attempt struct {
	Subscription string
	Number       int    // from 1, of the delivery
	Delivery     uint64 // which delivery of a group it is, from 1; 0 if the subscription has no Group
	Replay       bool   // called by Router.Replay
}

// attemptKey is the key of a handler's context that has the attempt.
type attemptKey struct{}

// AttemptOf returns the attempt that a handler's context belongs to.
func AttemptOf(ctx context.Context) (Attempt, bool) {
	a, ok := ctx.Value(attemptKey{}).(Attempt)
	return a, ok
}

// permanentError marks an error that another attempt would meet again.
type permanentError struct{ err error }

// Error implements error.
func (e *permanentError) Error() string { return e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks a handler's error as one of the event, not of the handler: the event is
// abandoned at once, and the circuit breaker does not count it.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// isPermanent reports an error that another attempt would meet again.
func isPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// PanicError is a panic of a handler.
type PanicError struct {
	Value any
	Stack []byte
}

// Error prints the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }
