package stages

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

// walk goes through the events of a chain once, along one flow.
type walk struct {
	flow   event.Flow
	notes  map[int]event.FlowNote // by edge
	events []Event
	causes []int                // the index of the cause that each names, or -1
	newest map[event.Type]int   // of each stage, the newest event so far
	used   map[use]bool         // edges that were taken, or skipped
	into   map[int][]event.Type // the types of the stages that each event was reached from
	out    Run
}

// use is an edge out of one event.
type use struct{ event, edge int }

func newWalk(f event.Flow, events []Event, causes []int) *walk {
	w := &walk{flow: f, events: events, causes: causes, notes: map[int]event.FlowNote{}, newest: map[event.Type]int{},
		used: map[use]bool{}, into: map[int][]event.Type{}}
	for _, n := range f.EdgeNotes {
		w.notes[n.Edge] = n
	}
	w.out = Run{Flow: f.Name, Document: f.Document, Starts: []Start{}, Edges: []Edge{}, Next: []Next{}}
	return w
}

func (w *walk) run(o *Options) Run {
	for i, e := range w.events {
		if isStage(w.flow, e.Type) {
			w.arrive(i, o)
			w.newest[e.Type] = i
		}
	}
	w.missing(o)
	return w.out
}

// arrive finds how an event was reached: over edges from earlier events, early, past
// skipped ones, or not at all.
func (w *walk) arrive(i int, o *Options) {
	fresh, again := w.comingFrom(i)
	switch {
	case len(fresh) > 0:
		for _, u := range fresh {
			w.take(u, i, Taken, o)
		}
	case again != nil:
		w.take(*again, i, Again, o)
	default:
		if early, ok := w.cameEarly(i); ok {
			w.take(early, i, Early, o)
		} else if !w.skip(i) {
			t := w.events[i].Type
			w.out.Starts = append(w.out.Starts, Start{Offset: w.events[i].Offset, Type: t, First: len(w.edges(1, t)) == 0})
		}
	}
}

// edges are the indexes of the edges with a type at an end: 0 is the cause, 1 the effect.
func (w *walk) edges(end int, t event.Type) (list []int) {
	for i, e := range w.flow.Edges {
		if e[end] == t {
			list = append(list, i)
		}
	}
	return list
}

// comingFrom returns the edges from earlier events that nothing has used yet, and the
// newest one that something has.
func (w *walk) comingFrom(i int) (fresh []use, again *use) {
	for _, edge := range w.edges(1, w.events[i].Type) {
		from, seen := w.newest[w.flow.Edges[edge][0]]
		if named := w.causes[i]; named >= 0 && w.events[named].Type == w.flow.Edges[edge][0] {
			from = named
		} else if !seen {
			continue
		}
		u := use{from, edge}
		if !w.used[u] {
			fresh = append(fresh, u)
		} else if again == nil || again.event < from {
			again = &u
		}
	}
	return fresh, again
}

// cameEarly finds a cause that stands behind its effect and has no other one: none that
// came nearer to it, and none behind it. A cause that is itself an effect of this stage
// is a later lap.
func (w *walk) cameEarly(i int) (u use, ok bool) {
	to := w.events[i].Type
	for _, edge := range w.edges(1, to) {
		from := w.flow.Edges[edge][0]
		back := slices.Contains(w.flow.Edges, [2]event.Type{to, from})
		later := w.events[i+1:]
		at := slices.IndexFunc(later, func(e Event) bool { return e.Type == from })
		if !back && at >= 0 && !slices.ContainsFunc(later, func(e Event) bool { return e.Type == to }) {
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
	took := to.At.Sub(from.At)
	limit := o.Deadlines.of(w.flow, u.edge)
	e := w.edge(u.edge, state)
	e.FromOffset, e.ToOffset, e.Seconds, e.Basis = from.Offset, to.Offset, took.Seconds(), ByOrder
	if w.causes[i] == u.event {
		e.Basis = ByCausation
	}
	e.DeadlineSeconds, e.Late = limit.Seconds(), limit > 0 && took > limit && state != Again
	w.out.Edges = append(w.out.Edges, e)
}

func (w *walk) edge(i int, state string) Edge {
	return Edge{From: w.flow.Edges[i][0], To: w.flow.Edges[i][1], State: state, Condition: w.notes[i].Condition, ToState: w.notes[i].ToState}
}

// skip finds the nearest earlier stage that leads to event i over others, from where
// nothing has gone on that way, and records the edges between as skipped.
func (w *walk) skip(i int) bool {
	path, from := w.detour(w.events[i].Type)
	if path == nil {
		return false
	}
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

// detour goes back from a type by the fewest edges to a stage that was seen.
func (w *walk) detour(to event.Type) (path []int, from int) {
	paths := [][]int{nil}
	seen := map[event.Type]bool{to: true}
	for len(paths) > 0 {
		var longer [][]int
		path, from = nil, -1
		for _, p := range paths {
			at := to
			if len(p) > 0 {
				at = w.flow.Edges[p[0]][0]
			}
			for _, edge := range w.edges(1, at) {
				cause := w.flow.Edges[edge][0]
				way := append([]int{edge}, p...)
				if i, ok := w.newest[cause]; ok && !w.used[use{i, edge}] && i > from {
					path, from = way, i
				}
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

// missing lists the edges out of the last stages.
func (w *walk) missing(o *Options) {
	var last []int
	for _, i := range w.newest {
		last = append(last, i)
	}
	slices.Sort(last)
	w.out.Complete = len(last) > 0
	for _, i := range last {
		edges := w.edges(0, w.events[i].Type)
		gone := slices.ContainsFunc(edges, func(edge int) bool { return w.used[use{i, edge}] })
		for _, edge := range edges {
			if !w.used[use{i, edge}] && !slices.Contains(w.into[i], w.flow.Edges[edge][1]) {
				w.out.Next = append(w.out.Next, w.next(i, edge, gone, o))
				w.out.Complete = w.out.Complete && gone
			}
		}
	}
	slices.SortStableFunc(w.out.Next, func(a, b Next) int { return cmp.Compare(btoi(a.Optional), btoi(b.Optional)) })
}

func (w *walk) next(i, edge int, optional bool, o *Options) Next {
	e, from := w.edge(edge, ""), &w.events[i]
	waiting, limit := max(0, o.Now.Sub(from.At)), o.Deadlines.of(w.flow, edge)
	return Next{From: e.From, FromOffset: from.Offset, To: e.To, Condition: e.Condition, ToState: e.ToState, Optional: optional,
		WaitingSeconds: waiting.Seconds(), DeadlineSeconds: limit.Seconds(), Overdue: overdue(waiting, limit) && !optional}
}

func overdue(waiting, limit time.Duration) bool { return limit > 0 && waiting > limit }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
