package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Drift is one thing under several names.
type Drift struct {
	Kind   string   `json:"kind"`             // one of the Drift constants
	Names  []string `json:"names"`            // the spellings, the recommended one first where there is one
	InUse  []string `json:"in_use,omitempty"` // who uses another than the recommended one
	Detail string   `json:"detail"`
}

// Kinds of a Drift.
const (
	DriftValue     = "value"     // a value that is not the lower-cased name
	DriftAlias     = "alias"     // a former name of a type
	DriftWritten   = "written"   // a declaration or a subscription that names a type by something else than its name
	DriftSpelling  = "spelling"  // names that differ in the form of their words alone
	DriftEnding    = "ending"    // _COMPLETE where the convention is _COMPLETED
	DriftComponent = "component" // a component under several names
	DriftField     = "field"     // payload fields that seem to be one
)

func (b *book) drift() []Drift {
	list := slices.Concat(b.valueDrift(), b.aliasDrift(), b.writtenDrift(), b.spellingDrift(), b.componentDrift(), fieldDrift(b.declared.Types))
	slices.SortStableFunc(list, func(x, y Drift) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), slices.Compare(x.Names, y.Names))
	})
	if list == nil {
		list = []Drift{}
	}
	return list
}

func (b *book) valueDrift() (list []Drift) {
	for _, d := range b.declared.Types {
		if d.Value != strings.ToLower(string(d.Name)) {
			list = append(list, Drift{Kind: DriftValue, Names: []string{string(d.Name), d.Value}, Detail: "the value is not the lower-cased name"})
		}
		if strings.HasSuffix(string(d.Name), "_COMPLETE") {
			list = append(list, Drift{Kind: DriftEnding, Names: []string{string(d.Name)}, Detail: "other types end in _COMPLETED"})
		}
	}
	return list
}

func (b *book) aliasDrift() (list []Drift) {
	for _, d := range b.declared.Mentioned {
		if d.Status != event.StatusAlias {
			continue
		}
		r, _ := b.declared.Spellings.Resolve(string(d.Name))
		one := Drift{Kind: DriftAlias, Names: []string{string(r.Type), string(d.Name)}, Detail: fmt.Sprintf("stored as %s", r.Type)}
		if r.Renamed {
			one.Detail += fmt.Sprintf(", although %sD is a type of its own", d.Name)
		}
		for _, s := range b.spelt {
			if strings.EqualFold(s.written, string(d.Name)) {
				one.InUse = append(one.InUse, s.by)
			}
		}
		list = append(list, one)
	}
	return list
}

// writtenDrift finds types that are named by value, alias or topic.
func (b *book) writtenDrift() (list []Drift) {
	written := slices.DeleteFunc(slices.Clone(b.spelt), func(s spelling) bool {
		r, _ := b.declared.Spellings.Resolve(s.written)
		return r.Via == event.ViaAlias
	})
	for _, h := range b.declared.Handlers {
		for _, p := range h.Patterns {
			if r, known := b.declared.Spellings.Resolve(p); known && !isPattern(p) && string(r.Type) != p {
				written = append(written, spelling{h.Module, p, r.Type})
			}
		}
	}
	found := map[[2]string][]string{}
	for _, s := range written {
		k := [2]string{string(s.means), s.written}
		found[k] = append(found[k], s.by)
	}
	for k, by := range found {
		r, _ := b.declared.Spellings.Resolve(k[1])
		slices.Sort(by)
		list = append(list, Drift{Kind: DriftWritten, Names: k[:], InUse: slices.Compact(by), Detail: fmt.Sprintf("%s is a %s of %s", k[1], viaWord(r.Via), k[0])})
	}
	return list
}

func viaWord(v event.Via) string {
	if v == event.ViaUnknown || v == event.ViaName {
		return "spelling"
	}
	return string(v)
}

func isPattern(s string) bool { return strings.ContainsAny(s, "*?") }

// spellingDrift finds names whose words have the same stems.
func (b *book) spellingDrift() (list []Drift) {
	same := map[string][]string{}
	for name, e := range b.entries {
		if e.Class != Alias || b.isNamesake(e) {
			key := strings.Join(stems(string(name)), "_")
			same[key] = append(same[key], string(name))
		}
	}
	for _, names := range same {
		if len(names) > 1 {
			slices.SortFunc(names, func(x, y string) int {
				return cmp.Or(cmp.Compare(one(b.entries[event.Type(x)].Class == Alias), one(b.entries[event.Type(y)].Class == Alias)), cmp.Compare(x, y))
			})
			list = append(list, Drift{Kind: DriftSpelling, Names: names, Detail: "the names differ in the form of a word alone"})
		}
	}
	return list
}

// isNamesake reports whether an alias reads like another type than its own: others
// are told of as aliases.
func (b *book) isNamesake(e *Entry) bool {
	r, _ := b.declared.Spellings.Resolve(string(e.Name))
	return r.Renamed
}

// stems are a name's words without what their forms add.
func stems(name string) []string {
	words := strings.Split(strings.ToUpper(name), "_")
	for i, w := range words {
		for _, ending := range []string{"ION", "ING", "URE", "ED", "S", "E"} {
			if short, cut := strings.CutSuffix(w, ending); cut && len(short) >= 4 {
				words[i] = short
				break
			}
		}
	}
	return words
}

// componentDrift finds components under several names, and classes that read like
// the beginning of one known module.
func (b *book) componentDrift() (list []Drift) {
	for name, spellings := range b.names.spelt {
		names := slices.Compact(slices.Sorted(slices.Values(spellings)))
		names = slices.DeleteFunc(names, func(s string) bool { return strings.TrimSuffix(s, ".py") == name })
		if len(names) > 0 {
			list = append(list, Drift{Kind: DriftComponent, Names: append([]string{name}, names...), Detail: "one component; the first is used here"})
			continue
		}
		if near := b.longer(name); near != "" {
			list = append(list, Drift{Kind: DriftComponent, Names: []string{near, name}, Detail: "perhaps one component; kept apart here"})
		}
	}
	return list
}

// longer is the one module whose name a class of two words or more begins, "" if
// there is none or more than one.
func (b *book) longer(class string) (found string) {
	prefix := snake(class)
	if prefix == class || strings.Count(prefix, "_") == 0 || strings.Contains(class, " ") {
		return ""
	}
	for name := range b.names.spelt {
		if strings.HasPrefix(name, prefix+"_") {
			if found != "" {
				return ""
			}
			found = name
		}
	}
	return found
}

// fieldDrift finds payload fields that differ by _id, _key or _seconds, or by node
// for host.
func fieldDrift(types []*event.Definition) (list []Drift) {
	uses := map[string]int{}
	for _, d := range types {
		for _, f := range d.Payload {
			uses[f.Name]++
		}
	}
	same := map[string][]string{}
	for name := range uses {
		stem := name
		for _, ending := range []string{"_id", "_key", "_seconds"} {
			stem = strings.TrimSuffix(stem, ending)
		}
		if stem == "host" {
			stem = "node"
		}
		same[stem] = append(same[stem], name)
	}
	for _, stem := range slices.Sorted(maps.Keys(same)) {
		names := same[stem]
		if len(names) < 2 {
			continue
		}
		slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(uses[y], uses[x]), cmp.Compare(x, y)) })
		var counts []string
		for _, n := range names {
			counts = append(counts, fmt.Sprintf("%s %d times", n, uses[n]))
		}
		list = append(list, Drift{Kind: DriftField, Names: names, Detail: strings.Join(counts, ", ")})
	}
	return list
}
