package stages

import (
	"cmp"
	"slices"

	"github.com/ringrift/ringlog/event"
)

// gatherIDs bounds the correlation ids by which a Gatherer looks for stages, to the newest ones. A filter takes a few
// more.
const gatherIDs = 250

// A Gatherer finds the stages of one run that payloads name; event.Flow.RunOf says which these are. Two readings of
// the log, each in its order, show it all stages of the flows, and then those with a correlation id of the run. It
// keeps the newest stages.
//
//	g := stages.NewGatherer(flows, id, 256)
//	// for all stages of flows: g.SeeNamed(e)
//	// for those with one of g.CorrelationIDs(): g.SeeCorrelated(e)
//	events, leftOut := g.Events()
type Gatherer struct {
	id     string     // of the run
	most   int        // stages that are kept
	flow   event.Flow // any of the flows
	reader *event.FieldReader
	stages map[event.Type]bool // of all flows

	found   [2]newest         // stages that name the run, and those that only have a correlation id of it
	leads   []string          // see NewGatherer
	ids     []string          // gatherIDs at most
	seen    map[string]string // the run that the newest stage with a correlation id names
	waiting []correlatedEvent // stages that name no run, with a correlation id that is not in seen yet; most at most
}

// newest holds the newest events that were added to it.
type newest struct {
	events  []Event
	leftOut uint64
}

// correlatedEvent is a stage with its correlation id.
type correlatedEvent struct {
	Event
	correlationID string
}

// NewGatherer returns a Gatherer for the run with an id, of flows with the same RunBy. It keeps most stages. leads are
// correlation ids that lead to the run by stages after those that are read.
func NewGatherer(flows []event.Flow, id string, most int, leads ...string) *Gatherer {
	// Half of the ids are left for those that the log shows.
	leads = leads[max(0, len(leads)-gatherIDs/2):]
	g := &Gatherer{
		id:     id,
		most:   most,
		flow:   flows[0],
		reader: event.NewFieldReader(flows[0]),
		stages: map[event.Type]bool{},
		leads:  leads,
		ids:    slices.Clone(leads),
		seen:   map[string]string{},
	}
	for i := range flows {
		for _, t := range flows[i].Stages() {
			g.stages[t] = true
		}
	}
	return g
}

// add adds an event that is newer than those before.
func (n *newest) add(most int, e ...Event) {
	n.events = append(n.events, e...)
	// The oldest go when there are twice as many, so that each event is moved once.
	if len(n.events) >= 2*most {
		n.cut(most)
	}
}

// cut drops the oldest events and counts them. The memory of what is left out is not kept.
func (n *newest) cut(most int) {
	if extra := len(n.events) - most; extra > 0 {
		n.events, n.leftOut = slices.Clone(n.events[extra:]), n.leftOut+uint64(extra)
	}
}

// SeeNamed shows an event of the first reading.
func (g *Gatherer) SeeNamed(e *event.Event) {
	if !g.stages[e.Type] || g.flow.RunIn(g.reader.Read(e.Payload)) != g.id {
		return
	}
	// The stage names the run by itself.
	g.found[0].add(g.most, EventOf(e))
	// The id moves to the end: those of the newest stages are kept.
	if at := slices.Index(g.ids, e.CorrelationID); at >= 0 {
		g.ids = slices.Delete(g.ids, at, at+1)
	}
	if e.CorrelationID != "" {
		g.ids = append(g.ids, e.CorrelationID)
	}
	g.ids = slices.Delete(g.ids, 0, max(0, len(g.ids)-gatherIDs))
}

// CorrelationIDs returns the correlation ids that the run has by the first reading, gatherIDs at most.
func (g *Gatherer) CorrelationIDs() []string { return g.ids }

// SeeCorrelated shows an event of the second reading. A stage that names no run belongs to the run that the newest
// stage before it with its correlation id has named.
func (g *Gatherer) SeeCorrelated(e *event.Event) {
	if !g.stages[e.Type] || !slices.Contains(g.ids, e.CorrelationID) {
		return
	}
	named, known := g.flow.RunIn(g.reader.Read(e.Payload)), g.seen[e.CorrelationID]
	switch {
	case named != "":
		g.seen[e.CorrelationID] = named
		if known != "" {
			return
		}
		// The first one takes over those before it.
		g.waiting = slices.DeleteFunc(g.waiting, func(w correlatedEvent) bool {
			if w.correlationID == e.CorrelationID && named == g.id {
				g.found[1].add(g.most, w.Event)
			}
			return w.correlationID == e.CorrelationID
		})
	// Such a stage was before it.
	case known == g.id:
		g.found[1].add(g.most, EventOf(e))
	// None yet: whichever names a run first takes it over.
	case known == "":
		g.waiting = append(g.waiting, correlatedEvent{EventOf(e), e.CorrelationID})
		g.waiting = slices.Delete(g.waiting, 0, max(0, len(g.waiting)-g.most))
	}
}

// Events returns the newest stages of the run in the order of the log, and how many older ones were left out.
func (g *Gatherer) Events() (events []Event, leftOut uint64) {
	// Those that were taken over are not in the order of the log.
	var all newest
	for i := range g.found {
		all.events = append(all.events, g.found[i].events...)
		all.leftOut += g.found[i].leftOut
	}
	// The first stage that names a run takes over those before it.
	for _, w := range g.waiting {
		if slices.Contains(g.leads, w.correlationID) {
			all.events = append(all.events, w.Event)
		}
	}
	slices.SortFunc(all.events, func(a, b Event) int { return cmp.Compare(a.Offset, b.Offset) })
	all.cut(g.most)
	return all.events, all.leftOut
}
