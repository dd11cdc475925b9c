package audit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// ErrNoCoordinator is wrapped by errors about a name that is no coordinator's of the registry.
var ErrNoCoordinator = errors.New("the registry has no such coordinator")

// FindCoordinator returns the registry's entry of a coordinator, given by its name, its class or its module's file. The
// error of a name that is none lists those that there are.
func FindCoordinator(c *event.Catalogue, spelt string) (event.Coordinator, error) {
	names := newComponents(Declared(c))
	// As in every report, so that both mean the same component.
	name, _ := names.look(spelt)
	if one, known := names.registry[name]; known {
		return one, nil
	}
	return event.Coordinator{}, fmt.Errorf("audit: %q: %w; it has %s", spelt, ErrNoCoordinator,
		strings.Join(slices.Sorted(maps.Keys(names.registry)), ", "))
}

// CoordinatorReport compares what the registry and the documents declare of a coordinator with what is live: the
// subscriptions of clients that registered as the coordinator, or under a subscription's or cursor's name that is the
// coordinator's, and the events in the log whose source it is.
type CoordinatorReport struct {
	Name  string `json:"name"`            // as in the registry
	Class string `json:"class,omitempty"` // of the program
	File  string `json:"file,omitempty"`  // of its module
	Layer int    `json:"layer,omitempty"` // of the registry; 0 if it names none
	// Listed reports whether the registry lists what it subscribes to. Without a list nothing is missing.
	Listed  bool     `json:"listed"`
	Clients []string `json:"clients"` // the ids of those that registered as the coordinator
	// CatchAll reports whether it is subscribed to everything; then nothing is missing, and nothing undeclared.
	CatchAll      bool                     `json:"catch_all"`
	Subscriptions []DeclaredWire           `json:"subscriptions"` // by type
	Emissions     []DeclaredWire           `json:"emissions"`
	Drift         map[CoordinatorDrift]int `json:"drift"` // how many of each kind
	Scope         Scope                    `json:"scope"` // what Live and Events are taken from
}

// DeclaredWire is one type that a coordinator subscribes to, or emits, as it is declared or live.
// At least one of Declared and Live is true.
type DeclaredWire struct {
	Type     event.Type       `json:"type"`
	Declared bool             `json:"declared"`
	Live     bool             `json:"live"`
	Pattern  string           `json:"pattern,omitempty"` // the live subscription's text, if it is not the type's name
	Events   uint64           `json:"events,omitempty"`  // in the log
	Drift    CoordinatorDrift `json:"drift,omitempty"`   // "" if both agree
}

// CoordinatorDrift is how what is live of a coordinator differs from what is declared.
type CoordinatorDrift string

// The kinds of drift.
const (
	Missing    CoordinatorDrift = "missing"    // declared, and not subscribed to
	Undeclared CoordinatorDrift = "undeclared" // subscribed to, and not declared
	Silent     CoordinatorDrift = "silent"     // declared as an emission, and no event is in the log
	Unlisted   CoordinatorDrift = "unlisted"   // emitted, and not declared
)

// CoordinatorDrifts returns all kinds of drift.
func CoordinatorDrifts() []CoordinatorDrift {
	return []CoordinatorDrift{Missing, Undeclared, Silent, Unlisted}
}

// CompareCoordinator returns the report of a coordinator, given by any spelling. The only error is FindCoordinator's.
func CompareCoordinator(c *event.Catalogue, spelt string, e Evidence) (*CoordinatorReport, error) {
	entry, err := FindCoordinator(c, spelt)
	if err != nil {
		return nil, err
	}
	r := &CoordinatorReport{
		Name: entry.Name, Class: entry.Class, File: entry.File, Layer: entry.Layer,
		Listed: len(entry.SubscribedEvents) > 0,
		// Never nil, so JSON has [] for a coordinator that nobody registered as.
		Clients: append([]string{}, e.Coordinators[entry.Name]...),
		Drift:   map[CoordinatorDrift]int{},
		Scope:   e.scope(),
	}

	// The registry lists subscriptions; emitters are in the documents' tables and in the definitions of types.
	d := Declared(c)
	names := newComponents(d)
	subscriptions, emissions := map[event.Type]*DeclaredWire{}, map[event.Type]*DeclaredWire{}
	// at returns the wire of a type, which it makes at the first use.
	at := func(side map[event.Type]*DeclaredWire, t event.Type) *DeclaredWire {
		if side[t] == nil {
			side[t] = &DeclaredWire{Type: t}
		}
		return side[t]
	}
	for _, t := range entry.SubscribedEvents {
		at(subscriptions, t).Declared = true
	}
	// A document names components in its own ways; emitters has resolved them.
	for _, w := range d.emitters(names) {
		if w.Component == entry.Name {
			at(emissions, w.event).Declared = true
		}
	}

	// What is live is taken from the live report, which resolves names and patterns.
	live := Live(c, e)
	for _, one := range live.Types {
		for _, w := range one.Subscribers {
			if w.Component == entry.Name {
				wire := at(subscriptions, one.Name)
				// A subscription by name makes a pattern irrelevant.
				// Of several patterns the last one is kept: one is enough to report.
				if !wire.Live || w.Pattern == "" {
					wire.Pattern = w.Pattern
				}
				wire.Live = true
			}
		}
		for _, w := range one.Emitters {
			if w.Component == entry.Name {
				wire := at(emissions, one.Name)
				wire.Live, wire.Events = true, wire.Events+w.Events
			}
		}
	}
	// A subscription to everything is in no type's list, so it is looked for by itself.
	r.CatchAll = slices.ContainsFunc(live.CatchAll, func(by string) bool {
		name, _ := names.look(by)
		return name == entry.Name
	})

	// Each side is judged by itself.
	r.Subscriptions = r.judge(subscriptions, func(w *DeclaredWire) CoordinatorDrift {
		switch {
		// Without a list nothing can be missing from it; with everything, nothing can be.
		case !r.Listed || r.CatchAll || w.Declared == w.Live:
			return ""
		case w.Declared:
			return Missing
		}
		return Undeclared
	})
	r.Emissions = r.judge(emissions, func(w *DeclaredWire) CoordinatorDrift {
		switch {
		// An emission needs no list: silence is reported for what is declared anywhere.
		case w.Declared == w.Live:
			return ""
		case w.Declared:
			return Silent
		}
		return Unlisted
	})
	return r, nil
}

// judge sets and counts the drift of each wire, and returns the wires by type. drift returns "" for a wire that is
// declared and live, or is of no matter.
func (r *CoordinatorReport) judge(
	side map[event.Type]*DeclaredWire, drift func(*DeclaredWire) CoordinatorDrift,
) []DeclaredWire {
	list := []DeclaredWire{}
	// By type, so the report does not depend on a map.
	for _, t := range slices.Sorted(maps.Keys(side)) {
		w := side[t]
		w.Drift = drift(w)
		if w.Drift != "" {
			r.Drift[w.Drift]++
		}
		list = append(list, *w)
	}
	return list
}

// Sections returns the report for people.
func (r *CoordinatorReport) Sections() []Section {
	p := &page{}
	// Each side has its own word for what is live.
	rows := func(list []DeclaredWire) (rows [][]any) {
		for _, w := range list {
			// For people: how many events, else the pattern, else only that it is so.
			live := w.Pattern
			switch {
			case w.Events > 0:
				live = fmt.Sprintf("%d in the log", w.Events)
			case w.Live && live == "":
				live = "yes"
			}
			rows = append(rows, []any{w.Type, yes(w.Declared), dash(live), dash(string(w.Drift))})
		}
		return rows
	}
	p.section("Subscribes to", "EVENT\tDECLARED\tLIVE\tDRIFT", rows(r.Subscriptions))
	p.section("Emits", "EVENT\tDECLARED\tLIVE\tDRIFT", rows(r.Emissions))
	return p.sections
}

// Title says for people what the report is about.
func (r *CoordinatorReport) Title() string {
	title := r.Name
	if r.Class != "" {
		title += fmt.Sprintf(" (%s)", r.Class)
	}
	// The clients say whether it runs at all.
	switch len(r.Clients) {
	case 0:
		title += ": no client is registered as it"
	default:
		title += ": registered by " + strings.Join(r.Clients, ", ")
	}
	if !r.Listed {
		title += "\nThe registry does not list what it subscribes to."
	}
	if r.CatchAll {
		title += "\nIt is subscribed to everything."
	}
	return title
}

// yes prints whether something is so.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return "-"
}
