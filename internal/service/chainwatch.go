package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	service *core
	texts   []string      // the setting that watch goes by
	watch   *stages.Watch // nil where there are no deadlines
	wants   event.Filter  // the types that watch follows
	next    uint64        // the first offset not looked at
	keep    time.Duration // how long ago the newest event of a run may be
	view    atomic.Pointer[api.OverdueRuns]
}

// newChainWatch returns a watch that begins with the deadlines of its first look. Until then its view is empty.
func newChainWatch(s *core) *chainWatch {
	c := &chainWatch{service: s}
	c.view.Store(&api.OverdueRuns{List: []api.OverdueEdge{}, Deadlines: []string{}})
	return c
}

// run looks at the log until ctx ends.
func (c *chainWatch) run(ctx context.Context) {
	tick := time.NewTicker(watchLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := c.look(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, raftnode.ErrDiverged) {
			c.service.logger.Warn("following runs by their deadlines", "error", err)
		}
	}
}

// look follows what is new, and reports what is overdue if this node leads.
func (c *chainWatch) look(ctx context.Context, now time.Time) error {
	if err := c.configure(now); err != nil || c.watch == nil {
		return err
	}
	if err := c.readOn(ctx); err != nil {
		return err
	}
	late := c.watch.Overdue(now)
	if fresh := c.unreported(late); len(fresh) > 0 && c.service.node.Status().Role == raftnode.RoleLeader {
		// What the run waits for may be in the log without being applied here.
		if err := c.service.node.ReadBarrier(ctx); err != nil {
			return err
		}
		if err := c.readOn(ctx); err != nil {
			return err
		}
		late = c.watch.Overdue(now)
		if err := c.report(ctx, c.unreported(late)); err != nil {
			return err
		}
	}
	c.watch.Forget(now.Add(-c.keep))
	c.show(late, now)
	return nil
}

// configure starts over if the deadlines have changed, or the log is another one.
func (c *chainWatch) configure(now time.Time) error {
	texts := c.service.Machine().Settings().ChainDeadlines
	_, last := c.service.Machine().Log().Bounds()
	// A log that ends before what was read is another one.
	if slices.Equal(texts, c.texts) && c.next <= last+1 {
		return nil
	}
	c.texts, c.watch = texts, nil
	c.view.Store(&api.OverdueRuns{List: []api.OverdueEdge{}, Deadlines: append([]string{}, texts...)})
	// Deadlines that cannot be parsed, or none, leave the watch off until the setting changes.
	d, err := stages.ParseDeadlines(event.Builtin(), texts)
	if err != nil || len(d) == 0 {
		c.next = 0
		return err
	}
	// For anything older it would be too late to report it.
	c.keep = fsm.OverdueHorizon(d.Longest())
	if c.next, err = c.service.Machine().Log().OffsetAt(now.Add(-c.keep)); err != nil {
		// The next look tries again.
		c.texts = nil
		return err
	}
	c.watch = stages.NewWatch(event.Builtin().Flows(), d, watchedRuns)
	c.wants = event.Filter{Types: c.watch.Types()}
	return nil
}

// readOn shows watch what the log has from next on. It resumes there after an error.
func (c *chainWatch) readOn(ctx context.Context) error {
	if _, last := c.service.Machine().Log().Bounds(); c.next > last {
		return nil
	}
	t := c.service.newTail(TailRequest{Filter: c.wants}, c.next)
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
			e := &found.Events[i]
			c.watch.See(e.CorrelationID, stages.Event{Offset: e.Offset, Type: e.Type, At: e.AppendedAt.UTC(), CausationID: e.CausationID,
				DedupID: e.DedupID, Hash: e.Hash().String()})
		}
		c.next = found.Next
	}
}

// unreported are the overdue runs that the log does not record yet, overdueAtOnce at most.
func (c *chainWatch) unreported(late []stages.Overdue) (list []stages.Overdue) {
	for _, o := range late {
		if !c.service.Machine().OverdueReported(o.Flow, o.CorrelationID, o.FromOffset, string(o.To)) {
			list = append(list, o)
		}
		if len(list) == overdueAtOnce {
			break
		}
	}
	return list
}

// report records overdue runs in the log. Replicated time may lag a little: a run that is not overdue by it yet
// is refused, and reported by a later pass.
func (c *chainWatch) report(ctx context.Context, list []stages.Overdue) error {
	for _, o := range list {
		_, err := c.service.Propose(ctx, frame.Request{Command: frame.ChainOverdue{CorrelationID: o.CorrelationID, Flow: o.Flow, From: string(o.From),
			FromOffset: o.FromOffset, Since: o.Since, Missing: string(o.To), Deadline: o.Deadline}})
		if refusal, ok := errors.AsType[*fsm.Refusal](err); err != nil && (!ok || refusal.Code != fsm.Invalid) {
			return fmt.Errorf("server: run %s: %w", o.CorrelationID, err)
		}
	}
	return nil
}

// show publishes what is overdue as view: all of it counted, overdueListed listed.
func (c *chainWatch) show(late []stages.Overdue, now time.Time) {
	v := &api.OverdueRuns{Count: len(late), List: []api.OverdueEdge{}, Deadlines: append([]string{}, c.texts...), Runs: c.watch.Runs(), Dropped: c.watch.Dropped()}
	for _, o := range late[:min(len(late), overdueListed)] {
		v.List = append(v.List, api.OverdueEdge{CorrelationID: o.CorrelationID, Flow: o.Flow, FromStage: o.From,
			FromOffset: o.FromOffset, Missing: o.To, WaitingSeconds: now.Sub(o.Since).Seconds(), DeadlineSeconds: o.Deadline.Seconds()})
	}
	c.view.Store(v)
}

// checkSetting refuses a value that only the catalogue shows to be wrong.
func checkSetting(key, value string) error {
	if key != "chain.deadlines" || value == "" {
		return nil
	}
	if _, err := stages.ParseDeadlines(event.Builtin(), strings.Split(value, ",")); err != nil {
		return &api.Error{Code: api.InvalidArgument, Field: "value", Message: err.Error(), Remedy: "send FLOW:CAUSE->EFFECT=DURATION, comma separated"}
	}
	return nil
}

// deadlines returns those of the settings, or none where this build cannot parse them.
func (s *core) deadlines() stages.Deadlines {
	d, err := stages.ParseDeadlines(event.Builtin(), s.Machine().Settings().ChainDeadlines)
	if err != nil {
		return nil
	}
	return d
}
