package service

import (
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// Blocks of the log that are looked at to measure lag. What a leader found is in the state,
// so a cursor that has nothing to get costs few.
const (
	lagBlocks       = 64  // for one cursor
	lagBlocksListed = 512 // for all of a list
)

// lag is the part of the log that a cursor's readers, or a group's members, are still to
// get.
type lag struct {
	// Events is how many there are, at most.
	Events  uint64
	Wait    time.Duration // since the first of them was appended
	atLeast *uint64       // set where not all was looked at: events are then at most, and wait too if this is 0
}

// LagMeter measures lags against the local log as it was at the beginning.
type LagMeter struct {
	// cursors has the local log, and the groups.
	cursors *Cursors
	// catalogue resolves the categories of filters; all cursors of a list are measured by the same one.
	catalogue   *event.Catalogue
	settings    fsm.Settings
	first, last uint64
	left        int // blocks that may still be looked at
}

// Lags returns a meter for a list of cursors.
func (cs *Cursors) Lags() *LagMeter { return cs.lagMeter(lagBlocksListed) }

// lagMeter returns a meter that may look at that many blocks in all.
func (cs *Cursors) lagMeter(blocks int) *LagMeter {
	m := &LagMeter{cursors: cs, catalogue: cs.Machine().Catalogue(), settings: cs.Machine().Settings(), left: blocks}
	// All cursors of a list are measured against the same bounds.
	m.first, m.last = cs.Machine().Log().Bounds()
	return m
}

// Of measures one cursor. Where the log cannot be read, what may be open is its lag.
func (m *LagMeter) Of(c *fsm.Cursor) (l lag) {
	open := max(c.Passed()+1, m.first)
	from := open
	if c.Group != nil { // its leader counted up to Reserved
		l.Events = c.Group.Open
		from = max(from, c.Group.Reserved+1)
	}
	// The oldest open event is the first one that the group has not settled.
	if l.Events > 0 {
		l.Wait = m.ageOf(open)
	}
	// Without a filter every event counts, and nothing has to be read.
	switch {
	case from > m.last:
		return l
	case c.Filter.Empty():
		if l.Events == 0 {
			l.Wait = m.ageOf(from)
		}
		l.Events += m.last - from + 1
		return l
	}
	// From here on events are counted by reading the log.
	next := from
	// With a filter, events are counted for as long as the meter may read blocks.
	if m.left > 0 {
		matcher := c.Filter.Compile(m.catalogue)
		// The count stops at the meter's bound; an unread rest counts in full below.
		events := m.cursors.Machine().Log()
		if n, err := events.CountFor(c.Name, from, m.last, &matcher, min(m.left, lagBlocks)); err == nil {
			m.left -= n.Blocks
			next = n.Next
			if l.Events == 0 && n.Events > 0 {
				l.Wait = max(0, time.Since(n.First))
			}
			l.Events += n.Events
		}
	}
	// What was not looked at counts in full; atLeast is what is certain.
	if next <= m.last {
		least := l.Events
		l.atLeast = &least
		if least == 0 {
			l.Wait = m.ageOf(next)
		}
		l.Events += m.last - next + 1
	}
	return l
}

// ageOf is how long ago an offset was appended. Replicated time does not advance while nothing
// is appended, so it does not measure an age.
func (m *LagMeter) ageOf(offset uint64) time.Duration {
	// The append time is that of the block.
	columns, err := m.cursors.Machine().Log().Columns(offset)
	if err != nil {
		return 0
	}
	return max(0, time.Since(columns.AppendedAt))
}
