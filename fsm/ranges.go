package fsm

import (
	"slices"

	"github.com/ringrift/ringlog/internal/frame"
)

// ranges is a list of ascending ranges of offsets, which neither overlap nor touch.
type ranges []frame.Range

// ascending reports whether a list that came from outside begins at 1 or later, ascends and
// does not overlap.
func (r ranges) ascending() bool {
	least := uint64(1) // where the next one may begin
	for _, one := range r {
		if one.From < least || one.To < one.From || one.To+1 == 0 {
			return false
		}
		least = one.To + 1
	}
	return true
}

// has reports whether an offset is in the list.
func (r ranges) has(offset uint64) bool { return frame.HasOffset(r, offset) }

// meet reports whether any of the retries is of an offset in the list.
func (r ranges) meet(retries []frame.GroupRetry) bool {
	return slices.ContainsFunc(r, func(one frame.Range) bool {
		i, _ := findRetry(retries, one.From)
		return i < len(retries) && retries[i].Offset <= one.To
	})
}

// last is the last offset in the list, 0 where it is empty.
func (r ranges) last() uint64 {
	if len(r) == 0 {
		return 0
	}
	return r[len(r)-1].To
}

// union returns the offsets of two ascending lists. It changes neither of them.
func (r ranges) union(other ranges) ranges {
	out := make(ranges, 0, len(r)+len(other))
	for len(r) > 0 || len(other) > 0 {
		// r is the list whose next range begins first.
		if len(r) == 0 || (len(other) > 0 && other[0].From < r[0].From) {
			r, other = other, r
		}
		// A range that touches the last one is joined with it.
		if n := len(out); n > 0 && r[0].From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, r[0].To)
		} else {
			out = append(out, r[0])
		}
		r = r[1:]
	}
	return out
}

// above removes what is at an offset or below, and what follows it without a hole, of which
// committed is the last offset.
func (r ranges) above(offset uint64) (rest ranges, committed uint64) {
	// Each range that begins at the commit, or overlaps it, moves the commit to its end.
	for len(r) > 0 && r[0].From <= offset+1 {
		offset, r = max(offset, r[0].To), r[1:]
	}
	return r, offset
}

// within counts the offsets from from to to that are in the list.
func (r ranges) within(from, to uint64) (n uint64) {
	for _, one := range r {
		if low, high := max(one.From, from), min(one.To, to); low <= high {
			n += high - low + 1
		}
	}
	return n
}
