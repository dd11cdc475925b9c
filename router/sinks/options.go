package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/router/breaker"
)

// Member is this process's place in a group, as *client.GroupMember is one. Next is called by
// one goroutine, Close by any.
type Member interface {
	// Next waits for an event that may be handled now: none of its key that was handed out
	// before is unsettled. A *client.GapError reports events that are gone; any other
	// error but one of ctx is the end.
	Next(ctx context.Context) (client.Delivery, error)
	// Close makes the acks durable and releases everything else.
	Close(ctx context.Context) error
}

// Options say what a reactor does. Group, Join and Sink are required; a zero number takes
// its default.
type Options struct {
	Group string // its name; the handler in events that are published
	// Join joins the group, for at most hold events at once. The member keeps what it holds
	// alive for as long as that takes.
	Join func(ctx context.Context, hold int) (Member, error)
	Sink Sink
	// Where is the condition that events have to meet; the others are acknowledged without the sink. nil is met by all.
	Where *where.Condition

	Concurrency int           // events at once, those of one key in order; 1
	Timeout     time.Duration // of one attempt; 30 s
	Retries     int           // attempts of one delivery after the first; 0 is none
	Backoff     time.Duration // the first wait after a failure, doubled each time up to MaxBackoff; 1 s
	Breaker     breaker.Config
	// MaxDeliver is how many deliveries the group allows an event, 0 without bound. It only
	// serves to know which failure is the last.
	MaxDeliver uint64
	Drain      time.Duration // how long attempts may run after Run's context has ended; 30 s

	Count uint64 // end after this many deliveries were handled or failed; 0 is no end
	// Settled is called now and then, and ends the run once it returns true; nil never does.
	Settled func(ctx context.Context) (bool, error)

	// Publish publishes events about the breaker and, with Record, about failures; nil
	// publishes none.
	Publish func(ctx context.Context, ev event.Event) error
	Record  bool
	Source  string // of these events
	// Answer returns the type of the event that answers one of type t, once it is handled or, without success, is a
	// dead letter; "" is none. The answer is published before the event is acknowledged, so Publish is required.
	// HANDLER_FAILED says in its payload that it is the answer. nil answers nothing.
	Answer    func(t event.Type, success bool) event.Type
	OnOutcome func(Outcome) // called for each attempt, one at a time; nil is nobody
	// Turned is called when the breaker opens, half opens or closes, in its lock; nil is nobody.
	Turned func(breaker.Change)
	Logger *slog.Logger // nil disables logging
}

// Bounds of the waits.
const (
	// MaxBackoff is the longest wait between two attempts, unless a sink asks for more.
	MaxBackoff = 5 * time.Minute
	// longestHold is how long an event may be held for its next attempt. One that has to
	// wait longer is released, and redelivered after that time.
	longestHold = time.Minute
	// longestDelay bounds what a sink may ask for.
	longestDelay = time.Hour
)

// complete sets the defaults and checks the options.
func (o *Options) complete() error {
	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Backoff = cmp.Or(o.Backoff, time.Second)
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	o.Breaker = o.Breaker.OrDefault()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnOutcome == nil {
		o.OnOutcome = func(Outcome) {}
	}

	// A run begins only with options that work: nothing is joined or published before.
	switch {
	case o.Group == "" || o.Join == nil || o.Sink == nil:
		return errors.New("sinks: options Group, Join and Sink are required")
	case o.Answer != nil && o.Publish == nil:
		return errors.New("sinks: option Answer needs Publish")
	case o.Concurrency < 0, o.Timeout < 0, o.Retries < 0, o.Backoff < 0, o.Drain < 0:
		return fmt.Errorf("sinks: an option is negative: Concurrency %d, Timeout %s, Retries %d, Backoff %s, Drain %s",
			o.Concurrency, o.Timeout, o.Retries, o.Backoff, o.Drain)
	}
	if err := o.Breaker.Validate(); err != nil {
		return fmt.Errorf("sinks: %w", err)
	}
	return nil
}

// wait is how long the sink is left alone after the nth attempt of a delivery, from 1.
func (o *Options) wait(n int, f Error) time.Duration {
	wait := o.Backoff
	for range n - 1 {
		// The loop ends at the bound: n may be large.
		wait = min(2*wait, MaxBackoff)
		if wait == MaxBackoff {
			break
		}
	}

	// A sink may ask for more than the backoff, but not for less.
	return max(wait, min(f.After, longestDelay))
}
