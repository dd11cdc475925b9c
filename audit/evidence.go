package audit

import (
	"slices"
	"strings"
	"unicode"

	"github.com/ringrift/ringlog/event"
)

// Evidence is what a running cluster shows. The zero Evidence is no cluster.
type Evidence struct {
	Scope         Scope
	Seen          []Seen
	Subscriptions []Subscription
}

// Scope says what was looked at.
type Scope struct {
	FirstOffset   uint64 `json:"first_offset,omitempty"` // the part of the log that was counted; 0 is none
	LastOffset    uint64 `json:"last_offset,omitempty"`
	KeptFrom      uint64 `json:"kept_from,omitempty"` // where the log begins
	Events        uint64 `json:"events"`              // counted
	Uncounted     uint64 `json:"uncounted,omitempty"` // in that part, of more types and sources than are told apart
	Subscriptions int    `json:"subscriptions"`       // of cursors and clients
	Unheard       int    `json:"unheard,omitempty"`   // of clients, that were too many to look at
}

// Seen is how many events of a type a source has in the log.
type Seen struct {
	Type   event.Type
	Source string
	Events uint64
}

// Subscription is somebody who listens now.
type Subscription struct {
	Name   string
	Basis  Basis // ByCursor or ByClient
	Filter event.Filter
}

// Subscribers lists who listens: cursors, clients that registered what they
// subscribe to.
type Subscribers interface {
	Subscriptions() []Subscription
}

// clusterName is the component that emits what only the cluster emits.
const clusterName = "ringlog"

// emitters are the sources seen, and the cluster for what is reserved to it.
func (e *Evidence) emitters(types []*event.Definition, names components) (list []wire) {
	for _, d := range types {
		if event.IsReserved(d.Name) {
			list = append(list, wire{d.Name, Wire{Component: clusterName, Basis: Cluster}})
		}
	}
	for _, s := range e.Seen {
		source := "(no source)"
		if s.Source != "" {
			source = names.canonical(printable(s.Source))
		}
		list = append(list, wire{s.Type, Wire{Component: source, Basis: InLog, Events: s.Events}})
	}
	return list
}

// hears is a subscription, resolved.
type hears struct {
	Subscription
	all     bool              // its filter names neither types nor categories
	matches func(string) bool // whether it gets a type
	spelt   map[event.Type]string
}

// listen resolves the subscriptions.
func (e *Evidence) listen(c *event.Catalogue) (list []hears) {
	for _, s := range e.Subscriptions {
		s.Name = printable(s.Name)
		m := s.Filter.Compile(c)
		h := hears{Subscription: s, matches: m.MatchType, spelt: map[event.Type]string{}}
		h.all = len(s.Filter.Categories) == 0 && (len(s.Filter.Types) == 0 || slices.Contains(s.Filter.Types, "*"))
		for _, written := range s.Filter.Types {
			if !isPattern(written) {
				r, _ := c.Resolve(written)
				h.spelt[r.Type] = written
			}
		}
		list = append(list, h)
	}
	return list
}

// printable keeps a name on one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
