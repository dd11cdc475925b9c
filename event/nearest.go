package event

import (
	"cmp"
	"math"
	"slices"
)

// Nearest returns the names of up to n known types, the closest in spelling first. Values and aliases count as
// spellings of their type.
func (c *Catalogue) Nearest(name string, n int) []string { return c.nearest(name, n, math.MaxInt) }

// longestNear is how much of a name is compared, in bytes. Names of types are shorter.
const longestNear = 64

// nearest is Nearest of the types whose distance is most or less. Wildcards in name match as in a Filter.
func (c *Catalogue) nearest(name string, n, most int) []string {
	// Longer names are cut: the beginning is enough to find what was meant. The names compared are folded, too.
	wanted := foldName(name)
	wanted = wanted[:min(len(wanted), longestNear)]
	best := make(map[Type]int, len(c.types))
	// One row for all comparisons, since there are hundreds.
	row := make([]int, longestNear+1)
	// The distance of a type is that of its closest spelling.
	for spelt, s := range c.spellings {
		d := editDistance(wanted, spelt, row)
		if known, ok := best[s.def.Name]; d <= most && (!ok || d < known) {
			best[s.def.Name] = d
		}
	}
	names := make([]string, 0, len(best))
	// A type is named once, by its name, whichever spelling was the closest.
	for t := range best {
		names = append(names, string(t))
	}
	// Equal distances are ordered by name, so the result does not depend on the map's order.
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(best[Type(a)], best[Type(b)]), cmp.Compare(a, b))
	})
	// A negative n is none.
	return names[:min(max(n, 0), len(names))]
}

// editDistance returns the Levenshtein distance between the pattern a and b: of all texts that a matches, that of the
// closest. row is scratch space, longer than a.
func editDistance(a, b string, row []int) int {
	// row[i] is the distance between a[:i] and the part of b read so far, which is none.
	row = row[:len(a)+1]
	row[0] = 0
	// The distance to the empty text: every byte that is no star has to go.
	for i := range len(a) {
		row[i+1] = row[i]
		if a[i] != '*' {
			row[i+1]++
		}
	}
	for j := range len(b) {
		diagonal := row[0] // the distance between a[:i] and b[:j]
		row[0] = j + 1
		// row[i] was updated for this j already, row[i+1] is still that of the last one.
		for i := range len(a) {
			above := row[i+1]
			switch {
			case a[i] == '*':
				// A star matches nothing, or one byte more than it did.
				row[i+1] = min(row[i], above)
			case a[i] == '?' || a[i] == b[j]:
				row[i+1] = min(diagonal, row[i]+1, above+1)
			default:
				row[i+1] = min(diagonal, row[i], above) + 1
			}
			diagonal = above
		}
	}
	return row[len(a)]
}
