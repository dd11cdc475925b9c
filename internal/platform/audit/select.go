package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Lists returns the names of the parts of a report, for --only and --fail-on.
func Lists() []string {
	return []string{
		"orphans", "dead", "connected", "unwired", "aliases", "unknown",
		"drift", "findings", "contradicted", "unmapped",
		"components", "layers", "categories",
	}
}

// Errors about a name that a report does not have wrap ErrNoList or ErrNoComponent.
var (
	ErrNoList      = errors.New("there is no such list")
	ErrNoComponent = errors.New("no such component emits or listens")
)

// ParseLists reads a comma separated list of names; "" is none. A name that is no list is an error that wraps
// ErrNoList.
func ParseLists(text string) (names []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		// Empty parts, as in a list that ends with a comma, are skipped.
		part = strings.ToLower(strings.TrimSpace(part))
		if part == "" {
			continue
		}
		if !slices.Contains(Lists(), part) {
			return nil, fmt.Errorf("audit: %q: %w; use %s", part, ErrNoList, strings.Join(Lists(), ", "))
		}
		names = append(names, part)
	}
	return names, nil
}

// classOfList returns the class whose names a list has, "" for a list of something else.
func classOfList(name string) Class {
	// The other lists are parts of their own, not types.
	switch name {
	case "orphans":
		return Orphan
	case "aliases":
		return Alias
	case "dead", "connected", "unwired", "unknown":
		return Class(name)
	}
	return ""
}

// Only returns the report with only the named lists, or with all if none is named. The totals remain those of the
// whole. The names are those of Lists.
func (r *Report) Only(lists []string) *Report {
	if len(lists) == 0 {
		return r
	}
	// A copy shares what is kept with the whole report, which stays as it is.
	out := *r
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(lists, n) })
	}
	// Types by class and findings by list; every other part is kept or dropped as a whole. Parts are never nil,
	// which JSON would print as null.
	out.Types = slices.DeleteFunc(slices.Clone(r.Types), func(e Entry) bool {
		return !slices.ContainsFunc(lists, func(name string) bool { return classOfList(name) == e.Class })
	})
	out.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		return !slices.ContainsFunc(lists, f.in)
	})
	// The tally counts findings, so it goes with them.
	if !has("findings", "contradicted", "unmapped") {
		out.Tally = []Tally{}
	}
	if !has("drift") {
		out.Drift = []Drift{}
	}
	if !has("components") {
		out.Components = []Component{}
	}
	if !has("layers") {
		out.Layers = []Layer{}
	}
	if !has("categories") {
		out.Categories = []Category{}
	}
	return &out
}

// in reports whether a list has the finding.
func (f Finding) in(list string) bool {
	// A finding may be in several lists.
	switch list {
	case "findings":
		return true
	case "contradicted":
		return f.Verdict == Contradicted
	case "unmapped":
		return f.Kind == FindingUnmapped
	}
	return false
}

// About returns the part of the report that concerns one component, given by any of its spellings in any case. The
// totals remain those of the whole. An error wraps ErrNoComponent.
func (r *Report) About(component string) (*Report, error) {
	// Nothing is guessed: a component that no declaration and no evidence names is an error.
	name := r.find(component)
	if name == "" {
		return nil, fmt.Errorf("audit: %q: %w", component, ErrNoComponent)
	}
	out := *r
	// A type concerns the component if it has a wire of it, or if its definition alone names it.
	out.Types = slices.DeleteFunc(slices.Clone(r.Types), func(e Entry) bool {
		wired := hasComponent(e.Emitters, name) || hasComponent(e.Subscribers, name)
		return !wired && !slices.Contains(e.Unbacked, name)
	})
	// What is counted of the component stays as in the whole.
	out.Components = slices.DeleteFunc(slices.Clone(r.Components), func(c Component) bool { return c.Name != name })
	// Findings and drift also concern it if they are about one of its types.
	out.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		about := slices.ContainsFunc(out.Types, func(e Entry) bool { return string(e.Name) == f.Subject })
		return f.Subject != name && !about
	})
	out.Drift = slices.DeleteFunc(slices.Clone(r.Drift), func(d Drift) bool {
		about := slices.ContainsFunc(out.Types, func(e Entry) bool { return slices.Contains(d.Names, string(e.Name)) })
		return !about && !slices.Contains(d.Names, name)
	})
	// Layers and categories count all components, so they say nothing about one.
	out.Layers, out.Categories, out.Tally = []Layer{}, []Category{}, tallyOf(out.Findings)
	return &out, nil
}

// find returns the name of the component with a spelling, "" if there is none. The ways of spelling are tried from the
// most specific to the least.
func (r *Report) find(spelt string) string {
	// By its file, which is the most specific.
	module := moduleOf(spelt)
	for _, c := range r.Components {
		if module != "" && moduleOf(c.File) == module {
			return c.Name
		}
	}
	// By its name or class.
	for _, c := range r.Components {
		byName := strings.EqualFold(c.Name, spelt) || (module != "" && c.Name == module)
		byClass := c.Class != "" && strings.EqualFold(c.Class, spelt)
		if byName || byClass {
			return c.Name
		}
	}
	// By any other spelling that was seen.
	for _, d := range r.Drift {
		same := d.Kind == DriftComponent &&
			slices.ContainsFunc(d.Names, func(n string) bool { return strings.EqualFold(n, spelt) })
		if same && slices.ContainsFunc(r.Components, func(c Component) bool { return c.Name == d.Names[0] }) {
			return d.Names[0]
		}
	}
	return ""
}

// Count returns the length of a list of the report.
func (r *Report) Count(list string) int {
	// The parts that are lists by themselves.
	switch list {
	case "drift":
		return len(r.Drift)
	case "components":
		return len(r.Components)
	case "layers":
		return len(r.Layers)
	case "categories":
		return len(r.Categories)
	}
	// A list of types or of findings; a name is one of the two.
	n := 0
	for _, e := range r.Types {
		n += one(e.Class == classOfList(list))
	}
	for _, f := range r.Findings {
		n += one(f.in(list))
	}
	return n
}
