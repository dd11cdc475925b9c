package raftstore

import (
	"math"
	"sort"
	"sync"

	"github.com/hashicorp/raft"
)

// markBytes is how many bytes of entries one mark covers.
const markBytes = 1 << 20

// sizes counts the bytes of the log's entries. It keeps a mark per megabyte rather than
// a number per entry, so its answers are exact to about markBytes. Entries that were not
// added count as empty.
type sizes struct {
	mu      sync.Mutex // guards the fields below
	marks   []sizeMark // ascending in both fields
	removed int64      // bytes of the entries before those of the first mark
	base    uint64     // index of the last of these
}

// sizeMark covers the entries after the previous mark, up to and including index.
type sizeMark struct {
	index uint64
	end   int64 // bytes of all entries up to index, also of those removed
}

// add counts bytes of an entry that is the last one counted, or comes after it.
func (s *sizes) add(index uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, end := len(s.marks), s.end()+bytes
	if n == 0 {
		s.base = index - 1
	}
	// The last mark grows until it covers markBytes.
	if n > 0 && end-s.start(n-1) <= markBytes {
		s.marks[n-1] = sizeMark{index, end}
		return
	}
	s.marks = append(s.marks, sizeMark{index, end})
}

// addAll counts entries that follow those counted.
func (s *sizes) addAll(logs []*raft.Log) {
	for _, l := range logs {
		s.add(l.Index, int64(sizeOf(l)))
	}
}

// end is the bytes of all entries ever counted, up to the last one. The caller holds mu.
func (s *sizes) end() int64 { return s.start(len(s.marks)) }

// start is how many bytes come before the entries that mark i covers. The caller holds mu.
func (s *sizes) start(i int) int64 {
	if i == 0 {
		return s.removed
	}
	return s.marks[i-1].end
}

// markAfter is the position of the first mark that covers entries after index. The caller holds mu.
func (s *sizes) markAfter(index uint64) int {
	return sort.Search(len(s.marks), func(i int) bool { return s.marks[i].index > index })
}

// removeUpTo removes the first entries, up to and including index.
func (s *sizes) removeUpTo(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A mark that covers entries on both sides keeps all its bytes, as in removeFrom.
	first := s.markAfter(index)
	s.removed, s.base = s.start(first), max(s.base, index)
	s.marks = append(s.marks[:0], s.marks[first:]...)
}

// removeFrom removes the last entries, from index on.
func (s *sizes) removeFrom(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, before := s.markAfter(index-1), s.base
	if keep > 0 {
		before = s.marks[keep-1].index
	}
	// A mark that covers entries on both sides keeps all its bytes: how many of them
	// were removed is not known.
	if keep < len(s.marks) && before < index-1 {
		s.marks[keep].index = index - 1
		keep++
	}
	s.marks = s.marks[:keep]
}

// total is how many bytes the log's entries have.
func (s *sizes) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end() - s.removed
}

// newest is how many of the last entries have at most that many bytes together;
// math.MaxUint64 if all entries have.
func (s *sizes) newest(bytes int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only whole marks count: an entry in the middle of one has no number.
	n, end := len(s.marks), s.end()
	first := sort.Search(n, func(i int) bool { return end-s.start(i) <= bytes })
	if first == 0 {
		return math.MaxUint64
	}
	return s.marks[n-1].index - s.marks[first-1].index
}

// within is the last index of the entries from low on that have about that many bytes
// together, at least low; math.MaxUint64 if the log ends before.
func (s *sizes) within(low uint64, bytes int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.start(s.markAfter(low - 1))
	last := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].end-start >= bytes })
	if last == len(s.marks) {
		return math.MaxUint64
	}
	return max(low, s.marks[last].index)
}
