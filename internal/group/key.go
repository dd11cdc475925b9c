package group

// eventsPerTurn is how many events of a key are delivered before it is another key's turn.
const eventsPerTurn = 16

// key is what is known of the unsettled events of one key. Two keys of one hash are treated
// as one, which costs them nothing but independence.
type key struct {
	hash  uint64
	open  int     // its slots that are not settled
	held  int     // its slots that are held, or pinned
	out   int     // its slots that are held
	owner *Member // who holds them; nil when there are none
	head  uint64  // number of the first parked slot; 0 is none
	tail  uint64  // number of the last opened slot
	dying int     // its slots whose dead letters are to be stored
	queue queue
	stamp uint64 // of its newest place in a queue
	yield bool   // its owner gets no more of it
}

// queue says which queue a key is in.
type queue uint8

const (
	noQueue queue = iota
	readyQueue
	ownerQueue
)

// unit is a place in a queue: a key, or an event without one. It is void once its key has
// another stamp, or its slot is not queued any more.
type unit struct {
	key   *key
	stamp uint64
	slot  uint64
}

// hashKey is FNV-1a.
func hashKey(text string) uint64 { // FNV-1a
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// keyFor returns the key of a new event and counts the event; nil is no key.
func (c *Coordinator) keyFor(text string) *key {
	if text == "" {
		return nil
	}
	h := hashKey(text)
	k := c.keys[h]
	if k == nil {
		// A key that is used again keeps its stamp, so that its earlier places in queues stay void.
		if n := len(c.freeKeys); n > 0 {
			k, c.freeKeys = c.freeKeys[n-1], c.freeKeys[:n-1]
		} else {
			k = &key{}
		}
		k.hash, k.head, k.tail = h, 0, 0
		c.keys[h] = k
	}
	k.open++
	return k
}

// dropKey forgets a key that has neither unsettled nor pinned events.
func (c *Coordinator) dropKey(k *key) {
	if k.open > 0 || k.held > 0 {
		return
	}
	delete(c.keys, k.hash)
	k.queue = noQueue
	k.stamp++ // its places in queues are void, also once the key is used for another hash
	c.freeKeys = append(c.freeKeys, k)
}

// linkToKey appends an opened slot to the list of its key.
func (c *Coordinator) linkToKey(n uint64, s *slot) {
	k := s.key
	if k == nil {
		return
	}
	// The slots before this one may have left the ring, settled before it was opened.
	if c.slots.has(k.tail) {
		c.slots.at(k.tail).next = n
	}
	k.tail = n
	if k.head == 0 {
		k.head = n
	}
}

// advanceHead moves a key's head past slots that are not parked any more.
func (c *Coordinator) advanceHead(k *key) {
	for k.head != 0 && c.slots.at(k.head).state != parked {
		k.head = c.slots.at(k.head).next
	}
}

// park makes a parked slot wait until at, or queues it.
func (c *Coordinator) park(n uint64, s *slot, at int64) {
	s.notBefore = at
	switch {
	case s.unreported || s.reporting:
		// AckBatchDone parks it again, once the log has the failure.
	case at > c.now:
		c.timers.push(timer{at, n})
	case s.key != nil:
		c.queueKey(s.key)
	case !s.queued:
		s.queued = true
		c.ready.push(unit{slot: n})
	}
}

// queueKey queues a key whose first parked event is deliverable: for its owner, or for
// anyone when it has none.
func (c *Coordinator) queueKey(k *key) {
	// An owner that does not work ahead gets the next event once it has settled this one.
	if k.out > 0 && !k.owner.ahead {
		return
	}
	// A dead letter that is not stored yet holds up all later events of the key.
	c.advanceHead(k)
	if k.queue != noQueue || k.yield || k.dying > 0 || k.head == 0 || !c.slots.at(k.head).due(c.now) {
		return
	}
	k.stamp++
	if k.owner != nil {
		k.queue = ownerQueue
		k.owner.queue.push(unit{key: k, stamp: k.stamp})
		return
	}
	k.queue = readyQueue
	c.ready.push(unit{key: k, stamp: k.stamp})
}

// assign gives a slot to a member, and its key with the first one.
func (c *Coordinator) assign(s *slot, m *Member) {
	s.state, s.member, s.ackDeadline = held, m, c.now+int64(c.policy.AckWait)
	c.ackDue = min(c.ackDue, s.ackDeadline)
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
		if k.queue == readyQueue {
			k.queue = noQueue // a member claimed it while it was queued for anyone
		}
	}
	k.head = s.next
}

// unassign takes a slot from its member; the caller sets its next state.
func (c *Coordinator) unassign(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.key.out--
		c.releaseKey(s.key)
	}
}

// releaseKey takes a slot from its key's owner, and with the last slot the key.
func (c *Coordinator) releaseKey(k *key) {
	k.held--
	if k.held > 0 {
		return
	}
	k.owner.keys--
	k.owner, k.queue, k.yield = nil, noQueue, false
	c.queueKey(k)
}

// pin takes a settled slot from its member and leaves the key with it until the log has the
// settled event. A new leader may have to ask the member for it again, and another member
// that had got a later event of the key by then could not keep it.
func (c *Coordinator) pin(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.pinned = true
		s.key.out--
	}
}

// unpin ends what pin began.
func (c *Coordinator) unpin(s *slot) {
	if s.pinned {
		s.pinned = false
		c.releaseKey(s.key)
		c.dropKey(s.key)
	}
}

// unpinAll unpins the slots of all keys that the member owns.
func (c *Coordinator) unpinAll(m *Member) {
	for n := c.slots.first; n < c.slots.next; n++ {
		if s := c.slots.at(n); s.pinned && s.key.owner == m {
			c.unpin(s)
		}
	}
}

// requeue takes a slot from its member and parks it until at. counted says whether the
// delivery that ends counts.
func (c *Coordinator) requeue(n uint64, s *slot, at int64, counted bool) {
	// Later events of the key that the member holds have to be redelivered after this one.
	if k := s.key; k != nil {
		for later, firstParked := s.next, k.head; later != firstParked; later = c.slots.at(later).next {
			if other := c.slots.at(later); other.state == held {
				c.revoke(other)
			}
		}
		k.head = n
	}
	if !counted {
		s.count--
	}
	s.state, s.notBefore = parked, at
	c.unassign(s)
	c.park(n, s, at)
}

// revoke takes a slot after a failed one of its key from the member, which has to be
// notified. The delivery does not count.
func (c *Coordinator) revoke(s *slot) {
	s.member.addLost(s.offset)
	s.count--
	s.state, s.notBefore = parked, 0
	c.unassign(s)
}
