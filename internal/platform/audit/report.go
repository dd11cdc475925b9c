package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Class is the result of the audit for a name. Every name is in exactly one class.
// Connected is the only one that needs no attention.
type Class string

// The classes.
const (
	Connected Class = "connected" // emitted and subscribed to
	Orphan    Class = "orphan"    // emitted and not subscribed to
	Dead      Class = "dead"      // subscribed to and not emitted
	Unwired   Class = "unwired"   // in the catalogue, neither emitted nor subscribed to
	Alias     Class = "alias"     // a former name of a type
	Unknown   Class = "unknown"   // in no catalogue
)

// Classes returns all classes, in the order of reports.
func Classes() []Class { return []Class{Connected, Orphan, Dead, Unwired, Alias, Unknown} }

// Entry is one name with its emitters and subscribers.
type Entry struct {
	Name        event.Type `json:"name"`
	Class       Class      `json:"class"`
	Status      string     `json:"status,omitempty"` // as in the catalogue; "" for a name that is in none
	Category    string     `json:"category,omitempty"`
	Emitters    []Wire     `json:"emitters"`           // one for each component and basis
	Subscribers []Wire     `json:"subscribers"`        // likewise
	Reserved    bool       `json:"reserved,omitempty"` // only the cluster can emit it
	Critical    bool       `json:"critical,omitempty"` // its subscriptions must not be missing
	AliasOf     event.Type `json:"alias_of,omitempty"` // the type of an alias
	Likely      []string   `json:"likely,omitempty"`   // for an unknown name: types that it may be meant for
	// Unbacked are subscribers that only the type's definition names. They do not count: the definitions took them
	// from findings.
	Unbacked []string `json:"unbacked,omitempty"`
	// TestEmitters are places in tests that emit the event. They do not count either.
	TestEmitters []string `json:"test_emitters,omitempty"`
}

// Report is a wiring audit.
type Report struct {
	Scope      Scope         `json:"scope"`
	Live       bool          `json:"live,omitempty"` // of what a cluster shows alone
	Totals     map[Class]int `json:"totals"`         // names by class; they add up to Names
	Names      int           `json:"names"`
	Types      []Entry       `json:"types"` // sorted by name
	Drift      []Drift       `json:"drift"`
	Components []Component   `json:"components"` // the coordinators, then the others
	Layers     []Layer       `json:"layers"`
	Categories []Category    `json:"categories"`
	CatchAll   []string      `json:"catch_all"` // subscriptions to everything, which do not make a type connected
	Findings   []Finding     `json:"findings"`
	Tally      []Tally       `json:"tally"` // of the findings, by kind
}

// Live reports what a running cluster shows, and nothing that documents or definitions claim: a name is in the report
// if an event of it is in the log, or if a cursor or a client receives it. Of these, the types that only the cluster
// emits have the cluster as emitter, whether or not an event is in the log.
func Live(c *event.Catalogue, e Evidence) *Report {
	// Of the declarations, only names count: those of types, and how components are spelled.
	b := newBook(Declared(c))
	b.declared.Handlers = nil // the drift would name its patterns
	b.observe(c, e)
	// Names that nothing in the cluster shows are the documents' alone.
	maps.DeleteFunc(b.entries, func(_ event.Type, entry *Entry) bool { return !entry.live() })
	b.classify()
	r := b.report()
	r.Live, r.Scope = true, e.scope()

	// Drift that is not in use, and coordinators without a wire, are the documents'.
	r.Drift = slices.DeleteFunc(r.Drift, func(d Drift) bool {
		return len(d.InUse) == 0 && d.Kind != DriftSpelling && d.Kind != DriftComponent
	})
	r.Components = slices.DeleteFunc(r.Components, func(c Component) bool { return c.Named+c.Matched+c.Emits == 0 })
	for i := range r.Components {
		r.Components[i].Declared = ""
	}
	r.Layers, r.Findings, r.Tally = []Layer{}, []Finding{}, []Tally{}
	return r
}

// live reports whether something in the cluster emits or receives the name. That the cluster itself would emit it does
// not count.
func (e *Entry) live() bool {
	seen := slices.ContainsFunc(e.Emitters, func(w Wire) bool { return w.Basis != Cluster })
	return seen || len(e.Subscribers) > 0
}

// book collects what is known about every name while a report is computed.
type book struct {
	declared *Declarations         // what documents say
	names    components            // resolves spellings, and remembers them for the drift
	entries  map[event.Type]*Entry // by canonical name
	// subscriptions to everything
	catchAll []string
	// for the drift
	spelt []spelling
}

// spelling is a use of a type under a name that is not the type's.
type spelling struct {
	by      string // the component
	written string
	means   event.Type
}

// Run audits the wiring of a catalogue's types. The findings recorded in the built-in catalogue are judged only by
// what that catalogue declares.
func Run(c *event.Catalogue, e Evidence) *Report {
	// The report, with declarations and evidence.
	b := newBook(Declared(c))
	b.declare()
	b.observe(c, e)
	b.classify()
	r := b.report()
	r.Scope = e.scope()
	// The findings, by declarations alone.
	// The built-in catalogue, and not c: what was registered later is not part of what was recorded.
	alone := Compute(Declared(event.Builtin()))
	r.Findings = Judge(alone, RecordedIn(event.Builtin()))
	r.addNow()
	r.Tally = tallyOf(r.Findings)
	return r
}

// Computed is the classification of every name by declarations alone.
// Findings are judged by it, whatever a running cluster shows.
type Computed struct {
	declared *Declarations
	names    components
	entries  map[event.Type]*Entry
}

// Compute classifies every name by the declarations alone.
func Compute(d *Declarations) *Computed {
	// Without evidence, so that two nodes of one build agree.
	b := newBook(d)
	b.declare()
	b.classify()
	return &Computed{d, b.names, b.entries}
}

// Of returns the names of a class, sorted.
func (c *Computed) Of(class Class) (list []event.Type) {
	// The order of a map is random, so the names are sorted below.
	for name, e := range c.entries {
		if e.Class == class {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// newBook enters the names that the documents define or mention, which have a status.
func newBook(d *Declarations) *book {
	b := &book{declared: d, names: newComponents(d), entries: map[event.Type]*Entry{}}
	for _, def := range slices.Concat(d.Types, d.Mentioned) {
		b.entries[def.Name] = &Entry{
			Name:     def.Name,
			Status:   def.Status,
			Category: def.Category,
			AliasOf:  event.Type(def.AliasOf),
			Reserved: event.IsReserved(def.Name),
			Critical: slices.Contains(d.Critical, def.Name),
		}
	}
	return b
}

// declare adds the declared emitters and subscribers.
func (b *book) declare() {
	d := b.declared
	// Wires may add names that no document defines. What does not count needs the wires that do.
	b.addWires(d.emitters(b.names), func(e *Entry) *[]Wire { return &e.Emitters })
	b.addWires(d.subscribers(b.names), func(e *Entry) *[]Wire { return &e.Subscribers })
	for _, def := range slices.Concat(d.Types, d.Mentioned) {
		b.addUncounted(def)
	}
}

// observe adds what a running cluster shows.
func (b *book) observe(c *event.Catalogue, e Evidence) {
	b.addWires(e.emitters(c, b.declared.Types, b.names), func(entry *Entry) *[]Wire { return &entry.Emitters })
	b.listen(e.listen(c))
}

// entry returns the entry of a name, a new one if no document has the name.
func (b *book) entry(name event.Type) *Entry {
	// A wire or a subscription may be the only place that has the name.
	e := b.entries[name]
	if e == nil {
		e = &Entry{Name: name, Reserved: event.IsReserved(name)}
		b.entries[name] = e
	}
	return e
}

// addWires adds wires to one side of the entries: their emitters or their subscribers. side returns the list of an
// entry that they are for.
func (b *book) addWires(list []wire, side func(*Entry) *[]Wire) {
	// Wires with one type first, since they may add names, which patterns match too.
	for _, w := range list {
		if w.event != "" {
			add(side(b.entry(w.event)), w.Wire)
		}
	}
	for _, w := range list {
		if w.event != "" {
			continue
		}
		// A pattern stands for all names known by now.
		for name, e := range b.entries {
			if event.MatchPattern(w.Pattern, name) {
				add(side(e), w.Wire)
			}
		}
	}
}

// add adds a wire, or merges it into the one of the same component and basis.
func add(list *[]Wire, w Wire) {
	i := slices.IndexFunc(*list, func(have Wire) bool { return have.Component == w.Component && have.Basis == w.Basis })
	if i < 0 {
		*list = append(*list, w)
		return
	}
	// Places and events add up; a subscription by name makes the pattern irrelevant.
	have := &(*list)[i]
	have.Places = append(slices.Clip(have.Places), w.Places...)
	have.Events += w.Events
	if w.Pattern == "" {
		have.Pattern = ""
	}
}

// listen adds the subscriptions of a running cluster to the types that they receive.
func (b *book) listen(list []listener) {
	for _, h := range list {
		if h.all {
			b.catchAll = append(b.catchAll, h.component())
			continue
		}
		// A subscription may name a type that no document has.
		for name, written := range h.spelt {
			b.entry(name)
			if string(name) != written {
				b.spelt = append(b.spelt, spelling{h.component(), written, name})
			}
		}
		for name, e := range b.entries {
			if !h.matches(string(name)) {
				continue
			}
			// The pattern is how the subscription spells this type, or its whole filter.
			w := Wire{Component: b.names.canonical(h.component()), Basis: h.Basis}
			if h.spelt[name] != string(name) {
				whole := strings.Join(slices.Concat(h.Filter.Types, h.Filter.Categories), " ")
				w.Pattern = cmp.Or(h.spelt[name], whole)
			}
			add(&e.Subscribers, w)
		}
	}
}

// addUncounted enters what a definition says and what does not count.
func (b *book) addUncounted(d *event.Definition) {
	e := b.entries[d.Name]
	// The emitters that count are wires already.
	for _, written := range d.Emitters {
		// An emitter in a test is shown, but emits nothing in the platform.
		if isPlace(written) && isTest(written) {
			e.TestEmitters = append(e.TestEmitters, written)
		}
	}
	for _, written := range d.Subscribers {
		// A subscriber that no list or table declares was copied from a finding.
		if name := b.names.canonical(written); !hasComponent(e.Subscribers, name) {
			e.Unbacked = append(e.Unbacked, name)
		}
	}
}

// hasComponent reports whether one of the wires is the component's.
func hasComponent(list []Wire, name string) bool {
	return slices.ContainsFunc(list, func(w Wire) bool { return w.Component == name })
}

// classify sorts the wires of every entry and sets its class.
func (b *book) classify() {
	for _, e := range b.entries {
		// Sorted, so that reports are equal; empty instead of nil, which JSON would print as null.
		for _, side := range []*[]Wire{&e.Emitters, &e.Subscribers} {
			slices.SortFunc(*side, func(x, y Wire) int {
				return cmp.Or(cmp.Compare(x.Component, y.Component), cmp.Compare(x.Basis, y.Basis))
			})
			if *side == nil {
				*side = []Wire{}
			}
		}
		slices.Sort(e.Unbacked)
		e.Class = classOf(e)
		if e.Class == Unknown && e.Status != event.StatusTestOnly {
			e.Likely = likely(b.declared.Spellings, e.Name)
		}
	}
}

// classOf returns the class of a name by its status and its wires.
func classOf(e *Entry) Class {
	// Only wires that count are in these two lists.
	emitted, heard := len(e.Emitters) > 0, len(e.Subscribers) > 0
	// Names that are not types have their class by status, whatever their wires.
	switch {
	case e.Status == event.StatusAlias:
		return Alias
	case e.Status == "" || e.Status == event.StatusTestOnly:
		return Unknown
	case emitted && heard:
		return Connected
	case emitted:
		return Orphan
	case heard:
		return Dead
	}
	return Unwired
}

// likely returns the types that an unknown name may be meant for: of the candidates nearest in spelling, those that
// share a word with it, the most words first.
func likely(s Spellings, name event.Type) []string {
	const most, candidates = 3, 8
	// shared counts the words, by stem, that a candidate has in common with the name.
	// Spelling alone finds names that mean something else, so a word must be in common.
	words := stems(string(name))
	shared := func(near string) (n int) {
		for _, w := range stems(near) {
			n += one(slices.Contains(words, w))
		}
		return n
	}
	list := s.Nearest(string(name), candidates)
	list = slices.DeleteFunc(list, func(near string) bool { return shared(near) == 0 })
	slices.SortStableFunc(list, func(x, y string) int { return cmp.Compare(shared(y), shared(x)) })
	return list[:min(most, len(list))]
}

// report computes the lists and totals.
func (b *book) report() *Report {
	r := &Report{
		Totals:   map[Class]int{},
		Names:    len(b.entries),
		Types:    []Entry{},
		CatchAll: slices.Sorted(slices.Values(b.catchAll)),
	}
	// The totals have all classes, also those without a name.
	for _, c := range Classes() {
		r.Totals[c] = 0
	}
	// By name, so that two reports of the same input are equal.
	for _, name := range slices.Sorted(maps.Keys(b.entries)) {
		r.Types = append(r.Types, *b.entries[name])
		r.Totals[b.entries[name].Class]++
	}
	// The other parts are computed from the entries, which are complete now.
	r.Drift = b.drift()
	r.Components = b.components(r.Types)
	r.Layers = layersOf(b.declared.Coordinators, r.Types)
	r.Categories = categoriesOf(r.Types)
	// JSON has [] for none, as for the other lists.
	if r.CatchAll == nil {
		r.CatchAll = []string{}
	}
	return r
}
