package server

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/fsm"
)

// notableCursors bounds how many cursors /status and /metrics name; /v1/cursors has all. Names and filters may be long,
// so what they take is bounded, too: an answer stays below 200 kB however many cursors there are.
const (
	notableCursors = 100
	statusBytes    = 120_000 // of the cursors in /status
	seriesBytes    = 80_000  // of the cursors' series in /metrics
)

// notable returns the cursors to name, ordered by name: those that are stalled come first, then those that are
// throttled, then those that have passed least. They are up to notableCursors, and take up to most bytes by size.
func notable(cursors []fsm.Cursor, most int, size func(*fsm.Cursor) int) []fsm.Cursor {
	// The caller's slice keeps its order.
	chosen := slices.Clone(cursors)
	slices.SortStableFunc(chosen, func(a, b fsm.Cursor) int {
		return cmp.Or(
			cmp.Compare(asNumber(b.Stalled != nil), asNumber(a.Stalled != nil)),
			cmp.Compare(asNumber(b.Throttled != nil), asNumber(a.Throttled != nil)),
			cmp.Compare(a.Passed(), b.Passed()),
		)
	})
	chosen = chosen[:min(len(chosen), notableCursors)]
	// The most important ones that fit.
	for i := range chosen {
		if most -= size(&chosen[i]); most < 0 {
			chosen = chosen[:i]
			break
		}
	}
	// Names make the list readable, and the same from one scrape to the next.
	slices.SortFunc(chosen, func(a, b fsm.Cursor) int { return strings.Compare(a.Name, b.Name) })
	return chosen
}

// statusSize is what a cursor takes in /status, at most: its name and filter as JSON, and a fixed size for its figures.
func statusSize(c *fsm.Cursor) int {
	const figures = 1000
	// Neither can fail: they are texts and lists of them.
	name, _ := json.Marshal(c.Name)
	filter, _ := json.Marshal(c.Filter)
	return figures + len(name) + len(filter)
}

// seriesSize is what the series of a cursor take in /metrics, at most.
func seriesSize(c *fsm.Cursor) int {
	// A group has three series beside the four of each cursor. The format escapes a character with one more.
	series, figures := 4, 60
	if c.Group != nil {
		series += 3
	}
	return series * (figures + 2*len(c.Name))
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
	named := notable(cursors, seriesBytes, seriesSize)
	for _, cursor := range named {
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
	// All others are one sum, which reads nothing of the log.
	rest, last := uint64(0), c.node.Machine().Stats().Last
	for i := range cursors {
		rest += last - min(cursors[i].Passed(), last)
	}
	for i := range named {
		rest -= last - min(named[i].Passed(), last)
	}
	send("cursors_unnamed", "Cursors that have no series of their own.", float64(len(cursors)-len(named)))
	send(
		"cursors_unnamed_lag_events",
		"Events after what each cursor without series of its own has passed, summed, whether its filter takes them or not.",
		float64(rest),
	)
}
