package election

import (
	"sync"
	"time"
)

// PauseClock measures the time in which this process ran. Silences of others are measured by it:
// while the process was paused, it asked nobody and heard nobody. The time between two readings
// counts up to `most`. It is safe for concurrent use.
type PauseClock struct {
	most time.Duration // that counts between two readings

	mu   sync.Mutex
	read time.Time     // the last reading
	lost time.Duration // time that did not count so far
}

// NewPauseClock returns the clock of a process that reads it more often than most.
func NewPauseClock(at time.Time, most time.Duration) *PauseClock {
	return &PauseClock{most: most, read: at}
}

// At reads this clock; now is the present time of the machine. The result is earlier by all that did not
// count so far.
func (c *PauseClock) At(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += max(0, now.Sub(c.read)-c.most)
	if now.After(c.read) {
		c.read = now
	}
	return now.Add(-c.lost)
}
