package group

import "time"

// Demand is what a member asks for.
type Demand struct {
	Events int
	Bytes  int // about; an event that is larger is delivered alone
	Units  int // how many events without a key, and keys, that anyone could get
	// Ahead asks for events of a key that follow one that the member has not settled. When
	// that one fails they are revoked, and the member must not have handled them.
	Ahead bool
}

// Take delivers events to a member. It appends the deliveries to list, those of each key in
// order.
func (c *Coordinator) Take(now time.Time, m *Member, d Demand, list []Delivery) []Delivery {
	c.setNow(now)
	c.setAhead(m, d.Ahead)
	t := taking{c: c, m: m, events: d.Events, bytes: d.Bytes, list: list}

	// Alternate between the member's own keys and what anyone could get, so neither
	// waits for the other to run out.
	for t.hasRoom() {
		own := t.fromOwnKeys()
		if d.Units > 0 && t.hasRoom() && t.fromReady() {
			d.Units--
			continue
		}
		if !own {
			break
		}
	}

	got := len(t.list) - len(list)
	m.Figures.Delivered += uint64(got)
	if got > 0 || m.held > 0 {
		c.members.setStarved(m, false)
	} else if d.Events > 0 {
		c.members.setStarved(m, true)
	}
	return t.list
}

// setAhead notes whether a member works ahead. Once it does, the keys of the events that it
// holds may be queued for it.
func (a *assignments) setAhead(m *Member, ahead bool) {
	if m.ahead == ahead {
		return
	}
	m.ahead = ahead
	if !ahead {
		return
	}
	// queueKey passed these keys over while the member did not work ahead.
	for n := a.slots.first; n < a.slots.next; n++ {
		if s := a.slots.at(n); s.state == held && s.member == m && s.key != nil {
			a.queueKey(s.key)
		}
	}
}

// taking is one Take: what it may still deliver, and what it has delivered.
type taking struct {
	c             *Coordinator
	m             *Member
	events, bytes int
	list          []Delivery
}

func (t *taking) hasRoom() bool { return t.events > 0 && t.bytes > 0 }

// fromOwnKeys delivers from the next key in the member's own queue. A member with several
// keys leaves one to a member that has none: once its held events are settled, anyone gets
// that key.
func (t *taking) fromOwnKeys() bool {
	for t.m.queue.len() > 0 {
		u := t.m.queue.pop()
		// The key has left the queue since, or has a newer place in it.
		if u.key.stamp != u.stamp || u.key.queue != ownerQueue {
			continue
		}
		u.key.queue = noQueue
		// Left to a starved member: once nothing of the key is held, releaseKey queues it for anyone.
		if t.c.members.yield > 0 && t.m.keys > 1 {
			t.c.members.yield--
			u.key.yield = true
			continue
		}
		t.deliverKey(u.key)
		return true
	}
	return false
}

// fromReady delivers the next event, or from the next key, that anyone could get.
func (t *taking) fromReady() bool {
	c := t.c
	for c.ready.len() > 0 {
		u := c.ready.pop()
		// An event without a key, which may not be deliverable any more.
		if u.key == nil {
			if s := c.unqueue(u.slot); s != nil {
				t.deliver(s)
				return true
			}
			continue
		}
		// The key has left the queue since, or has a newer place in it.
		if u.key.stamp != u.stamp || u.key.queue != readyQueue {
			continue
		}
		u.key.queue = noQueue
		t.deliverKey(u.key)
		return true
	}
	return false
}

// unqueue returns the slot of an event without a key that left the ready queue, or nil if
// it cannot be delivered any more.
func (a *assignments) unqueue(n uint64) *slot {
	if !a.slots.has(n) {
		return nil
	}
	s := a.slots.at(n)
	// A member claimed it from an earlier leader's deliveries.
	if !s.queued {
		return nil
	}
	s.queued = false
	// A trim may have settled it while it was queued.
	if s.state != parked || !s.due(a.now) {
		return nil
	}
	return s
}

// deliverKey delivers a key's first parked events: a turn's worth at most, and one to a
// member that does not work ahead.
func (t *taking) deliverKey(k *key) {
	c := t.c
	for n := 0; n < eventsPerTurn && t.hasRoom() && (k.out == 0 || t.m.ahead); n++ {
		c.advanceHead(k)
		if k.dying > 0 || k.head == 0 || !c.slots.at(k.head).due(c.now) {
			break
		}
		t.deliver(c.slots.at(k.head))
	}
	c.queueKey(k)
}

// deliver gives a parked slot to the member and counts it against what may still be delivered.
func (t *taking) deliver(s *slot) {
	s.count++
	t.c.assign(s, t.m)
	t.list = append(t.list, Delivery{s.offset, uint64(s.count)})
	t.events--
	t.bytes -= int(s.size)
}
