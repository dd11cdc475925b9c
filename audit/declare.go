package audit

import (
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Basis says on what a Wire rests.
type Basis string

// What is declared, then what a running cluster shows.
const (
	OwnList      Basis = "own_list"      // the subscriptions that a coordinator's list names
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
)

// Wire ties one component to one type.
type Wire struct {
	Component string   `json:"component"` // the coordinator or module, under one name however it was spelt
	Basis     Basis    `json:"basis"`
	Pattern   string   `json:"pattern,omitempty"` // what was subscribed to, where that is not the type's name
	Places    []string `json:"places,omitempty"`  // file:line of an emitter
	Events    uint64   `json:"events,omitempty"`  // how many of them are in the log
}

// Declarations are what the platform's documents declare of its wiring. What they
// found to be wrong with it is not among it: see Recorded.
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

// Spellings tells which type a name stands for, and which ones it is close to.
type Spellings interface {
	Resolve(name string) (event.Resolved, bool)
	Nearest(name string, n int) []string
}

// Declared takes the declarations out of a catalogue.
func Declared(c *event.Catalogue) *Declarations {
	w := c.Wiring()
	return &Declarations{
		Types: slices.Concat(c.Definitions(), c.Own()), Mentioned: c.Mentioned(),
		Coordinators: c.Coordinators(), Handlers: w.HandlerIndex, Runbook: w.RunbookWiring, Architecture: w.ArchitectureWiring,
		Flows: c.Flows(), Critical: w.CriticalSubscriptions.Events, Components: w.ComponentNames, Spellings: c,
	}
}

// wire is a Wire on its way to its type, or, with a pattern of several, to all of
// those.
type wire struct {
	event event.Type // "" where the pattern chooses
	Wire
}

// emitters are the declared ones. A test emits nothing that anybody could hear.
func (d *Declarations) emitters(names components) (list []wire) {
	add := func(t event.Type, component string, basis Basis, places ...string) {
		if t != "" && !isEverybody(component) {
			list = append(list, wire{t, Wire{Component: names.canonical(component), Basis: basis, Places: places}})
		}
	}
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

// subscribers are the declared ones. Those that the platform's definitions name are
// left out: what is not in the lists and tables here as well came from findings.
func (d *Declarations) subscribers(names components) (list []wire) {
	add := func(t event.Type, component string, basis Basis, pattern string) {
		if !isEverybody(component) {
			list = append(list, wire{t, Wire{Component: names.canonical(component), Basis: basis, Pattern: pattern}})
		}
	}
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
	d.tableSubscribers(add)
	for _, def := range d.Types {
		if def.Status == event.StatusRegistered {
			for _, written := range def.Subscribers {
				add(def.Name, written, Registered, "")
			}
		}
	}
	return list
}

func (d *Declarations) tableSubscribers(add func(event.Type, string, Basis, string)) {
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
}

// isEverybody reports whether a table's cell names no component.
func isEverybody(cell string) bool { return cell == "" || cell == "All" || cell == "multiple" }

// isPlace reports whether an emitter is a place in a source file, such as
// app/coordination/tournament_daemon.py:820.
func isPlace(emitter string) bool { return strings.Contains(emitter, ".py:") }

func isTest(place string) bool { return strings.HasPrefix(place, "tests/") }
