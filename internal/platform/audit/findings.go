package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Verdict is what the declarations say about a finding.
// The recorded findings are themselves a document: they may be out of date, or have been wrong.
type Verdict string

// The verdicts.
const (
	Confirmed    Verdict = "confirmed"     // the computed lists have it
	Contradicted Verdict = "contradicted"  // a declaration says otherwise
	NotDerivable Verdict = "not_derivable" // the declarations say neither
)

// Verdicts are all verdicts, in the order of reports.
func Verdicts() []Verdict { return []Verdict{Confirmed, Contradicted, NotDerivable} }

// Kinds of a Finding.
const (
	FindingOrphan   = "orphan_event"
	FindingDead     = "dead_subscription"
	FindingCount    = "coordinator_count"
	FindingUnmapped = "unmapped_event"
)

// FindingKinds are all kinds, in the order of reports.
func FindingKinds() []string {
	return []string{FindingOrphan, FindingDead, FindingCount, FindingUnmapped}
}

// Finding is a finding that the platform's own audit recorded, with the verdict of the declarations.
type Finding struct {
	Kind     string  `json:"kind"`
	Subject  string  `json:"subject"`            // the event, or the coordinator
	Severity string  `json:"severity,omitempty"` // as recorded; the impact of an unmapped event
	Says     string  `json:"says"`               // what was recorded, in words
	Verdict  Verdict `json:"verdict"`
	// in words, for people
	Because  string   `json:"because"`
	Evidence []string `json:"evidence,omitempty"` // the declarations that support the verdict
	// Now is the event's class with the evidence of the running cluster, which the verdict does not depend on.
	Now Class `json:"now,omitempty"`
}

// Tally counts the findings of a kind; the verdicts add up to Findings.
type Tally struct {
	Kind     string          `json:"kind"`
	Findings int             `json:"findings"`
	Verdicts map[Verdict]int `json:"verdicts"`
}

// Recorded are the findings of the platform's own audit.
type Recorded struct {
	Orphans []event.OrphanEvent
	Dead    []event.DeadSubscription
	Counts  []event.Coordinator // each with the number of subscriptions that it declares
	// Unmapped are the events of the table of events that do not cross processes.
	Unmapped []*event.Definition
}

// RecordedIn returns the recorded findings of a catalogue.
// A count is judged for each coordinator, and the table of unmapped events row by row.
func RecordedIn(c *event.Catalogue) Recorded {
	// Coordinators are judged with or without a number; one without is not derivable.
	r := Recorded{Orphans: c.Wiring().OrphanEvents, Dead: c.Wiring().DeadSubscriptions, Counts: c.Coordinators()}
	// A definition has an impact only if the table of unmapped events lists it.
	for _, d := range c.Definitions() {
		if d.Impact != "" {
			r.Unmapped = append(r.Unmapped, d)
		}
	}
	return r
}

// Judge compares each finding with what was computed.
func Judge(c *Computed, r Recorded) []Finding {
	// In the order of FindingKinds.
	var list []Finding
	for _, o := range r.Orphans {
		list = append(list, c.judgeOrphan(o))
	}
	for _, d := range r.Dead {
		list = append(list, c.judgeDead(d))
	}
	for _, one := range r.Counts {
		list = append(list, c.judgeCount(one))
	}
	for _, d := range r.Unmapped {
		list = append(list, c.judgeUnmapped(d))
	}
	return list
}

// entry returns what was computed about a name, an empty Entry if there is nothing.
func (c *Computed) entry(name event.Type) *Entry {
	// A finding may name what no declaration has.
	// What is nil has no wires, so the judges below need no case for it.
	if e := c.entries[name]; e != nil {
		return e
	}
	return &Entry{Name: name}
}

// judgeOrphan checks that an event is emitted and that nobody subscribes to it.
func (c *Computed) judgeOrphan(o event.OrphanEvent) Finding {
	// Evidence of a running cluster is left out: the finding was about the declarations.
	e := c.entry(o.Event)
	// NotDerivable is the verdict unless a case below finds more.
	f := Finding{Kind: FindingOrphan, Subject: string(o.Event), Severity: o.Severity, Verdict: NotDerivable,
		Says: fmt.Sprintf("%s emits it and nobody subscribes", o.Emitter)}
	if o.Note != "" {
		f.Says += " (" + o.Note + ")"
	}
	// A declared subscription contradicts the finding, even if nobody emits the event.
	switch {
	case len(e.Subscribers) > 0:
		f.Verdict, f.Because, f.Evidence = Contradicted, "it is subscribed to", c.wireWords(e, e.Subscribers)
	case len(e.Emitters) > 0:
		f.Verdict, f.Because = Confirmed, "it is emitted, and no declaration subscribes to it"
		f.Evidence = c.wireWords(e, e.Emitters)
	default:
		f.Because = fmt.Sprintf("no declaration subscribes to it; only the finding says that %s emits it",
			o.Emitter)
	}
	// Wires of an alias are its own, not those of its type, which may be connected.
	if e.Class == Alias {
		f.Evidence = append(f.Evidence, fmt.Sprintf("an alias of %s, which is %s", e.AliasOf, c.entry(e.AliasOf).Class))
	}
	return f
}

// judgeDead checks that an event is subscribed to and that nobody emits it.
func (c *Computed) judgeDead(d event.DeadSubscription) Finding {
	// The reverse of judgeOrphan.
	e := c.entry(d.Event)
	f := Finding{Kind: FindingDead, Subject: string(d.Event), Severity: d.Severity, Verdict: NotDerivable,
		Says: fmt.Sprintf("%s subscribes to it and nobody emits it", d.Subscriber)}
	if d.Subscriber == "multiple" {
		f.Says = "several subscribe to it and nobody emits it"
	}
	// Which component the finding names only matters for the wording: any declared subscription confirms it.
	name := c.names.canonical(d.Subscriber)
	switch {
	case len(e.Emitters) > 0:
		f.Verdict, f.Because, f.Evidence = Contradicted, "it is emitted", c.wireWords(e, e.Emitters)
	case len(e.Subscribers) == 0:
		f.Because = fmt.Sprintf("no declaration emits it; only the finding says that %s subscribes", d.Subscriber)
	case isEverybody(d.Subscriber) || hasComponent(e.Subscribers, name):
		f.Verdict, f.Because = Confirmed, "it is subscribed to, and no declaration emits it"
		f.Evidence = c.wireWords(e, e.Subscribers)
	default:
		f.Verdict = Confirmed
		f.Because = "it is subscribed to, though by others than the finding names, and no declaration emits it"
		f.Evidence = c.wireWords(e, e.Subscribers)
	}
	return f
}

// judgeCount compares the number of subscriptions that a coordinator declares with its own list.
func (c *Computed) judgeCount(one event.Coordinator) Finding {
	// What else declares subscriptions of it is evidence, whatever the verdict.
	f := Finding{Kind: FindingCount, Subject: one.Name, Says: one.Declared, Verdict: NotDerivable}
	listed, others, matched := c.subscriptions(one.Name)
	if len(others) > 0 {
		f.Evidence = append(f.Evidence, "other documents name also: "+strings.Join(others, ", "))
	}
	if len(matched) > 0 {
		patterns := strings.Join(c.patterns(one.Name), ", ")
		f.Evidence = append(f.Evidence, fmt.Sprintf("patterns match %d more: %s", len(matched), patterns))
	}
	// Only the coordinator's own list can confirm a number. Without one, more declarations than the number
	// contradict it.
	known := len(listed) + len(others) + len(matched)
	switch {
	case one.DeclaredCount == nil && one.Delegate != "":
		f.Because = fmt.Sprintf("it gives no number: %s does its work", one.Delegate)
	case one.DeclaredCount == nil:
		f.Because = "it gives no exact number; declarations name " + number(known)
	case len(listed) == 0 && known > *one.DeclaredCount:
		f.Verdict, f.Because = Contradicted, fmt.Sprintf("declarations name %d", known)
	case len(listed) == 0:
		f.Because = "its subscriptions are not listed; declarations name " + number(known)
	case len(listed) == *one.DeclaredCount:
		f.Verdict, f.Because = Confirmed, fmt.Sprintf("its own list names %d", len(listed))
	default:
		f.Verdict, f.Because = Contradicted, fmt.Sprintf("its own list names %d", len(listed))
	}
	return f
}

// number prints how many declarations there are.
func number(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// subscriptions returns the types that a coordinator's own list names, those that only other documents name, and those
// that only patterns match.
func (c *Computed) subscriptions(coordinator string) (listed, others, matched []string) {
	// Over all entries: a coordinator's wires are in the entries of the types.
	for name, e := range c.entries {
		// The strongest way in which the coordinator subscribes to this type.
		var own, named, any bool
		for _, w := range e.Subscribers {
			if w.Component == coordinator {
				own = own || w.Basis == OwnList
				named = named || w.Pattern == ""
				any = true
			}
		}
		// Each type is in one list only, that of the strongest way.
		switch {
		case own:
			listed = append(listed, string(name))
		case named:
			others = append(others, string(name))
		case any:
			matched = append(matched, string(name))
		}
	}
	// The entries come from a map.
	// The other two lists are only counted.
	slices.Sort(others)
	return listed, others, matched
}

// patterns returns the patterns of a coordinator in the handler index.
func (c *Computed) patterns(coordinator string) (list []string) {
	// The index names modules, which may be another spelling of the coordinator.
	for _, h := range c.declared.Handlers {
		if c.names.canonical(h.Module) == coordinator {
			list = append(list, h.Patterns...)
		}
	}
	return list
}

// judgeUnmapped checks whether a declaration says that an event of the table crosses processes after all.
func (c *Computed) judgeUnmapped(d *event.Definition) Finding {
	f := Finding{Kind: FindingUnmapped, Subject: string(d.Name), Severity: d.Impact, Verdict: NotDerivable,
		Says:    "it does not cross processes",
		Because: "no other declaration says which events cross processes"}
	// Nil means that the catalogue does not say.
	if d.CrossProcess != nil && *d.CrossProcess {
		f.Verdict = Contradicted
		f.Because = "the catalogue has it cross processes"
		f.Evidence = append(f.Evidence,
			"cross_process is true, basis "+d.CrossProcessBasis+": among the rows that were reported as fixed")
	}
	// Wiring between components hints at it, but components may share a process.
	// The verdict stays: what this shows is no proof.
	if from, to := crossing(c.entry(d.Name)); from != "" {
		f.Evidence = append(f.Evidence, fmt.Sprintf("its wiring leads from %s to %s", from, to))
	}
	return f
}

// crossing returns an emitter and a subscriber that are different components, "" if there are none.
func crossing(e *Entry) (from, to string) {
	// One pair is enough for the hint.
	for _, w := range e.Emitters {
		for _, s := range e.Subscribers {
			if s.Component != w.Component {
				return w.Component, s.Component
			}
		}
	}
	return "", ""
}

// wireWords prints each wire: its component, and where it is declared.
func (c *Computed) wireWords(e *Entry, list []Wire) (words []string) {
	for _, w := range list {
		text := w.words()
		// A pattern may match what the coordinator's own list lacks.
		// nil is a component without a list: nothing can be missing from it.
		own := c.names.registry[w.Component].SubscribedEvents
		if w.Pattern != "" && own != nil && !slices.Contains(own, e.Name) {
			text += ", though not in its own list"
		}
		words = append(words, text)
	}
	return words
}

// words prints a wire: its component, and where it is declared or was seen.
func (w Wire) words() string {
	// The basis first, then what is known of it: a pattern, places in the source, or a number of events.
	where := strings.ReplaceAll(string(w.Basis), "_", " ")
	if w.Pattern != "" {
		where += ": " + w.Pattern
	}
	for _, p := range w.Places {
		where += " " + p
	}
	if w.Events > 0 {
		where += fmt.Sprintf(": %d", w.Events)
	}
	return fmt.Sprintf("%s (%s)", w.Component, where)
}

// addNow sets Now of the findings about events.
func (r *Report) addNow() {
	// The types of a report are sorted by name.
	for i, f := range r.Findings {
		// A finding may be about a name that the report does not have.
		at, found := slices.BinarySearchFunc(r.Types, event.Type(f.Subject), func(e Entry, t event.Type) int {
			return cmp.Compare(e.Name, t)
		})
		// The subject of a count is a coordinator, which may have the name of a type.
		if found && f.Kind != FindingCount {
			r.Findings[i].Now = r.Types[at].Class
		}
	}
}

// tallyOf counts findings by kind and verdict, with a zero for each verdict that none has.
func tallyOf(findings []Finding) []Tally {
	list := []Tally{}
	for _, kind := range FindingKinds() {
		// Every kind and every verdict is in the list, so a report always has the same rows.
		t := Tally{Kind: kind, Verdicts: map[Verdict]int{}}
		for _, v := range Verdicts() {
			t.Verdicts[v] = 0
		}
		for _, f := range findings {
			if f.Kind == kind {
				t.Findings++
				t.Verdicts[f.Verdict]++
			}
		}
		list = append(list, t)
	}
	return list
}
