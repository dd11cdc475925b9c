package election

import (
	"sync"
	"time"
)

// PauseClock is the time in which this process ran. Silences of others are measured in it: while
// the process was paused, it asked nobody and heard nobody. Of a pause between two readings only
// the first part counts. It is safe for concurrent use.
type PauseClock struct {
	most time.Duration

	mu   sync.Mutex
	read time.Time // the last reading
	lost time.Duration
}

// NewPauseClock returns the clock of a process that reads it more often than most.
func NewPauseClock(at time.Time, most time.Duration) *PauseClock {
	return &PauseClock{most: most, read: at}
}

// At is a moment, which is now, on this clock: earlier by all that was lost.
func (c *PauseClock) At(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += max(0, now.Sub(c.read)-c.most)
	if now.After(c.read) {
		c.read = now
	}
	return now.Add(-c.lost)
}
