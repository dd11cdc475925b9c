package server

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/fsm"
)

// notableCursors bounds how many cursors /status and /metrics name; /v1/cursors has all.
const notableCursors = 100

// notable returns up to most cursors to name, ordered by name: those that are stalled come first, then those that
// are throttled, then those that have passed least. With no more than most it returns cursors as they are.
func notable(cursors []fsm.Cursor, most int) []fsm.Cursor {
	if len(cursors) <= most {
		return cursors
	}
	// The caller's slice keeps its order.
	chosen := slices.Clone(cursors)
	slices.SortStableFunc(chosen, func(a, b fsm.Cursor) int {
		return cmp.Or(
			cmp.Compare(asNumber(b.Stalled != nil), asNumber(a.Stalled != nil)),
			cmp.Compare(asNumber(b.Throttled != nil), asNumber(a.Throttled != nil)),
			cmp.Compare(a.Passed(), b.Passed()),
		)
	})
	chosen = chosen[:most]
	// Names make the list readable, and the same from one scrape to the next.
	slices.SortFunc(chosen, func(a, b fsm.Cursor) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

// asNumber returns 1 for true and 0 for false, as metrics and comparisons need it.
func asNumber(b bool) float64 {
	// Prometheus has numbers alone.
	if b {
		return 1
	}
	return 0
}

// collectCursors sends sums over all cursors, and values of the notable ones, so many cursors do not make as
// many series.
func (c *nodeCollector) collectCursors(send func(string, string, float64, ...string)) {
	cursors := c.node.Machine().Cursors()
	stalled, throttled, most, longest := 0, 0, uint64(0), time.Duration(0)
	// Sums are over all cursors.
	for i := range cursors {
		stalled += int(asNumber(cursors[i].Stalled != nil))
		throttled += int(asNumber(cursors[i].Throttled != nil))
	}
	send("cursors_stalled", "Cursors that the log reports as stalled.", float64(stalled))
	send("cursors_throttled", "Cursors whose backpressure the log reports as active.", float64(throttled))
	// One meter bounds what a scrape reads of the log.
	lags := c.ops.Cursors.Lags()
	// Values of their own are for those that matter most.
	for _, cursor := range notable(cursors, notableCursors) {
		lag, name := lags.Of(&cursor), strings.ToValidUTF8(cursor.Name, "?")
		// The largest of them is what an alert needs.
		most, longest = max(most, lag.Events), max(longest, lag.Wait)
		send(
			"cursor_lag_events",
			"Events that the readers of a cursor are still to get, at most.",
			float64(lag.Events), "cursor", name,
		)
		send(
			"cursor_lag_seconds", "Seconds that the oldest event has waited for the readers of a cursor, at most.",
			lag.Wait.Seconds(), "cursor", name,
		)
		c.collectGroup(&cursor, send)
		send(
			"cursor_stalled", "Whether the log reports a cursor as stalled: 1 or 0.",
			asNumber(cursor.Stalled != nil), "cursor", name,
		)
		send(
			"cursor_throttled", "Whether the log reports backpressure of a cursor as active: 1 or 0.",
			asNumber(cursor.Throttled != nil), "cursor", name,
		)
	}
	// Over the named cursors only: other lags are not measured.
	send(
		"cursor_lag_events_max",
		"Events that the cursor with the most of them lags by; of the cursors that have series of their own.",
		float64(most),
	)
	send(
		"cursor_lag_seconds_max",
		"Seconds that the longest waiting event has waited for its cursor; of the cursors that have series of their own.",
		longest.Seconds(),
	)
}
