package fsm

import (
	"fmt"

	"github.com/ringrift/ringlog/internal/frame"
)

// changeCursor gives a cursor another filter and policy from behind its commit, so that
// nothing in front of that comes again and nothing behind it is lost. Readers of the
// filter before are fenced off. The same again changes nothing.
func (a *cursorApplier) changeCursor(c frame.CursorChange) Result {
	cur := a.s.cursors[c.Name]
	switch {
	case cur == nil:
		return noCursor(c.Name)
	case cur.Group != nil:
		return refuse(Invalid, "cursor", fmt.Sprintf("%q is a group, of which some events were settled by its filter", c.Name),
			"make another group, from where this one stands")
	case sameFilter(cur.Filter, c.Filter) && cur.Policy == c.Policy:
		return Result{Cursor: a.s.view(cur)}
	}
	before := cursorBytes(cur.Name, cur.Filter)
	if refused := a.refuseFilter(cur.Name, c.Filter, before); refused != nil {
		return *refused
	}
	a.s.ranks.bytes += cursorBytes(cur.Name, c.Filter) - before
	cur.Filter, cur.Policy = c.Filter, c.Policy
	cur.startGeneration("")
	a.placeCursor(cur, place{committed: cur.Committed})
	a.useCursor(cur)
	a.mayHold(cur)
	return a.saveCursor(cur)
}
