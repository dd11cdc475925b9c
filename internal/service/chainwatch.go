package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of the watch over runs.
const (
	watchedRuns   = 10_000      // followed at the same time
	watchLook     = time.Second // between two looks at the log
	overdueListed = 50          // in /status
	overdueAtOnce = 100         // reported in one pass
)

// chainWatch follows the runs in this node's log, by the deadlines of the settings; on
// the leader it records in the log which are overdue. One goroutine uses it; anybody may
// read view.
type chainWatch struct {
	core *core
	// The settings may change while the watch runs: it then begins again.
	texts  []string         // the setting that watch goes by
	known  *event.Catalogue // whose flows it follows
	watch  *stages.Watch    // nil if there are no deadlines
	limits stages.Deadlines // texts, parsed
	wants  event.Filter     // the types that watch follows
	next   uint64           // the first offset not looked at
	keep   time.Duration    // how long ago the newest event of a run may be
	view   atomic.Pointer[api.OverdueRuns]
}

// newChainWatch returns a watch that begins with the deadlines of its first look. Until then its view is empty.
func newChainWatch(c *core) *chainWatch {
	w := &chainWatch{core: c}
	// Readers never see nil.
	w.view.Store(&api.OverdueRuns{List: []api.OverdueEdge{}, Deadlines: []string{}})
	return w
}

// run looks at the log until ctx ends.
func (c *chainWatch) run(ctx context.Context) {
	tick := time.NewTicker(watchLook)
	defer tick.Stop()
	for {
		// Runs are checked by the clock: an edge becomes overdue while nothing is appended.
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// An error of one look is not the end: the next one resumes where it was.
		if err := c.follow(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, raftnode.ErrDiverged) {
			c.core.logger.Warn("following runs by their deadlines", "error", err)
		}
	}
}

// follow reads what is new, and reports what is overdue if this node leads.
func (c *chainWatch) follow(ctx context.Context, now time.Time) error {
	if err := c.applySettings(now); err != nil || c.watch == nil {
		return err
	}
	if err := c.readNew(ctx); err != nil {
		return err
	}
	// What is late by this node's clock, and of that, what the log does not record yet.
	late := c.watch.Overdue(now)
	if fresh := c.unreported(late); len(fresh) > 0 && c.core.node.Status().Role == raftnode.RoleLeader {
		// What the run waits for may be in the log without being applied here.
		if err := c.core.node.ReadBarrier(ctx); err != nil {
			return err
		}
		if err := c.readNew(ctx); err != nil {
			return err
		}
		// What is still late with everything applied is reported.
		late = c.watch.Overdue(now)
		if err := c.reportOverdue(ctx, c.unreported(late)); err != nil {
			return err
		}
	}
	// A run whose newest event is that old is not reported any more, so it need not be followed.
	c.watch.Forget(now.Add(-c.keep))
	c.publishView(late, now)
	return nil
}

// applySettings starts over if the deadlines have changed, or the log is another one. After it, watch is nil if there
// is nothing to watch.
func (c *chainWatch) applySettings(now time.Time) error {
	texts, known := c.core.Machine().Settings().ChainDeadlines, c.core.Machine().Catalogue()
	_, last := c.core.Machine().Log().Bounds()
	// A log that ends before what was read is another one.
	if c.next <= last+1 && c.goesBy(texts, known) {
		c.known = known
		return nil
	}
	c.texts, c.known, c.watch = texts, known, nil
	c.view.Store(&api.OverdueRuns{List: []api.OverdueEdge{}, Deadlines: append([]string{}, texts...)})
	// Without deadlines the watch is off until there are some. A deadline whose flow or edge this build does not know,
	// because it was removed or a newer build has it, is ignored; the others stay in force.
	d, refused := stages.ParseEachDeadline(known, texts)
	if len(d) == 0 {
		c.next = 0
		return refused
	}
	if refused != nil {
		c.core.logger.Warn("a deadline of runs is not in force", "error", refused)
	}
	var err error
	// Older runs are past the time in which they can be reported.
	c.keep = fsm.OverdueHorizon(d.Longest())
	c.next, err = c.core.Machine().Log().OffsetAt(now.Add(-c.keep))
	if err != nil {
		// The next look tries again.
		c.texts = nil
		return err
	}
	// Runs beyond watchedRuns are dropped, and counted.
	c.watch, c.limits = stages.NewWatch(known.Flows(), d, watchedRuns), d
	c.wants = event.Filter{Types: c.watch.Types()}
	return nil
}

// goesBy reports whether the watch would be the same with these settings and this catalogue. Registering any type makes
// a new catalogue, though few types are stages of a watched flow.
func (c *chainWatch) goesBy(texts []string, known *event.Catalogue) bool {
	if !slices.Equal(texts, c.texts) {
		return false
	}
	if known == c.known {
		return true
	}
	// The catalogue is another one: the watch stays if its flows and deadlines read the same in it.
	limits, refused := stages.ParseEachDeadline(known, texts)
	return c.watch != nil && refused == nil && maps.Equal(limits, c.limits) &&
		reflect.DeepEqual(known.Flows(), c.known.Flows())
}

// readNew shows watch what the log has from next on. It resumes there after an error.
func (c *chainWatch) readNew(ctx context.Context) error {
	if _, last := c.core.Machine().Log().Bounds(); c.next > last {
		return nil
	}
	t := c.core.newTail(TailRequest{Filter: c.wants}, c.next)
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			// The last batch ends with an event that matches; the read has come further.
			c.next = max(c.next, t.Next())
			return nil
		}
		if err != nil {
			return err
		}
		for i := range found.Events {
			c.watch.See(&found.Events[i])
		}
		// The next read begins after what was shown, also if this one fails later.
		c.next = found.Next
	}
}

// unreported are the overdue runs that the log does not record yet, overdueAtOnce at most.
func (c *chainWatch) unreported(late []stages.Overdue) (list []stages.Overdue) {
	for _, o := range late {
		// The state remembers what was reported, so that a new leader does not repeat it.
		if !c.core.Machine().OverdueReported(o.Flow, o.CorrelationID, o.FromOffset, string(o.To)) {
			list = append(list, o)
		}
		if len(list) == overdueAtOnce {
			break
		}
	}
	return list
}

// reportOverdue records overdue runs in the log. Replicated time may lag a little: a run that is not overdue by it yet
// is refused, and reported by a later pass.
func (c *chainWatch) reportOverdue(ctx context.Context, list []stages.Overdue) error {
	for _, o := range list {
		// The edge is named by the event that it begins with, so that a run may be late at several.
		command := frame.ChainOverdue{
			CorrelationID: o.CorrelationID,
			Flow:          o.Flow,
			From:          string(o.From),
			FromOffset:    o.FromOffset,
			Since:         o.Since,
			Missing:       string(o.To),
			Deadline:      o.Deadline,
		}
		_, err := c.core.Propose(ctx, frame.Request{Command: command})
		// Refused as invalid: it is not overdue by replicated time yet, or was reported meanwhile.
		if refusal, ok := errors.AsType[*fsm.Refusal](err); err != nil && (!ok || refusal.Code != fsm.Invalid) {
			return fmt.Errorf("run %s: %w", o.CorrelationID, err)
		}
	}
	return nil
}

// publishView publishes what is overdue as view: all of it counted, overdueListed listed.
func (c *chainWatch) publishView(late []stages.Overdue, now time.Time) {
	v := &api.OverdueRuns{
		Count:     len(late),
		List:      []api.OverdueEdge{},
		Deadlines: append([]string{}, c.texts...),
		Runs:      c.watch.Runs(),
		Dropped:   c.watch.Dropped(),
	}
	// The longest overdue come first.
	for _, o := range late[:min(len(late), overdueListed)] {
		v.List = append(v.List, api.OverdueEdge{
			CorrelationID:   o.CorrelationID,
			Flow:            o.Flow,
			FromStage:       o.From,
			FromOffset:      o.FromOffset,
			Missing:         o.To,
			WaitingSeconds:  now.Sub(o.Since).Seconds(),
			DeadlineSeconds: o.Deadline.Seconds(),
		})
	}
	// Readers get the whole view at once.
	c.view.Store(v)
}
