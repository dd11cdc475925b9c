package audit

import (
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Basis is the source of a Wire.
type Basis string

// Declarations first, then evidence of a running cluster.
const (
	OwnList      Basis = "own_list"      // the list of subscriptions of a coordinator
	HandlerIndex Basis = "handler_index" // the reference's index of handlers
	Runbook      Basis = "runbook"       // the runbook's tables
	Architecture Basis = "architecture"  // the architecture document's table
	Drawing      Basis = "drawing"       // the architecture document's drawing
	SchemaList   Basis = "schema_list"   // file and line of an emitter
	Registered   Basis = "registered"    // the definition of a type that was added at run time
	Cluster      Basis = "cluster"       // a type that only the cluster emits
	InLog        Basis = "log"           // an event in the log
	ByCursor     Basis = "cursor"        // the filter of a cursor
	ByClient     Basis = "client"        // a subscription that a client registered
	InSource     Basis = "source"        // a line of a source that was scanned
)

// Wire ties one component to one type.
type Wire struct {
	Component string   `json:"component"` // the coordinator or module, by its one name
	Basis     Basis    `json:"basis"`
	Pattern   string   `json:"pattern,omitempty"` // the text of the subscription, if it is not the type's name
	Places    []string `json:"places,omitempty"`  // file:line of an emitter
	Events    uint64   `json:"events,omitempty"`  // how many events are in the log
}

// Declarations are what the platform's documents declare about its wiring. The faults that they list are not part of
// it: see Recorded.
type Declarations struct {
	Types        []*event.Definition // the platform's, the registered ones and the cluster's own
	Mentioned    []*event.Definition // names that the documents use and do not define
	Coordinators []event.Coordinator
	Handlers     []event.HandlerIndexEntry
	Runbook      []event.RunbookWire
	Architecture []event.ArchitectureWire
	Flows        []event.Flow
	Critical     []event.Type      // types whose subscriptions must not be missing
	Components   map[string]string // class spelling to coordinator or module
	Spellings    Spellings
}

// Spellings finds the type that a name means, and the types closest to it. *event.Catalogue implements it.
// The audit resolves names as a publish would, so both agree.
type Spellings interface {
	Resolve(name string) (event.Resolved, bool)
	Nearest(name string, n int) []string
}

// Declared returns the declarations of a catalogue.
func Declared(c *event.Catalogue) *Declarations {
	// OrphanEvents and DeadSubscriptions stay out: they are findings, which Recorded takes.
	w := c.Wiring()
	return &Declarations{
		Types:        slices.Concat(c.Definitions(), c.Own()),
		Mentioned:    c.Mentioned(),
		Coordinators: c.Coordinators(),
		Handlers:     w.HandlerIndex,
		Runbook:      w.RunbookWiring,
		Architecture: w.ArchitectureWiring,
		Flows:        c.Flows(),
		Critical:     w.CriticalSubscriptions.Events,
		Components:   w.ComponentNames,
		Spellings:    c,
	}
}

// wire is a Wire with its type, or with a pattern that chooses types.
type wire struct {
	event event.Type // "" if Pattern chooses
	Wire
}

// emitters returns the declared emitters. An emitter in a test does not count: no process receives its events.
// A row of a document is taken as it is: two documents that say the same give two wires.
func (d *Declarations) emitters(names components) (list []wire) {
	// add leaves out cells that name no event or no particular component.
	add := func(t event.Type, component string, basis Basis, places ...string) {
		if t != "" && !isEverybody(component) {
			list = append(list, wire{t, Wire{Component: names.canonical(component), Basis: basis, Places: places}})
		}
	}
	// The documents' tables and drawings.
	for _, r := range d.Runbook {
		add(r.Event, r.Emitter, Runbook)
	}
	for _, r := range d.Architecture {
		add(r.Event, r.Producer, Architecture)
	}
	for _, f := range d.Flows {
		for _, e := range f.ComponentEdges {
			add(e.Event, e.From, Drawing)
		}
	}
	// The definitions: of a registered type all emitters, of any other those with a place in the source.
	for _, def := range slices.Concat(d.Types, d.Mentioned) {
		for _, written := range def.Emitters {
			switch {
			case def.Status == event.StatusRegistered:
				add(def.Name, written, Registered)
			case isPlace(written) && !isTest(written):
				add(def.Name, written, SchemaList, written)
			}
		}
	}
	return list
}

// subscribers returns the declared subscribers. Those in the platform's definitions are left out: one that is not
// in the lists and tables below either was copied from a finding. As of emitters, two documents that say the same give
// two wires.
func (d *Declarations) subscribers(names components) (list []wire) {
	// add leaves out cells that name no particular component.
	add := func(t event.Type, component string, basis Basis, pattern string) {
		if !isEverybody(component) {
			list = append(list, wire{t, Wire{Component: names.canonical(component), Basis: basis, Pattern: pattern}})
		}
	}
	// The coordinators' own lists and the handler index.
	for _, c := range d.Coordinators {
		for _, t := range c.SubscribedEvents {
			add(t, c.Name, OwnList, "")
		}
	}
	for _, h := range d.Handlers {
		for _, t := range h.Events {
			add(t, h.Module, HandlerIndex, "")
		}
		for _, p := range h.Patterns {
			add("", h.Module, HandlerIndex, p)
		}
	}
	// The documents' tables and drawings.
	for _, r := range d.Runbook {
		for _, s := range r.Subscribers {
			add(r.Event, s, Runbook, "")
		}
	}
	for _, r := range d.Architecture {
		for _, s := range r.Consumers {
			add(r.Event, s, Architecture, "")
		}
	}
	for _, f := range d.Flows {
		for _, e := range f.ComponentEdges {
			if e.Event != "" {
				add(e.Event, e.To, Drawing, "")
			}
		}
	}
	// Types that were registered at run time: their definitions are declarations.
	for _, def := range d.Types {
		if def.Status == event.StatusRegistered {
			for _, written := range def.Subscribers {
				add(def.Name, written, Registered, "")
			}
		}
	}
	return list
}

// isEverybody reports whether the cell of a table names no particular component.
// Such a row declares that somebody is wired, and not who.
func isEverybody(cell string) bool { return cell == "" || cell == "All" || cell == "multiple" }

// isPlace reports whether an emitter is a place in a source file, such as
// app/coordination/tournament_daemon.py:820.
func isPlace(emitter string) bool { return strings.Contains(emitter, ".py:") }

// isTest reports whether a place is in the platform's tests.
func isTest(place string) bool { return strings.HasPrefix(place, "tests/") }
