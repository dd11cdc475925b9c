package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/internal/tail"
)

// Bounds of a chain.
const (
	chainMost = 10_000    // its events; the newest are shown
	fieldScan = 1_000_000 // events in which a run is looked for by payload fields, unless the caller says where to begin
	runsMost  = 20        // runs of payload fields that are named beside a chain
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

// Chain gathers what this node's log has of a run and follows it. It reads on this node alone and writes nothing.
func (rs *Reports) Chain(ctx context.Context, q ChainQuery) (stages.Chain, error) {
	flows := rs.Machine().Catalogue().Flows()
	chain := stages.Chain{CorrelationID: q.ID}
	found := false
	// A run that payload fields name is one of the flows alone that look at these.
	if by := flowsBy(flows, q); len(by) > 0 {
		events, scope, err := rs.namedRun(ctx, q, by)
		if err != nil {
			return stages.Chain{}, err
		}
		if len(events) > 0 {
			chain.Events, chain.Scope, flows, found = events, scope, by, true
		}
	}
	// Else the id is a correlation id.
	if !found {
		var err error
		chain, flows, err = rs.correlatedRun(ctx, q, flows)
		if err != nil {
			return stages.Chain{}, err
		}
	}
	chain.Scope.KeptFrom, _ = rs.Machine().Log().Bounds() // afterwards: what was trimmed meanwhile is gone too
	chain.Scope.From = max(chain.Scope.From, chain.Scope.KeptFrom)
	if len(chain.Events) == 0 {
		return stages.Chain{}, noChain(q.ID, chain.Scope)
	}
	// The caller's deadlines replace those in the settings.
	if len(q.Deadlines) == 0 {
		q.Deadlines = rs.deadlines()
	}
	// Whether a step is overdue is judged by this node's clock.
	o := stages.Options{Now: time.Now().UTC(), Flow: q.Flow, Deadlines: q.Deadlines, Scope: chain.Scope}
	followed := stages.Follow(flows, q.ID, chain.Events, o)
	followed.Runs = chain.Runs
	return followed, nil
}

// flowsBy returns the flows for which the id of q can come from payload fields; all of them have the same RunBy. It
// returns none if q asks for another flow.
func flowsBy(flows []event.Flow, q ChainQuery) (by []event.Flow) {
	// Whether the flow that q asks for, if any, is one of them.
	asked := q.Flow == ""
	for _, f := range flows {
		if f.MayName(q.ID) {
			by = append(by, f)
			asked = asked || q.Flow == f.Name
		}
	}
	if !asked {
		return nil
	}
	return by
}

// correlatedRun reads the events with the correlation id of q. It returns them as a chain, with the flows by which they
// are a run: where a stage of a flow names another run, that has all its stages with this correlation id.
func (rs *Reports) correlatedRun(ctx context.Context, q ChainQuery, flows []event.Flow) (
	stages.Chain, []event.Flow, error) {
	chain := stages.Chain{CorrelationID: q.ID}
	t, err := rs.log.OpenTail(ctx, TailRequest{From: q.From, MinOffset: q.MinOffset,
		Filter: event.Filter{CorrelationIDs: []string{q.ID}}})
	if err != nil {
		return chain, nil, err
	}
	// The scope says which part of the log the answer is about.
	chain.Scope = stages.Scope{From: t.Next(), To: t.End()}
	// Flows whose runs payload fields name, and their stages: an event of one may name another run.
	byFields := slices.DeleteFunc(slices.Clone(flows), func(f event.Flow) bool { return len(f.RunBy) == 0 })
	reader, stagesOf, elsewhere := event.NewFieldReader(byFields...), map[string][]event.Type{}, map[string]bool{}
	for _, f := range byFields {
		stagesOf[f.Name] = f.Stages()
	}
	// Every event is seen once: what it names is noted here, and what it is for the chain is kept there.
	chain.Events, err = linksOf(ctx, t, &chain.Scope, func(e *event.Event) {
		of := slices.DeleteFunc(slices.Clone(byFields), func(f event.Flow) bool {
			return !slices.Contains(stagesOf[f.Name], e.Type)
		})
		if len(of) == 0 {
			return
		}
		// The payload is read once for all flows.
		fields := reader.Read(e.Payload)
		for _, f := range of {
			run := f.RunIn(fields)
			if run == "" {
				continue
			}
			elsewhere[strings.Join(f.RunBy, ",")] = true
			if !slices.Contains(chain.Runs, run) && len(chain.Runs) < runsMost {
				chain.Runs = append(chain.Runs, run)
			}
		}
	})
	// A flow of such fields is no run by this id.
	flows = slices.DeleteFunc(slices.Clone(flows), func(f event.Flow) bool {
		return elsewhere[strings.Join(f.RunBy, ",")]
	})
	return chain, flows, err
}

// namedRun reads the run that payload fields name, and what was reported of it. No index leads to payloads: all stages
// of the flows are read, of the newest fieldScan events unless q says where to begin.
func (rs *Reports) namedRun(ctx context.Context, q ChainQuery, by []event.Flow) (
	[]stages.Event, stages.Scope, error) {
	if q.From.Kind == api.AtDefault || q.From.Kind == api.AtStart {
		q.From = api.Position{Kind: api.AtLast, Last: fieldScan}
	}
	// First all events that may name the run by their payload.
	filter, run := event.FilterOf(by), stages.NewGatherer(by, q.ID, chainMost)
	t, err := rs.log.OpenTail(ctx, TailRequest{From: q.From, MinOffset: q.MinOffset, Filter: filter})
	if err != nil {
		return nil, stages.Scope{}, err
	}
	scope := stages.Scope{From: t.Next(), To: t.End()}
	if err := eachOf(ctx, t, run.SeeNamed); err != nil {
		return nil, scope, err
	}

	// Bloom filters lead to correlation ids: those of the run, and its own id, under which the cluster reports it.
	if len(filter.Types) > 0 {
		filter.Types = append(filter.Types, string(event.ChainOverdue))
	}
	filter.CorrelationIDs = append([]string{q.ID}, run.CorrelationIDs()...)
	t, err = rs.log.OpenTail(ctx, TailRequest{From: api.Position{Kind: api.AtOffset, Offset: scope.From}, Filter: filter})
	if err != nil {
		return nil, scope, err
	}
	var reports []stages.Event
	err = eachOf(ctx, t, func(e *event.Event) {
		if e.Type == event.ChainOverdue && e.CorrelationID == q.ID && e.Source == fsm.EmittedBy && !e.Foreign {
			reports = append(reports, stages.EventOf(e))
		}
		run.SeeCorrelated(e)
	})
	if err != nil {
		return nil, scope, err
	}
	events, leftOut := run.Events()
	scope.LeftOut = leftOut
	if len(events) == 0 {
		return nil, scope, nil
	}
	events = append(events, reports[max(0, len(reports)-chainMost):]...)
	slices.SortFunc(events, func(a, b stages.Event) int { return cmp.Compare(a.Offset, b.Offset) })
	return events, scope, nil
}

// eachOf calls see for each event that t reads.
func eachOf(ctx context.Context, t *tail.Tail, see func(*event.Event)) error {
	for {
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range found.Events {
			see(&found.Events[i])
		}
	}
}

// linksOf reads the newest events of a chain, chainMost at most, and counts in scope those that it leaves out. It shows
// each to see.
func linksOf(ctx context.Context, t *tail.Tail, scope *stages.Scope, see func(*event.Event)) (
	events []stages.Event, err error) {
	err = eachOf(ctx, t, func(e *event.Event) {
		see(e)
		// Only what the flow needs is kept of each event, never its payload. The newest say how far the run has come.
		events = append(events, stages.EventOf(e))
		if len(events) == 2*chainMost {
			// A copy does not keep the memory of what is left out.
			scope.LeftOut += chainMost
			events = append([]stages.Event{}, events[chainMost:]...)
		}
	})
	// The newest are shown. Twice as many were kept at most.
	extra := max(0, len(events)-chainMost)
	scope.LeftOut += uint64(extra)
	return events[extra:], err
}

// noChain returns the error for a run of which the log has no event. scope says which part of the log was read.
func noChain(id string, scope stages.Scope) *api.Error {
	e := api.Refuse(api.NotFound, "correlation_id",
		fmt.Sprintf("no event from offset %d on has the correlation id %q", scope.From, id),
		"check the id: each event shows its own (GET /v1/events?from=start, or ringlog tail --from start --until-end). "+
			"An id such as config_key=hex8_2p needs a flow whose run_by has that payload field "+
			"(GET /v1/flows, or ringlog flow ls)")
	// The run may have been in the part of the log that is gone.
	if scope.KeptFrom > 1 && scope.From == scope.KeptFrom {
		e.Message += "; what was before is trimmed"
	}
	return e
}
