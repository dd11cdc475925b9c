package server

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/fsm"
)

// notableCursors bounds how many cursors /status and /metrics name; /v1/cursors has all.
const notableCursors = 100

// notable returns the cursors to name: up to most that are stalled, and with them up to most
// of those that lag most, by name.
func notable(cursors []fsm.Cursor, most int) []fsm.Cursor {
	if len(cursors) <= most {
		return cursors
	}
	chosen := slices.Clone(cursors)
	slices.SortStableFunc(chosen, func(a, b fsm.Cursor) int {
		if stalled := cmp.Compare(asNumber(b.Stalled != nil), asNumber(a.Stalled != nil)); stalled != 0 {
			return stalled
		}
		return cmp.Compare(a.Committed, b.Committed)
	})
	chosen = chosen[:most]
	slices.SortFunc(chosen, func(a, b fsm.Cursor) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collectCursors shows all cursors in sums, and some by name.
func (c *nodeCollector) collectCursors(last uint64, send func(string, string, float64, ...string)) {
	cursors := c.node.Machine().Cursors()
	stalled, most := 0, uint64(0)
	for i := range cursors {
		stalled += int(asNumber(cursors[i].Stalled != nil))
		most = max(most, last-min(cursors[i].Committed, last))
	}
	send("cursors_stalled", "Cursors that are reported to stand still.", float64(stalled))
	send("cursor_lag_events_max", "Events after the commit of the cursor that lags most.", float64(most))
	for _, cursor := range notable(cursors, notableCursors) {
		name := strings.ToValidUTF8(cursor.Name, "?")
		send("cursor_lag_events", "Events after a cursor's commit, of the cursors that stand still or lag most.", float64(last-min(cursor.Committed, last)), "cursor", name)
		c.collectGroup(&cursor, send)
		send("cursor_stalled", "1 for a cursor that is reported to stand still.", asNumber(cursor.Stalled != nil), "cursor", name)
	}
}
