package election

import "time"

// What a Pressure judges by.
const (
	pressureHigh = 80 // percent of a bound from which on the queue is full
	pressureLow  = 50 // and below which it is not any more
)

// QueueBounds are what a leader's queue holds at most.
type QueueBounds struct{ Requests, Bytes uint64 }

// Load is what a queue has held at most since it was looked at last, and how many
// requests were refused for want of room since then.
type Load struct{ Requests, Bytes, Refused uint64 }

// Pressure decides when to tell that the leader's queue is full, and that it is not any
// more. It is used by one goroutine.
//
// It is full from a refusal, or from 80 % of a bound on; not any more once it has stayed
// below 50 % of both without a refusal for the hold-down. What is told takes turns, with
// at least the hold-down in between.
type Pressure struct {
	bounds QueueBounds
	hold   time.Duration
	active bool
	told   time.Time // when something was told last; zero: never
	high   bool      // it was full since it was told not to be
	calm   time.Time // since when it has been low; zero: it is not
}

// NewPressure begins with what was told last.
func NewPressure(b QueueBounds, hold time.Duration, active bool) *Pressure {
	return &Pressure{bounds: b, hold: hold, active: active}
}

// See takes in a load. due reports that active is to be told, now and until Told is
// called. Times never fall.
func (p *Pressure) See(at time.Time, l Load) (active, due bool) {
	p.high = p.high || l.Refused > 0 || p.above(l, pressureHigh)
	switch {
	case l.Refused > 0 || p.above(l, pressureLow):
		p.calm = time.Time{}
	case p.calm.IsZero():
		p.calm = at
	}
	if !p.told.IsZero() && at.Sub(p.told) < p.hold {
		return p.active, false
	}
	if p.active {
		return false, !p.calm.IsZero() && at.Sub(p.calm) >= p.hold
	}
	return true, p.high
}

// Told says that something was told.
func (p *Pressure) Told(at time.Time, active bool) {
	p.active, p.told, p.high = active, at, false
}

func (p *Pressure) above(l Load, percent uint64) bool {
	return l.Requests*100 >= p.bounds.Requests*percent || l.Bytes*100 >= p.bounds.Bytes*percent
}
