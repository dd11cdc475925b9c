package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
	"github.com/ringrift/ringlog/internal/tail"
)

// chainMost bounds the events of a chain; the newest are shown.
const chainMost = 10_000

// ChainQuery says which chain to follow.
type ChainQuery struct {
	// ID is the correlation id of the run, Tail reads its events.
	ID   string
	Tail TailRequest
	// Flow is the flow to judge the run by; "" is any that it may be on. Without Deadlines those of the settings apply.
	Flow      string
	Deadlines stages.Deadlines
}

// Chain gathers what this node's log has of a run and follows it.
func (rs *Reports) Chain(ctx context.Context, q ChainQuery) (stages.Chain, error) {
	t, err := rs.log.OpenTail(ctx, q.Tail)
	if err != nil {
		return stages.Chain{}, err
	}
	// The scope says which part of the log the answer is about.
	scope := stages.Scope{From: t.Next(), To: t.End()}
	events, err := linksOf(ctx, t, &scope)
	if err != nil {
		return stages.Chain{}, err
	}
	scope.KeptFrom, _ = rs.Machine().Log().Bounds() // afterwards: what was trimmed meanwhile is gone too
	scope.From = max(scope.From, scope.KeptFrom)
	if len(events) == 0 {
		return stages.Chain{}, noChain(q.ID, scope)
	}
	if len(q.Deadlines) == 0 {
		q.Deadlines = rs.deadlines()
	}
	// Whether a step is overdue is judged by this node's clock.
	o := stages.Options{Now: time.Now().UTC(), Flow: q.Flow, Deadlines: q.Deadlines, Scope: scope}
	return stages.Follow(event.Builtin().Flows(), q.ID, events, o), nil
}

// linksOf reads the newest events of a chain, chainMost at most, and counts in scope those that it leaves out.
func linksOf(ctx context.Context, t *tail.Tail, scope *stages.Scope) ([]stages.Event, error) {
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
			e := &found.Events[i]
			events = append(events, stages.Event{
				Offset:      e.Offset,
				Type:        e.Type,
				At:          e.AppendedAt.UTC(),
				Source:      e.Source,
				Key:         e.Key,
				CausationID: e.CausationID,
				DedupID:     e.DedupID,
				Hash:        e.Hash().String(),
			})
		}
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
		"check the id: ringlog tail --from start --until-end shows those of each event")
	// The run may have been in the part of the log that is gone.
	if scope.KeptFrom > 1 && scope.From == scope.KeptFrom {
		e.Message += "; what was before is trimmed"
	}
	return e
}
