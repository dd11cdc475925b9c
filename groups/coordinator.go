package groups

import (
	"math"
	"time"

	"github.com/ringrift/ringlog/frame"
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

// Policy says how a group delivers; all of it may change while it does.
type Policy struct {
	AckWait    time.Duration // a member may hold an event so long without a word of it
	Session    time.Duration // a member is gone that says nothing for so long
	MaxDeliver uint64        // deliveries after which an event is dead; 0 is without bound
	MaxPending uint64        // matching events from the first open one on that are looked at
}

// Event is what is to be known of an event that matches the group's filter.
type Event struct {
	Offset uint64
	Key    string // "" is without order
	Bytes  int    // about what it takes in an answer
}

// Delivery is an event that a member holds from now on.
type Delivery struct {
	Offset uint64
	Count  uint64 // which delivery of it this is
}

// Coordinator hands the events of one group out. One goroutine uses it at a time.
//
// Invariants: the slots rise by offset; the opened ones are those below opened, and no
// offset of an opened one is above reserved. Of a key, what is held stands before what
// is parked, and all of it is its owner's.
type Coordinator struct {
	policy Policy
	now    int64 // the latest time that was told
	slots  ring[slot]
	opened uint64 // number of the first slot that is not opened

	floor    uint64 // all up to it is settled, and the log has it
	scanned  uint64 // the log was read up to it
	reserved uint64 // and so much of it may be handed out, as the log has it
	open     int    // slots that are not settled yet

	loaded  loaded
	keys    map[uint64]*key
	free    []*key
	ready   ring[unit] // what any member may get
	timers  timers
	ackDue  int64 // no held event fails before it
	silence int64 // no session ends before it

	low, high uint64          // slots with something for the log stand between; 0 is none
	flight    *flight         // the settle under way
	dying     []uint64        // offsets whose letters are to be stored
	notes     map[uint64]note // of slots that failed or die, by offset

	members []*Member // in the order they came
	session uint64    // the last that was given
	yield   int       // keys that a member with several is to give up for one without
}

// loaded is what is left of the state as the coordinator found it.
type loaded struct {
	reserved uint64
	done     []frame.Range
	retries  []frame.GroupRetry
	claims   int64 // until then what was handed out before waits for its member
}

// note is what was said of a delivery that failed.
type note struct{ text, handler string }

// Never is a time that does not come.
const never = math.MaxInt64

// New returns a coordinator that goes on from the state. Its sessions are numbered above
// session, which must be above those of the coordinators before it.
func New(now time.Time, s State, p Policy, session uint64) *Coordinator {
	c := &Coordinator{policy: p, now: now.UnixNano(), slots: newRing[slot](), opened: 1, floor: s.Committed, scanned: s.Committed,
		reserved: max(s.Reserved, s.Committed), keys: map[uint64]*key{}, ready: newRing[unit](), ackDue: never, silence: never,
		notes: map[uint64]note{}, session: session}
	c.loaded = loaded{reserved: c.reserved, done: s.Done, retries: s.Retries, claims: c.now + int64(p.Session)}
	return c
}

// SetPolicy changes the policy for what is handed out from now on.
func (c *Coordinator) SetPolicy(p Policy) { c.policy = p }

// tell takes the time in. It never goes back.
func (c *Coordinator) tell(now time.Time) { c.now = max(c.now, now.UnixNano()) }

// Next is the offset from which on the group's events are to be fed.
func (c *Coordinator) Next() uint64 { return c.scanned + 1 }

// Loading reports that not all is fed yet that was handed out before: until then
// nobody's claims can be judged.
func (c *Coordinator) Loading() bool { return c.scanned < c.loaded.reserved }

// Room is how many events more may be fed. While Loading it may be passed.
func (c *Coordinator) Room() int {
	return int(max(0, min(int64(c.policy.MaxPending), math.MaxInt32)-int64(c.slots.len())))
}

// Unopened counts events that were fed and not reserved.
func (c *Coordinator) Unopened() int { return int(c.slots.next - c.opened) }

// Open counts events that may have been handed out and are not settled.
func (c *Coordinator) Open() int { return c.open - c.openFrom(c.opened) }

// openFrom counts the events from a slot on, which is not opened, that are not settled:
// what a trim has settled stands in front of the others.
func (c *Coordinator) openFrom(n uint64) int {
	for n < c.slots.next && c.slots.at(n).settled() {
		n++
	}
	return int(c.slots.next - n)
}

// Ready counts what can be handed out to anyone: events without a key, and keys.
func (c *Coordinator) Ready() int { return c.ready.len() }

// Counts are figures of the moment.
type Counts struct {
	Held         int // handed out and not settled
	Redelivering int // to be handed out again
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

// Feed takes in the matching events that follow, and that the log was read up to the
// offset before next. An event that is settled already is passed over.
func (c *Coordinator) Feed(events []Event, next uint64) {
	for i := range events {
		if e := &events[i]; e.Offset > c.scanned && !c.loaded.isDone(e.Offset) {
			c.add(e)
		}
	}
	c.scanned = max(c.scanned, next-1)
}

func (c *Coordinator) add(e *Event) {
	s := slot{offset: e.Offset, size: uint32(min(e.Bytes, math.MaxUint32)), key: c.keyOf(e.Key)}
	if retry := c.loaded.retry(e.Offset); retry != nil {
		s.count, s.failed, s.at = uint32(min(retry.Deliveries, math.MaxUint32)), true, c.loaded.claims
		s.fails = s.count
		if !retry.After.IsZero() {
			s.at = max(s.at, retry.After.UnixNano())
		}
		c.notes[e.Offset] = note{text: retry.Error}
	} else if e.Offset <= c.loaded.reserved {
		s.count, s.at = 1, c.loaded.claims
	}
	c.open++
	n := c.slots.push(s)
	if e.Offset <= c.reserved {
		c.openTo(n)
	}
}

// openTo makes slots up to number n ready to be handed out.
func (c *Coordinator) openTo(n uint64) {
	for ; c.opened <= n; c.opened++ {
		if s := c.slots.at(c.opened); s.state == unopened {
			s.state = parked
			c.link(c.opened, s)
			c.park(c.opened, s, s.at)
		}
	}
}

func (l *loaded) isDone(offset uint64) bool {
	for len(l.done) > 0 && l.done[0].To < offset {
		l.done = l.done[1:]
	}
	return len(l.done) > 0 && l.done[0].From <= offset
}

func (l *loaded) retry(offset uint64) *frame.GroupRetry {
	for len(l.retries) > 0 && l.retries[0].Offset < offset {
		l.retries = l.retries[1:]
	}
	if len(l.retries) > 0 && l.retries[0].Offset == offset {
		return &l.retries[0]
	}
	return nil
}
