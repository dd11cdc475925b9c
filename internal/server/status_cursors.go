package server

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/fsm"
)

// notableCursors bounds how many cursors /status and /metrics name; /v1/cursors has all.
const notableCursors = 100

// notable returns up to most cursors to name, ordered by name: those that are stalled come first, then those that
// have passed least. With no more than most it returns cursors as they are.
func notable(cursors []fsm.Cursor, most int) []fsm.Cursor {
	if len(cursors) <= most {
		return cursors
	}
	// The caller's slice keeps its order.
	chosen := slices.Clone(cursors)
	slices.SortStableFunc(chosen, func(a, b fsm.Cursor) int {
		if stalled := cmp.Compare(asNumber(b.Stalled != nil), asNumber(a.Stalled != nil)); stalled != 0 {
			return stalled
		}
		return cmp.Compare(a.Passed(), b.Passed())
	})
	chosen = chosen[:most]
	// Names make the list readable, and the same from one scrape to the next.
	slices.SortFunc(chosen, func(a, b fsm.Cursor) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

// asNumber returns 1 for true and 0 for false, as metrics and comparisons need it.
func asNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collectCursors sends sums over all cursors, and values of the notable ones, so that many cursors do not make as
// many series.
func (c *nodeCollector) collectCursors(send func(string, string, float64, ...string)) {
	cursors := c.node.Machine().Cursors()
	stalled, most := 0, uint64(0)
	for i := range cursors {
		stalled += int(asNumber(cursors[i].Stalled != nil))
	}
	send("cursors_stalled", "Cursors that are reported to stand still.", float64(stalled))
	// One meter bounds what a scrape reads of the log.
	lags := c.ops.Cursors.Lags()
	for _, cursor := range notable(cursors, notableCursors) {
		lag, name := lags.Of(&cursor), strings.ToValidUTF8(cursor.Name, "?")
		most = max(most, lag.Events)
		send(
			"cursor_lag_events",
			"Events that readers are still to get, at most, of the cursors that stand still or have passed least.",
			float64(lag.Events), "cursor", name,
		)
		send(
			"cursor_lag_seconds", "How long the oldest of these events has waited, at most.",
			lag.Wait.Seconds(), "cursor", name,
		)
		c.collectGroup(&cursor, send)
		send(
			"cursor_stalled", "1 for a cursor that is reported to stand still.",
			asNumber(cursor.Stalled != nil), "cursor", name,
		)
	}
	// Over the named cursors only: other lags are not measured.
	send(
		"cursor_lag_events_max",
		"The most events that the readers of one of these cursors are still to get.",
		float64(most),
	)
}
