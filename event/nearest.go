package event

import (
	"cmp"
	"slices"
)

// Nearest returns the names of up to n known types, the closest in spelling first. Values and aliases count as
// spellings of their type.
func (c *Catalogue) Nearest(name string, n int) []string {
	const longest = 64 // of a name that is worth comparing
	// The names compared are folded, too.
	wanted := foldName(name)
	wanted = wanted[:min(len(wanted), longest)]
	best := make(map[Type]int, len(c.types))
	row := make([]int, longest+1)
	// The distance of a type is that of its closest spelling.
	for spelt, s := range c.spellings {
		d := editDistance(wanted, spelt, row)
		if known, ok := best[s.def.Name]; !ok || d < known {
			best[s.def.Name] = d
		}
	}
	names := make([]string, 0, len(best))
	// A type is named once, by its name, whichever spelling was the closest.
	for t := range best {
		names = append(names, string(t))
	}
	// Equal distances are ordered by name, so that the result does not depend on the map's order.
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(best[Type(a)], best[Type(b)]), cmp.Compare(a, b))
	})
	return names[:min(max(n, 0), len(names))]
}

// editDistance returns the Levenshtein distance between a and b. row is scratch space, longer than a.
func editDistance(a, b string, row []int) int {
	// row[i] is the distance between a[:i] and the part of b read so far.
	row = row[:len(a)+1]
	for i := range row {
		row[i] = i
	}
	for j := range len(b) {
		diagonal := row[0] // the distance between a[:i] and b[:j]
		row[0] = j + 1
		for i := range len(a) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[i+1]
			row[i+1] = min(substitute, row[i]+1, row[i+1]+1)
		}
	}
	return row[len(a)]
}
