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

// maxOverdueTold bounds how many overdue edges are remembered as told.
const maxOverdueTold = 10_000

// OverdueHorizon is how long after its cause an edge with a deadline may be told to be
// overdue. For so long it is remembered, so that it is told once, whoever leads.
func OverdueHorizon(deadline time.Duration) time.Duration { return 2*deadline + time.Hour }

// overdueKey names an edge of a run.
func overdueKey(flow, correlationID string, from uint64, missing string) string {
	b := binary.BigEndian.AppendUint64(nil, from)
	for _, s := range []string{flow, missing, correlationID} {
		b = fields.Append(b, s)
	}
	return string(b)
}

// toldOverdue is when an edge may be forgotten, because it is too late to tell it.
type toldOverdue struct {
	Until time.Time `json:"until"`
}

func (s *state) loadOverdue(key string, value []byte) error {
	var told toldOverdue
	err := json.Unmarshal(value, &told)
	s.overdue[key] = told.Until.UnixNano()
	return err
}

// chainOverdue tells of an edge of a run that is missing past its deadline, once.
func (a *applier) chainOverdue(c frame.ChainOverdue) Result {
	until := c.Since.Add(OverdueHorizon(c.Deadline))
	k := overdueKey(c.Flow, c.CorrelationID, c.FromOffset, c.Missing)
	_, told := a.s.overdue[k]
	switch waiting := a.time().Sub(c.Since); {
	case c.CorrelationID == "" || c.Deadline <= 0 || until.Before(c.Since):
		return refuse(Invalid, "deadline", fmt.Sprintf("a run %q with a deadline of %s", c.CorrelationID, c.Deadline), "name the run, and a time above 0")
	case told || !a.time().Before(until):
		return Result{Replayed: true}
	case waiting <= c.Deadline:
		return refuse(Invalid, "since", fmt.Sprintf("%s of run %q has waited for %s, its deadline is %s", c.Missing, c.CorrelationID, waiting, c.Deadline), "say it when that is over")
	}
	if len(a.s.overdue) >= maxOverdueTold {
		a.forgetOverdue()
	}
	if len(a.s.overdue) >= maxOverdueTold {
		return refuse(Overloaded, "correlation_id", fmt.Sprintf("%d overdue edges are remembered", len(a.s.overdue)), "it is told when some are forgotten")
	}
	a.s.overdue[k] = until.UnixNano()
	a.tx.setJSON(key(prefixOverdue, k), toldOverdue{until.UTC()})
	e := event.New(event.ChainOverdue, map[string]any{"correlation_id": c.CorrelationID, "flow": c.Flow, "from_stage": c.From, "from_offset": c.FromOffset,
		"missing": c.Missing, "deadline_ms": c.Deadline.Milliseconds(), "waiting_ms": a.time().Sub(c.Since).Milliseconds()})
	e.CorrelationID = c.CorrelationID
	a.late = append(a.late, e)
	return Result{}
}

// forgetOverdue lets go of what is too late to be told.
func (a *applier) forgetOverdue() {
	for _, k := range slices.Sorted(maps.Keys(a.s.overdue)) {
		if a.s.overdue[k] <= a.now {
			delete(a.s.overdue, k)
			a.tx.Delete(key(prefixOverdue, k))
		}
	}
}

// ToldOverdue reports whether it was told that an edge of a run is overdue.
func (m *Machine) ToldOverdue(flow, correlationID string, from uint64, missing string) bool {
	k := overdueKey(flow, correlationID, from, missing)
	return read(m, func(s *state) bool {
		_, told := s.overdue[k]
		return told
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
	if value == "" {
		list = nil
	}
	if len(list) > maxDeadlines || len(value) > maxDeadlinesText {
		return fmt.Errorf("%d deadlines in %d bytes, the limits are %d and %d", len(list), len(value), maxDeadlines, maxDeadlinesText)
	}
	for _, one := range list {
		edge, text, _ := strings.Cut(one, "=")
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 || limit > year || !strings.Contains(edge, ":") || !strings.Contains(edge, "->") {
			return fmt.Errorf("%q is not FLOW:CAUSE->EFFECT=DURATION, such as training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h", one)
		}
	}
	s.ChainDeadlines = list
	return nil
}
