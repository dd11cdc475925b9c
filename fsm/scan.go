package fsm

import (
	"slices"

	"github.com/ringrift/ringlog/internal/frame"
)

// The state machine does not look into events, so it cannot know which of them a filter
// passes. The leader does, and puts what it found into the log: see frame.CursorScan.

// Passed is the offset up to which a cursor has nothing open: it has committed that, or its
// filter passes nothing in between. Lag, stalls, gaps and what it keeps from a trim count
// from there.
func (c *Cursor) Passed() uint64 { return max(c.Committed, c.Scanned) }

// nextKnown reports whether the first event after Passed that is there is known to be open. For a group the answer
// needs its Done.
func (s *state) nextKnown(c *Cursor) bool {
	if c.Group != nil && ranges(c.Group.Done).has(c.Passed()+1) {
		return false
	}
	if c.Filter.Empty() {
		return true
	}
	// The event that was found may be trimmed by now, by force or before an old report of it came: whether the filter
	// passes any of those after it is not known.
	trimmed := c.Scanned+1 < s.meta.First && s.meta.FeatureLevel >= frame.LevelFound
	return c.Found && c.Scanned >= c.Committed && !trimmed
}

// cursorsScanned records what the leader found. What is about a cursor that has changed since, or
// reports less than is known, changes nothing.
func (a *cursorApplier) cursorsScanned(c frame.CursorsScanned) (Result, error) {
	for _, s := range c.Scans {
		cur := a.s.cursors[s.Name]
		if cur == nil || cur.Created.UnixNano() != s.Created || cur.Generation != s.Generation {
			continue
		}

		// It has to continue what is known, and to add something.
		passed := cur.Passed()
		switch {
		// It begins after what is known, ends before that, or is about events that are not there.
		case s.From > passed || s.To < passed || s.To > a.tail() || (s.Match && s.To == a.tail()):
			continue
		// It says nothing new: how far the cursor has passed, and what is next, is known.
		case s.To == passed && (!s.Match || (cur.Found && cur.Scanned == passed)):
			continue
		}
		a.placeCursor(cur, place{cur.Committed, s.To, s.Match})
		if err := a.stalls.watchScanned(cur); err != nil {
			return Result{}, err
		}
		a.savePlace(cur)
	}
	return Result{}, nil
}

// watchScanned sets when a cursor is checked: when it would be stalled by what was found, or at the end of
// this entry if it is stalled already.
func (a *stallApplier) watchScanned(c *Cursor) error {
	after := a.s.settings.CursorStall
	switch {
	// It may have recovered: what it seemed to lag by does not match its filter.
	case c.Stalled != nil:
		a.checkLater(c)
		return nil
	// Nothing is open that it could be stalled at.
	case !c.Found || !a.s.nextKnown(c) || after == 0:
		return nil
	}

	// The open event may have waited for a while, so the cursor is due before all others.
	open, some, err := a.openSince(c)
	if some {
		a.s.meta.StallDue = min(a.s.meta.StallDue, stallDeadline(open, c.movedAt(), after))
	}
	return err
}

// Unscanned returns up to n cursors that have not passed the tail and whose next open event is not
// known, or not known for certain, in the order of their names: those after a name first.
func (v *views) Unscanned(after string, n int) []Cursor {
	return read(v, func(s *state) (list []Cursor) {
		// Those that have passed the tail come last in this order, and are not looked at.
		var names []string
		for at, c := range s.ranks.byPassed.Ascend(atLeast[uint64](0), below(s.meta.Last)) {
			if !c.Found || !s.nextKnown(c) {
				names = append(names, at.name)
			}
		}

		for _, name := range roundAfter(names, after, n) {
			c := s.cursors[name]
			one := *s.view(c)
			// Whoever looks further needs what a group has settled.
			if c.Group != nil {
				one.Group.Done = slices.Clone(c.Group.Done)
			}
			list = append(list, one)
		}
		return list
	})
}

// roundAfter sorts names and returns up to n of them. Names after the given one come first, so callers go round.
func roundAfter(names []string, after string, n int) []string {
	slices.Sort(names)
	first, found := slices.BinarySearch(names, after)
	if found {
		first++
	}
	names = append(names[first:], names[:first]...)
	return names[:min(n, len(names))]
}
