package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/client"
)

// round is one membership of the group.
type round struct {
	*Reactor
	member  Member                  // left once, by oneRound
	taking  context.Context         // ended when nothing more is to be taken
	end     context.CancelFunc      // of taking; called by the breaker, too
	base    context.Context         // of attempts; ended when they are cut off
	cut     context.CancelCauseFunc // of base
	changed chan struct{}           // holds one token when there may be room
	running atomic.Int64            // deliveries that a worker has not settled
	workers sync.WaitGroup
}

// newRound returns a round that takes nothing yet. Attempts outlive ctx, for as long as drain
// allows.
func newRound(r *Reactor, ctx context.Context, member Member) *round {
	rd := &round{Reactor: r, member: member, changed: make(chan struct{}, 1)}
	rd.taking, rd.end = context.WithCancel(ctx)
	rd.base, rd.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	return rd
}

// poke makes takeEvents look again.
func (rd *round) poke() {
	select {
	case rd.changed <- struct{}{}:
	default:
	}
}

// takeEvents hands events to workers until nothing more is to be taken.
func (rd *round) takeEvents() error {
	for rd.waitForRoom() {
		d, err := rd.member.Next(rd.taking)
		var gap *client.GapError

		// Every delivery that is taken is settled: by a worker, or as filtered.
		switch {
		case errors.As(err, &gap):
			rd.tally.count(func(s *Summary) { s.Gaps++ })
			rd.o.Logger.Warn("events are gone that were not handled", "group", rd.o.Group,
				"from", gap.Gap.From, "to", gap.Gap.To, "reason", gap.Gap.Reason)
		case err != nil && rd.taking.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("sinks: group %s: %w", rd.o.Group, err)
		case !rd.meets(&d):
			rd.ackFiltered(d)
		default:
			rd.begun.Add(1)
			rd.running.Add(1)
			rd.workers.Go(func() { rd.handle(d) })
		}
	}
	return nil
}

// waitForRoom waits until another event may be taken, and reports whether one is to be.
func (rd *round) waitForRoom() bool {
	for {
		if rd.taking.Err() != nil {
			return false
		}

		// changed holds a token for whatever happens after this look.
		running := rd.running.Load()
		if rd.complete() && running == 0 {
			return false
		}
		if !rd.complete() && running < rd.maxRunning() {
			return true
		}
		select {
		case <-rd.changed:
		case <-rd.taking.Done():
		}
	}
}

// maxRunning is how many events may be in flight: while the breaker is half open, its probes.
func (rd *round) maxRunning() int64 {
	if rd.state.Load() == int32(gobreaker.StateHalfOpen) {
		return int64(min(rd.o.Concurrency, rd.o.Breaker.Probes))
	}
	return int64(rd.o.Concurrency)
}

// meets applies the condition. An event for which it cannot be evaluated does not meet it.
func (rd *round) meets(d *client.Delivery) bool {
	if rd.o.Where == nil {
		return true
	}

	// An event that the condition cannot be applied to is not a failure: it is passed.
	met, err := rd.o.Where.Match(&d.Event)
	if err != nil {
		rd.o.Logger.Debug("the condition cannot be evaluated", "offset", d.Offset, "type", d.Type, "error", err)
	}
	return met
}

// ackFiltered settles an event that does not meet the condition.
func (rd *round) ackFiltered(d client.Delivery) {
	if d.Ack() == nil {
		rd.tally.count(func(s *Summary) { s.Filtered++ })
	}
}

// finished ends a worker.
func (rd *round) finished() {
	rd.running.Add(-1)
	rd.poke()
}

// drain waits for what runs; once ctx has ended, for as long as the options allow.
func (rd *round) drain(ctx context.Context) {
	defer rd.cut(nil)
	done := make(chan struct{})

	// The workers end by themselves; this goroutine ends with the last of them.
	go func() {
		rd.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}

	// The process ends: attempts have the drain time, then they are cut off.
	timer := time.NewTimer(rd.o.Drain)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
		rd.cut(errCutOff)
	}
	<-done
}

// leaveWithin bounds the last exchange with the group.
const leaveWithin = 10 * time.Second

// leave makes the acks durable and releases the rest.
func (rd *round) leave() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rd.taking), leaveWithin)
	defer cancel()

	// Without the last acks events are redelivered: nothing is lost.
	if err := rd.member.Close(ctx); err != nil {
		return fmt.Errorf("sinks: leave group %s: what was handled last may be redelivered: %w", rd.o.Group, err)
	}
	return nil
}
