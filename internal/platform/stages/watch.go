package stages

import (
	"cmp"
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
	groups    []*followers                      // of the flows that are watched
	fields    map[event.Type]*event.FieldReader // of the groups that a type is a stage of
	deadlines Deadlines                         // of their edges
	most      int                               // runs
	runs      map[run]*list.Element             // of *watched
	carriers  map[correlated]*list.Element      // the run that has named the newest stage with a correlation id
	order     *list.List                        // the one with the newest event last
	// runs, because of most
	dropped uint64
}

// followers are flows that find the run of an event alike: by the same RunBy.
type followers struct {
	flows  []event.Flow        // at least one
	stages map[event.Type]bool // of all of them
}

// run names a run: those of two groups, and one that payloads name and one of a correlation id, may have the same id.
type run struct {
	by    *followers
	id    string
	named bool // by payloads, else by its correlation id
}

// correlated is a correlation id among the stages of a group.
type correlated struct {
	by *followers // the group
	id string
}

// watched is one run.
type watched struct {
	run
	events  []Event   // in the order of the log, runEvents at most
	carried []string  // the correlation ids that lead to it, runEvents at most
	fresh   bool      // pending is computed from all events
	pending []Overdue // its missing edges with a deadline, overdue or not
}

// NewWatch returns a watch over at most most runs. d has the deadlines of edges; others are never overdue.
func NewWatch(flows []event.Flow, d Deadlines, most int) *Watch {
	w := &Watch{deadlines: d, most: most, runs: map[run]*list.Element{}, carriers: map[correlated]*list.Element{},
		order: list.New(), fields: map[event.Type]*event.FieldReader{}}
	flowsOf := map[event.Type][]event.Flow{}
	// Flows that find a run alike share what is kept of it.
	for _, f := range flows {
		at := slices.IndexFunc(w.groups, func(g *followers) bool { return slices.Equal(g.flows[0].RunBy, f.RunBy) })
		if at < 0 {
			at = len(w.groups)
			w.groups = append(w.groups, &followers{stages: map[event.Type]bool{}})
		}
		w.groups[at].flows = append(w.groups[at].flows, f)
		for _, t := range f.Stages() {
			w.groups[at].stages[t] = true
			flowsOf[t] = append(flowsOf[t], f)
		}
	}
	// One reader for a type, so that a payload is read once for all groups.
	for t, flows := range flowsOf {
		w.fields[t] = event.NewFieldReader(flows...)
	}
	return w
}

// Types returns the types whose events See needs, sorted.
func (w *Watch) Types() (types []string) {
	for t := range w.fields {
		types = append(types, string(t))
	}
	slices.Sort(types)
	return types
}

// See adds an event to its run in each group of flows that it is a stage of; event.Flow.RunOf says which that is.
// Events come in the order of the log.
func (w *Watch) See(e *event.Event) {
	reader := w.fields[e.Type]
	if reader == nil {
		return
	}
	// The payload is read once, and hashed once, for all groups.
	fields, link := reader.Read(e.Payload), EventOf(e)
	for _, by := range w.groups {
		if !by.stages[e.Type] {
			continue
		}
		// All flows of a group name the same run.
		id := by.flows[0].RunIn(fields)
		carrier := w.carriers[correlated{by, e.CorrelationID}]
		switch {
		// The payload names the run. Its correlation id leads to it from here on.
		case id != "":
			at := w.add(run{by, id, true}, link)
			if e.CorrelationID != "" && at != carrier {
				w.carry(at, e.CorrelationID)
			}
		case e.CorrelationID == "":
		// A stage before it with the same correlation id has named a run.
		case carrier != nil:
			w.add(carrier.Value.(*watched).run, link)
		// Until one names a run, the correlation id is one by itself.
		default:
			w.add(run{by, e.CorrelationID, false}, link)
		}
	}
}

// add adds an event to a run.
func (w *Watch) add(which run, e Event) *list.Element {
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
	// Pending steps are computed again when they are asked for, not at each event.
	w.order.MoveToBack(at)
	at.Value.(*watched).take(e)
	return at
}

// take adds events, and drops the oldest beyond runEvents.
func (r *watched) take(events ...Event) {
	n := len(r.events)
	r.events, r.fresh = append(r.events, events...), false
	// An event of the log is the newest. Those of a run that is taken over may be older.
	if n > 0 && r.events[n-1].Offset > events[0].Offset {
		slices.SortFunc(r.events, func(a, b Event) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	r.events = slices.Delete(r.events, 0, max(0, len(r.events)-runEvents))
}

// carry notes that the newest stage with a correlation id has named a run. The first such run takes over the stages
// before it with that correlation id, which have named none.
func (w *Watch) carry(at *list.Element, correlationID string) {
	r := at.Value.(*watched)
	key := correlated{r.by, correlationID}
	// The correlation id leads to one run at a time.
	if before := w.carriers[key]; before != nil {
		other := before.Value.(*watched)
		other.carried = slices.DeleteFunc(other.carried, func(id string) bool { return id == correlationID })
	} else if waiting := w.runs[run{r.by, correlationID, false}]; waiting != nil {
		r.take(waiting.Value.(*watched).events...)
		w.drop(waiting)
	}
	// The oldest of its correlation ids is forgotten.
	if len(r.carried) == runEvents {
		delete(w.carriers, correlated{r.by, r.carried[0]})
		r.carried = slices.Delete(r.carried, 0, 1)
	}
	r.carried = append(r.carried, correlationID)
	w.carriers[key] = at
}

// drop forgets a run. Its correlation ids lead nowhere then.
func (w *Watch) drop(at *list.Element) {
	r := at.Value.(*watched)
	for _, id := range r.carried {
		delete(w.carriers, correlated{r.by, id})
	}
	delete(w.runs, r.run)
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
	// Which edges are missing does not depend on the time.
	chain := Follow(r.by.flows, r.id, r.events, Options{Now: r.events[len(r.events)-1].At, Deadlines: w.deadlines})
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
