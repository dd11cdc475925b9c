package groups

import "time"

// Take hands a member up to want events, of about maxBytes or one that is larger, at most
// units of them from what anyone could get. It appends them to list, in order of each key.
func (c *Coordinator) Take(now time.Time, m *Member, want, maxBytes, units int, list []Delivery) []Delivery {
	c.tell(now)
	t := taking{c: c, m: m, left: want, bytes: maxBytes, list: list}
	for t.more() {
		own := t.own()
		if units > 0 && t.more() && t.any() {
			units--
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
	case !m.hungry && want > 0:
		m.hungry = true
		c.yield++
	}
	return t.list
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

// give hands out a key's first parked events, a turn at most.
func (t *taking) give(k *key) {
	c := t.c
	for n := 0; n < turn && t.more(); n++ {
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
