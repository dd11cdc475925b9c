package stages

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

// walk goes once through the events of a chain along one flow.
// Events arrive in the order of the log. Each is matched with the newest earlier event of each stage that leads to it,
// or with the cause that it names.
type walk struct {
	flow   event.Flow
	notes  map[int]event.FlowNote // by edge
	events []Event
	causes []int                // for each event the index of the cause that it names, or -1
	newest map[event.Type]int   // the newest event so far of each stage
	used   map[use]bool         // edges that were taken, or skipped
	into   map[int][]event.Type // the types of the stages that each event was reached from
	out    Run
}

// use is an edge out of one event.
// Taking an edge from the same event a second time makes it Again.
type use struct{ event, edge int }

// newWalk returns a walk before its first event.
func newWalk(f event.Flow, events []Event, causes []int) *walk {
	w := &walk{
		flow:   f,
		notes:  map[int]event.FlowNote{},
		events: events,
		causes: causes,
		newest: map[event.Type]int{},
		used:   map[use]bool{},
		into:   map[int][]event.Type{},
	}
	// The notes are looked up by edge, of which most have none.
	for _, n := range f.EdgeNotes {
		w.notes[n.Edge] = n
	}
	// Empty lists are [] in JSON, not null.
	w.out = Run{Flow: f.Name, Document: f.Document, Starts: []Start{}, Edges: []Edge{}, Next: []Next{}}
	return w
}

// run goes through the events and returns what happened and what is missing.
func (w *walk) run(o *Options) Run {
	for i, e := range w.events {
		// An event that is not a stage of the flow does not move it.
		if isStage(w.flow, e.Type) {
			w.arrive(i, o)
			w.newest[e.Type] = i
		}
	}
	w.missing(o)
	return w.out
}

// arrive determines how an event was reached: over edges from earlier events, early, past skipped edges, or not at
// all.
func (w *walk) arrive(i int, o *Options) {
	// Over edges that nothing has taken yet, or once more over one that was taken.
	fresh, again := w.comingFrom(i)
	for _, u := range fresh {
		w.take(u, i, Taken, o)
	}
	// A used edge counts only where no unused one leads here.
	if len(fresh) > 0 {
		return
	}
	if again != nil {
		w.take(*again, i, Again, o)
		return
	}
	// Before its cause, or past skipped stages.
	if early, ok := w.cameEarly(i); ok {
		w.take(early, i, Early, o)
		return
	}
	if w.skip(i) {
		return
	}
	// Otherwise it starts a run.
	t := w.events[i].Type
	first := len(w.edges(1, t)) == 0
	w.out.Starts = append(w.out.Starts, Start{Offset: w.events[i].Offset, Type: t, First: first})
}

// edges returns the indexes of the edges with a type at an end: 0 is the cause, 1 the effect.
func (w *walk) edges(end int, t event.Type) (list []int) {
	// The order is that of the flow's declaration, which the chain shows too.
	for i, e := range w.flow.Edges {
		if e[end] == t {
			list = append(list, i)
		}
	}
	return list
}

// comingFrom returns the unused edges from earlier events to event i, and the used one with the newest cause.
func (w *walk) comingFrom(i int) (fresh []use, again *use) {
	for _, edge := range w.edges(1, w.events[i].Type) {
		// The cause that the event names, or the newest one.
		from, seen := w.newest[w.flow.Edges[edge][0]]
		if named := w.causes[i]; named >= 0 && w.events[named].Type == w.flow.Edges[edge][0] {
			from = named
		} else if !seen {
			continue
		}
		// The used edge with the newest cause is repeated: it belongs to the lap that runs.
		u := use{from, edge}
		if !w.used[u] {
			fresh = append(fresh, u)
		} else if again == nil || again.event < from {
			again = &u
		}
	}
	return fresh, again
}

// cameEarly finds a cause of event i that was appended after it. The cause must have no other effect: event i is
// the last of its type, so no later event can be the effect. A cause that is also an effect of this stage belongs
// to a later lap.
func (w *walk) cameEarly(i int) (u use, ok bool) {
	to := w.events[i].Type
	for _, edge := range w.edges(1, to) {
		// The cause comes later, nothing of the effect's type does, and no edge leads back.
		from := w.flow.Edges[edge][0]
		back := slices.Contains(w.flow.Edges, [2]event.Type{to, from})
		later := w.events[i+1:]
		at := slices.IndexFunc(later, func(e Event) bool { return e.Type == from })
		last := !slices.ContainsFunc(later, func(e Event) bool { return e.Type == to })
		if at >= 0 && last && !back {
			return use{i + 1 + at, edge}, true
		}
	}
	return use{}, false
}

// take records that an edge out of an event leads to event i.
func (w *walk) take(u use, i int, state string, o *Options) {
	from, to := &w.events[u.event], &w.events[i]
	w.used[u] = true
	w.into[i] = append(w.into[i], from.Type)
	// How long it took, by append times, against the edge's deadline.
	took := to.At.Sub(from.At)
	// An edge that is taken again was judged the first time.
	limit := o.Deadlines.of(w.flow, u.edge)
	e := w.edge(u.edge, state)
	e.FromOffset, e.ToOffset, e.Seconds, e.Basis = from.Offset, to.Offset, took.Seconds(), ByOrder
	if w.causes[i] == u.event {
		e.Basis = ByCausation
	}
	e.DeadlineSeconds, e.Late = limit.Seconds(), limit > 0 && took > limit && state != Again
	w.out.Edges = append(w.out.Edges, e)
}

// edge returns the edge with an index, without what its events add.
func (w *walk) edge(i int, state string) Edge {
	// An edge without a note has the zero note, which says nothing.
	ends, note := w.flow.Edges[i], w.notes[i]
	return Edge{From: ends[0], To: ends[1], State: state, Condition: note.Condition, ToState: note.ToState}
}

// skip finds the nearest earlier stage that leads to event i over other stages and from which that way is unused, and
// records the edges between them as skipped.
func (w *walk) skip(i int) bool {
	// Without any such way the event is a start.
	path, from := w.detour(w.events[i].Type)
	if path == nil {
		return false
	}
	// Only the first edge leaves an event that was seen, and only the last one enters one.
	w.used[use{from, path[0]}] = true
	for n, edge := range path {
		e := w.edge(edge, Skipped)
		if n == 0 {
			e.FromOffset = w.events[from].Offset
		}
		if n == len(path)-1 {
			e.ToOffset = w.events[i].Offset
		}
		w.out.Edges = append(w.out.Edges, e)
	}
	return true
}

// detour finds the path with the fewest edges that leads from an event seen so far to a type, and that event. Among
// paths of equal length, the one from the newest event wins. It is a breadth-first search backwards from the type.
func (w *walk) detour(to event.Type) (path []int, from int) {
	// All paths of a round have the same number of edges; the first round has the empty one.
	paths := [][]int{nil}
	seen := map[event.Type]bool{to: true}
	for len(paths) > 0 {
		var longer [][]int
		path, from = nil, -1
		for _, p := range paths {
			// Extend the path by each edge into its first stage.
			at := to
			if len(p) > 0 {
				at = w.flow.Edges[p[0]][0]
			}
			for _, edge := range w.edges(1, at) {
				cause := w.flow.Edges[edge][0]
				way := append([]int{edge}, p...)
				// It is complete if its cause was seen and the edge is unused.
				if i, ok := w.newest[cause]; ok && !w.used[use{i, edge}] && i > from {
					path, from = way, i
				}
				// A stage that was reached by a shorter path is not extended again, which also ends cycles.
				if !seen[cause] {
					seen[cause] = true
					longer = append(longer, way)
				}
			}
		}
		if path != nil {
			return path, from
		}
		paths = longer
	}
	return nil, 0
}

// missing lists the unused edges out of the last stages, and decides whether the run is complete.
func (w *walk) missing(o *Options) {
	// The newest event of each stage, in the order of the log.
	var last []int
	for _, i := range w.newest {
		last = append(last, i)
	}
	slices.Sort(last)
	w.out.Complete = len(last) > 0
	for _, i := range last {
		edges := w.edges(0, w.events[i].Type)
		// If one edge out of the stage was used, the others are optional.
		left := slices.ContainsFunc(edges, func(edge int) bool { return w.used[use{i, edge}] })
		for _, edge := range edges {
			if !w.used[use{i, edge}] && !slices.Contains(w.into[i], w.flow.Edges[edge][1]) {
				w.out.Next = append(w.out.Next, w.next(i, edge, left, o))
				w.out.Complete = w.out.Complete && left
			}
		}
	}
	// What is really missing before what may follow.
	slices.SortStableFunc(w.out.Next, func(a, b Next) int {
		return cmp.Compare(btoi(a.Optional), btoi(b.Optional))
	})
}

// next returns the missing edge out of event i.
func (w *walk) next(i, edge int, optional bool, o *Options) Next {
	e, from := w.edge(edge, ""), &w.events[i]
	// Clocks may differ, so an event may be newer than Now: it has waited for no time.
	waiting, limit := max(0, o.Now.Sub(from.At)), o.Deadlines.of(w.flow, edge)
	return Next{
		From:            e.From,
		FromOffset:      from.Offset,
		To:              e.To,
		Condition:       e.Condition,
		ToState:         e.ToState,
		Optional:        optional,
		WaitingSeconds:  waiting.Seconds(),
		DeadlineSeconds: limit.Seconds(),
		Overdue:         overdue(waiting, limit) && !optional,
	}
}

// overdue reports whether an edge with a deadline has been missing for too long.
func overdue(waiting, limit time.Duration) bool { return limit > 0 && waiting > limit }

// btoi orders false before true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
