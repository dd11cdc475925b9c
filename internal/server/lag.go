package server

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

// lag is what is kept of the log that a cursor's readers, or a group's members, are still to
// get.
type lag struct {
	events  uint64
	wait    time.Duration // since the first of them was appended
	atLeast *uint64       // set where not all was looked at: events are then at most, and wait too if this is 0
}

// lagMeter measures lags against the local log as it was at the beginning.
type lagMeter struct {
	s           *service
	catalogue   *event.Catalogue
	first, last uint64
	left        int // blocks that may still be looked at
}

func (s *service) lagMeter(blocks int) *lagMeter {
	m := &lagMeter{s: s, catalogue: s.machine().Catalogue(), left: blocks}
	m.first, m.last = s.machine().Log().Bounds()
	return m
}

// of measures one cursor. Where the log cannot be read, what may be open is its lag.
func (m *lagMeter) of(c *fsm.Cursor) (l lag) {
	open := max(c.Passed()+1, m.first)
	from := open
	if c.Group != nil { // its leader counted up to Reserved
		l.events = c.Group.Open
		from = max(from, c.Group.Reserved+1)
	}
	if l.events > 0 {
		l.wait = m.age(open)
	}
	switch {
	case from > m.last:
		return l
	case c.Filter.Empty():
		if l.events == 0 {
			l.wait = m.age(from)
		}
		l.events += m.last - from + 1
		return l
	}
	next := from
	if m.left > 0 {
		matcher := c.Filter.Compile(m.catalogue)
		if n, err := m.s.machine().Log().CountFor(c.Name, from, &matcher, min(m.left, lagBlocks)); err == nil {
			m.left -= n.Blocks
			next = n.Next
			if l.events == 0 && n.Events > 0 {
				l.wait = max(0, time.Since(n.First))
			}
			l.events += n.Events
		}
	}
	if next <= m.last {
		least := l.events
		if l.atLeast = &least; least == 0 {
			l.wait = m.age(next)
		}
		l.events += m.last - next + 1
	}
	return l
}

// age is how long ago an offset was appended. Replicated time stands still while nothing
// is, so it is no measure.
func (m *lagMeter) age(offset uint64) time.Duration {
	columns, err := m.s.machine().Log().Columns(offset)
	if err != nil {
		return 0
	}
	return max(0, time.Since(columns.AppendedAt))
}
