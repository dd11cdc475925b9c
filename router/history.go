package router

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// Query chooses events of the past.
type Query struct {
	From   client.Position // by default the start
	To     uint64          // the last offset; 0 is the end of the log
	Filter event.Filter
	Where  string // a condition in CEL
	Limit  uint64 // events; 0 is no limit
}

// Recent returns up to n of the last events that went by here, published or delivered,
// the newest last. History knows more.
func (r *Router) Recent(n int) []event.Event { return r.recent.last(n) }

// History reads events of the past from the log, in order. A *client.GapError
// reports events that are not kept any more, and reading continues; any other error is the
// last element.
func (r *Router) History(ctx context.Context, q Query) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		// An expression that does not compile is the only error that ends the reading before it begins.
		var condition *where.Condition
		if q.Where != "" {
			var err error
			condition, err = where.Compile(q.Where)
			if err != nil {
				yield(event.Event{}, fmt.Errorf("router: history: %w", err))
				return
			}
		}

		// Linearizable, so that all that was acknowledged before the call is read, whichever node answers.
		o := client.TailOptions{From: q.From, Filter: q.Filter, NoFollow: true, Consistency: client.Linearizable}
		if (q.From == client.Position{}) {
			o.From = client.FromStart()
		}

		// With a condition the limit counts the events that meet it, which the log cannot.
		if condition == nil {
			o.Limit = q.Limit
		}
		yielded := uint64(0)
		for ev, err := range r.log.Tail(ctx, o) {
			switch {
			case err != nil:
				if !yield(ev, err) {
					return
				}
				continue
			case q.To > 0 && ev.Offset > q.To:
				return
			case condition != nil:
				if met, _ := condition.Match(&ev); !met {
					continue
				}
			}
			if !yield(ev, nil) {
				return
			}
			yielded++
			if yielded == q.Limit {
				return
			}
		}
	}
}

// ReplayResult is what became of a replay.
type ReplayResult struct {
	Events  uint64  // that are the subscription's
	Handled uint64  // by an attempt that succeeded
	Failed  uint64  // all others, also those that the breaker or Close has refused
	Errors  []error // of the first few that failed
}

// maxReplayErrors are kept of a replay.
const maxReplayErrors = 10

// Replay gives events of the past to a subscription of this router once more, with its
// filter, attempts and breaker, in order with what else it handles. Its cursor does not
// move, and an event that fails is reported but becomes no dead letter. The handler can see by
// AttemptOf that it is a replay. An error says that the replay has ended early.
func (r *Router) Replay(ctx context.Context, subscription string, q Query) (ReplayResult, error) {
	s, err := r.find(subscription)
	if err != nil {
		return ReplayResult{}, fmt.Errorf("router: replay: %w", err)
	}
	if !r.enter(ctx) {
		return ReplayResult{}, fmt.Errorf("router: replay: %w", ErrClosed)
	}
	defer r.busy.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A subscription that closes takes nothing more: the replay ends with its reading.
	defer context.AfterFunc(s.feeding, func() { cancel(ErrClosed) })()

	// Outcomes come in any order; rep.note counts them. There is room for all that are open, so no handler waits for
	// this call, even if it has returned early.
	results := make(chan error, s.spec.Queue)
	var rep ReplayResult
	open := 0
	for ev, err := range r.History(ctx, q) {
		if _, gap := errors.AsType[*client.GapError](err); gap {
			continue
		}
		if err == nil && !s.matches(&ev) {
			continue
		}
		// No more events are handed over than results have room for.
		for err == nil && open == cap(results) {
			err = rep.note(ctx, results, &open)
		}
		if err == nil {
			err = s.handOver(ctx, ev, replayed, results, 0)
		}
		if err != nil {
			return rep, fmt.Errorf("router: replay: %w", err)
		}
		rep.Events++
		open++
	}

	// All were handed over: what is left is to wait for the last outcomes.
	for open > 0 {
		if err := rep.note(ctx, results, &open); err != nil {
			return rep, fmt.Errorf("router: replay: %w", err)
		}
	}
	return rep, nil
}

// note waits for one result.
func (rep *ReplayResult) note(ctx context.Context, results <-chan error, open *int) error {
	select {
	// A failed event is an outcome of the replay, not an error of it.
	case err := <-results:
		*open--
		if err == nil {
			rep.Handled++
			return nil
		}
		rep.Failed++
		if len(rep.Errors) < maxReplayErrors {
			rep.Errors = append(rep.Errors, err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
