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
	goneRuns     = 16  // times as many forgotten runs as runs are known by their ids

	// No index leads to the runs that payload fields name. The stages in so many events of the log are read when a
	// subscription has attached, once for all runs; and for each run that was forgotten for others.
	fieldScan     = 1_000_000
	fieldScanGone = 100_000
)

// runs remembers the runs through a flow that a subscription meets, so not each
// stage needs a read of the log. What was before it met a run, or after it has forgotten
// one for others, it reads from the log.
//
// While a run is in known, its events are all from the first of them to the last that was
// read; if it is whole, all there are, but for those left out.
type runs struct {
	r      *Router
	flow   event.Flow
	reader *event.FieldReader // of the payload fields that the flow goes by
	types  []string           // of the flow's stages, sorted
	limit  int                // of runs in known
	keep   int                // events of a run: more than a handler is given, as the next are read while handlers run

	mu       sync.Mutex
	begun    bool // what is before the first event was read, of a flow that goes by payload fields
	known    map[runKey]*list.Element
	recent   list.List           // of *runSeen, the last touched first
	carriers map[string]*runSeen // by correlation id: the run that the newest stage with it has named
	gone     map[runKey]bool     // runs that were forgotten for others, the newest ones
	goneList []runKey            // the same, the oldest first
	// forgotten is true once gone lacks some: any run that is new here may have been forgotten.
	forgotten bool
}

// runKey names a run. One that payloads name and one of a correlation id may have the same id.
type runKey struct {
	id    string
	named bool // by payloads
}

// runSeen is one run as far as it is known.
type runSeen struct {
	runKey
	lane   string // in which its stages are handled
	events []stages.Event
	// how many events before events were dropped, or were not read
	leftOut uint64
	// what the log has before the first event met was read
	whole   bool
	carried []string // the correlation ids that lead to it, keep at most
	into    *runSeen // the run that has taken this one over
}

// newRuns returns the memory of a subscription to a flow.
func newRuns(r *Router, flow event.Flow, spec *Subscription) *runs {
	return &runs{r: r, flow: flow, reader: event.NewFieldReader(flow), types: typesOf(flow),
		limit: cmp.Or(spec.Runs, defaultRuns), keep: maxRunEvents + spec.Queue + 1,
		known: map[runKey]*list.Element{}, carriers: map[string]*runSeen{}, gone: map[runKey]bool{}}
}

// begin reads the newest stages before the first event, if the flow goes by payload fields. So the runs that are under
// way are known, and one that is met later begins there.
func (r *runs) begin(ctx context.Context, first uint64) error {
	if r.begun || len(r.flow.RunBy) == 0 {
		return nil
	}
	q := Query{To: first - 1, Filter: event.Filter{Types: r.types}}
	if first > fieldScan {
		q.From = client.FromOffset(first - fieldScan)
	}
	// A log that does not show them has runs begin with what it delivers.
	err := r.each(ctx, q, func(ev *event.Event) { r.note(ev) })
	if err != nil && !errors.Is(err, ErrRefused) {
		// What was read in part is dropped, and begin starts over when the event is read again.
		r.forget()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
	return nil
}

// each calls see for the events of the past that q asks for.
func (r *runs) each(ctx context.Context, q Query, see func(*event.Event)) error {
	// There is nothing before the first event.
	if q.To == 0 {
		return nil
	}
	for ev, err := range r.r.History(ctx, q) {
		if _, gap := errors.AsType[*client.GapError](err); gap {
			continue
		}
		if err != nil {
			return err
		}
		see(&ev)
	}
	return nil
}

// note takes in an event that was read. A redriven event is in its run already.
func (r *runs) note(ev *event.Event) {
	if ev.Redrive != 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	key := r.keyOf(ev)
	if key.id == "" {
		return
	}
	// The first event that is met begins the run here. Of a flow that goes by correlation ids the log may have earlier
	// ones.
	in := r.touch(key)
	if in == nil {
		in = &runSeen{runKey: key, lane: key.id, whole: len(r.flow.RunBy) > 0 && !r.gone[key] && !r.forgotten}
		r.known[key] = r.recent.PushFront(in)
	}
	if key.named && ev.CorrelationID != "" {
		r.carry(in, ev.CorrelationID)
	}
	r.evict()
	if n := len(in.events); n > 0 && in.events[n-1].Offset >= ev.Offset {
		return // read again
	}
	in.events = append(in.events, stages.EventOf(ev))
	in.bound(r.keep)
}

// keyOf returns the run of an event; see event.Flow.RunOf. mu is held.
func (r *runs) keyOf(ev *event.Event) runKey {
	if id := r.flow.RunIn(r.reader.Read(ev.Payload)); id != "" {
		return runKey{id, true}
	}
	if carrier := r.carriers[ev.CorrelationID]; carrier != nil {
		return carrier.runKey
	}
	return runKey{ev.CorrelationID, false}
}

// of returns the run of an event, nil if it belongs to none. An event that was read was noted just before.
func (r *runs) of(ev *event.Event) *runSeen {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.keyOf(ev)
	if key.id == "" {
		return nil
	}
	if e := r.known[key]; e != nil {
		return e.Value.(*runSeen)
	}

	// A replayed or local event may be of a run that is not known: it gets one that nobody remembers.
	return &runSeen{runKey: key, lane: key.id}
}

// carry notes that the newest stage with a correlation id has named a run. The first such run takes over the stages
// before it with that correlation id, which have named none. mu is held.
func (r *runs) carry(in *runSeen, correlationID string) {
	before := r.carriers[correlationID]
	switch {
	case before == in:
		return
	case before != nil:
		before.carried = slices.DeleteFunc(before.carried, func(id string) bool { return id == correlationID })
	case r.known[runKey{correlationID, false}] != nil:
		r.takeOver(in, r.known[runKey{correlationID, false}])
	case r.gone[runKey{correlationID, false}]:
		// They are read from the log, with what else was before.
		in.events, in.whole = nil, false
	}
	// The oldest id gives way: later stages that have it alone are a run of their own.
	if len(in.carried) == r.keep {
		delete(r.carriers, in.carried[0])
		in.carried = slices.Delete(in.carried, 0, 1)
	}
	in.carried = append(in.carried, correlationID)
	r.carriers[correlationID] = in
}

// takeOver adds the events of a run to another one, and forgets it. mu is held.
func (r *runs) takeOver(in *runSeen, e *list.Element) {
	other := e.Value.(*runSeen)
	// Handlers of its stages may run: the next ones wait for them.
	if len(in.events) == 0 {
		in.lane = other.lane
	}
	whole := in.whole && other.whole
	from := uint64(0)
	if !whole && len(in.events) > 0 {
		// What is before is read from the log.
		from = max(in.events[0].Offset, other.events[0].Offset)
	}
	in.events = append(in.events, other.events...)
	in.events = slices.DeleteFunc(in.events, func(e stages.Event) bool { return e.Offset < from })
	slices.SortFunc(in.events, func(a, b stages.Event) int { return cmp.Compare(a.Offset, b.Offset) })
	in.whole, in.leftOut = whole, in.leftOut+other.leftOut
	in.bound(r.keep)
	other.into = in
	r.remove(e)
}

// touch returns a run that is known, nil for another. mu is held.
func (r *runs) touch(key runKey) *runSeen {
	e := r.known[key]
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
		key := oldest.Value.(*runSeen).runKey
		r.remove(oldest)
		// A flow by correlation ids finds all its runs in the log.
		if len(r.flow.RunBy) == 0 || r.gone[key] {
			continue
		}
		r.gone[key] = true
		r.goneList = append(r.goneList, key)
		if len(r.goneList) > goneRuns*r.limit {
			r.forgotten = true
			delete(r.gone, r.goneList[0])
			r.goneList = r.goneList[1:]
		}
	}
}

// remove forgets a run. mu is held.
func (r *runs) remove(e *list.Element) {
	in := e.Value.(*runSeen)
	for _, id := range in.carried {
		delete(r.carriers, id)
	}
	delete(r.known, in.runKey)
	r.recent.Remove(e)
}

// forget drops everything: what is read next may not follow what was read before.
func (r *runs) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent.Init()
	clear(r.known)
	clear(r.carriers)
	clear(r.gone)
	r.goneList, r.begun, r.forgotten = nil, false, false
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
	in, before := t.run, t.ev.Offset
	switch {
	case in == nil:
		return nil, 0, nil
	case before == 0:
		// A local event has no offset and comes after all that the log has.
		before = math.MaxUint64
	}
	r.mu.Lock()
	// A run that has been taken over is continued in the one that payloads have named, which may have been taken over
	// too.
	for in.into != nil {
		in = in.into
	}
	t.run = in
	leads := slices.Clone(in.carried)
	if t.ev.CorrelationID != "" {
		leads = append(leads, t.ev.CorrelationID)
	}

	// A replay, a run that is not known, and one whose beginning was forgotten are read from the
	// log.
	r.touch(in.runKey)
	if t.origin == replayed || len(in.events) == 0 || in.events[0].Offset > before {
		r.mu.Unlock()
		return r.read(ctx, in.runKey, before, leads)
	}
	whole, first, dropped := in.whole, in.events[0].Offset, in.leftOut
	r.mu.Unlock()

	// The first time the part before what was met is read and kept.
	if !whole {
		older, leftOut, err := r.read(ctx, in.runKey, first, leads)
		if err != nil {
			return nil, 0, err
		}
		r.complete(in, older, first, leftOut, dropped)
	}
	// What the memory holds may not reach back far enough: then the log is read for this task alone.
	if events, leftOut, ok := r.from(in, before); ok {
		return events, leftOut, nil
	}
	return r.read(ctx, in.runKey, before, leads)
}

// from returns what upTo does of a run, unless it is not whole or has forgotten too much.
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
	if !in.whole || (n < maxRunEvents && in.leftOut > 0) {
		return nil, 0, false
	}
	from := max(0, n-maxRunEvents)
	return slices.Clone(in.events[from:n]), in.leftOut + uint64(from), true
}

// complete takes in the events of the log before the first that a run had when dropped of its
// events were left out, which are in the log too.
func (r *runs) complete(in *runSeen, older []stages.Event, first, leftOut, dropped uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case in.whole: // somebody else was faster
		return
	case in.leftOut > dropped: // there is no room for older ones any more
		in.leftOut += leftOut + uint64(len(older)) - dropped
	case in.events[0].Offset != first: // it has taken over another run, and begins later
		return
	default:
		in.events, in.leftOut = append(older, in.events...), leftOut
		in.bound(r.keep)
	}
	in.whole = true
}

// read returns the newest events of a run before an offset. leads are correlation ids that it has there or later.
func (r *runs) read(ctx context.Context, run runKey, before uint64, leads []string) (
	events []stages.Event, leftOut uint64, err error) {
	q := Query{To: before - 1, Filter: event.Filter{Types: r.types, CorrelationIDs: []string{run.id}}}
	if !run.named {
		// Only the newest are kept while reading, so a long run takes bounded memory. A gap is
		// what was trimmed of the run.
		in := runSeen{}
		err = r.each(ctx, q, func(ev *event.Event) {
			if r.flow.RunIn(r.reader.Read(ev.Payload)) == "" {
				in.events = append(in.events, stages.EventOf(ev))
				in.bound(maxRunEvents)
			}
		})
		return in.events, in.leftOut, err
	}

	// First the stages that name the run, then those that have one of its correlation ids.
	switch {
	case before == math.MaxUint64:
		q.From = client.FromLast(fieldScanGone)
	case before > fieldScanGone:
		q.From = client.FromOffset(before - fieldScanGone)
	}
	q.Filter.CorrelationIDs = nil
	in := stages.NewGatherer([]event.Flow{r.flow}, run.id, maxRunEvents, leads...)
	err = r.each(ctx, q, in.SeeNamed)
	q.Filter.CorrelationIDs = in.CorrelationIDs()
	if err == nil && len(q.Filter.CorrelationIDs) > 0 {
		err = r.each(ctx, q, in.SeeCorrelated)
	}
	events, leftOut = in.Events()
	return events, leftOut, err
}
