// Package clock keeps replicated time: the time that the log says it is, which all members
// agree on and which never falls.
//
// A leader stamps each frame with Clock.Stamp. Between frames the time advances with the
// monotonic clock, and is slewed towards the machine's wall clock by a tenth at most. Where
// it lags by more than that can mend, StepAgreed says whether a majority of the voters' wall
// clocks allows a step. The package reads no clock but the one it is given.
package clock

import (
	"slices"
	"sync"
	"time"
)

const (
	slewShare     = 10          // replicated time runs at most a tenth faster or slower than the monotonic clock
	stepAgreement = time.Second // how close voters' clocks must be to allow a step
	stepThreshold = time.Second // how far replicated time must lag to need one
	sampleAge     = 5 * time.Second
)

// Reading is both clocks of this machine at one moment.
type Reading struct {
	Wall time.Time
	Mono time.Duration // since any fixed moment; never goes back
}

// System returns a reader of the machine's clocks.
func System() func() Reading {
	start := time.Now()
	return func() Reading {
		now := time.Now()
		return Reading{Wall: now.Round(0), Mono: now.Sub(start)}
	}
}

// Clock is the replicated time as this node would continue it: the newest
// time known from the log plus the monotonic time since, slewed towards the wall
// clock. It is safe for concurrent use.
type Clock struct {
	Read func() Reading // the machine's clocks, at this moment

	mu   sync.Mutex
	base time.Time     // the newest replicated time known; zero in an empty log
	at   time.Duration // monotonic time when base was taken in
}

func New(read func() Reading) *Clock { return &Clock{Read: read} }

// Observe takes in the replicated time of an applied entry. One that is not
// newer than what is known changes nothing: a leader's own frames come back
// after it has stamped later ones.
func (c *Clock) Observe(t time.Time) {
	now := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.base) {
		c.base, c.at = t, now.Mono
	}
}

// Reset takes t as the replicated time, also an earlier one: the state was
// replaced by another.
func (c *Clock) Reset(t time.Time) {
	now := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = t, now.Mono
}

// Now is the replicated time at this moment.
func (c *Clock) Now() time.Time {
	now := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.project(now)
}

// Stamp is the time of the next frame. It never falls from one frame to the next.
func (c *Clock) Stamp() time.Time {
	now := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = c.project(now), now.Mono
	return c.base
}

func (c *Clock) project(now Reading) time.Time {
	if c.base.IsZero() {
		return now.Wall.UTC()
	}
	elapsed := max(0, now.Mono-c.at)
	t := c.base.Add(elapsed)
	limit := elapsed / slewShare
	return t.Add(max(-limit, min(limit, now.Wall.Sub(t))))
}

// Lags reports whether replicated time lags the wall clock so far that a
// step is worth asking the others about.
func (c *Clock) Lags() bool {
	now := c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.base.IsZero() && now.Wall.Sub(c.project(now)) > stepThreshold
}

// Sample is the wall clock of another node as it was read once. It is kept beside this
// machine's monotonic time, which no step moves: compared with this machine's wall clock
// when the sample was taken, it would still agree with one that has stepped since.
type Sample struct {
	wall  time.Time
	taken time.Duration // this machine's monotonic time, give or take error
	error time.Duration
}

// NewSample is a wall clock that was read between asked and answered.
func NewSample(wall time.Time, asked, answered Reading) Sample {
	took := answered.Mono - asked.Mono
	return Sample{wall: wall.Round(0), taken: asked.Mono + took/2, error: took / 2}
}

// Offset is the other's clock minus this machine's, both now.
func (s Sample) Offset(now Reading) time.Duration {
	return s.wall.Add(now.Mono - s.taken).Sub(now.Wall)
}

// agrees reports whether the other's clock was certainly near this machine's as it is now.
func (s Sample) agrees(now Reading) bool {
	fresh := now.Mono-s.taken <= sampleAge
	return fresh && s.Offset(now).Abs()+s.error <= stepAgreement
}

// StepAgreed decides whether replicated time may be moved to the own wall clock: a majority
// of all voters, self among them, must have clocks that agree with it. others are the clocks
// of the other voters, by id. It returns who agreed, sorted.
func StepAgreed(now Reading, self string, others map[string]Sample, voters int) (agreed []string, ok bool) {
	agreed = []string{self}
	for id, s := range others {
		if s.agrees(now) {
			agreed = append(agreed, id)
		}
	}
	slices.Sort(agreed)
	return agreed, len(agreed) > voters/2
}
