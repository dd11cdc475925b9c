package frame

import (
	"cmp"
	"slices"
)

// Range is the offsets From to To, both included.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// AppendRange appends a range, or widens the last one where it follows directly.
func AppendRange(list []Range, r Range) []Range {
	if n := len(list); n > 0 && list[n-1].To+1 == r.From && r.From != 0 {
		list[n-1].To = r.To
		return list
	}
	return append(list, r)
}

// JoinRanges sorts ranges in place and joins those that touch or overlap.
func JoinRanges(list []Range) []Range {
	slices.SortFunc(list, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	out := list[:0]
	for _, r := range list {
		// To+1 wraps to 0 at the largest offset, after which nothing is left to join.
		if n := len(out); n > 0 && (out[n-1].To >= r.From || out[n-1].To+1 == r.From) {
			out[n-1].To = max(out[n-1].To, r.To)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// HasOffset reports whether an offset is in ascending ranges.
func HasOffset(list []Range, offset uint64) bool {
	i, _ := slices.BinarySearchFunc(list, offset, func(r Range, offset uint64) int { return cmp.Compare(r.To, offset) })
	return i < len(list) && list[i].From <= offset
}
