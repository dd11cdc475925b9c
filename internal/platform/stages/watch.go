package stages

import (
	"container/list"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
)

// runEvents bounds the events that a Watch keeps of one run. It drops the oldest.
const runEvents = 256

// Overdue is an edge that is missing past its deadline.
type Overdue struct {
	CorrelationID string
	Flow          string
	From          event.Type
	FromOffset    uint64
	Since         time.Time // when From was appended
	To            event.Type
	Deadline      time.Duration
}

// Watch follows many runs at the same time and reports which of their edges are overdue. It keeps a limited number of
// runs, those with the newest events, and of each run its newest events. It is not safe for concurrent use.
// It serves a leader, which emits an event for each overdue edge: the bounds keep its memory small whatever producers
// send.
type Watch struct {
	all       followers   // of events with a correlation id
	byFields  []followers // of the others, for each run_by of flows
	deadlines Deadlines
	most      int                   // runs
	runs      map[run]*list.Element // of *watched
	order     *list.List            // the one with the newest event last
	// runs, because of most
	dropped uint64
}

// followers are flows that find the run of an event alike.
type followers struct {
	flows  []event.Flow
	stages map[event.Type]bool
}

// run names a run: two ways of finding runs may give the same id.
type run struct {
	by *followers
	id string
}

// watched is one run.
type watched struct {
	run
	events  []Event
	fresh   bool      // pending is computed from all events
	pending []Overdue // its missing edges with a deadline, overdue or not
}

// NewWatch returns a watch over at most most runs.
func NewWatch(flows []event.Flow, d Deadlines, most int) *Watch {
	w := &Watch{deadlines: d, most: most, runs: map[run]*list.Element{}, order: list.New()}
	w.all = followers{flows: flows}
	for _, f := range flows {
		if len(f.RunBy) == 0 {
			continue
		}
		at := slices.IndexFunc(w.byFields, func(g followers) bool { return slices.Equal(g.flows[0].RunBy, f.RunBy) })
		if at < 0 {
			at = len(w.byFields)
			w.byFields = append(w.byFields, followers{stages: map[event.Type]bool{}})
		}
		w.byFields[at].flows = append(w.byFields[at].flows, f)
		for _, t := range f.Stages() {
			w.byFields[at].stages[t] = true
		}
	}
	return w
}

// Types returns the types whose events See needs, sorted.
func (w *Watch) Types() (types []string) {
	// Flows share stages: each type is named once.
	for _, f := range w.all.flows {
		for _, t := range f.Stages() {
			types = append(types, string(t))
		}
	}
	// Compact needs equal types beside each other.
	slices.Sort(types)
	return slices.Compact(types)
}

// See adds an event to its run. Events come in the order of the log. One without a correlation id belongs to a run of
// each way in which flows that it is a stage of find runs in its payload, or to none; so does one whose correlation id
// is what such a run is called.
func (w *Watch) See(e *event.Event) {
	for i := range w.byFields {
		by := &w.byFields[i]
		if !by.stages[e.Type] {
			continue
		}
		if id := by.flows[0].RunOf(e); by.flows[0].MayName(id) {
			w.add(run{by, id}, EventOf(e))
		}
	}
	if e.CorrelationID != "" {
		w.add(run{&w.all, e.CorrelationID}, EventOf(e))
	}
}

// add adds an event to a run.
func (w *Watch) add(which run, e Event) {
	// Find the run, or begin one in place of the run that is idle for longest.
	at := w.runs[which]
	if at == nil {
		if w.order.Len() == w.most {
			w.drop(w.order.Front())
			w.dropped++
		}
		at = w.order.PushBack(&watched{run: which})
		w.runs[which] = at
	}
	// Add the event, in place of the oldest if there are too many.
	// Pending steps are computed again when they are asked for, not at each event.
	w.order.MoveToBack(at)
	r := at.Value.(*watched)
	if len(r.events) == runEvents {
		r.events = slices.Delete(r.events, 0, 1)
	}
	r.events, r.fresh = append(r.events, e), false
}

// drop forgets a run.
func (w *Watch) drop(at *list.Element) {
	delete(w.runs, at.Value.(*watched).run)
	w.order.Remove(at)
}

// Forget drops the runs whose newest event is before a time.
func (w *Watch) Forget(before time.Time) {
	// The order is that of the newest events, so the first run that is not old ends the search.
	for at := w.order.Front(); at != nil; at = w.order.Front() {
		events := at.Value.(*watched).events
		if !events[len(events)-1].At.Before(before) {
			return
		}
		w.drop(at)
	}
}

// Runs returns the number of runs that are followed.
func (w *Watch) Runs() int { return w.order.Len() }

// Dropped returns the number of runs that were dropped because there were too many.
func (w *Watch) Dropped() uint64 { return w.dropped }

// Overdue returns the edges that are overdue now, the one that has been missing longest first.
func (w *Watch) Overdue(now time.Time) (all []Overdue) {
	for at := w.order.Front(); at != nil; at = at.Next() {
		r := at.Value.(*watched)
		// Missing edges are computed again only after new events; time alone changes which are overdue, not which
		// are missing.
		if !r.fresh {
			r.pending, r.fresh = w.missing(r), true
		}
		for _, o := range r.pending {
			if overdue(now.Sub(o.Since), o.Deadline) {
				all = append(all, o)
			}
		}
	}
	// Equal times are ordered by run, so that the order does not depend on the list.
	slices.SortStableFunc(all, func(a, b Overdue) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.CorrelationID, b.CorrelationID)
	})
	return all
}

// missing returns the missing edges of a run that have a deadline.
func (w *Watch) missing(r *watched) (list []Overdue) {
	// A missing edge names the offset of its cause; since when it waits is the time of that event.
	times := map[uint64]time.Time{}
	for _, e := range r.events {
		times[e.Offset] = e.At
	}
	// A run by fields is judged as that: events without a correlation id belong to it, too.
	flows := r.by.flows
	if r.by == &w.all {
		flows = slices.DeleteFunc(slices.Clone(flows), func(f event.Flow) bool {
			return len(f.RunBy) > 0 && f.MayName(r.id)
		})
	}
	// Which edges are missing does not depend on the time.
	chain := Follow(flows, r.id, r.events, Options{Now: r.events[len(r.events)-1].At, Deadlines: w.deadlines})
	for _, f := range chain.Flows {
		for _, n := range f.Next {
			// Without a deadline an edge is never overdue, so it need not be kept.
			limit := w.deadlines[edgeOf{f.Flow, n.From, n.To}]
			if n.Optional || limit == 0 {
				continue
			}
			list = append(list, Overdue{
				CorrelationID: r.id,
				Flow:          f.Flow,
				From:          n.From,
				FromOffset:    n.FromOffset,
				Since:         times[n.FromOffset],
				To:            n.To,
				Deadline:      limit,
			})
		}
	}
	return list
}

// Longest returns the longest deadline, 0 if there is none.
func (d Deadlines) Longest() (longest time.Duration) {
	// A caller derives from it how long an idle run is kept: past all its deadlines nothing of it changes any more.
	for _, limit := range d {
		longest = max(longest, limit)
	}
	return longest
}
