package raftnode

import (
	"slices"
	"sync"
	"time"
)

const (
	slewShare     = 10          // replicated time runs at most a tenth faster or slower than the monotonic clock
	stepAgreement = time.Second // how close voters' clocks must be to allow a step
	stepThreshold = time.Second // how far behind replicated time must be to need one
	sampleAge     = 5 * time.Second
)

// reading is both clocks of this machine at one moment.
type reading struct {
	wall time.Time
	mono time.Duration // since any fixed moment; never goes back
}

// systemClock returns a reader of the machine's clocks.
func systemClock() func() reading {
	start := time.Now()
	return func() reading {
		now := time.Now()
		return reading{wall: now.Round(0), mono: now.Sub(start)}
	}
}

// clock is the replicated time as this node would go on with it: the newest
// time known from the log plus the monotonic time since, slewed towards the wall
// clock. It is safe for concurrent use.
type clock struct {
	read func() reading

	mu   sync.Mutex
	base time.Time     // the newest replicated time known; zero in an empty log
	at   time.Duration // monotonic time when base was taken in
}

func newClock(read func() reading) *clock { return &clock{read: read} }

// observe takes in the replicated time of an applied entry. One that is not
// newer than what is known changes nothing: a leader's own frames come back
// after it has stamped later ones.
func (c *clock) observe(t time.Time) {
	now := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.base) {
		c.base, c.at = t, now.mono
	}
}

// reset takes t as the replicated time, also an earlier one: the state was
// replaced by another.
func (c *clock) reset(t time.Time) {
	now := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = t, now.mono
}

// now is the replicated time at this moment.
func (c *clock) now() time.Time {
	now := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.project(now)
}

// stamp is the time of the next frame. It never falls from one frame to the next.
func (c *clock) stamp() time.Time {
	now := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.at = c.project(now), now.mono
	return c.base
}

func (c *clock) project(now reading) time.Time {
	if c.base.IsZero() {
		return now.wall.UTC()
	}
	elapsed := max(0, now.mono-c.at)
	t := c.base.Add(elapsed)
	limit := elapsed / slewShare
	return t.Add(max(-limit, min(limit, now.wall.Sub(t))))
}

// behind reports whether replicated time is so far behind the wall clock that a
// step is worth asking the others about.
func (c *clock) behind() bool {
	now := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.base.IsZero() && now.wall.Sub(c.project(now)) > stepThreshold
}

// clockSample is the wall clock of another node as it was read once. It is kept beside this
// machine's monotonic time, which no step moves: compared with this machine's wall clock
// when the sample was taken, it would go on agreeing with one that has stepped since.
type clockSample struct {
	wall  time.Time
	taken time.Duration // this machine's monotonic time, give or take error
	error time.Duration
}

// newClockSample is a wall clock that was read between asked and answered.
func newClockSample(wall time.Time, asked, answered reading) clockSample {
	took := answered.mono - asked.mono
	return clockSample{wall: wall.Round(0), taken: asked.mono + took/2, error: took / 2}
}

// offset is the other's clock minus this machine's, both now.
func (s clockSample) offset(now reading) time.Duration {
	return s.wall.Add(now.mono - s.taken).Sub(now.wall)
}

// agrees reports whether the other's clock was certainly near this machine's as it is now.
func (s clockSample) agrees(now reading) bool {
	fresh := now.mono-s.taken <= sampleAge
	return fresh && s.offset(now).Abs()+s.error <= stepAgreement
}

// stepAgreed decides whether replicated time may be moved to the own wall clock: a majority
// of all voters, self among them, must have clocks that agree with it. others are the clocks
// of the other voters, by id. It returns who agreed, sorted.
func stepAgreed(now reading, self string, others map[string]clockSample, voters int) (agreed []string, ok bool) {
	agreed = []string{self}
	for id, s := range others {
		if s.agrees(now) {
			agreed = append(agreed, id)
		}
	}
	slices.Sort(agreed)
	return agreed, len(agreed) > voters/2
}
