package stages

import (
	"slices"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Options of Follow.
type Options struct {
	Now       time.Time // the time that deadlines are compared with
	Flow      string    // only this flow, even if the chain has no stage of it
	Deadlines Deadlines
	// copied into the chain
	Scope Scope
}

// Follow computes the progress of a run from its events, which are in the order of the log. It keeps events and sets
// their AfterSeconds.
func Follow(flows []event.Flow, correlationID string, events []Event, o Options) Chain {
	c := Chain{CorrelationID: correlationID, Now: o.Now, Events: events, Flows: []Run{}, Scope: o.Scope}
	// Times are those at which the log appended the events, which its order follows.
	for i := range events {
		if i > 0 {
			events[i].AfterSeconds = events[i].At.Sub(events[i-1].At).Seconds()
		}
	}
	if n := len(events); n > 0 {
		c.Seconds = events[n-1].At.Sub(events[0].At).Seconds()
	}
	// Each flow that the events belong to is walked by itself.
	var chosen []event.Flow
	chosen, c.Covered = choose(flows, events, o.Flow)
	causes := causesOf(events)
	// Causes are resolved once, for all flows.
	for _, f := range chosen {
		c.Flows = append(c.Flows, newWalk(f, events, causes).run(&o))
	}
	c.sum(chosen)
	return c
}

// sum fills in what depends on all flows together.
func (c *Chain) sum(chosen []event.Flow) {
	// Overdue edges, and whether any flow begins with its first stage.
	// A chain that begins in the middle of all its flows has lost its beginning, if anything was trimmed.
	begun := false
	for _, r := range c.Flows {
		begun = begun || slices.ContainsFunc(r.Starts, func(s Start) bool { return s.First })
		for _, n := range r.Next {
			if n.Overdue {
				c.Overdue++
			}
		}
	}
	c.BeginningTrimmed = !begun && c.Scope.KeptFrom > 1
	// Events that are not a stage of any of the flows.
	for _, e := range c.Events {
		if !slices.ContainsFunc(chosen, func(f event.Flow) bool { return isStage(f, e.Type) }) {
			c.Outside = append(c.Outside, e.Offset)
		}
	}
}

// isStage reports whether a type is at an end of one of the flow's edges.
func isStage(f event.Flow, t event.Type) bool {
	// A flow has no list of stages: its edges name them.
	return slices.ContainsFunc(f.Edges, func(e [2]event.Type) bool { return e[0] == t || e[1] == t })
}

// choose returns the flows that have a stage among the events, and the names of those left out because another one
// covers them.
func choose(flows []event.Flow, events []Event, only string) (chosen []event.Flow, covered []string) {
	type touched struct {
		flow event.Flow
		at   map[int]bool // indexes of events that are its stages
	}
	// Find the events that are stages of each flow.
	var all []touched
	for _, f := range flows {
		t := touched{f, map[int]bool{}}
		for i, e := range events {
			if isStage(f, e.Type) {
				t.at[i] = true
			}
		}
		// A flow that was asked for is followed even without an event of the chain.
		switch {
		case only == f.Name:
			return []event.Flow{f}, nil
		case only == "" && len(t.at) > 0:
			all = append(all, t)
		}
	}
	// A flow is covered if another one has all its events and at least one more.
	for _, t := range all {
		within := func(other touched) bool {
			for i := range t.at {
				if !other.at[i] {
					return false
				}
			}
			return len(other.at) > len(t.at)
		}
		if slices.ContainsFunc(all, within) {
			covered = append(covered, t.flow.Name)
		} else {
			chosen = append(chosen, t.flow)
		}
	}
	return chosen, covered
}

// causesOf resolves causation ids: it returns for each event the index of its cause, or -1. A cause is always earlier.
func causesOf(events []Event) []int {
	// The newest event of a name counts: ids may be used again.
	named := map[string]int{}
	causes := make([]int, len(events))
	for i, e := range events {
		causes[i] = -1
		if cause, ok := named[e.CausationID]; ok && e.CausationID != "" {
			causes[i] = cause
		}
		// Entered after the look-up, so no event is its own cause.
		for _, name := range []string{e.Hash, e.DedupID, strconv.FormatUint(e.Offset, 10)} {
			named[name] = i
		}
	}
	return causes
}
