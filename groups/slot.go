package groups

import (
	"sort"

	"github.com/ringrift/ringlog/frame"
)

// state is where an event stands; the package's comment draws the way.
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

// slot is an event that matches and that the floor has not passed.
type slot struct {
	offset uint64
	at     int64   // held: its delivery fails then; parked: it is not handed out before
	next   uint64  // number of the next opened slot of its key; 0 is none
	key    *key    // nil is none
	member *Member // while held
	count  uint32  // deliveries that it has had, the one under way included
	fails  uint32  // count as it was when it failed
	size   uint32
	state  state
	failed bool // a delivery of it failed, which is kept in the log
	untold bool // … or is to be
	told   bool // … or is in the settle under way
	queued bool // without a key: it stands in the ready queue
	pinned bool // settled by its key's owner, which the log does not have yet
}

func (s *slot) settled() bool { return s.state >= acked }

// due reports whether a parked slot may be handed out: its time has come, and the log has
// how its last delivery ended.
func (s *slot) due(now int64) bool { return s.at <= now && !s.untold && !s.told }

// find returns the number of the first slot at or behind an offset.
func (c *Coordinator) find(offset uint64) uint64 {
	n := c.slots.len()
	if n == 0 || offset <= c.slots.at(c.slots.first).offset {
		return c.slots.first
	}
	if first := c.slots.at(c.slots.first).offset; offset-first < uint64(n) { // offsets mostly follow each other
		if guess := c.slots.first + (offset - first); c.slots.at(guess).offset == offset {
			return guess
		}
	}
	return c.slots.first + uint64(sort.Search(n, func(i int) bool { return c.slots.at(c.slots.first+uint64(i)).offset >= offset }))
}

// each calls has with the slots of a range of offsets that m holds, and adds the offsets
// between them to missing.
func (c *Coordinator) each(r frame.Range, missing []frame.Range, has func(n uint64, s *slot) bool) []frame.Range {
	from := r.From
	for n := c.find(r.From); n < c.slots.next; n++ {
		s := c.slots.at(n)
		if s.offset > r.To {
			break
		}
		if !has(n, s) {
			continue
		}
		if from < s.offset {
			missing = frame.AppendRange(missing, frame.Range{From: from, To: s.offset - 1})
		}
		from = s.offset + 1
	}
	if from <= r.To && from != 0 {
		missing = frame.AppendRange(missing, frame.Range{From: from, To: r.To})
	}
	return missing
}

// below is the first offset that settling the slot of number n settles: what does not
// match in front of it too.
func (c *Coordinator) below(n uint64) uint64 {
	if n == c.slots.first {
		return c.floor + 1
	}
	return c.slots.at(n-1).offset + 1
}

// touch notes that a slot has something for the log.
func (c *Coordinator) touch(n uint64) {
	if c.low == 0 || n < c.low {
		c.low = n
	}
	c.high = max(c.high, n)
}

// finish settles a slot, wherever it stands.
func (c *Coordinator) finish(n uint64, s *slot) {
	if s.state == held {
		c.pin(s)
	}
	if s.failed {
		delete(c.notes, s.offset)
	}
	if s.state == dying && s.key != nil {
		s.key.dying--
	}
	s.state = acked
	c.open--
	c.touch(n)
	if k := s.key; k != nil {
		k.open--
		c.wake(k)
		c.drop(k)
	}
}
