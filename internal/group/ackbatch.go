package group

import (
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// AckBatch is what one command reports to the log of a group. Open counts the events up to
// Reserved that are not settled. The ranges of Done ascend and do not touch; Retries ascend.
type AckBatch struct {
	Reserved uint64
	Open     uint64
	Done     []frame.Range
	Retries  []frame.GroupRetry
}

// inFlight is the ack batch under way, with the numbers of its slots and the offset up to
// which everything is settled once the log has it.
type inFlight struct {
	batch     AckBatch
	low, high uint64 // low is 0 if it has no slots
	committed uint64
}

// NextAckBatch returns what the log has to record now, with reserve more events to be
// delivered; false if there is nothing. One batch is under way at a time, and
// AckBatchDone says what became of it. A batch that would only move the committed offset
// past events that do not match waits for a batch with more in it, unless all is set.
func (c *Coordinator) NextAckBatch(reserve int, all bool) (AckBatch, bool) {
	if c.inFlight != nil {
		return AckBatch{}, false
	}
	f := &inFlight{low: c.dirtyLow, high: c.dirtyHigh, committed: c.settledUpTo()}

	// Reserve the slots below number end.
	f.batch.Reserved = c.reserved
	end := max(c.opened, min(c.slots.next, c.opened+uint64(max(0, reserve))))
	if end > c.opened {
		f.batch.Reserved = max(c.reserved, c.slots.at(end-1).offset)
	}
	f.batch.Open = uint64(c.unsettled - c.unsettledFrom(end))

	if f.low == 0 && f.batch.Reserved == c.reserved && (!all || f.committed == c.committed) {
		return AckBatch{}, false
	}
	if f.committed > c.committed {
		f.batch.Done = append(f.batch.Done, frame.Range{From: c.committed + 1, To: f.committed})
	}
	c.collectDirty(f)
	c.dirtyLow, c.dirtyHigh, c.inFlight = 0, 0, f
	return f.batch, true
}

// collectDirty puts into a batch what its slots have for the log.
func (c *Coordinator) collectDirty(f *inFlight) {
	if f.low == 0 {
		return
	}
	reported := false // whether the slot before is settled and in this batch
	for n := max(f.low, c.slots.first); n <= f.high; n++ {
		s := c.slots.at(n)

		// Its failure, unless a later delivery has settled the event.
		if s.unreported && !s.settled() {
			f.batch.Retries = append(f.batch.Retries, c.retryOf(s))
			s.unreported, s.reporting = false, true
		}

		// A slot that the log has already is reported again only to join the ranges on
		// both sides of it.
		if !s.settled() || (s.state == done && !reported) {
			reported = false
			continue
		}
		if s.state == acked {
			s.state = sent
		}
		reported = true
		if s.offset > f.committed {
			from := max(c.settlesFrom(n), f.committed+1)
			f.batch.Done = frame.AppendRange(f.batch.Done, frame.Range{From: from, To: s.offset})
		}
	}
}

// retryOf returns what the log is to record of a slot whose delivery failed.
func (c *Coordinator) retryOf(s *slot) frame.GroupRetry {
	r := frame.GroupRetry{Offset: s.offset, Deliveries: uint64(s.count), Error: c.reasons[s.offset].text}
	switch {
	case s.state == held:
		r.Deliveries-- // the one under way has not failed
	case s.state == parked && s.notBefore > c.now:
		r.After = time.Unix(0, s.notBefore).UTC()
	}
	return r
}

// AckBatchDone ends the ack batch under way: the log has it, or it never will and the next
// one reports the same again.
func (c *Coordinator) AckBatchDone(ok bool) {
	f := c.inFlight
	c.inFlight = nil
	c.retriesDone(f, ok)
	if !ok {
		c.reportAgain(f)
		return
	}

	// The log has the batch's slots as settled: their keys may move to other members.
	if f.low != 0 {
		for n := max(f.low, c.slots.first); n <= f.high; n++ {
			if s := c.slots.at(n); s.state == sent {
				s.state = done
				c.unpin(s)
			}
		}
	}

	// The committed offset moves past every leading slot that is done.
	for c.slots.len() > 0 && c.slots.at(c.slots.first).state == done {
		c.committed = max(c.committed, c.slots.pop().offset)
	}
	c.committed, c.opened = max(c.committed, f.committed), max(c.opened, c.slots.first)
	c.timers.forget(c.slots.first, c.slots.len())

	// What is reserved now can be delivered.
	c.reserved = max(c.reserved, f.batch.Reserved)
	for c.opened < c.slots.next && c.slots.at(c.opened).offset <= c.reserved {
		c.openTo(c.opened)
	}
}

// retriesDone lets the failed events of a batch be redelivered if the log has the failures,
// and reports these again if it does not.
func (c *Coordinator) retriesDone(f *inFlight, ok bool) {
	for _, r := range f.batch.Retries {
		// It is in the window: slots leave it only in AckBatchDone, after this.
		n, s := c.slotAt(r.Offset)
		s.reporting = false
		// A later delivery of it was acknowledged meanwhile: its failure does not matter any more.
		if s.settled() {
			continue
		}
		if !ok {
			s.unreported = true
			c.markDirty(n)
		}
		// park kept the slot out of the queues until the log has its failure, and does so again if the batch failed.
		if s.state == parked {
			c.park(n, s, s.notBefore)
		}
	}
}

// reportAgain leaves the settled slots of a failed batch to the next one.
func (c *Coordinator) reportAgain(f *inFlight) {
	if f.low == 0 {
		return
	}
	for n := max(f.low, c.slots.first); n <= f.high; n++ {
		if s := c.slots.at(n); s.state == sent {
			s.state = acked
			c.markDirty(n)
		}
	}
}

// Death is an event that has to be stored as a dead letter.
type Death struct {
	Offset      uint64
	Attempts    uint64
	FirstFailed time.Time // under this leader
	Error       string
	Handler     string
}

// Deaths returns the events that have to be stored as dead letters, each once; LetterStored
// says what became of it.
func (c *Coordinator) Deaths() (list []Death) {
	for _, offset := range c.dying {
		_, s := c.slotAt(offset)
		why := c.reasons[offset]
		list = append(list, Death{Offset: offset, Attempts: uint64(s.count), FirstFailed: time.Unix(0, why.first),
			Error: why.text, Handler: why.handler})
	}
	c.dying = nil
	return list
}

// LetterStored settles a dead event whose letter is stored; where ok is false, Deaths
// returns the event again.
func (c *Coordinator) LetterStored(offset uint64, ok bool) {
	n, s := c.slotAt(offset)
	if s == nil || s.state != dying {
		return // a trim settled it meanwhile
	}
	if ok {
		c.settleSlot(n, s)
	} else {
		c.dying = append(c.dying, offset)
	}
}

// Trim settles everything up to an offset, held or not, since the log does not have it
// any more. It returns how many events it settled.
func (c *Coordinator) Trim(to uint64) (events int) {
	for n := c.slots.first; n < c.slots.next; n++ {
		s := c.slots.at(n)
		if s.offset > to {
			break
		}
		if s.state == held {
			s.member.addLost(s.offset)
		}
		if !s.settled() {
			c.settleSlot(n, s)
			events++
		}
		c.unpin(s) // no later leader delivers it
	}
	c.dying = slices.DeleteFunc(c.dying, func(offset uint64) bool { return offset <= to })
	c.scanned = max(c.scanned, to)
	return events
}
