package service

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of the leader's watch over what cursors and groups lag by.
const (
	lagLook    = 500 * time.Millisecond // between two looks
	lagReads   = 50 * time.Millisecond  // for which the log is read in one look
	lagCursors = 1024                   // in one look
	lagCounts  = 16 << 10               // that are kept
)

// lagWatch is the leader's duty to report to the log when a cursor or group reaches a limit of the setting
// backpressure.lag. One goroutine uses it.
type lagWatch struct {
	core *core
	// By name: what was counted so far. A count is this node's own, and resumes in the next look.
	counts map[string]lagCount
	after  string // the last cursor that was looked at
}

// lagCount is how many events a cursor's filter passes of those from one offset to before next. Both offsets only
// advance, so that each event is read twice at most. It is valid while the cursor and the catalogue are the same.
type lagCount struct {
	created    time.Time        // of the cursor: another one of its name has another
	filter     event.Filter     // of the cursor
	catalogue  *event.Catalogue // by which the filter was compiled
	from, next uint64
	events     uint64 // of those from from to before next
}

// newLagWatch returns a watch that has counted nothing yet.
func newLagWatch(c *core) *lagWatch { return &lagWatch{core: c, counts: map[string]lagCount{}} }

// run looks until ctx ends.
func (w *lagWatch) run(ctx context.Context) {
	tick := time.NewTicker(lagLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := w.look(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, raftnode.ErrDiverged) {
			w.core.logger.Warn("measuring what cursors lag by", "error", err)
		}
	}
}

// look measures the cursors whose turn it is, within its bounds, and reports those that have reached a limit. An error
// ends the look. The next one resumes after the cursor that has failed.
func (w *lagWatch) look(ctx context.Context) error {
	m := w.core.Machine()
	// The command needs LevelLag on all members. Counts are dropped while there is nothing to watch.
	var list []fsm.Cursor
	if w.core.node.LeadingTerm() != 0 && m.FeatureLevel() >= frame.LevelLag {
		list = m.ThrottleCandidates(w.after, lagCursors)
	}
	if len(list) == 0 || len(w.counts) > lagCounts {
		clear(w.counts)
	}

	settings, until := m.Settings(), time.Now().Add(lagReads)
	for i := range list {
		cur := &list[i]
		throttled := cur.Throttled != nil
		// The list resumes after the last cursor that was measured, so all of them get their turn.
		if time.Now().After(until) || ctx.Err() != nil {
			break
		}
		w.after = cur.Name
		// Nothing to report: it has no limit, and is not throttled by an older one.
		if _, limited := settings.LagLimitOf(cur.Name); !limited && !throttled {
			continue
		}
		least, most, err := w.measure(cur, until)
		if err != nil {
			return fmt.Errorf("cursor %q: %w", cur.Name, err)
		}
		// What was not read yet neither activates nor releases.
		lag := least
		if throttled {
			lag = most
		}
		if settings.Throttles(cur, lag) == throttled {
			continue
		}
		// The state machine decides by the lag that it is given, for the cursor that was measured alone.
		report := frame.LagReport{Cursor: cur.Name, Created: cur.Created.UnixNano(), Lag: lag}
		if _, err := w.core.Propose(ctx, frame.Request{Command: report}); err != nil {
			return fmt.Errorf("cursor %q: %w", cur.Name, err)
		}
	}
	return nil
}

// measure returns how many events a cursor or group lags by, at least and at most: the two are equal once all of it is
// counted. It reads the log until then. What it could not read by until makes the two differ.
func (w *lagWatch) measure(c *fsm.Cursor, until time.Time) (least, most uint64, err error) {
	l := w.core.Machine().Log()
	first, last := l.Bounds()
	from, open := max(c.Passed()+1, first), uint64(0)
	// A group's leader counted up to Reserved.
	if c.Group != nil {
		open, from = c.Group.Open, max(from, c.Group.Reserved+1)
	}
	// Without a filter every event counts, and nothing has to be read.
	if from > last || c.Filter.Empty() {
		open += last + 1 - min(from, last+1)
		return open, open, nil
	}

	// A count does not hold for a cursor that was changed, moved back, or has passed all of it, or if some was trimmed.
	k, catalogue := w.counts[c.Name], w.core.Machine().Catalogue()
	same := k.created.Equal(c.Created) && k.catalogue == catalogue && reflect.DeepEqual(k.filter, c.Filter)
	if !same || k.from < first || k.from > from || k.next < from {
		k = lagCount{created: c.Created, filter: c.Filter, catalogue: catalogue, from: from, next: from}
	}

	// Subtract what the cursor has passed since, and add what was not read yet.
	matcher := c.Filter.Compile(catalogue)
	passed, err := count(l, c.Name, k.from, from-1, &matcher, until)
	if err == nil {
		var more log.Count
		k.from, k.events = passed.Next, k.events-min(passed.Events, k.events)
		more, err = count(l, c.Name, k.next, last, &matcher, until)
		k.next, k.events = more.Next, k.events+more.Events
	}
	w.counts[c.Name] = k

	// Of what the cursor has passed and was not subtracted yet, nobody knows how much was counted.
	doubt := min(from-min(k.from, from), k.events)
	return open + k.events - doubt, open + k.events + last + 1 - min(k.next, last+1), err
}

// count counts the events that a cursor's filter passes, from one offset to another, as far as it gets by a time.
// all.Next is the first offset that was not counted.
func count(l *log.Log, cursor string, from, to uint64, m *event.Matcher, until time.Time) (all log.Count, err error) {
	for all.Next = from; err == nil && all.Next <= to && time.Now().Before(until); {
		var n log.Count
		n, err = l.CountFor(cursor, all.Next, to, m, lagBlocks)
		if err == nil {
			all.Events, all.Next = all.Events+n.Events, n.Next
		}
	}
	return all, err
}
