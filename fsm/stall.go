package fsm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Stall records that a cursor was reported as stalled, and when. A group is stalled while its first
// open event is not settled.
type Stall struct {
	Since time.Time `json:"since"`
}

// stallApplier finds the cursors that do not move although there is something to handle.
type stallApplier struct {
	*applying
	cursors *cursorApplier

	// unchecked are the cursors that were stalled and have moved, or of which more is known by now.
	unchecked []string
}

const (
	stallGrain   = time.Second // deadlines are rounded up to it, which bounds how often all cursors are checked
	stallsAtOnce = 256         // reported by one entry
)

// stallDeadline is when a cursor that does not move is reported as stalled: it has then not moved
// for the time of the setting, with an event open for as long.
func stallDeadline(open, moved int64, after time.Duration) int64 {
	at := max(open, moved) + int64(after)
	return (at + int64(stallGrain) - 1) / int64(stallGrain) * int64(stallGrain)
}

// watchStalls sets when the cursors are checked: when one that does not move from now on would be stalled. Only
// then reportStalls goes through all of them.
func (a *stallApplier) watchStalls() {
	if after := a.s.settings.CursorStall; after > 0 && len(a.s.cursors) > 0 {
		a.s.meta.StallDue = min(a.s.meta.StallDue, stallDeadline(a.now, a.now, after))
	}
}

// knowsDelivery reports whether all members know stalls, groups and clients.
func (a *applying) knowsDelivery() bool { return a.s.meta.FeatureLevel >= frame.LevelDelivery }

// movedAt is when a cursor moved last, or, for one that has not moved since members record that,
// when it was used last.
func (c *Cursor) movedAt() int64 {
	if c.Moved.IsZero() {
		return c.Touched.UnixNano()
	}
	return c.Moved.UnixNano()
}

// openSince returns when the first event that a cursor has not passed was appended, which is now
// for those of this entry; some is false if there is none. Where nextKnown does not hold, the
// first open event was appended then or later.
func (a *stallApplier) openSince(c *Cursor) (at int64, some bool, err error) {
	offset := max(c.Passed()+1, a.s.meta.First)
	switch {
	// It has passed everything.
	case offset > a.tail():
		return 0, false, nil
	// The log does not have the events of this entry yet.
	case offset >= a.firstNew:
		return a.now, true, nil
	}
	columns, err := a.columns.at(a.log, offset)
	if err != nil {
		return 0, false, fmt.Errorf("cursor %q: %w", c.Name, err)
	}
	return columns.AppendedAt.UnixNano(), true, nil
}

// noteMove notes that a cursor has moved; the caller stores it.
func (a *stallApplier) noteMove(c *Cursor) {
	if !a.knowsDelivery() {
		return
	}
	// A cursor of an older level has no time of its last move: see movedAt.
	c.Moved = a.time()
	a.watchStalls()
	a.checkLater(c)
}

// checkLater notes a stalled cursor: the end of the entry decides whether it has recovered.
func (a *stallApplier) checkLater(c *Cursor) {
	if c.Stalled != nil && !slices.Contains(a.unchecked, c.Name) {
		a.unchecked = append(a.unchecked, c.Name)
	}
}

// reportRecoveries reports the cursors that were stalled, have moved, and are no longer stalled:
// they are at the end, or their first open event is young. A cursor whose first open event is not
// known stays stalled until the leader has found it.
func (a *stallApplier) reportRecoveries() error {
	for _, name := range a.unchecked {
		if c := a.s.cursors[name]; c != nil && c.Stalled != nil {
			if err := a.reportRecovery(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportRecovery reports that a cursor is no longer stalled, unless it still is.
func (a *stallApplier) reportRecovery(c *Cursor) error {
	open, some, err := a.openSince(c)
	if err != nil {
		return err
	}
	// Its first open event has waited for too long: it has moved, and is still stalled.
	after := a.s.settings.CursorStall
	if some && after > 0 && a.now-open >= int64(after) {
		return nil
	}
	// Report how long it was stalled, and how much it still lags by.
	p := a.lagOf(c, open, some)
	p["stalled_ms"] = a.time().Sub(c.Stalled.Since).Milliseconds()
	c.Stalled = nil
	// It is stalled again once what is open now reaches the limit, which may be before all others.
	if some && after > 0 {
		a.s.meta.StallDue = min(a.s.meta.StallDue, stallDeadline(open, c.movedAt(), after))
	}
	a.late = append(a.late, event.New(event.CursorRecovered, p))
	a.cursors.savePlace(c)
	return nil
}

// lagOf returns the fields that CURSOR_STALLED and CURSOR_RECOVERED share. open is when the first open
// event was appended, in Unix nanoseconds, if there is some.
func (a *stallApplier) lagOf(c *Cursor, open int64, some bool) map[string]any {
	// Trimmed events are in the gap, and not in the lag.
	first := max(c.Passed()+1, min(a.s.meta.First, a.tail()+1))
	p := map[string]any{
		"cursor":      c.Name,
		"group":       c.Group != nil,
		"committed":   c.Committed,
		"lag_events":  a.tail() + 1 - first,
		"lag_seconds": 0,
	}
	if some {
		p["lag_seconds"] = int64(time.Duration(a.now-open) / time.Second)
	}
	return p
}

// reportStalls reports the cursors that have recovered, and those that are stalled from now on.
func (a *stallApplier) reportStalls() error {
	after := a.s.settings.CursorStall
	if err := a.reportRecoveries(); err != nil || !a.knowsDelivery() || after == 0 || a.now < a.s.meta.StallDue {
		return err
	}

	// opens has the cursors that are stalled; due is when the next one may be. The order in
	// which the map yields them does not matter: names are sorted below.
	due, opens := int64(math.MaxInt64), map[string]int64{}
	for name, c := range a.s.cursors {
		// Nothing is open for it, nobody knows what is, or it was reported.
		if c.Stalled != nil || c.Passed() >= a.tail() || !a.s.nextKnown(c) {
			continue
		}
		at := stallDeadline(0, c.movedAt(), after)
		// It has not moved for that long: now the append time of its first open event counts.
		if at <= a.now {
			open, _, err := a.openSince(c)
			if err != nil {
				return err
			}
			at = stallDeadline(open, c.movedAt(), after)
			opens[name] = open
		}
		if at <= a.now {
			continue
		}
		delete(opens, name)
		due = min(due, at)
	}
	a.s.meta.StallDue = due

	// One entry reports a bounded number, by name; the next one continues.
	names := make([]string, 0, len(opens))
	for name := range opens {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > stallsAtOnce {
		names, a.s.meta.StallDue = names[:stallsAtOnce], 0
	}
	for _, name := range names {
		a.reportStall(a.s.cursors[name], opens[name])
	}
	return nil
}

// reportStall marks a cursor as stalled and emits the event. open is when its first open event was
// appended.
func (a *stallApplier) reportStall(c *Cursor, open int64) {
	c.Stalled = &Stall{Since: a.time()}
	p := a.lagOf(c, open, true)
	p["moved_at"], p["stall_after_s"] = time.Unix(0, c.movedAt()).UTC(), int64(a.s.settings.CursorStall/time.Second)
	a.late = append(a.late, event.New(event.CursorStalled, p))
	a.cursors.savePlace(c)
}
