package group

import (
	"sort"

	"github.com/ringrift/ringlog/internal/frame"
)

// state is the state of an event; the package's comment draws the transitions.
type state uint8

const (
	unopened state = iota
	parked
	held
	dying
	acked
	sent
	done
)

// slot is a matching event after the committed offset.
type slot struct {
	offset      uint64
	ackDeadline int64   // while held: when its delivery expires, in nanoseconds since 1970
	notBefore   int64   // while parked: when it may be delivered, in nanoseconds since 1970; 0 is at once
	next        uint64  // number of the next opened slot of its key; 0 is none
	key         *key    // nil is none
	member      *Member // while held
	count       uint32  // its deliveries, including the one under way
	fails       uint32  // count as it was when it failed
	size        uint32  // about what the event takes in an answer, in bytes
	state       state
	failed      bool // a delivery of it failed, and that is to be in the log
	unreported  bool // … and no ack batch has it yet
	reporting   bool // … and the ack batch under way has it
	queued      bool // without a key: it is in the ready queue
	pinned      bool // its key's owner has settled it, and the log does not have that yet
}

// settled reports whether the event is never delivered again.
func (s *slot) settled() bool { return s.state >= acked }

// due reports whether a parked slot may be delivered: its time has come, and the log has
// how its last delivery ended.
func (s *slot) due(now int64) bool { return s.notBefore <= now && !s.unreported && !s.reporting }

// slotFrom returns the number of the first slot at offset or after it.
func (c *Coordinator) slotFrom(offset uint64) uint64 {
	n := c.slots.len()
	if n == 0 || offset <= c.slots.at(c.slots.first).offset {
		return c.slots.first
	}
	// Mostly every event matches, and the distance in offsets is the one in slots.
	if distance := offset - c.slots.at(c.slots.first).offset; distance < uint64(n) {
		if guess := c.slots.first + distance; c.slots.at(guess).offset == offset {
			return guess
		}
	}
	return c.slots.first + uint64(sort.Search(n, func(i int) bool {
		return c.slots.at(c.slots.first+uint64(i)).offset >= offset
	}))
}

// eachIn calls visit with the slots in a range of offsets. It appends to missing the offsets
// that have no slot, or for whose slot visit returned false.
func (c *Coordinator) eachIn(
	r frame.Range, missing []frame.Range, visit func(n uint64, s *slot) bool,
) []frame.Range {
	from := r.From // the offsets before it are visited, or missing already
	for n := c.slotFrom(r.From); n < c.slots.next; n++ {
		s := c.slots.at(n)
		if s.offset > r.To {
			break
		}
		if !visit(n, s) {
			continue
		}
		if from < s.offset {
			missing = frame.AppendRange(missing, frame.Range{From: from, To: s.offset - 1})
		}
		from = s.offset + 1
	}
	if from <= r.To && from != 0 { // 0 is after the largest offset
		missing = frame.AppendRange(missing, frame.Range{From: from, To: r.To})
	}
	return missing
}

// settlesFrom is the first offset that settling slot n settles: the events before it that
// do not match the filter are settled with it.
func (c *Coordinator) settlesFrom(n uint64) uint64 {
	if n == c.slots.first {
		return c.committed + 1
	}
	return c.slots.at(n-1).offset + 1
}

// markDirty notes that slot n has something for the log.
func (c *Coordinator) markDirty(n uint64) {
	if c.dirtyLow == 0 || n < c.dirtyLow {
		c.dirtyLow = n
	}
	c.dirtyHigh = max(c.dirtyHigh, n)
}

// settle settles a slot in whatever state it is.
func (c *Coordinator) settle(n uint64, s *slot) {
	if s.state == held {
		c.pin(s)
	}
	if s.failed {
		delete(c.reasons, s.offset)
	}
	if s.state == dying && s.key != nil {
		s.key.dying--
	}
	s.state = acked
	c.unsettled--
	c.markDirty(n)

	// The next event of its key may be deliverable now.
	if k := s.key; k != nil {
		k.open--
		c.queueKey(k)
		c.dropKey(k)
	}
}
