package group

import (
	"math"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// MaxMembers is how many members a group may have at a time.
const MaxMembers = 1024

// State is what the state machine knows of a group. Done and Retries ascend.
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
// Its parts are layers. The window knows the events and what the log has of them. The
// assignments know in addition who holds or may get an event, but neither who else is a member
// nor what is to be reported. Sessions of members are a part of their own. What ends a
// delivery, and so concerns all of them and the next ack batch, is decided here.
type Coordinator struct {
	assignments // and in it the window
	members     members
	loaded      loaded

	inFlight *inFlight         // the ack batch under way; nil is none
	dying    []uint64          // offsets whose dead letters are to be stored
	reasons  map[uint64]reason // of slots that failed or die, by offset
}

// loaded is what remains of the state that the coordinator began with: what Feed has passed
// is removed.
type loaded struct {
	reserved uint64             // events up to here may have been delivered before
	done     []frame.Range      // settled ranges after the committed offset, ascending
	retries  []frame.GroupRetry // events that failed and are not settled, ascending
}

// reason is why a delivery failed, as its member put it.
type reason struct {
	text, handler string
	first         int64 // when the first delivery failed under this leader, in nanoseconds since 1970; 0 is unknown
}

// never is a time that does not come.
const never = math.MaxInt64

// New returns a coordinator that resumes from the state. Its sessions are numbered above
// session, which must be above those of the coordinators before it.
func New(now time.Time, s State, p Policy, session uint64) *Coordinator {
	reserved := max(s.Reserved, s.Committed)
	return &Coordinator{
		assignments: assignments{
			window: window{
				slots:     newRing[slot](),
				opened:    1,
				committed: s.Committed,
				scanned:   s.Committed,
				reserved:  reserved,
			},
			policy:     p,
			now:        now.UnixNano(),
			keys:       map[uint64]*key{},
			ready:      newRing[unit](),
			nextExpiry: never,
			// What an earlier coordinator delivered waits for a session's time for its member.
			claimsUntil: now.Add(p.Session).UnixNano(),
		},
		members: members{last: session, due: never},
		loaded:  loaded{reserved: reserved, done: s.Done, retries: s.Retries},
		reasons: map[uint64]reason{},
	}
}

// SetPolicy changes the policy of the deliveries that follow.
func (c *Coordinator) SetPolicy(p Policy) { c.policy = p }

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
	out := Counts{Members: len(c.members.list)}
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
		s.notBefore = c.claimsUntil
		if !retry.After.IsZero() {
			s.notBefore = max(s.notBefore, retry.After.UnixNano())
		}
		c.reasons[e.Offset] = reason{text: retry.Error}
	} else if e.Offset <= c.loaded.reserved {
		s.count, s.notBefore = 1, c.claimsUntil
	}

	c.unsettled++
	n := c.slots.push(s)
	if e.Offset <= c.reserved {
		c.openTo(n)
	}
}

// isDone reports whether the state has the event as settled. Offsets must ascend from call to
// call.
func (l *loaded) isDone(offset uint64) bool {
	for len(l.done) > 0 && l.done[0].To < offset {
		l.done = l.done[1:]
	}
	return len(l.done) > 0 && l.done[0].From <= offset
}

// retry returns the failure that the state has of an event, or nil. Offsets must ascend from
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
