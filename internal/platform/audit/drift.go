package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/human"
)

// Drift is one thing under several names.
// None of them is an error: the catalogue resolves all spellings. But a reader of one document does not find the thing
// in another one.
type Drift struct {
	Kind   string   `json:"kind"`             // one of the Drift constants
	Names  []string `json:"names"`            // the spellings, the recommended one first if there is one
	InUse  []string `json:"in_use,omitempty"` // the components that use another than the recommended one
	Detail string   `json:"detail"`
}

// Kinds of a Drift.
const (
	DriftValue     = "value"     // a value that is not the lower-cased name
	DriftAlias     = "alias"     // a former name of a type
	DriftWritten   = "written"   // a declaration or a subscription that does not name a type by its name
	DriftSpelling  = "spelling"  // names that differ only in the form of their words
	DriftEnding    = "ending"    // _COMPLETE where the convention is _COMPLETED
	DriftComponent = "component" // a component under several names
	DriftField     = "field"     // payload fields that seem to be one
)

// drift collects all kinds, sorted.
func (b *book) drift() []Drift {
	// Each kind finds its own, and none of another's.
	list := slices.Concat(
		b.valueDrift(), b.aliasDrift(), b.writtenDrift(), b.spellingDrift(), b.componentDrift(),
		fieldDrift(b.declared.Types))
	// Several of the parts come from maps, so the order has to be made here.
	slices.SortStableFunc(list, func(x, y Drift) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), slices.Compare(x.Names, y.Names))
	})
	if list == nil {
		list = []Drift{}
	}
	return list
}

// valueDrift finds values that are not the lower-cased name, and names that end in _COMPLETE.
func (b *book) valueDrift() (list []Drift) {
	// Each type of the catalogue has a value of its own.
	for _, d := range b.declared.Types {
		if d.Value != strings.ToLower(string(d.Name)) {
			names := []string{string(d.Name), d.Value}
			list = append(list, Drift{Kind: DriftValue, Names: names, Detail: "the value is not the lower-cased name"})
		}
		// This is independent of the value: a type may have both.
		if strings.HasSuffix(string(d.Name), "_COMPLETE") {
			names := []string{string(d.Name)}
			list = append(list, Drift{Kind: DriftEnding, Names: names, Detail: "other types end in _COMPLETED"})
		}
	}
	return list
}

// aliasDrift finds aliases, and the subscriptions that use them.
func (b *book) aliasDrift() (list []Drift) {
	for _, d := range b.declared.Mentioned {
		if d.Status != event.StatusAlias {
			continue
		}
		// An alias always resolves: the catalogue has it.
		r, _ := b.declared.Spellings.Resolve(string(d.Name))
		one := Drift{
			Kind:   DriftAlias,
			Names:  []string{string(r.Type), string(d.Name)},
			Detail: fmt.Sprintf("stored as %s", r.Type),
		}
		// Such an alias reads like the name of another type.
		if r.Renamed {
			one.Detail += fmt.Sprintf(", although %sD is a type of its own", d.Name)
		}
		// Subscriptions that spell the type by this alias.
		for _, s := range b.spelt {
			if strings.EqualFold(s.written, string(d.Name)) {
				one.InUse = append(one.InUse, s.by)
			}
		}
		list = append(list, one)
	}
	return list
}

// writtenDrift finds declarations and subscriptions that name types by value or topic. Aliases are aliasDrift's.
func (b *book) writtenDrift() (list []Drift) {
	// What subscriptions and then handlers are written with.
	// A copy, since DeleteFunc changes its argument.
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
	// Group by type and spelling.
	// The key is the type and what was written for it.
	found := map[[2]string][]string{}
	for _, s := range written {
		k := [2]string{string(s.means), s.written}
		found[k] = append(found[k], s.by)
	}
	for k, by := range found {
		// One entry for each spelling, with all components that use it.
		r, _ := b.declared.Spellings.Resolve(k[1])
		slices.Sort(by)
		list = append(list, Drift{
			Kind:   DriftWritten,
			Names:  k[:],
			InUse:  slices.Compact(by),
			Detail: fmt.Sprintf("%s is a %s of %s", k[1], viaWord(r.Via), k[0]),
		})
	}
	return list
}

// viaWord names the kind of a spelling.
func viaWord(v event.Via) string {
	// A name in another case is resolved as a name.
	if v == event.ViaUnknown || v == event.ViaName {
		return "spelling"
	}
	return string(v)
}

// isPattern reports whether a subscription may match several types.
func isPattern(s string) bool { return strings.ContainsAny(s, "*?") }

// spellingDrift finds names whose words have the same stems.
func (b *book) spellingDrift() (list []Drift) {
	// Names with equal stems are candidates: TRAINING_COMPLETE and TRAINING_COMPLETED.
	same := map[string][]string{}
	for name, e := range b.entries {
		// An entry that is an alias is in another list, unless it may be mistaken for a type.
		if e.Class != Alias || b.isNamesake(e) {
			// Aliases are left to aliasDrift, except one that reads like another type.
			key := strings.Join(stems(string(name)), "_")
			same[key] = append(same[key], string(name))
		}
	}
	for _, names := range same {
		if len(names) > 1 {
			// Types before aliases, which no subscription should use.
			isAlias := func(name string) int { return one(b.entries[event.Type(name)].Class == Alias) }
			slices.SortFunc(names, func(x, y string) int {
				return cmp.Or(cmp.Compare(isAlias(x), isAlias(y)), cmp.Compare(x, y))
			})
			list = append(list, Drift{
				Kind: DriftSpelling, Names: names, Detail: "the names differ in the form of a word alone",
			})
		}
	}
	return list
}

// isNamesake reports whether an alias reads like another type than its own. aliasDrift reports all others.
func (b *book) isNamesake(e *Entry) bool {
	// The catalogue marks such an alias where it resolves it.
	r, _ := b.declared.Spellings.Resolve(string(e.Name))
	return r.Renamed
}

// stems returns the words of a name without their endings.
func stems(name string) []string {
	// This is not linguistics: it finds what differs in one ending.
	words := strings.Split(strings.ToUpper(name), "_")
	// One ending is cut from each word, unless fewer than four letters would be left.
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

// componentDrift finds components with several names, and classes that read like the beginning of one known module.
func (b *book) componentDrift() (list []Drift) {
	for name, spellings := range b.names.spelt {
		// A module file named as the component is not another name.
		// Sorted, as the order in which spellings were met depends on maps.
		// Spellings differ in documents, logs and cursors, and each counts once.
		names := slices.Compact(slices.Sorted(slices.Values(spellings)))
		names = slices.DeleteFunc(names, func(s string) bool { return strings.TrimSuffix(s, ".py") == name })
		if len(names) > 0 {
			names = append([]string{name}, names...)
			detail := "one component; the first is used here"
			list = append(list, Drift{Kind: DriftComponent, Names: names, Detail: detail})
			continue
		}
		// A guess is only reported: merging the two could hide an orphan.
		if near := b.longer(name); near != "" {
			names = []string{near, name}
			detail := "perhaps one component; kept apart here"
			list = append(list, Drift{Kind: DriftComponent, Names: names, Detail: detail})
		}
	}
	return list
}

// longer returns the only module whose name begins with the words of a class, "" if there is none or more than one.
// Classes of one word are too unspecific.
func (b *book) longer(class string) (found string) {
	// A name that is not a class equals its own snake form.
	prefix := snake(class)
	if prefix == class || strings.Count(prefix, "_") == 0 || strings.Contains(class, " ") {
		return ""
	}
	// Every name in use is a candidate, whichever document or log it came from.
	for name := range b.names.spelt {
		if strings.HasPrefix(name, prefix+"_") {
			if found != "" {
				return "" // ambiguous
			}
			found = name
		}
	}
	return found
}

// fieldDrift finds payload fields that differ by _id, _key or _seconds, or by node for host.
func fieldDrift(types []*event.Definition) (list []Drift) {
	// How many types use each field.
	uses := map[string]int{}
	for _, d := range types {
		for _, f := range d.Payload {
			uses[f.Name]++
		}
	}
	// Group the fields by their stem.
	same := map[string][]string{}
	for name := range uses {
		stem := name
		for _, ending := range []string{"_id", "_key", "_seconds"} {
			stem = strings.TrimSuffix(stem, ending)
		}
		// Payloads use both words for a machine of the cluster.
		if stem == "host" {
			stem = "node"
		}
		same[stem] = append(same[stem], name)
	}
	for _, stem := range slices.Sorted(maps.Keys(same)) {
		names := same[stem]
		// One spelling of a field is no drift.
		if len(names) < 2 {
			continue
		}
		// The most frequent one first.
		slices.SortFunc(names, func(x, y string) int {
			return cmp.Or(cmp.Compare(uses[y], uses[x]), cmp.Compare(x, y))
		})
		var counts []string
		for _, n := range names {
			counts = append(counts, fmt.Sprintf("%s %s", n, human.Count(uses[n], "time")))
		}
		list = append(list, Drift{Kind: DriftField, Names: names, Detail: strings.Join(counts, ", ")})
	}
	return list
}
