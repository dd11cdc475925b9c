package audit

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ringrift/ringlog/event"
)

// Evidence is what was observed in a running cluster. The zero Evidence belongs to no cluster.
// It can show that a declared wire is in use, and that an undeclared one exists. It cannot show that a wire is
// missing: an event may just not have happened.
type Evidence struct {
	Scope         Scope               // which part of the log Seen counts
	Seen          []Seen              // by type and source
	Subscriptions []Subscription      // of cursors and clients
	Coordinators  map[string][]string // ids of registered clients, by the coordinator that they registered as
	Sources       Sources             // what source files show, if the caller has sent it
}

// Sources is what source files show: who emits what and who subscribes to it. It is the body of POST /v1/audit.
type Sources struct {
	Emitters    []SourceUse `json:"emitters"`
	Subscribers []SourceUse `json:"subscribers"`
}

// SourceUse is a type, as it is written or a pattern of a subscriber, in lines of a file.
type SourceUse struct {
	Type  string `json:"type"`  // as it is written; a pattern only of a subscriber
	File  string `json:"file"`  // below the folder that was scanned
	Lines []int  `json:"lines"` // from 1
}

// places returns the lines as file:line.
func (u SourceUse) places(file string) (list []string) {
	for _, line := range u.Lines {
		list = append(list, file+":"+strconv.Itoa(line))
	}
	return list
}

// Scope is the part of the log and the subscriptions that were evaluated.
type Scope struct {
	FirstOffset   uint64 `json:"first_offset,omitempty"` // the range of the log that was counted; 0 is none
	LastOffset    uint64 `json:"last_offset,omitempty"`
	KeptFrom      uint64 `json:"kept_from,omitempty"` // the first offset that the log keeps
	Events        uint64 `json:"events"`              // counted
	Uncounted     uint64 `json:"uncounted,omitempty"` // in that range, of types and sources beyond the limit
	Subscriptions int    `json:"subscriptions"`       // of cursors and clients
	Unheard       int    `json:"unheard,omitempty"`   // subscriptions of clients that were too many to evaluate
}

// scope returns what was evaluated.
func (e *Evidence) scope() Scope {
	s := e.Scope
	s.Subscriptions = len(e.Subscriptions) + len(e.Sources.Subscribers)
	return s
}

// Seen is the number of events of one type by one source in the log.
type Seen struct {
	Type   event.Type
	Source string
	Events uint64
}

// Subscription is a cursor or a client that subscribes now.
type Subscription struct {
	Name        string
	Basis       Basis // ByCursor, ByClient or InSource
	Filter      event.Filter
	Coordinator string // that the client registered as; "" if it named none
}

// component returns whose subscription it is, as it spells itself.
func (s Subscription) component() string { return cmp.Or(s.Coordinator, s.Name) }

// Subscribers lists the subscriptions of cursors, and of clients that registered theirs.
type Subscribers interface {
	Subscriptions() []Subscription
}

// clusterName is the component that emits the reserved types.
const clusterName = "ringlog"

// emitters returns the sources seen in the log, those in source files, and the cluster for its reserved types.
func (e *Evidence) emitters(c *event.Catalogue, types []*event.Definition, names components) (list []wire) {
	// The cluster emits its reserved types, whether or not the log has any.
	for _, d := range types {
		if event.IsReserved(d.Name) {
			list = append(list, wire{d.Name, Wire{Component: clusterName, Basis: Cluster}})
		}
	}
	for _, m := range e.Sources.Emitters {
		r, _ := c.Resolve(m.Type) // a name that resolves to nothing stands for itself
		file := printable(m.File)
		list = append(list, wire{r.Type,
			Wire{Component: names.canonical(file), Basis: InSource, Places: m.places(file)}})
	}
	// The source of an event is whatever its producer wrote.
	for _, s := range e.Seen {
		source := "(no source)"
		if s.Source != "" {
			source = names.canonical(printable(s.Source))
		}
		list = append(list, wire{s.Type, Wire{Component: source, Basis: InLog, Events: s.Events}})
	}
	return list
}

// subscriptions returns the live ones and those that sources show. The evidence stays as it is.
func (e *Evidence) subscriptions() []Subscription {
	list := slices.Clone(e.Subscriptions)
	for _, u := range e.Sources.Subscribers {
		list = append(list, Subscription{Name: u.File, Basis: InSource, Filter: event.Filter{Types: []string{u.Type}}})
	}
	return list
}

// listener is a resolved subscription.
type listener struct {
	Subscription
	all     bool                  // its filter names neither types nor categories
	matches func(string) bool     // reports whether it receives a type
	spelt   map[event.Type]string // how it spells the types that it names
}

// listen resolves the subscriptions. Each filter is compiled once, for all types that it is asked about.
func (e *Evidence) listen(c *event.Catalogue) (list []listener) {
	for _, s := range e.subscriptions() {
		s.Name = printable(s.Name)
		// As the log itself matches the filter.
		m := s.Filter.Compile(c)
		h := listener{Subscription: s, matches: m.MatchType, spelt: map[event.Type]string{}}
		// A filter by key, source or correlation id alone also is for all types.
		// Such a filter says nothing about any single type, so it is reported by itself.
		h.all = len(s.Filter.Categories) == 0 && (len(s.Filter.Types) == 0 || slices.Contains(s.Filter.Types, "*"))
		for _, written := range s.Filter.Types {
			if !isPattern(written) {
				// A name that resolves to nothing stands for itself, as a type that the catalogue does not have.
				r, _ := c.Resolve(written)
				// Of several spellings the last one is kept: one is enough to report.
				h.spelt[r.Type] = written
			}
		}
		list = append(list, h)
	}
	return list
}

// printable replaces what would break a line or is not UTF-8.
func printable(s string) string {
	// Names from a running cluster may have any characters.
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
