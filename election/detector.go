package election

import "time"

// Detector decides from one peer's answers whether it is reachable. A peer is no longer
// reachable once it has not answered for misses intervals; it is steady again only after
// as many answers in a row. It is used by one goroutine at a time.
type Detector struct {
	interval time.Duration
	misses   int
	answered time.Time // the last answer; zero: none yet
	run      int       // answers since the last silence, at most misses
}

// NewDetector returns the detector of a peer that has not answered yet.
func NewDetector(interval time.Duration, misses int) *Detector {
	return &Detector{interval: interval, misses: misses}
}

// Reach is how long an answer counts.
func (d *Detector) Reach() time.Duration { return d.interval * time.Duration(d.misses) }

// Answered notes an answer. The times of calls never fall.
func (d *Detector) Answered(at time.Time) {
	if !d.Reachable(at) {
		d.run = 0
	}
	d.answered, d.run = at, min(d.run+1, d.misses)
}

// Reachable reports whether the peer has answered lately.
func (d *Detector) Reachable(at time.Time) bool {
	return !d.answered.IsZero() && at.Sub(d.answered) < d.Reach()
}

// Steady reports whether the peer has answered for a while without a silence.
func (d *Detector) Steady(at time.Time) bool { return d.Reachable(at) && d.run >= d.misses }

// Last is when the peer answered last, zero if it never did.
func (d *Detector) Last() time.Time { return d.answered }
