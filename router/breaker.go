package router

import (
	"context"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerStatus is a circuit breaker as it stands.
type BreakerStatus struct {
	State    string    `json:"state"` // closed, half-open, open, off
	Failures int       `json:"failures"`
	Since    time.Time `json:"since,omitzero"` // of the state
}

// breaker lets attempts through while they have a chance. Its changes are told to tell,
// which must not call back.
type breaker struct {
	config Breaker
	tell   func(change)

	mu      sync.Mutex
	gate    *gobreaker.TwoStepCircuitBreaker[struct{}]
	lastErr error // of the attempt that is reported now
	since   time.Time
	changed chan struct{} // closed when an attempt that was refused may be let through
	half    *time.Timer   // notices the end of the open state
	closed  bool
}

// change is what a breaker has to tell. In a threshold, from and to are both closed.
type change struct {
	from, to gobreaker.State
	failures int
	err      error
	lasted   time.Duration // how long from was
}

func newBreaker(config Breaker, tell func(change)) *breaker {
	b := &breaker{config: config, tell: tell, changed: make(chan struct{})}
	b.gate = b.newGate()
	return b
}

// newGate makes a closed breaker. Its callbacks run while mu is held, as every call of it.
func (b *breaker) newGate() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	b.since = time.Now()
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(b.config.Probes),
		Timeout:     b.config.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			failures := int(c.ConsecutiveFailures)
			if failures == b.config.Failures-1 {
				b.tell(change{failures: failures, err: b.lastErr})
			}
			return failures >= b.config.Failures
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { b.turned(from, to) },
		IsSuccessful:  func(err error) bool { return err == nil || isPermanent(err) },
	})
}

// turned follows a change of state. mu is held.
func (b *breaker) turned(from, to gobreaker.State) {
	ch := change{from: from, to: to, err: b.lastErr, lasted: time.Since(b.since)}
	if from == gobreaker.StateClosed {
		ch.failures = b.config.Failures
	}
	b.since = time.Now()
	if to == gobreaker.StateOpen && !b.closed {
		// One that nobody asks would stay open: the timer asks, just behind its time.
		b.half = time.AfterFunc(b.config.OpenFor+time.Nanosecond, func() { b.status() })
	}
	b.wake()
	b.tell(ch)
}

// wake lets those who wait ask again. mu is held.
func (b *breaker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// enter waits until an attempt is let through, and returns what to call with its error.
// Without patience it does not wait, but returns ErrBreakerOpen; so it does when giveUp is
// closed.
func (b *breaker) enter(ctx context.Context, patient bool, giveUp <-chan struct{}) (leave func(error), err error) {
	if b.config.Off {
		return func(error) {}, nil
	}
	for {
		b.mu.Lock()
		gate, changed := b.gate, b.changed
		report, err := gate.Allow()
		b.mu.Unlock()
		if err == nil {
			return func(err error) { b.leave(report, err) }, nil
		}
		if !patient {
			return nil, ErrBreakerOpen
		}
		select {
		case <-changed:
		case <-giveUp:
			return nil, ErrBreakerOpen
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave reports how an attempt ended. One that began before the last change of state does
// not count.
func (b *breaker) leave(report func(error), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastErr = err
	report(err)
	b.lastErr = nil
	if b.gate.State() == gobreaker.StateHalfOpen {
		b.wake() // there may be room for another probe
	}
}

// reset closes the breaker, whatever it is.
func (b *breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.gate.State()
	if b.half != nil {
		b.half.Stop()
	}
	lasted := time.Since(b.since)
	b.gate = b.newGate()
	b.wake()
	if from != gobreaker.StateClosed {
		b.tell(change{from: from, to: gobreaker.StateClosed, lasted: lasted})
	}
}

func (b *breaker) status() BreakerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.config.Off {
		return BreakerStatus{State: "off"}
	}
	state := b.gate.State().String() // may change it, and with that since
	return BreakerStatus{State: state, Failures: int(b.gate.Counts().ConsecutiveFailures), Since: b.since}
}

// close stops the timer. The breaker goes on to work, but unasked it stays open.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.half != nil {
		b.half.Stop()
	}
}
