// Package breaker is the circuit breaker of whatever takes events and may fail on them:
// the router's handlers and the sinks. It adds to gobreaker the waiting for it, and the
// report of its changes.
//
//	b := breaker.New(breaker.Config{Failures: 3, OpenFor: 300 * time.Second}.OrDefault(), nil, report)
//	leave, err := b.Enter(ctx, ev.Offset, true, nil)
//	leave(attempt())
//
// Each attempt goes through Enter, retries included. Once Config.Failures events have failed, and
// no attempt succeeded in between, it opens: nothing is let through for Config.OpenFor. Then
// Config.Probes attempts at once are, in the order in which they began to wait, and close it or open it again. An event
// counts once, however often it fails: the fault may be its own, and an open breaker makes all others wait.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrOpen says that the breaker lets nothing through.
var ErrOpen = errors.New("circuit breaker is open")

// Config says when a breaker opens. Every zero field takes its default.
type Config struct {
	Failures int           // events in a row that failed, each however often, and open it; 3
	OpenFor  time.Duration // until it is half open; 300 s
	Probes   int           // attempts at once while it is half open, all of which must succeed; 1
	Off      bool
}

// OrDefault fills in the defaults.
func (c Config) OrDefault() Config {
	c.Failures = cmp.Or(c.Failures, 3)
	c.OpenFor = cmp.Or(c.OpenFor, 300*time.Second)
	c.Probes = cmp.Or(c.Probes, 1)
	return c
}

// Validate refuses numbers that mean nothing.
func (c Config) Validate() error {
	if c.Failures < 0 || c.Failures > math.MaxInt32 || c.OpenFor < 0 || c.Probes < 0 || c.Probes > math.MaxInt32 {
		return fmt.Errorf("option Breaker is %+v", c)
	}
	return nil
}

// Status is the state of a circuit breaker.
type Status struct {
	State    string    `json:"state"` // closed, half-open, open, off
	Failures int       `json:"failures"`
	Since    time.Time `json:"since,omitzero"` // of the state
}

// Breaker lets attempts through while they have a chance. It is safe for concurrent use.
type Breaker struct {
	config Config
	// errors that do not count as failures; nil is none
	harmless func(error) bool
	// called while mu is held, with each change and one failure before opening
	report func(Change)

	mu sync.Mutex
	// replaced by Reset; every call of it holds mu
	gate    *gobreaker.TwoStepCircuitBreaker[struct{}]
	lastErr error         // of the attempt that is reported now
	failed  map[any]bool  // events that failed since the last attempt that did not
	since   time.Time     // of the present state
	changed chan struct{} // closed when an attempt that was refused may be let through
	waiting []*turn       // attempts that wait, in the order in which they began to
	half    *time.Timer   // notices the end of the open state
	closed  bool          // Close was called: no timer is begun any more
}

// turn is the place of an attempt that waits. Probes are let through in turn: an event that always fails would else
// always be the probe, and those that would close the breaker wait for ever.
type turn struct{ _ byte }

// New makes a closed breaker of a complete configuration. An error that harmless accepts
// is none to it; nil accepts none. report is called with each change, and must not call back.
func New(config Config, harmless func(error) bool, report func(Change)) *Breaker {
	b := &Breaker{config: config, harmless: harmless, report: report, changed: make(chan struct{})}
	b.gate = b.newGate()
	return b
}

// newGate makes a closed breaker. Its callbacks run while mu is held, as every call of it.
func (b *Breaker) newGate() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	b.since, b.failed = time.Now(), map[any]bool{}
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(b.config.Probes),
		Timeout:     b.config.OpenFor,

		// The failure before the one that opens it is reported as a warning.
		ReadyToTrip: func(c gobreaker.Counts) bool {
			failures := int(c.ConsecutiveFailures)
			if failures == b.config.Failures-1 {
				b.report(Change{Failures: failures, Err: b.lastErr, config: b.config})
			}
			return failures >= b.config.Failures
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { b.turned(from, to) },
		IsSuccessful:  func(err error) bool { return err == nil || (b.harmless != nil && b.harmless(err)) },
	})
}

// turned follows a change of state. mu is held.
func (b *Breaker) turned(from, to gobreaker.State) {
	ch := Change{From: from, To: to, Err: b.lastErr, Lasted: time.Since(b.since), config: b.config}

	// Only a breaker that was closed has counted failures in a row.
	if from == gobreaker.StateClosed {
		ch.Failures = b.config.Failures
	}
	b.since = time.Now()
	if to == gobreaker.StateOpen && !b.closed {
		// A breaker that nobody asks would stay open: the timer asks, just after its time.
		b.half = time.AfterFunc(b.config.OpenFor+time.Nanosecond, func() { b.Status() })
	}
	b.wake()
	b.report(ch)
}

// wake lets those who wait ask again. mu is held.
func (b *Breaker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Enter waits until an attempt is let through, and returns what to call with its error. event
// is any value that is equal for all attempts at one event.
// Unless wait is set it returns ErrOpen instead of waiting; so it does when giveUp is closed.
func (b *Breaker) Enter(ctx context.Context, event any, wait bool, giveUp <-chan struct{}) (
	leave func(error), err error) {
	if b.config.Off {
		return func(error) {}, nil
	}
	var mine *turn
	if wait {
		mine = new(turn)
		defer b.endTurn(mine)
	}
	for {
		// changed is taken with the refusal, so no change in between is missed.
		report, changed := b.allow(mine)
		if report != nil {
			return func(err error) { b.leave(report, event, err) }, nil
		}
		if !wait {
			return nil, ErrOpen
		}
		select {
		case <-changed:
		case <-giveUp:
			return nil, ErrOpen
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// allow lets an attempt through, or returns nil and what is closed when it may ask again. mine is nil if it does not
// wait.
func (b *Breaker) allow(mine *turn) (report func(error), changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()

	// Whoever waits while it is not closed has a place in the row, and only the first asks the gate.
	if mine != nil && b.gate.State() != gobreaker.StateClosed {
		if !slices.Contains(b.waiting, mine) {
			b.waiting = append(b.waiting, mine)
		}
		if b.waiting[0] != mine {
			return nil, b.changed
		}
	}

	// The gate refuses while it is open, and while all probes are under way.
	report, err := b.gate.Allow()
	if err != nil {
		return nil, b.changed
	}
	return report, nil
}

// endTurn lets the next attempt ask that waits.
func (b *Breaker) endTurn(mine *turn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, mine); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.wake()
	}
}

// Await waits until attempts may be let through, without being one.
func (b *Breaker) Await(ctx context.Context) error {
	for {
		// Asking for the state moves it from open to half open when its time is over.
		b.mu.Lock()
		open, changed := !b.config.Off && b.gate.State() == gobreaker.StateOpen, b.changed
		b.mu.Unlock()
		if !open {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leave reports how an attempt ended. One that began before the last change of state does
// not count.
func (b *Breaker) leave(report func(error), event any, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts(event, err) {
		b.lastErr = err
		report(err)
		b.lastErr = nil
	}
	if b.gate.State() == gobreaker.StateHalfOpen {
		b.wake() // there may be room for another probe
	}
}

// counts reports whether an attempt counts that ended with err. mu is held.
func (b *Breaker) counts(event any, err error) bool {
	// A success begins the count again, and a probe decides in any case.
	if err == nil || (b.harmless != nil && b.harmless(err)) || b.gate.State() != gobreaker.StateClosed {
		clear(b.failed)
		return true
	}

	// A later failure of the same event is not reported to the gate.
	again := b.failed[event]
	b.failed[event] = true
	return !again
}

// Reset closes the breaker, whatever it is.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.gate.State()
	if b.half != nil {
		b.half.Stop()
	}

	// A new gate counts from 0. Attempts that began under the old one report to that.
	lasted := time.Since(b.since)
	b.gate = b.newGate()
	b.wake()
	if from != gobreaker.StateClosed {
		b.report(Change{From: from, To: gobreaker.StateClosed, Lasted: lasted, config: b.config})
	}
}

// Status returns the state of the breaker.
func (b *Breaker) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.config.Off {
		return Status{State: "off"}
	}
	state := b.gate.State().String() // may change it, and with that since
	return Status{State: state, Failures: int(b.gate.Counts().ConsecutiveFailures), Since: b.since}
}

// Close stops the timer. The breaker still works, but stays open until it is asked.
func (b *Breaker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.half != nil {
		b.half.Stop()
	}
}
