package group

import (
	"container/heap"
	"slices"
	"time"
)

// parkTimer is when a parked slot can be delivered.
type parkTimer struct {
	at   int64
	slot uint64
}

// parkTimers is a heap, the earliest first.
type parkTimers []parkTimer

func (t parkTimers) Len() int           { return len(t) }
func (t parkTimers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t parkTimers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *parkTimers) Push(x any)        { *t = append(*t, x.(parkTimer)) }
func (t *parkTimers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

func (t *parkTimers) push(x parkTimer) { heap.Push(t, x) }

// forget drops the timers of the slots below number before, once there are many timers for
// the slots that remain.
func (t *parkTimers) forget(before uint64, slots int) {
	if len(*t) < 2*slots+64 {
		return
	}
	*t = slices.DeleteFunc(*t, func(x parkTimer) bool { return x.slot < before })
	heap.Init(t)
}

// Due is when Tick has something to do; the zero time is never.
func (c *Coordinator) Due() time.Time {
	due := min(c.nextExpiry, c.members.due)
	if len(c.timers) > 0 {
		due = min(due, c.timers[0].at)
	}
	if due == never {
		return time.Time{}
	}
	return time.Unix(0, due)
}

// Tick does what is due at now: it queues parked events whose time has come, fails
// deliveries that exceeded the ack wait, and ends the sessions of silent members.
func (c *Coordinator) Tick(now time.Time) {
	c.setNow(now)
	for len(c.timers) > 0 && c.timers[0].at <= c.now {
		t := heap.Pop(&c.timers).(parkTimer)
		if !c.slots.has(t.slot) {
			continue
		}
		// The slot may have been delivered, or parked for longer, since the timer was set.
		if s := c.slots.at(t.slot); s.state == parked && s.notBefore <= c.now {
			c.park(t.slot, s, s.notBefore)
		}
	}
	if c.now >= c.nextExpiry {
		c.expireDeliveries()
	}
	if c.now >= c.members.due {
		c.expireSessions()
	}
}

// expireDeliveries fails the deliveries that exceeded their ack wait, and sets nextExpiry to when the next one does.
func (c *Coordinator) expireDeliveries() {
	c.nextExpiry = never
	for n := c.slots.first; n < c.slots.next; n++ {
		s := c.slots.at(n)
		if s.state == held && s.ackDeadline <= c.now {
			c.expireDelivery(n, s)
		}
		// The slot is held no longer if it has expired, or was revoked with an earlier one of its key.
		if s.state == held {
			c.nextExpiry = min(c.nextExpiry, s.ackDeadline)
		}
	}
}

// expireSessions ends the sessions of silent members, and sets members.due to when the next one may end.
func (c *Coordinator) expireSessions() {
	c.members.due = never
	for _, m := range slices.Clone(c.members.list) { // expireSession removes from it
		end := m.seen + int64(c.policy.Session)
		switch {
		case m.calls > 0:
			// End starts its session time again.
		case end <= c.now:
			c.expireSession(m)
		default:
			c.members.due = min(c.members.due, end)
		}
	}
}
