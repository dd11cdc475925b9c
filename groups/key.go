package groups

// turn is how many events of a key are handed out before it is another one's turn.
const turn = 16

// key is what is known of the open events of one key. Two keys of one hash are taken for
// one, which costs them nothing but independence.
type key struct {
	hash  uint64
	open  int     // its slots that are not settled
	held  int     // its slots that are handed out, or pinned
	out   int     // its slots that are handed out
	owner *Member // whose they are; nil where there are none
	head  uint64  // number of the first one that is parked; 0 is none
	tail  uint64  // and of the last one that was opened
	dying int     // its slots whose letters are to be stored
	where where
	stamp uint64 // of its newest place in a queue
	yield bool   // its owner gets no more of it
}

// where says in which queue a key stands.
type where uint8

const (
	nowhere where = iota
	inReady
	inOwners
)

// unit is a place in a queue: a key, or an event without one. It is void once its key
// has got another stamp, or its slot is not queued any more.
type unit struct {
	key   *key
	stamp uint64
	slot  uint64
}

func hash(text string) uint64 { // FNV-1a
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// keyOf counts an event in; nil is no key.
func (c *Coordinator) keyOf(text string) *key {
	if text == "" {
		return nil
	}
	h := hash(text)
	k := c.keys[h]
	if k == nil {
		if n := len(c.free); n > 0 {
			k, c.free = c.free[n-1], c.free[:n-1]
		} else {
			k = &key{}
		}
		k.hash, k.head, k.tail = h, 0, 0
		c.keys[h] = k
	}
	k.open++
	return k
}

// drop forgets a key that nothing is known of any more.
func (c *Coordinator) drop(k *key) {
	if k.open > 0 || k.held > 0 {
		return
	}
	delete(c.keys, k.hash)
	k.where = nowhere
	k.stamp++
	c.free = append(c.free, k)
}

// link appends an opened slot to its key's.
func (c *Coordinator) link(n uint64, s *slot) {
	k := s.key
	if k == nil {
		return
	}
	if c.slots.has(k.tail) {
		c.slots.at(k.tail).next = n
	}
	k.tail = n
	if k.head == 0 {
		k.head = n
	}
}

// advance passes over slots at a key's head that are not parked any more.
func (c *Coordinator) advance(k *key) {
	for k.head != 0 && c.slots.at(k.head).state != parked {
		k.head = c.slots.at(k.head).next
	}
}

// park makes a parked slot wait for its time, or queues it.
func (c *Coordinator) park(n uint64, s *slot, at int64) {
	s.at = at
	switch {
	case s.untold || s.told: // the end of the settle parks it again
	case at > c.now:
		c.timers.push(timer{at, n})
	case s.key != nil:
		c.wake(s.key)
	case !s.queued:
		s.queued = true
		c.ready.push(unit{slot: n})
	}
}

// wake queues a key whose first parked event can be handed out: with its owner, or for
// anyone. While an owner that does not work ahead holds one of its events, it is not.
func (c *Coordinator) wake(k *key) {
	if k.out > 0 && !k.owner.ahead {
		return
	}
	if c.advance(k); k.where != nowhere || k.yield || k.dying > 0 || k.head == 0 || !c.slots.at(k.head).due(c.now) {
		return
	}
	k.stamp++
	if k.owner != nil {
		k.where = inOwners
		k.owner.queue.push(unit{key: k, stamp: k.stamp})
		return
	}
	k.where = inReady
	c.ready.push(unit{key: k, stamp: k.stamp})
}

// hold gives a slot to a member.
func (c *Coordinator) hold(s *slot, m *Member) {
	s.state, s.member, s.at = held, m, c.now+int64(c.policy.AckWait)
	c.ackDue = min(c.ackDue, s.at)
	m.held++
	k := s.key
	if k == nil {
		return
	}
	k.held++
	k.out++
	if k.owner == nil {
		k.owner = m
		m.keys++
		if k.where == inReady {
			k.where = nowhere
		}
	}
	k.head = s.next
}

// unhold takes a slot from its member; the caller says what becomes of it.
func (c *Coordinator) unhold(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.key.out--
		c.release(s.key)
	}
}

// release takes a slot from its key's owner, and with the last one the key.
func (c *Coordinator) release(k *key) {
	if k.held--; k.held > 0 {
		return
	}
	k.owner.keys--
	k.owner, k.where, k.yield = nil, nowhere, false
	c.wake(k)
}

// pin takes a slot from its member, which has settled it. Until the log has that, the key
// stays with the member: after a change of leader it settles the slot again, and whoever
// had got a later one by then could not keep it.
func (c *Coordinator) pin(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.pinned = true
		s.key.out--
	}
}

// unpin is pin's end.
func (c *Coordinator) unpin(s *slot) {
	if s.pinned {
		s.pinned = false
		c.release(s.key)
		c.drop(s.key)
	}
}

func (c *Coordinator) unpinAll(m *Member) {
	for n := c.slots.first; n < c.slots.next; n++ {
		if s := c.slots.at(n); s.pinned && s.key.owner == m {
			c.unpin(s)
		}
	}
}

// putBack takes a slot from its member and parks it until at. The later ones of its key
// that are held are taken too, without counting. counted says whether the delivery that
// ends counts.
func (c *Coordinator) putBack(n uint64, s *slot, at int64, counted bool) {
	if k := s.key; k != nil {
		for later, parked := s.next, k.head; later != parked; later = c.slots.at(later).next {
			if other := c.slots.at(later); other.state == held {
				c.revoke(other)
			}
		}
		k.head = n
	}
	if !counted {
		s.count--
	}
	s.state, s.at = parked, at
	c.unhold(s)
	c.park(n, s, at)
}

// revoke takes a slot behind a failed one of its key from the member, who is to be told.
func (c *Coordinator) revoke(s *slot) {
	s.member.lose(s.offset)
	s.count--
	s.state, s.at = parked, 0
	c.unhold(s)
}
