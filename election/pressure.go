package election

import "time"

// What a Pressure decides by.
const (
	pressureHigh = 80 // percent of a bound from which on the queue is full
	pressureLow  = 50 // percent below which it is not full any more
)

// QueueBounds are what a leader's queue holds at most.
type QueueBounds struct{ Requests, Bytes uint64 }

// Load is the most that a queue has held since the last Load, and how many requests were
// refused since then because it was full.
type Load struct{ Requests, Bytes, Refused uint64 }

// Pressure decides when to report that the leader's queue is full, and that it no longer
// is. It is used by one goroutine.
//
// The queue is full from a refusal on, or from 80 % of a bound on. It no longer is once it
// has stayed below 50 % of both bounds without a refusal for the hold-down. The two reports
// alternate, with at least the hold-down between them.
type Pressure struct {
	bounds     QueueBounds
	hold       time.Duration // the hold-down
	active     bool          // as reported last
	reportedAt time.Time     // when the last report was; zero: never
	high       bool          // the queue was full since the last report
	calm       time.Time     // since when the queue has been low; zero: it is not low
}

// NewPressure returns a Pressure; active is what was reported last.
func NewPressure(b QueueBounds, hold time.Duration, active bool) *Pressure {
	return &Pressure{bounds: b, hold: hold, active: active}
}

// See takes a load. due says that active is to be reported, now and until NoteReport is called.
// The times of calls must never fall.
func (p *Pressure) See(at time.Time, l Load) (active, due bool) {
	p.high = p.high || l.Refused > 0 || p.above(l, pressureHigh)
	switch {
	case l.Refused > 0 || p.above(l, pressureLow):
		p.calm = time.Time{}
	case p.calm.IsZero():
		p.calm = at
	}
	// At most one report in a hold-down; high and calm keep what happens meanwhile.
	if !p.reportedAt.IsZero() && at.Sub(p.reportedAt) < p.hold {
		return p.active, false
	}
	if p.active {
		return false, !p.calm.IsZero() && at.Sub(p.calm) >= p.hold
	}
	return true, p.high
}

// NoteReport notes that active was reported.
func (p *Pressure) NoteReport(at time.Time, active bool) {
	p.active, p.reportedAt, p.high = active, at, false
}

// above reports whether the load has reached this percentage of one of the bounds.
func (p *Pressure) above(l Load, percent uint64) bool {
	return l.Requests*100 >= p.bounds.Requests*percent || l.Bytes*100 >= p.bounds.Bytes*percent
}
