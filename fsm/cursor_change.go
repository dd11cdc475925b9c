package fsm

import (
	"fmt"

	"github.com/ringrift/ringlog/internal/frame"
)

// changeCursor changes the filter and policy of a cursor from its commit on: nothing before that is
// redelivered, and nothing after it is lost. It fences readers with the old filter. A retry changes
// nothing.
func (a *cursorApplier) changeCursor(c frame.CursorChange) Result {
	cur := a.s.cursors[c.Name]
	switch {
	case cur == nil:
		return noCursor(c.Name)
	case cur.Group != nil:
		return refuse(Invalid, "cursor",
			fmt.Sprintf("%q is a group, and some of its events were settled by its filter", c.Name),
			"make another group, from where this one is")
	// A retry, or nothing to change: no reader is fenced.
	case sameFilter(cur.Filter, c.Filter) && cur.Policy == c.Policy:
		return Result{Cursor: a.s.view(cur)}
	}
	// There has to be room for the new filter.
	before := cursorBytes(cur.Name, cur.Filter)
	if refused := a.refuseFilter(cur.Name, c.Filter, before); refused != nil {
		return *refused
	}

	// What a leader found by the old filter does not hold for the new one.
	a.s.ranks.bytes += cursorBytes(cur.Name, c.Filter) - before
	cur.Filter, cur.Policy = c.Filter, c.Policy
	cur.startGeneration("")
	a.placeCursor(cur, place{committed: cur.Committed})
	a.useCursor(cur)
	a.mayHold(cur)
	return a.saveCursor(cur)
}
