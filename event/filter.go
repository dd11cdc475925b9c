package event

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a Filter.
// They bound what a filter costs to store, to compile and to match.
const (
	maxFilterEntries = 256
	maxEntryBytes    = 256
	MaxFilterBytes   = 16 << 10 // of all entries, as Filter.Bytes counts them
)

// Filter chooses events. Entries of one list are alternatives, lists must all agree, an empty list allows all.
type Filter struct {
	// Types are names, values, aliases or topics in any case, or patterns of them with * and ?, such as
	// training.* or *_FAILED.
	Types          []string `json:"types,omitempty"`
	Categories     []string `json:"categories,omitempty"` // in any case; an unknown type is in none
	Sources        []string `json:"sources,omitempty"`
	Keys           []string `json:"keys,omitempty"`
	CorrelationIDs []string `json:"correlation_ids,omitempty"`
}

// Empty reports whether the filter allows every event.
func (f Filter) Empty() bool {
	return len(f.Types)+len(f.Categories)+len(f.Sources)+len(f.Keys)+len(f.CorrelationIDs) == 0
}

// Bytes returns the size of the filter: the text of its entries, and 16 bytes for each.
func (f Filter) Bytes() int {
	// The 16 bytes stand for what an entry takes beside its text.
	// The result bounds what a stored filter takes in a state.
	n := 0
	for _, list := range [][]string{f.Types, f.Categories, f.Sources, f.Keys, f.CorrelationIDs} {
		for _, entry := range list {
			n += len(entry) + 16
		}
	}
	return n
}

// Validate checks the bounds (256 entries a list, 256 bytes an entry, MaxFilterBytes) and the characters.
func (f Filter) Validate() error {
	if n := f.Bytes(); n > MaxFilterBytes {
		return fieldError(ReasonTooLarge, "filter",
			"%d bytes (16 for each entry beside its text), the limit is %d", n, MaxFilterBytes)
	}
	// Entry by entry; the error names the list and the index.
	lists := []struct {
		name    string
		entries []string
	}{{"types", f.Types}, {"categories", f.Categories}, {"sources", f.Sources}, {"keys", f.Keys},
		{"correlation_ids", f.CorrelationIDs}}
	for _, l := range lists {
		if len(l.entries) > maxFilterEntries {
			return fieldError(ReasonTooLarge, l.name, "%d entries, the limit is %d", len(l.entries), maxFilterEntries)
		}
		for i, s := range l.entries {
			if err := validateFilterEntry(fmt.Sprintf("%s[%d]", l.name, i), s, l.name == "types"); err != nil {
				return err
			}
		}
	}
	return nil
}

// validateFilterEntry checks one entry; field names it in errors.
func validateFilterEntry(field, s string, isType bool) error {
	switch {
	case s == "":
		return fieldError(ReasonInvalidField, field, "empty")
	case len(s) > maxEntryBytes:
		return fieldError(ReasonTooLarge, field, "%d bytes, the limit is %d", len(s), maxEntryBytes)
	case !utf8.ValidString(s):
		return fieldError(ReasonInvalidUTF8, field, "not valid UTF-8")
	case isType && strings.Trim(s, typeCharacters+"*?") != "":
		return fieldError(ReasonInvalidType, field, "%q has a character no event type has", s)
	}
	// Types cannot contain one: their characters were checked above.
	if i := indexControl(s); i >= 0 {
		return fieldError(ReasonInvalidField, field, "control character at byte %d", i)
	}
	return nil
}

// maxFilterWarnings bounds the warnings about one filter.
const maxFilterWarnings = 8

// Warnings says which parts of a valid filter match no type of the catalogue. A type that the catalogue lacks may
// still be published, unless the cluster is strict, so the filter is not wrong for sure. Sources, keys and
// correlation ids are the producers' own and are not judged.
func (f Filter) Warnings(c *Catalogue) []Warning {
	var list []Warning
	defs := slices.Concat(c.Definitions(), c.Own())
	// A warning for each entry that matches nothing, whatever the others match.
	for i, t := range f.Types {
		field := fmt.Sprintf("types[%d]", i)
		// A pattern is compared with the folded names and values.
		if strings.ContainsAny(t, "*?") {
			p := foldName(t)
			if !slices.ContainsFunc(defs, func(d *Definition) bool { return d.matches(p) }) {
				list = append(list, warning(WarningUnknownType, field,
					"no type of the catalogue matches %s%s", t, c.nearText(t)))
			}
		} else if _, known := c.Resolve(t); !known {
			list = append(list, warning(WarningUnknownType, field, "%s is not in the catalogue%s", t, c.nearText(t)))
		}
		// More of them would say the same.
		if len(list) == maxFilterWarnings {
			return list
		}
	}
	// Each list alone may match, and both together nothing.
	if len(list) == 0 && len(f.Types) > 0 && len(f.Categories) > 0 {
		m := f.Compile(c)
		if !slices.ContainsFunc(defs, func(d *Definition) bool { return m.MatchType(string(d.Name)) }) {
			list = append(list, warning(WarningNoMatch, "categories",
				"none of the types is in category %s: no event passes both", strings.Join(f.Categories, ", ")))
		}
	}
	return list
}

// nearText names the types that a misspelt one may stand for, after a semicolon; "" if none is close.
func (c *Catalogue) nearText(spelt string) string {
	// What is longer than every type resembles none.
	if len(spelt) > longestNear {
		return ""
	}
	// A third of the letters may differ: a suggestion that is far off is worse than none.
	near := c.nearest(spelt, 3, max(2, len(strings.Trim(spelt, "*?"))/3))
	if len(near) == 0 {
		return ""
	}
	return "; nearest known types: " + strings.Join(near, ", ")
}

// Matcher is a compiled Filter. The zero Matcher allows every event. It is safe for concurrent use and does not
// allocate.
type Matcher struct {
	// Without them every type passes.
	byType    bool            // the filter has types or categories
	within    *Matcher        // what else the type has to pass; nil is nothing
	known     map[string]bool // every type of the catalogue and every exact name of the filter: allowed or not
	patterns  []string        // for types that are not in known; none if the filter has categories
	sources   map[string]bool // nil allows all, as for keys and corrs
	keys      map[string]bool
	corrs     map[string]bool
	keyList   []string
	corrsList []string
}

// Compile resolves names, aliases, patterns and categories against the catalogue as it is now.
func (f Filter) Compile(c *Catalogue) Matcher {
	// Lists are copied, so the caller may change the filter afterwards.
	m := Matcher{
		byType:    len(f.Types)+len(f.Categories) > 0,
		sources:   setOf(f.Sources),
		keys:      setOf(f.Keys),
		corrs:     setOf(f.CorrelationIDs),
		keyList:   slices.Clone(f.Keys),
		corrsList: slices.Clone(f.CorrelationIDs),
	}
	// Without types and categories, every type passes.
	if m.byType {
		m.compileTypes(f, c)
	}
	return m
}

// compileTypes decides about every type of the catalogue in advance.
func (m *Matcher) compileTypes(f Filter, c *Catalogue) {
	// Split the entries into exact names and patterns.
	exact, patterns := map[Type]bool{}, []string(nil)
	for _, t := range f.Types {
		if strings.ContainsAny(t, "*?") {
			patterns = append(patterns, foldName(t))
			continue
		}
		// A name that is not known resolves to its folded form, which events of the type have.
		r, _ := c.Resolve(t)
		exact[r.Type] = true
	}
	// Categories are compared in lower case.
	categories := map[string]bool{}
	for _, name := range f.Categories {
		categories[strings.ToLower(name)] = true
	}
	// A known type has to pass both lists; an empty list allows all.
	m.known = map[string]bool{}
	for _, d := range slices.Concat(c.Definitions(), c.Own()) {
		// Types allow all if there are none, and else by name or pattern.
		byName := len(f.Types) == 0 || exact[d.Name] || slices.ContainsFunc(patterns, d.matches)
		m.known[string(d.Name)] = byName && (len(categories) == 0 || categories[strings.ToLower(d.Category)])
	}
	// An unknown type is in no category. Without categories it is decided by name, or by pattern when it is seen.
	if len(categories) > 0 {
		return
	}
	// known decides before patterns do, so an exact name is entered as allowed.
	for t := range exact {
		m.known[string(t)] = true
	}
	m.patterns = patterns
}

// Within returns a matcher that allows what m allows, and of that only the types that scope allows.
func (m Matcher) Within(scope Matcher) Matcher {
	m.within = &scope
	return m
}

// Empty reports whether the matcher allows every event.
func (m *Matcher) Empty() bool {
	return !m.byType && m.within == nil && len(m.sources)+len(m.keys)+len(m.corrs) == 0
}

// Match reports whether the event passes. Its type must be canonical.
func (m *Matcher) Match(e *Event) bool {
	return m.MatchType(string(e.Type)) && m.MatchSource(e.Source) &&
		(len(m.keys) == 0 || m.keys[e.Key]) && (len(m.corrs) == 0 || m.corrs[e.CorrelationID])
}

// MatchType reports whether an event of this canonical type may pass.
func (m *Matcher) MatchType(t string) bool {
	if m.within != nil && !m.within.MatchType(t) {
		return false
	}
	if !m.byType {
		return true
	}
	// The common case: a type that Compile knew. Others are matched by pattern each time.
	if allowed, ok := m.known[t]; ok {
		return allowed
	}
	for _, p := range m.patterns {
		if Glob(p, t) {
			return true
		}
	}
	return false
}

// Within reports whether every event that passes the filter has a type that one of the patterns allows, whatever types
// are registered later. No pattern allows nothing.
func (f Filter) Within(patterns []string, c *Catalogue) bool {
	if slices.Contains(patterns, "*") {
		return true
	}
	allowed, m := Filter{Types: patterns}.Compile(c), f.Compile(c)
	beyond := func(d *Definition) bool { return m.MatchType(string(d.Name)) && !allowed.MatchType(string(d.Name)) }
	if len(patterns) == 0 || slices.ContainsFunc(slices.Concat(c.Definitions(), c.Own()), beyond) {
		return false
	}
	// A type that is not registered is in no category.
	if len(f.Categories) > 0 {
		return true
	}
	// Entry by entry: without one, every type passes.
	for _, entry := range f.Types {
		resolved, _ := c.Resolve(entry)
		exact := !strings.ContainsAny(entry, "*?")
		if exact && allowed.MatchType(string(resolved.Type)) {
			continue
		}
		// A star of a pattern matches a star of the entry, and what that matches. A question mark matches one character.
		covers := func(pattern string) bool {
			p, e := foldName(pattern), foldName(entry)
			return p == e || (!strings.Contains(p, "?") && Glob(p, e))
		}
		if exact || !slices.ContainsFunc(patterns, covers) {
			return false
		}
	}
	return len(f.Types) > 0
}

// MatchSource reports whether an event of this source may pass.
func (m *Matcher) MatchSource(s string) bool { return len(m.sources) == 0 || m.sources[s] }

// Keys returns the keys of the filter, none if all are allowed. The caller must not change the slice.
func (m *Matcher) Keys() []string { return m.keyList }

// CorrelationIDs returns the correlation ids of the filter, none if all are allowed. The caller must not change the
// slice.
func (m *Matcher) CorrelationIDs() []string { return m.corrsList }

// MatchPattern reports whether a type matches a pattern: a name or value in any case, dotted or not, in which *
// matches any run of characters and ? one character. A built-in type also matches by its value: sync.* matches
// DATA_SYNC_STARTED.
func MatchPattern(pattern string, t Type) bool {
	// An unknown type has a name and no value of its own.
	p := foldName(pattern)
	if d, ok := Builtin().Definition(t); ok {
		return d.matches(p)
	}
	return Glob(p, string(t))
}

// Glob reports whether s matches a pattern with * and ?. Only the last star is ever revisited, which is enough:
// what an earlier star matched cannot be improved by matching more. So the time is at most the product of both
// lengths.
func Glob(pattern, s string) bool {
	p, i := 0, 0        // the next byte of each
	star, mark := -1, 0 // the last star in the pattern, and up to where in s it matches
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			// Begin with a star that matches nothing.
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			// Let the star match one byte more, and try the rest of the pattern again.
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	// What is left of the pattern may only be stars, which match nothing.
	return strings.Trim(pattern[p:], "*") == ""
}

// setOf returns the entries as a set, nil if there are none.
func setOf(list []string) map[string]bool {
	if len(list) == 0 {
		return nil
	}
	// Nil and an empty set differ: nil allows all.
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}
