package election

import (
	"sync"
	"time"
)

// Waking is the time in which this process ran, which is what a silence of others is
// measured in: while it stood still, it asked nobody and heard nobody. Of a pause between
// two looks at it only the first part counts. It is safe for concurrent use.
type Waking struct {
	most time.Duration

	mu   sync.Mutex
	seen time.Time // the last look
	lost time.Duration
}

// NewWaking returns the clock of a process that looks at it more often than most.
func NewWaking(at time.Time, most time.Duration) *Waking { return &Waking{most: most, seen: at} }

// At is a moment, which is now, on this clock: earlier by all that was lost.
func (w *Waking) At(now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += max(0, now.Sub(w.seen)-w.most)
	if now.After(w.seen) {
		w.seen = now
	}
	return now.Add(-w.lost)
}
