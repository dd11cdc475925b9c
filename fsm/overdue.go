package fsm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/frame"
)

// maxOverdue bounds how many overdue edges are remembered as reported.
const maxOverdue = 10_000

// OverdueHorizon is how long after its cause an edge with a deadline may be reported as overdue. It
// is remembered for that long, so it is reported once, whoever leads.
func OverdueHorizon(deadline time.Duration) time.Duration { return 2*deadline + time.Hour }

// overdueKey names an edge of a run: the offset of its cause, then each text after its length, so no two
// edges share a key.
func overdueKey(flow, correlationID string, from uint64, missing string) string {
	b := binary.BigEndian.AppendUint64(nil, from)
	for _, s := range []string{flow, missing, correlationID} {
		b = fields.Append(b, s)
	}
	return string(b)
}

// reportedOverdue says until when an edge is remembered. After that it is too late to report the edge.
type reportedOverdue struct {
	Until time.Time `json:"until"`
}

// loadOverdue reads the value under an edge's key.
func (s *state) loadOverdue(key string, value []byte) error {
	var reported reportedOverdue
	err := json.Unmarshal(value, &reported)
	s.overdue[key] = reported.Until.UnixNano()
	return err
}

// chainOverdue reports once that an edge of a run is missing past its deadline.
func (a *clientApplier) chainOverdue(c frame.ChainOverdue) Result {
	until := c.Since.Add(OverdueHorizon(c.Deadline))
	k := overdueKey(c.Flow, c.CorrelationID, c.FromOffset, c.Missing)
	_, reported := a.s.overdue[k]
	switch waiting := a.time().Sub(c.Since); {
	// The sum has overflowed, or there is no run.
	case c.CorrelationID == "" || c.Deadline <= 0 || until.Before(c.Since):
		return refuse(Invalid, "deadline", fmt.Sprintf("a run %q with a deadline of %s", c.CorrelationID, c.Deadline),
			"name the run, and a time above 0")
	// From then on the edge may be forgotten: nobody could say whether it was reported.
	case reported || !a.time().Before(until):
		return Result{Replayed: true}
	case waiting <= c.Deadline:
		return refuse(Invalid, "since", fmt.Sprintf("%s of run %q has waited for %s, its deadline is %s", c.Missing,
			c.CorrelationID, waiting, c.Deadline), "report it after the deadline")
	}

	// Make room, or refuse what could not be remembered.
	if len(a.s.overdue) >= maxOverdue {
		a.forgetOverdue()
	}
	if len(a.s.overdue) >= maxOverdue {
		return refuse(Overloaded, "correlation_id", fmt.Sprintf("%d overdue edges are remembered", len(a.s.overdue)),
			"report it again once some are forgotten")
	}

	// Remember it and report it.
	a.s.overdue[k] = until.UnixNano()
	a.tx.setJSON(key(prefixOverdue, k), reportedOverdue{until.UTC()})
	e := event.New(event.ChainOverdue, map[string]any{
		"correlation_id": c.CorrelationID,
		"flow":           c.Flow,
		"from_stage":     c.From,
		"from_offset":    c.FromOffset,
		"missing":        c.Missing,
		"deadline_ms":    c.Deadline.Milliseconds(),
		"waiting_ms":     a.time().Sub(c.Since).Milliseconds(),
	})
	e.CorrelationID = c.CorrelationID
	a.late = append(a.late, e)
	return Result{}
}

// forgetOverdue removes the edges that it is too late to report.
func (a *clientApplier) forgetOverdue() {
	// The digest depends on the order of the deletions.
	for _, k := range slices.Sorted(maps.Keys(a.s.overdue)) {
		if a.s.overdue[k] <= a.now {
			delete(a.s.overdue, k)
			a.tx.Delete(key(prefixOverdue, k))
		}
	}
}

// OverdueReported reports whether an edge of a run was reported as overdue.
func (v *views) OverdueReported(flow, correlationID string, from uint64, missing string) bool {
	k := overdueKey(flow, correlationID, from, missing)
	return read(v, func(s *state) bool {
		_, reported := s.overdue[k]
		return reported
	})
}

// Bounds of the setting chain.deadlines.
const (
	maxDeadlines     = 256
	maxDeadlinesText = 16 << 10
)

// chainDeadlines takes FLOW:CAUSE->EFFECT=DURATION, comma separated. Whether there is such
// an edge is asked where the request comes in: builds may differ in their flows.
func chainDeadlines(s *Settings, value string) error {
	list := strings.Split(value, ",")
	// Split makes one empty element of an empty value.
	if value == "" {
		list = nil
	}
	if len(list) > maxDeadlines || len(value) > maxDeadlinesText {
		return fmt.Errorf("%d deadlines in %d bytes, the limits are %d and %d", len(list), len(value), maxDeadlines,
			maxDeadlinesText)
	}

	// Only the form is checked, so every build decides alike.
	for _, one := range list {
		edge, text, _ := strings.Cut(one, "=")
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 || limit > year || !strings.Contains(edge, ":") || !strings.Contains(edge, "->") {
			return fmt.Errorf("%q is not FLOW:CAUSE->EFFECT=DURATION, such as "+
				"training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h", one)
		}
	}
	s.ChainDeadlines = list
	return nil
}
