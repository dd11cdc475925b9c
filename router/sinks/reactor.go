package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/attempt"
	"github.com/ringrift/ringlog/router/breaker"
)

// Reactor gives a group's events to a sink.
type Reactor struct {
	o       Options
	breaker *breaker.Breaker      // of all rounds: it outlives each
	state   atomic.Int32          // of the breaker, a gobreaker.State
	round   atomic.Pointer[round] // the present one
	tally   *tally                // of the whole run
	notices *notices
	begun   atomic.Uint64 // deliveries that count for Options.Count
	joined  bool          // a join has succeeded; only the goroutine of Run reads and writes it
}

// NewReactor checks the options.
func NewReactor(o Options) (*Reactor, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	r := &Reactor{o: o, tally: newTally(o.OnOutcome), notices: newNotices(&o)}

	// The breaker reports to the reactor from the start.
	r.breaker = breaker.New(o.Breaker, harmless, r.turned)
	return r, nil
}

// turned follows the breaker, in whose lock it runs.
func (r *Reactor) turned(ch breaker.Change) {
	r.state.Store(int32(ch.To))

	// An open breaker ends the round: what waits goes back to the group. Any other change lets
	// takeEvents look at its bounds again.
	if round := r.round.Load(); round != nil && ch.From != ch.To {
		if ch.To == gobreaker.StateOpen {
			round.end()
		}
		round.poke()
	}
	if ch.From != ch.To && r.o.Turned != nil {
		r.o.Turned(ch)
	}
	r.notices.breaker(ch)
}

// settledEvery is how often Options.Settled is asked.
const settledEvery = 100 * time.Millisecond

// Run joins the group and takes events until ctx ends, or what the options say. An error
// says why it ended early; the summary counts in any case. It is called once.
func (r *Reactor) Run(ctx context.Context) (Summary, error) {
	quit := r.notices.start(ctx)

	// taking ends with ctx, or when everything is settled.
	taking, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watchSettled(taking, stop)
	}()
	err := r.rounds(taking)
	stop()
	<-watched

	// The notices end last: up to here rounds and breaker may have reported something.
	r.breaker.Close()
	dropped := quit()
	sum := r.tally.summary()
	sum.Unpublished = dropped
	return sum, err
}

// rounds joins the group again whenever the breaker lets something through.
func (r *Reactor) rounds(ctx context.Context) error {
	for {
		if err := r.oneRound(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil || r.complete() {
			return nil
		}
		// The breaker has ended the round. While it is open this process is no member, so others get the events.
		if r.breaker.Await(ctx) != nil {
			return nil
		}
	}
}

// complete reports whether as many deliveries have ended as were wanted.
func (r *Reactor) complete() bool { return r.o.Count > 0 && r.begun.Load() >= r.o.Count }

// oneRound is a member of the group until the breaker opens or there is no more to do.
func (r *Reactor) oneRound(ctx context.Context) error {
	member, err := r.join(ctx)
	if err != nil || member == nil {
		return err
	}
	// turned finds the round from here on.
	rd := newRound(r, ctx, member)
	r.round.Store(rd)
	if r.breaker.Status().State == gobreaker.StateOpen.String() { // it opened before the round could hear of it
		rd.end()
	}

	// The round ends by taking nothing more, then waiting for what runs, then leaving.
	err = rd.takeEvents()
	rd.end()
	rd.drain(ctx)
	r.round.Store(nil)
	return errors.Join(err, rd.leave())
}

// join joins the group. The first time an error is final; later the cluster may be away
// for a while. Without a member the context has ended.
func (r *Reactor) join(ctx context.Context) (Member, error) {
	for {
		// An error of the first time is the caller's mistake, most likely.
		member, err := r.o.Join(ctx, r.o.Concurrency)
		switch {
		case err == nil:
			r.joined = true
			return member, nil
		case ctx.Err() != nil:
			return nil, nil
		case !r.joined || final(err):
			return nil, fmt.Errorf("sinks: join group %s: %w", r.o.Group, err)
		}
		r.o.Logger.Warn("cannot join the group, trying again", "group", r.o.Group, "error", err)
		if !attempt.Sleep(ctx, r.o.Backoff) {
			return nil, nil
		}
	}
}

// final reports an answer that no repetition can change.
func final(err error) bool {
	var answer *api.Error
	if !errors.As(err, &answer) {
		return false
	}

	// These codes say that the group or the caller is wrong.
	switch answer.Code {
	case api.NotFound, api.Exists, api.InvalidArgument, api.Unauthenticated, api.Conflict, api.NotImplemented:
		return true
	}
	return false
}

// watchSettled calls stop once there is nothing left to wait for.
func (r *Reactor) watchSettled(ctx context.Context, stop func()) {
	if r.o.Settled == nil {
		return
	}
	for {
		settled, err := r.o.Settled(ctx)

		// A cluster that cannot be asked now is asked again.
		if err != nil && ctx.Err() == nil {
			r.o.Logger.Debug("cannot find out whether all is settled", "group", r.o.Group, "error", err)
		}
		if settled {
			stop()
			return
		}
		if !attempt.Sleep(ctx, settledEvery) {
			return
		}
	}
}
