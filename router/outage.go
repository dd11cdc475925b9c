package router

import (
	"sync/atomic"
	"time"
)

// An event that always fails and an outage of what its handler needs look alike to that event. Other events distinguish
// them: they succeed beside the first, and fail in the second. So with a MaxOutage an attempt of a durable subscription
// counts towards the limit of its event if another event was begun and handled since the last attempt that counted:
//
//	event 1  fail────┤                   ├────fail     both count: 2 was handled between them
//	event 2             begin──handled
//
// If both attempts of event 1 fell into one outage, all of event 2's attempt did, and would have failed as well. An
// attempt that was begun before and succeeds in between proves nothing: it may have used the dependency before the
// outage began.
// Without another event there is no such proof, so after MaxOutage the event is abandoned all the same.

// maxPauseBetween is the longest pause between attempts that follow after all Retries, unless a retry waits longer.
const maxPauseBetween = time.Minute

// successes knows which attempts of a subscription were begun after a moment and succeeded.
type successes struct {
	begun  atomic.Uint64 // number of attempts begun so far
	newest atomic.Uint64 // the highest number among those that succeeded
}

// note notes that an attempt succeeded.
func (s *successes) note(number uint64) {
	for {
		newest := s.newest.Load()
		if number <= newest || s.newest.CompareAndSwap(newest, number) {
			return
		}
	}
}

// tally is which attempts of an event count.
type tally struct {
	counted int
	at      time.Time     // the last of these ended
	mark    uint64        // number of the subscription's attempts that were begun until then
	began   time.Time     // when the last attempt began
	newest  uint64        // number of the newest success at that moment
	apart   time.Duration // from the end of the last counted attempt to began; 0 if none counted
}

// begin notes that an attempt begins, and returns its number.
func (c *tally) begin(s *successes) uint64 {
	c.began, c.newest = time.Now(), s.newest.Load()
	return s.begun.Add(1)
}

// fail notes that it failed.
// The first counts in any case. A later one counts if an attempt with a number above mark had succeeded before this one
// began, as that was begun after the last counted one ended.
func (c *tally) fail(s *successes) {
	if c.counted > 0 {
		c.apart = c.began.Sub(c.at)
	}
	if c.counted == 0 || c.newest > c.mark {
		c.counted++
		c.at, c.mark = time.Now(), s.begun.Load()
	}
}

// survivesOutages reports whether the event waits for an outage to end, in place of becoming a dead letter.
func (tr *trial) survivesOutages() bool {
	return tr.s.spec.MaxOutage > 0 && tr.s.spec.Durable && tr.task.origin == fromLog
}

// exhausted reports whether no attempt may follow the one that has just failed, the nth.
func (tr *trial) exhausted(n int) bool {
	retries := len(tr.s.spec.Retries)
	return n > retries &&
		(!tr.survivesOutages() || tr.tally.counted > retries || tr.tally.apart >= tr.s.spec.MaxOutage)
}

// wait returns how long to wait after the nth attempt. After the Retries it doubles.
func (tr *trial) wait(n int) time.Duration {
	retries := tr.s.spec.Retries
	if n <= len(retries) {
		return retries[n-1]
	}

	// Only with Retries does an attempt follow them, see exhausted: there is a last one.
	last := retries[len(retries)-1]
	most := max(last, maxPauseBetween)
	for ; n > len(retries) && last < most; n-- {
		last *= 2
	}
	return min(last, most)
}

// identity is the key under which the breaker counts the next attempt. An event that has used its Retries while all
// places are taken counts as another event each time: the others wait for it in any case.
func (tr *trial) identity() any {
	if tr.survivesOutages() && tr.attempts > len(tr.s.spec.Retries) {
		if running, _ := tr.s.lanes.load(); running == tr.s.spec.Concurrency {
			return [2]uint64{tr.task.ev.Offset, uint64(tr.attempts)}
		}
	}
	return tr.task.identity()
}
