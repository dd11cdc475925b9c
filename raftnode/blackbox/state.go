package blackbox

import (
	"cmp"
	"slices"
)

// state is what a journal holds. It is not changed once published: with and fit
// return new ones.
//
// Invariants: settled < next, the seq of every entry is < next, and entries are in the
// order of their seq.
type state struct {
	settled uint64 // see Journal.Settled
	next    uint64 // the seq of the next record
	entries []entry
	size    int // bytes of the entries' lines
}

// with returns s and one more entry. Only the newest state of a journal is extended,
// so states may share the array of their entries.
func (s state) with(e entry) state {
	s.entries = append(s.entries, e)
	s.size += len(e.line)
	s.next = max(s.next, e.record.Seq+1)
	return s
}

// fit drops entries until the others take at most size bytes: settled ones first, then
// views, then others, each oldest first. It never drops the newest entry, which may
// therefore exceed size.
func (s state) fit(size int) state {
	if len(s.entries) == 0 {
		return s
	}
	droppable := slices.Clone(s.entries[:len(s.entries)-1])
	slices.SortStableFunc(droppable, func(a, b entry) int { return cmp.Compare(s.worth(a), s.worth(b)) })
	// The sort is stable and the entries are in order: equals are dropped oldest first.
	drop := make(map[uint64]bool)
	for _, e := range droppable {
		if s.size <= size {
			break
		}
		drop[e.record.Seq] = true
		s.size -= len(e.line)
	}
	// A new slice: older states share the array of s.entries.
	kept := make([]entry, 0, len(s.entries))
	for _, e := range s.entries {
		if !drop[e.record.Seq] {
			kept = append(kept, e)
		}
	}
	s.entries = kept
	return s
}

// worth orders entries by how long they are kept: fit drops those of the lowest worth first.
func (s state) worth(e entry) int {
	switch {
	case e.record.Seq <= s.settled:
		return 0
	case e.record.Kind == View:
		return 1
	default:
		return 2
	}
}

// records returns copies of the records, oldest first.
func (s state) records() []Record {
	list := make([]Record, len(s.entries))
	for i, e := range s.entries {
		list[i] = e.record.clone()
	}
	return list
}
