package groups

import (
	"slices"
	"time"

	"github.com/ringrift/ringlog/frame"
)

// AckBatch is what the log is to be told of a group. Open counts the events up to Reserved
// that are not settled; Done rises and does not touch; Retries rise.
type AckBatch struct {
	Reserved uint64
	Open     uint64
	Done     []frame.Range
	Retries  []frame.GroupRetry
}

// flight is a settle under way: its slots, and up to where it settles all.
type flight struct {
	settle    AckBatch
	low, high uint64
	floor     uint64
}

// NextAckBatch returns what the log is to be told now, with reserve events more to be handed
// out; false where there is nothing. One settle is under way at a time, and AckBatchDone says
// what became of it. What merely lets the floor pass events that do not match is told
// with something else, or where all is set.
func (c *Coordinator) NextAckBatch(reserve int, all bool) (AckBatch, bool) {
	if c.flight != nil {
		return AckBatch{}, false
	}
	f := &flight{low: c.low, high: c.high, floor: c.clear()}
	f.settle.Reserved = c.reserved
	beyond := max(c.opened, min(c.slots.next, c.opened+uint64(max(0, reserve))))
	if beyond > c.opened {
		f.settle.Reserved = max(c.reserved, c.slots.at(beyond-1).offset)
	}
	f.settle.Open = uint64(c.open - c.openFrom(beyond))
	if f.low == 0 && f.settle.Reserved == c.reserved && (!all || f.floor == c.floor) {
		return AckBatch{}, false
	}
	if f.floor > c.floor {
		f.settle.Done = append(f.settle.Done, frame.Range{From: c.floor + 1, To: f.floor})
	}
	c.collect(f)
	c.low, c.high, c.flight = 0, 0, f
	return f.settle, true
}

// clear is the offset up to which nothing is open in front of the first slot, or at all.
func (c *Coordinator) clear() uint64 {
	if c.open == 0 {
		return c.scanned
	}
	if first := c.slots.at(c.slots.first); !first.settled() {
		return first.offset - 1
	}
	return c.floor
}

// collect puts into a settle what its slots have for the log.
func (c *Coordinator) collect(f *flight) {
	if f.low == 0 {
		return
	}
	run := false // the slot before is settled, and told of here
	for n := max(f.low, c.slots.first); n <= f.high; n++ {
		s := c.slots.at(n)
		if s.untold && !s.settled() {
			f.settle.Retries = append(f.settle.Retries, c.retryOf(s))
			s.untold, s.told = false, true
		}
		if !s.settled() || s.state == done && !run {
			run = false
			continue
		}
		if s.state == acked {
			s.state = sent
		}
		if run = true; s.offset > f.floor {
			f.settle.Done = frame.AppendRange(f.settle.Done, frame.Range{From: max(c.below(n), f.floor+1), To: s.offset})
		}
	}
}

func (c *Coordinator) retryOf(s *slot) frame.GroupRetry {
	r := frame.GroupRetry{Offset: s.offset, Deliveries: uint64(s.count), Error: c.notes[s.offset].text}
	switch {
	case s.state == held:
		r.Deliveries-- // that one has not failed
	case s.state == parked && s.at > c.now:
		r.After = time.Unix(0, s.at).UTC()
	}
	return r
}

// AckBatchDone ends the settle under way: it is in the log, or it never will be and what it
// told is to be told again.
func (c *Coordinator) AckBatchDone(ok bool) {
	f := c.flight
	c.flight = nil
	c.answered(f, ok)
	if !ok {
		c.again(f)
		return
	}
	if f.low != 0 {
		for n := max(f.low, c.slots.first); n <= f.high; n++ {
			if s := c.slots.at(n); s.state == sent {
				s.state = done
				c.unpin(s)
			}
		}
	}
	for c.slots.len() > 0 && c.slots.at(c.slots.first).state == done {
		c.floor = max(c.floor, c.slots.pop().offset)
	}
	c.floor, c.opened = max(c.floor, f.floor), max(c.opened, c.slots.first)
	c.timers.forget(c.slots.first, c.slots.len())
	c.reserved = max(c.reserved, f.settle.Reserved)
	for c.opened < c.slots.next && c.slots.at(c.opened).offset <= c.reserved {
		c.openTo(c.opened)
	}
}

// answered says of the failures in a settle that the log has them, or that they are to be
// told again.
func (c *Coordinator) answered(f *flight, ok bool) {
	for _, r := range f.settle.Retries {
		n := c.find(r.Offset)
		if !c.slots.has(n) {
			continue
		}
		s := c.slots.at(n)
		if s.told = false; s.settled() {
			continue
		}
		if !ok {
			s.untold = true
			c.touch(n)
		}
		if s.state == parked {
			c.park(n, s, s.at)
		}
	}
}

func (c *Coordinator) again(f *flight) {
	if f.low == 0 {
		return
	}
	for n := max(f.low, c.slots.first); n <= f.high; n++ {
		if s := c.slots.at(n); s.state == sent {
			s.state = acked
			c.touch(n)
		}
	}
}

// Death is an event that is to go to the dead letters.
type Death struct {
	Offset   uint64
	Attempts uint64
	Error    string
	Handler  string
}

// Deaths returns the events that are to go to the dead letters, once; LetterStored says what
// became of each.
func (c *Coordinator) Deaths() (list []Death) {
	for _, offset := range c.dying {
		n := c.find(offset)
		s := c.slots.at(n)
		said := c.notes[offset]
		list = append(list, Death{Offset: offset, Attempts: uint64(s.count), Error: said.text, Handler: said.handler})
	}
	c.dying = nil
	return list
}

// LetterStored says that an event stands with the dead letters, or that it has to be tried again.
func (c *Coordinator) LetterStored(offset uint64, ok bool) {
	n := c.find(offset)
	if !c.slots.has(n) {
		return
	}
	s := c.slots.at(n)
	switch {
	case s.offset != offset || s.state != dying:
	case ok:
		c.finish(n, s)
	default:
		c.dying = append(c.dying, offset)
	}
}

// Trim settles everything up to an offset, whoever holds it: it is not in the log any
// more. It returns how many events that were.
func (c *Coordinator) Trim(to uint64) (events int) {
	for n := c.slots.first; n < c.slots.next; n++ {
		s := c.slots.at(n)
		if s.offset > to {
			break
		}
		if s.state == held {
			s.member.lose(s.offset)
		}
		if !s.settled() {
			c.finish(n, s)
			events++
		}
		c.unpin(s) // no later leader hands it out
	}
	c.dying = slices.DeleteFunc(c.dying, func(offset uint64) bool { return offset <= to })
	c.scanned = max(c.scanned, to)
	return events
}
