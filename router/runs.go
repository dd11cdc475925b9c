package router

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// Bounds of what a subscription to stages remembers.
const (
	defaultRuns  = 256
	maxRunEvents = 256 // of one run, the newest, that a handler is given
	// events of the log in which the beginning of a run is looked for by payload fields
	fieldScan = 1_000_000
)

// runs remembers the runs through a flow that a subscription meets, so not each
// stage needs a read of the log. What was before it met a run, or after it has forgotten
// one for others, it reads from the log.
//
// While a run is in known, its events are all from the first of them to the last that was
// read; if it is whole, all there are, but for those left out.
type runs struct {
	r     *Router
	flow  event.Flow
	types []string
	limit int
	keep  int // events of a run: more than a handler is given, as the next are read while handlers run

	mu     sync.Mutex
	known  map[string]*list.Element // of *runSeen, by the id of the run
	recent list.List                // the same, the last touched first
}

// runSeen is one run as far as it is known.
type runSeen struct {
	id     string
	events []stages.Event
	// how many events before events were dropped, or were not read
	leftOut uint64
	// what the log has before the first event met was read
	whole bool
}

// newRuns returns the memory of a subscription to a flow.
func newRuns(r *Router, flow event.Flow, spec *Subscription) *runs {
	return &runs{r: r, flow: flow, types: typesOf(flow), limit: cmp.Or(spec.Runs, defaultRuns),
		keep: maxRunEvents + spec.Queue + 1, known: map[string]*list.Element{}}
}

// note takes in an event that was read. A redriven event is in its run already.
func (r *runs) note(ev *event.Event) {
	id := r.flow.RunOf(ev)
	if id == "" || ev.Redrive != 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	// The first event that is met begins the run here, though the log may have earlier ones.
	in := r.touch(id)
	if in == nil {
		in = &runSeen{id: id}
		r.known[in.id] = r.recent.PushFront(in)
		r.evict()
	}
	if n := len(in.events); n > 0 && in.events[n-1].Offset >= ev.Offset {
		return // read again
	}
	in.events = append(in.events, stages.EventOf(ev))
	in.bound(r.keep)
}

// touch returns a run that is known, nil for another. mu is held.
func (r *runs) touch(id string) *runSeen {
	e := r.known[id]
	if e == nil {
		return nil
	}
	r.recent.MoveToFront(e)
	return e.Value.(*runSeen)
}

// evict forgets the runs that were touched longest ago, until the bound is kept. mu is held.
func (r *runs) evict() {
	for r.recent.Len() > r.limit {
		oldest := r.recent.Back()
		delete(r.known, oldest.Value.(*runSeen).id)
		r.recent.Remove(oldest)
	}
}

// forget drops everything: what is read next may not follow what was read before.
func (r *runs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent.Init()
	clear(r.known)
}

// bound drops the oldest events past a number and counts them. The slice is copied, so
// their memory is freed.
func (in *runSeen) bound(most int) {
	if extra := len(in.events) - most; extra > 0 {
		in.events, in.leftOut = slices.Clone(in.events[extra:]), in.leftOut+uint64(extra)
	}
}

// upTo returns the newest events of a task's run before the task's own, for the caller to
// keep, and how many older ones were left out.
func (r *runs) upTo(ctx context.Context, t *task) (events []stages.Event, leftOut uint64, err error) {
	id, before := r.flow.RunOf(&t.ev), t.ev.Offset
	switch {
	case id == "":
		return nil, 0, nil
	case before == 0:
		before = math.MaxUint64
	}
	r.mu.Lock()

	// A replay, a run that is not known, and one whose beginning was forgotten are read from the
	// log.
	in := r.touch(id)
	if t.origin == replayed || in == nil || in.events[0].Offset > before {
		r.mu.Unlock()
		return r.read(ctx, id, before)
	}
	whole, first, dropped := in.whole, in.events[0].Offset, in.leftOut
	r.mu.Unlock()

	// The first time the part before what was met is read and kept.
	if !whole {
		older, leftOut, err := r.read(ctx, id, first)
		if err != nil {
			return nil, 0, err
		}
		r.complete(in, older, leftOut, dropped)
	}
	if events, leftOut, ok := r.from(in, before); ok {
		return events, leftOut, nil
	}
	return r.read(ctx, id, before)
}

// from returns what upTo does of a run that is whole, unless it has forgotten too much.
func (r *runs) from(in *runSeen, before uint64) (events []stages.Event, leftOut uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// n is how many events have an offset below before: the comparison finds none equal,
	// so the search ends at the first that is not below.
	n, _ := slices.BinarySearchFunc(in.events, before, func(e stages.Event, o uint64) int {
		if e.Offset < o {
			return -1
		}
		return 1
	})
	if n < maxRunEvents && in.leftOut > 0 {
		return nil, 0, false
	}
	from := max(0, n-maxRunEvents)
	return slices.Clone(in.events[from:n]), in.leftOut + uint64(from), true
}

// complete takes in the events of the log before those that a run had when dropped of its
// events were left out, which are in the log too.
func (r *runs) complete(in *runSeen, older []stages.Event, leftOut, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case in.whole: // somebody else was faster
	case in.leftOut > dropped: // there is no room for older ones any more
		in.leftOut += leftOut + uint64(len(older)) - dropped
	default:
		in.events, in.leftOut = append(older, in.events...), leftOut
		in.bound(r.keep)
	}
	in.whole = true
}

// read returns the newest events of a run before an offset.
func (r *runs) read(ctx context.Context, id string, before uint64) (events []stages.Event, leftOut uint64, err error) {
	if before == 1 {
		return nil, 0, nil
	}

	// Only the newest are kept while reading, so a long run takes bounded memory. A gap is
	// what was trimmed of the run.
	in := runSeen{}
	q := Query{To: before - 1, Filter: event.Filter{Types: r.types, CorrelationIDs: []string{id}}}
	// No index leads to the events of a run by payload fields: the newest stages are read, of all runs. An id that only
	// looks like one of those is looked for there as well.
	if r.flow.MayName(id) {
		q.Filter.CorrelationIDs = nil
		switch {
		case before == math.MaxUint64:
			q.From = client.FromLast(fieldScan)
		case before > fieldScan:
			q.From = client.FromOffset(before - fieldScan)
		}
	}
	for ev, err := range r.r.History(ctx, q) {
		if _, gap := errors.AsType[*client.GapError](err); gap {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if r.flow.RunOf(&ev) != id {
			continue
		}
		in.events = append(in.events, stages.EventOf(&ev))
		in.bound(maxRunEvents)
	}
	return in.events, in.leftOut, nil
}
