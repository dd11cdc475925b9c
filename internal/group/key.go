package group

import "time"

// eventsPerTurn is how many events of a key are delivered before it is another key's turn.
const eventsPerTurn = 16

// key is the state of the unsettled events of one key. Two keys with one hash are treated
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

// assignments say of each event in the window which member holds it, and of the parked ones when
// and to whom they may be delivered.
//
// Invariants: in each key the held slots come before the parked ones, and all of them belong to
// the key's owner. A parked slot without a key that may be delivered is in ready, and so is a key
// without an owner whose first parked slot may be; one with an owner is in the owner's queue. A
// parked slot that waits for a time has a timer.
type assignments struct {
	window
	policy Policy
	now    int64 // the latest time that a caller passed, in nanoseconds since 1970

	keys       map[uint64]*key // by hash: those with events that are unsettled or pinned
	freeKeys   []*key          // dropped ones, to be used again
	ready      ring[unit]      // what any member may get
	timers     parkTimers      // of parked slots that wait for a time
	nextExpiry int64           // no held event expires before it
	// claimsUntil is how long an event that an earlier coordinator delivered waits for its member.
	claimsUntil int64
}

// setNow moves the coordinator's time to now. It never moves back.
func (a *assignments) setNow(now time.Time) { a.now = max(a.now, now.UnixNano()) }

// hashKey is FNV-1a.
func hashKey(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// keyFor returns the key of a new event and counts the event; nil is no key.
func (a *assignments) keyFor(text string) *key {
	if text == "" {
		return nil
	}
	h := hashKey(text)
	k := a.keys[h]
	if k == nil {
		// A key that is used again keeps its stamp, so its earlier places in queues stay void.
		if n := len(a.freeKeys); n > 0 {
			k, a.freeKeys = a.freeKeys[n-1], a.freeKeys[:n-1]
		} else {
			k = &key{}
		}
		k.hash, k.head, k.tail = h, 0, 0
		a.keys[h] = k
	}
	k.open++
	return k
}

// dropKey forgets a key that has neither unsettled nor pinned events.
func (a *assignments) dropKey(k *key) {
	if k.open > 0 || k.held > 0 {
		return
	}
	delete(a.keys, k.hash)
	k.queue = noQueue
	k.stamp++ // its places in queues are void, also once the key is used for another hash
	a.freeKeys = append(a.freeKeys, k)
}

// openTo makes the slots up to number n deliverable.
func (a *assignments) openTo(n uint64) {
	for ; a.opened <= n; a.opened++ {
		// A trim may have settled the slot before it was opened.
		if s := a.slots.at(a.opened); s.state == unopened {
			s.state = parked
			a.linkToKey(a.opened, s)
			a.park(a.opened, s, s.notBefore)
		}
	}
}

// linkToKey appends an opened slot to the list of its key.
func (a *assignments) linkToKey(n uint64, s *slot) {
	k := s.key
	if k == nil {
		return
	}
	// The slots before this one may have left the ring, settled before it was opened.
	if a.slots.has(k.tail) {
		a.slots.at(k.tail).next = n
	}
	k.tail = n
	if k.head == 0 {
		k.head = n
	}
}

// advanceHead moves a key's head past slots that are not parked any more.
func (a *assignments) advanceHead(k *key) {
	for k.head != 0 && a.slots.at(k.head).state != parked {
		k.head = a.slots.at(k.head).next
	}
}

// park makes a parked slot wait until at, or queues it.
func (a *assignments) park(n uint64, s *slot, at int64) {
	s.notBefore = at
	switch {
	case s.unreported || s.reporting:
		// AckBatchDone parks it again, once the log has the failure.
	case at > a.now:
		a.timers.push(parkTimer{at, n})
	case s.key != nil:
		a.queueKey(s.key)
	case !s.queued:
		s.queued = true
		a.ready.push(unit{slot: n})
	}
}

// queueKey queues a key whose first parked event is deliverable: for its owner, or for
// anyone when it has none.
func (a *assignments) queueKey(k *key) {
	// An owner that does not work ahead gets the next event once it has settled this one.
	if k.out > 0 && !k.owner.ahead {
		return
	}
	// A dead letter that is not stored yet holds up all later events of the key.
	a.advanceHead(k)
	if k.queue != noQueue || k.yield || k.dying > 0 || k.head == 0 || !a.slots.at(k.head).due(a.now) {
		return
	}
	k.stamp++
	if k.owner != nil {
		k.queue = ownerQueue
		k.owner.queue.push(unit{key: k, stamp: k.stamp})
		return
	}
	k.queue = readyQueue
	a.ready.push(unit{key: k, stamp: k.stamp})
}

// assign gives a slot to a member, and its key with the first one.
func (a *assignments) assign(s *slot, m *Member) {
	s.state, s.member, s.ackDeadline = held, m, a.now+int64(a.policy.AckWait)
	a.nextExpiry = min(a.nextExpiry, s.ackDeadline)
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
func (a *assignments) unassign(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.key.out--
		a.releaseKey(s.key)
	}
}

// releaseKey takes a slot from its key's owner, and with the last slot the key.
func (a *assignments) releaseKey(k *key) {
	k.held--
	if k.held > 0 {
		return
	}
	k.owner.keys--
	k.owner, k.queue, k.yield = nil, noQueue, false
	a.queueKey(k)
}

// pin takes a settled slot from its member and leaves the key with it until the log has the
// settled event. A new leader may have to ask the member for it again, and another member
// that had got a later event of the key by then could not keep it.
func (a *assignments) pin(s *slot) {
	s.member.held--
	s.member = nil
	if s.key != nil {
		s.pinned = true
		s.key.out--
	}
}

// unpin ends what pin began.
func (a *assignments) unpin(s *slot) {
	if s.pinned {
		s.pinned = false
		a.releaseKey(s.key)
		a.dropKey(s.key)
	}
}

// unpinAll unpins the slots of all keys that the member owns.
func (a *assignments) unpinAll(m *Member) {
	for n := a.slots.first; n < a.slots.next; n++ {
		if s := a.slots.at(n); s.pinned && s.key.owner == m {
			a.unpin(s)
		}
	}
}

// requeue takes a slot from its member and parks it until at. counted says whether the
// delivery that ends counts.
func (a *assignments) requeue(n uint64, s *slot, at int64, counted bool) {
	// Later events of the key that the member holds have to be redelivered after this one.
	if k := s.key; k != nil {
		for later, firstParked := s.next, k.head; later != firstParked; later = a.slots.at(later).next {
			if other := a.slots.at(later); other.state == held {
				a.revoke(other)
			}
		}
		k.head = n
	}
	if !counted {
		s.count--
	}
	s.state, s.notBefore = parked, at
	a.unassign(s)
	a.park(n, s, at)
}

// revoke takes a slot after a failed one of its key from the member, which has to be
// notified. The delivery does not count.
func (a *assignments) revoke(s *slot) {
	s.member.addLost(s.offset)
	s.count--
	s.state, s.notBefore = parked, 0
	a.unassign(s)
}
