package group

import (
	"math"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// MaxMembers is how many members a group may have at a time.
const MaxMembers = 1024

// State is what the state machine knows of a group. Done and Retries rise.
type State struct {
	Committed uint64
	Reserved  uint64
	Done      []frame.Range
	Retries   []frame.GroupRetry
}

// Policy says how a group delivers. It may change at any time.
type Policy struct {
	AckWait    time.Duration // how long a member may hold an event without reporting progress
	Session    time.Duration // how long a silent member keeps its session
	MaxDeliver uint64        // deliveries after which an event is dead; 0 is unlimited
	MaxPending uint64        // how many matching events are in memory, from the first unsettled one on
}

// Event is what a coordinator needs to know of an event that matches the group's filter.
type Event struct {
	Offset uint64
	Key    string // "" is unordered
	Bytes  int    // about what it takes in an answer
}

// Delivery is an event that a member holds from now on.
type Delivery struct {
	Offset uint64
	Count  uint64 // which delivery of the event this is
}

// Coordinator delivers the events of one group. One goroutine uses it at a time.
//
// Invariants: the slots rise by offset. Those below number opened are opened, and none of
// these has an offset above reserved. In each key the held slots come before the parked
// ones, and all of them belong to the key's owner.
type Coordinator struct {
	policy Policy
	now    int64 // the latest time that a caller passed, Unix nanoseconds
	slots  ring[slot]
	opened uint64 // number of the first slot that is not opened

	committed  uint64 // the log has every event up to here as settled
	scanned    uint64 // the log was read up to here
	reserved   uint64 // events up to here may be delivered, as the log has it
	unsettled  int    // slots that are not settled
	loaded     loaded
	keys       map[uint64]*key
	freeKeys   []*key
	ready      ring[unit] // what any member may get
	timers     timers
	ackDue     int64 // no held event expires before it
	sessionDue int64 // no session ends before it

	dirtyLow, dirtyHigh uint64            // the slots between have something for the log; 0 is none
	inFlight            *inFlight         // the ack batch under way
	dying               []uint64          // offsets whose dead letters are to be stored
	reasons             map[uint64]reason // of slots that failed or die, by offset

	members []*Member // in the order they joined
	session uint64    // the last number that was given
	yield   int       // keys that members with several are to leave to members without one
}

// loaded is what remains of the state that the coordinator began with.
type loaded struct {
	reserved    uint64
	done        []frame.Range
	retries     []frame.GroupRetry
	claimsUntil int64 // until then an event that was delivered before waits for its member
}

// reason is why a delivery failed, as its member put it.
type reason struct{ text, handler string }

// never is a time that does not come.
const never = math.MaxInt64

// New returns a coordinator that resumes from the state. Its sessions are numbered above
// session, which must be above those of the coordinators before it.
func New(now time.Time, s State, p Policy, session uint64) *Coordinator {
	c := &Coordinator{
		policy:     p,
		now:        now.UnixNano(),
		slots:      newRing[slot](),
		opened:     1,
		committed:  s.Committed,
		scanned:    s.Committed,
		reserved:   max(s.Reserved, s.Committed),
		keys:       map[uint64]*key{},
		ready:      newRing[unit](),
		ackDue:     never,
		sessionDue: never,
		reasons:    map[uint64]reason{},
		session:    session,
	}
	// What an earlier coordinator delivered waits for a session's time for the member that may still hold it.
	c.loaded = loaded{reserved: c.reserved, done: s.Done, retries: s.Retries, claimsUntil: c.now + int64(p.Session)}
	return c
}

// SetPolicy changes the policy of the deliveries that follow.
func (c *Coordinator) SetPolicy(p Policy) { c.policy = p }

// setNow moves the coordinator's time to now. It never moves back.
func (c *Coordinator) setNow(now time.Time) { c.now = max(c.now, now.UnixNano()) }

// Next is the offset from which on the caller feeds the group's events.
func (c *Coordinator) Next() uint64 { return c.scanned + 1 }

// Loading reports whether events that were delivered before are not fed yet: until they
// are, no member's claims can be judged.
func (c *Coordinator) Loading() bool { return c.scanned < c.loaded.reserved }

// Room is how many more events may be fed. While Loading the caller may exceed it.
func (c *Coordinator) Room() int {
	return int(max(0, min(int64(c.policy.MaxPending), math.MaxInt32)-int64(c.slots.len())))
}

// Unopened counts events that are fed and not reserved.
func (c *Coordinator) Unopened() int { return int(c.slots.next - c.opened) }

// Open counts events that may have been delivered and are not settled.
func (c *Coordinator) Open() int { return c.unsettled - c.unsettledFrom(c.opened) }

// unsettledFrom counts the unsettled events from slot n on, which is not opened. Only a
// trim settles such slots, and it settles a prefix of them.
func (c *Coordinator) unsettledFrom(n uint64) int {
	for n < c.slots.next && c.slots.at(n).settled() {
		n++
	}
	return int(c.slots.next - n)
}

// Ready counts what can be delivered to anyone: events without a key, and keys.
func (c *Coordinator) Ready() int { return c.ready.len() }

// Counts are figures of the moment.
type Counts struct {
	Held         int // delivered and not settled
	Redelivering int // to be redelivered
	Members      int
}

// Counts returns the figures of the moment.
func (c *Coordinator) Counts() Counts {
	out := Counts{Members: len(c.members)}
	for n := c.slots.first; n < c.slots.next; n++ {
		switch s := c.slots.at(n); {
		case s.state == held:
			out.Held++
		case s.state == parked && s.count > 0:
			out.Redelivering++
		}
	}
	return out
}

// Feed adds the matching events that follow. The log was read up to the offset before
// next. Events that are settled already are skipped.
func (c *Coordinator) Feed(events []Event, next uint64) {
	for i := range events {
		if e := &events[i]; e.Offset > c.scanned && !c.loaded.isDone(e.Offset) {
			c.addEvent(e)
		}
	}
	c.scanned = max(c.scanned, next-1)
}

// addEvent adds the slot of an event. The slot is deliverable at once where the log has reserved its offset.
func (c *Coordinator) addEvent(e *Event) {
	s := slot{offset: e.Offset, size: uint32(min(e.Bytes, math.MaxUint32)), key: c.keyFor(e.Key)}

	// An event that an earlier leader delivered waits for the member that may still hold it.
	if retry := c.loaded.retry(e.Offset); retry != nil {
		s.count = uint32(min(retry.Deliveries, math.MaxUint32))
		s.fails, s.failed = s.count, true
		s.notBefore = c.loaded.claimsUntil
		if !retry.After.IsZero() {
			s.notBefore = max(s.notBefore, retry.After.UnixNano())
		}
		c.reasons[e.Offset] = reason{text: retry.Error}
	} else if e.Offset <= c.loaded.reserved {
		s.count, s.notBefore = 1, c.loaded.claimsUntil
	}

	c.unsettled++
	n := c.slots.push(s)
	if e.Offset <= c.reserved {
		c.openTo(n)
	}
}

// openTo makes the slots up to number n deliverable.
func (c *Coordinator) openTo(n uint64) {
	for ; c.opened <= n; c.opened++ {
		// A trim may have settled the slot before it was opened.
		if s := c.slots.at(c.opened); s.state == unopened {
			s.state = parked
			c.linkToKey(c.opened, s)
			c.park(c.opened, s, s.notBefore)
		}
	}
}

// isDone reports whether the state has the event as settled. Offsets must rise from call to
// call.
func (l *loaded) isDone(offset uint64) bool {
	for len(l.done) > 0 && l.done[0].To < offset {
		l.done = l.done[1:]
	}
	return len(l.done) > 0 && l.done[0].From <= offset
}

// retry returns the failure that the state has of an event, or nil. Offsets must rise from
// call to call.
func (l *loaded) retry(offset uint64) *frame.GroupRetry {
	for len(l.retries) > 0 && l.retries[0].Offset < offset {
		l.retries = l.retries[1:]
	}
	if len(l.retries) > 0 && l.retries[0].Offset == offset {
		return &l.retries[0]
	}
	return nil
}
