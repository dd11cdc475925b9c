package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// StageHandler handles the arrival of a run at a stage of a flow, as a Handler handles an
// event.
type StageHandler func(ctx context.Context, at Stage) error

// Stage is the arrival of a run at a stage of a flow.
type Stage struct {
	Event event.Event
	// Chain is the run so far: the events of Event's run that are stages of the flow, up to Event, which is the last.
	// event.Flow.RunOf says which run that is. Its times are of when they were appended.
	Chain stages.Chain
}

// Run is the run's way through the flow.
func (s *Stage) Run() stages.Run { return s.Chain.Flows[0] }

// Via lists the edges over which the stage was reached, with how long each took, and those
// that were skipped before it; none if a run begins, or begins again.
func (s *Stage) Via() (edges []stages.Edge) {
	for _, e := range s.Run().Edges {
		if e.ToOffset == s.Event.Offset {
			edges = append(edges, e)
		}
	}
	return edges
}

// flowsFor returns the flows that a subscription may name: those of the log where it has any, else those of the
// catalogue. A subscription that must not wait takes the catalogue's if it has the flow.
func (r *Router) flowsFor(ctx context.Context, s *Subscription) ([]event.Flow, error) {
	known := r.options.Catalogue.Flows()
	log, ok := r.log.(Flows)
	if s.Flow == "" || !ok {
		return known, nil
	}

	// The log may have another version of a built-in flow, but asking for it could take as long as it is away.
	if _, err := stages.FindFlow(known, s.Flow); err == nil && s.Background {
		return known, nil
	}
	return log.Flows(ctx)
}

// completeStages makes what a subscription says of a flow one of types.
// It returns nil without an error for a subscription without a flow.
func (s *Subscription) completeStages(c *event.Catalogue, flows []event.Flow) (*event.Flow, error) {
	switch {
	case s.Flow == "" && (len(s.Stages) > 0 || s.OnStage != nil || s.Runs != 0):
		return nil, errors.New("there are Stages, OnStage or Runs without a Flow")
	case s.Flow == "":
		return nil, nil
	case len(s.Types) > 0 || s.Handler != nil:
		return nil, errors.New("there are Types or a Handler beside a Flow, which has Stages and OnStage")
	case s.OnStage == nil:
		return nil, errors.New("it has a Flow and no OnStage")
	case s.Direct:
		return nil, errors.New("both Direct and a Flow: a run is followed through the log")
	case s.Runs < 0:
		return nil, fmt.Errorf("option Runs is %d", s.Runs)
	}

	// The stages become the types.
	flow, err := stages.FindFlow(flows, s.Flow)
	if err != nil {
		return nil, err
	}
	if err := (event.Filter{Types: s.Stages}).Validate(); err != nil {
		return nil, fmt.Errorf("option Stages: %w", err)
	}
	s.Types, err = stagesOf(c, flow, s.Stages)
	return &flow, err
}

// stagesOf lists the stages of a flow that are named; with no names, all.
func stagesOf(c *event.Catalogue, flow event.Flow, names []string) (types []string, err error) {
	all := typesOf(flow)
	if len(names) == 0 {
		return all, nil
	}

	// A name may be a pattern. One that names no stage is a mistake.
	for _, name := range names {
		m := event.Filter{Types: []string{name}}.Compile(c)
		before := len(types)
		for _, t := range all {
			if m.MatchType(t) {
				types = append(types, t)
			}
		}
		if len(types) == before {
			return nil, fmt.Errorf("the flow %s has no stage %q; it has %s", flow.Name, name, strings.Join(all, ", "))
		}
	}
	slices.Sort(types)
	return slices.Compact(types), nil
}

// typesOf lists the stages of a flow, sorted.
func typesOf(flow event.Flow) (types []string) {
	for _, t := range flow.Stages() {
		types = append(types, string(t))
	}
	return types
}

// followRun reads the run of a task, for as long as it takes. The error is errLeft if the
// task is left for the next to read the log.
func (s *subscriber) followRun(t *task) error {
	pauses := newPauses()
	for {
		events, leftOut, err := s.runs.upTo(s.base, t)

		// A run that the log will not show is followed as far as it is known, which is the
		// event alone.
		switch {
		case err == nil, errors.Is(err, ErrRefused), s.base.Err() != nil:
			t.chain = s.runs.chain(t, events, leftOut)
			return nil
		}
		s.r.options.Logger.Warn("a run cannot be read", "subscription", s.spec.Name, "run", t.run.id, "error", err)
		if err := s.pause(t, pauses.NextBackOff()); err != nil {
			return err
		}
	}
}

// chain follows the run of a task up to its event, which is not among those before it.
func (r *runs) chain(t *task, before []stages.Event, leftOut uint64) stages.Chain {
	at := t.ev.AppendedAt
	if at.IsZero() { // it is local
		at = time.Now()
	}
	link, id := stages.EventOf(&t.ev), ""
	link.At = at.UTC()
	if t.run != nil {
		id = t.run.id
	}
	// before is the caller's own copy, so it may grow here.
	events := append(before, link)
	return stages.Follow([]event.Flow{r.flow}, id, events, stages.Options{Now: link.At, Flow: r.flow.Name,
		Scope: stages.Scope{From: events[0].Offset, To: t.ev.Offset, LeftOut: leftOut}})
}
