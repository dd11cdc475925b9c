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

// voterClock is a voter's wall clock beside the own one at the same moment.
type voterClock struct {
	id     string
	offset time.Duration // its clock minus the own one
}

// stepAgreed decides whether replicated time may be moved to the own wall clock:
// a majority of all voters, the own one counted by its entry in clocks, must
// have clocks that agree with it. It returns who agreed, sorted.
func stepAgreed(clocks []voterClock, voters int) (agreed []string, ok bool) {
	for _, c := range clocks {
		if c.offset.Abs() <= stepAgreement {
			agreed = append(agreed, c.id)
		}
	}
	slices.Sort(agreed)
	return agreed, len(agreed) > voters/2
}
