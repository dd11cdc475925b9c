package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/internal/tail"
)

// Bounds of a chain.
const (
	chainMost = 10_000    // its events; the newest are shown
	fieldScan = 1_000_000 // events in which a run is looked for by payload fields, unless the caller says where to begin
)

// ChainQuery says which chain to follow.
type ChainQuery struct {
	// ID is the correlation id of the run, or what payload fields name it by; see event.Flow.RunOf.
	ID string
	// From is where to begin to read; this node has to have MinOffset.
	From      api.Position
	MinOffset uint64
	// Flow is the flow to judge the run by; "" is any that it may be on. Without Deadlines those of the settings apply.
	Flow      string
	Deadlines stages.Deadlines
}

// Chain gathers what this node's log has of a run and follows it.
func (rs *Reports) Chain(ctx context.Context, q ChainQuery) (stages.Chain, error) {
	read := TailRequest{From: q.From, MinOffset: q.MinOffset,
		Filter: event.Filter{CorrelationIDs: []string{q.ID}}}
	t, err := rs.log.OpenTail(ctx, read)
	if err != nil {
		return stages.Chain{}, err
	}
	// The scope says which part of the log the answer is about.
	scope := stages.Scope{From: t.Next(), To: t.End()}
	events, err := linksOf(ctx, t, &scope, nil)
	if err != nil {
		return stages.Chain{}, err
	}
	// A run that payload fields name is one of the flows alone that look at these.
	flows := rs.Machine().Catalogue().Flows()
	if by := flowsBy(flows, q); len(by) > 0 {
		more, err := rs.fieldRun(ctx, q, by, &scope)
		if err != nil {
			return stages.Chain{}, err
		}
		if len(more) > 0 {
			flows = by
		}
		events = append(events, more...)
		slices.SortFunc(events, func(a, b stages.Event) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	scope.KeptFrom, _ = rs.Machine().Log().Bounds() // afterwards: what was trimmed meanwhile is gone too
	scope.From = max(scope.From, scope.KeptFrom)
	if len(events) == 0 {
		return stages.Chain{}, noChain(q.ID, scope)
	}
	// The caller's deadlines replace those in the settings.
	if len(q.Deadlines) == 0 {
		q.Deadlines = rs.deadlines()
	}
	// Whether a step is overdue is judged by this node's clock.
	o := stages.Options{Now: time.Now().UTC(), Flow: q.Flow, Deadlines: q.Deadlines, Scope: scope}
	return stages.Follow(flows, q.ID, events, o), nil
}

// flowsBy returns the flows that q may ask for, for which its id can come from payload fields.
func flowsBy(flows []event.Flow, q ChainQuery) (by []event.Flow) {
	for _, f := range flows {
		if f.MayName(q.ID) && (q.Flow == "" || q.Flow == f.Name) {
			by = append(by, f)
		}
	}
	return by
}

// fieldRun reads the events without a correlation id that belong to a run by their payload. No index leads to them:
// all stages of the flows are read, of the newest fieldScan events unless q says where to begin.
func (rs *Reports) fieldRun(ctx context.Context, q ChainQuery, by []event.Flow, scope *stages.Scope) (
	[]stages.Event, error) {
	if q.From.Kind == api.AtDefault || q.From.Kind == api.AtStart {
		q.From = api.Position{Kind: api.AtLast, Last: fieldScan}
	}
	stagesOf := map[string][]event.Type{}
	for _, f := range by {
		stagesOf[f.Name] = f.Stages()
	}
	t, err := rs.log.OpenTail(ctx, TailRequest{From: q.From, Filter: event.FilterOf(by)})
	if err != nil {
		return nil, err
	}
	scope.From = max(scope.From, t.Next())
	return linksOf(ctx, t, scope, func(e *event.Event) bool {
		return e.CorrelationID == "" && slices.ContainsFunc(by, func(f event.Flow) bool {
			return slices.Contains(stagesOf[f.Name], e.Type) && f.RunOf(e) == q.ID
		})
	})
}

// linksOf reads the newest events of a chain, chainMost at most, and counts in scope those that it leaves out. keep
// chooses among what t reads; nil takes all.
func linksOf(ctx context.Context, t *tail.Tail, scope *stages.Scope, keep func(*event.Event) bool) (
	[]stages.Event, error) {
	var events []stages.Event
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		// Only what the flow needs is kept of each event, never its payload.
		for i := range found.Events {
			if e := &found.Events[i]; keep == nil || keep(e) {
				events = append(events, stages.EventOf(e))
			}
		}
		// The newest events are kept: they say how far the run has come.
		if extra := len(events) - chainMost; extra > 0 {
			// A copy does not keep the memory of what is left out.
			scope.LeftOut += uint64(extra)
			events = append([]stages.Event{}, events[extra:]...)
		}
	}
}

// noChain returns the error for a run of which the log has no event.
func noChain(id string, scope stages.Scope) *api.Error {
	e := api.Refuse(api.NotFound, "correlation_id",
		fmt.Sprintf("no event from offset %d on has the correlation id %q", scope.From, id),
		"check the id: ringlog tail --from start --until-end shows those of each event; runs by payload fields have "+
			"ids such as config_key=hex8_2p, and a flow that says so: ringlog flow ls")
	// The run may have been in the part of the log that is gone.
	if scope.KeptFrom > 1 && scope.From == scope.KeptFrom {
		e.Message += "; what was before is trimmed"
	}
	return e
}
