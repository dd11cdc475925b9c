package groups

import "time"

// Demand is what a member wants now.
type Demand struct {
	Events int
	Bytes  int // about, or one event that is larger
	Units  int // at most that many events without a key, and keys, of those that anyone could get
	// Ahead asks for events of a key that follow one that the member has not settled. When
	// that one fails, they are revoked, and the member must not have handled them.
	Ahead bool
}

// Take hands a member events. It appends them to list, in order of each key.
func (c *Coordinator) Take(now time.Time, m *Member, d Demand, list []Delivery) []Delivery {
	c.tell(now)
	c.setAhead(m, d.Ahead)
	t := taking{c: c, m: m, left: d.Events, bytes: d.Bytes, list: list}
	for t.more() {
		own := t.own()
		if d.Units > 0 && t.more() && t.any() {
			d.Units--
			continue
		}
		if !own {
			break
		}
	}
	got := len(t.list) - len(list)
	m.Figures.Delivered += uint64(got)
	switch {
	case got > 0 || m.held > 0:
		c.fed(m)
	case !m.hungry && d.Events > 0:
		m.hungry = true
		c.yield++
	}
	return t.list
}

// setAhead notes how a member takes keys. Those of which it holds an event may be queued
// for it once it works ahead.
func (c *Coordinator) setAhead(m *Member, ahead bool) {
	if m.ahead == ahead {
		return
	}
	m.ahead = ahead
	for n := c.slots.first; n < c.slots.next && ahead; n++ {
		if s := c.slots.at(n); s.state == held && s.member == m && s.key != nil {
			c.wake(s.key)
		}
	}
}

// fed takes back what a member that had nothing made others give up.
func (c *Coordinator) fed(m *Member) {
	if m.hungry {
		m.hungry = false
		c.yield = max(0, c.yield-1)
	}
}

// taking is what one Take has still to give.
type taking struct {
	c           *Coordinator
	m           *Member
	left, bytes int
	list        []Delivery
}

func (t *taking) more() bool { return t.left > 0 && t.bytes > 0 }

// own gives some of the next key in the member's own queue. A member with several keys
// leaves one to a member that has none: once it is settled, anyone gets it.
func (t *taking) own() bool {
	for t.m.queue.len() > 0 {
		u := t.m.queue.pop()
		if u.key.stamp != u.stamp || u.key.where != inOwners {
			continue
		}
		u.key.where = nowhere
		if t.c.yield > 0 && t.m.keys > 1 {
			t.c.yield--
			u.key.yield = true
			continue
		}
		t.give(u.key)
		return true
	}
	return false
}

// any gives the next event, or some of the next key, that anyone could get.
func (t *taking) any() bool {
	c := t.c
	for c.ready.len() > 0 {
		u := c.ready.pop()
		if u.key == nil {
			if s := c.waiting(u.slot); s != nil {
				t.hand(s)
				return true
			}
			continue
		}
		if u.key.stamp != u.stamp || u.key.where != inReady {
			continue
		}
		u.key.where = nowhere
		t.give(u.key)
		return true
	}
	return false
}

// waiting returns the slot without a key of a place in the ready queue, nil where it is
// not to be had any more.
func (c *Coordinator) waiting(n uint64) *slot {
	if !c.slots.has(n) {
		return nil
	}
	s := c.slots.at(n)
	if !s.queued {
		return nil
	}
	s.queued = false
	if s.state != parked || !s.due(c.now) {
		return nil
	}
	return s
}

// give hands out a key's first parked events, a turn at most, or one to a member that does
// not work ahead.
func (t *taking) give(k *key) {
	c := t.c
	for n := 0; n < turn && t.more() && (k.out == 0 || t.m.ahead); n++ {
		if c.advance(k); k.dying > 0 || k.head == 0 || !c.slots.at(k.head).due(c.now) {
			break
		}
		t.hand(c.slots.at(k.head))
	}
	c.wake(k)
}

func (t *taking) hand(s *slot) {
	s.count++
	t.c.hold(s, t.m)
	t.list = append(t.list, Delivery{s.offset, uint64(s.count)})
	t.left--
	t.bytes -= int(s.size)
}
