package raftstore

import (
	"math"
	"sort"
	"sync"

	"github.com/hashicorp/raft"
)

// markBytes is how exactly sizes knows where in the log its bytes stand.
const markBytes = 1 << 20

// sizes tells how many bytes the entries of the log have, to about markBytes. An entry
// that it was not told of has none.
type sizes struct {
	mu     sync.Mutex
	marks  []sizeMark // ascending in both
	before int64      // bytes of the entries before the first mark's, which are gone
	gone   uint64     // index of the last of those
}

// sizeMark closes the entries behind the mark before it.
type sizeMark struct {
	index uint64 // of the last of them
	end   int64  // bytes of all entries up to it
}

// add is told of the entry that follows.
func (s *sizes) add(index uint64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, end := len(s.marks), s.end()+bytes
	if n == 0 {
		s.gone = index - 1
	}
	if n > 0 && end-s.start(n-1) <= markBytes {
		s.marks[n-1] = sizeMark{index, end}
		return
	}
	s.marks = append(s.marks, sizeMark{index, end})
}

func (s *sizes) addAll(logs []*raft.Log) {
	for _, l := range logs {
		s.add(l.Index, int64(sizeOf(l)))
	}
}

func (s *sizes) end() int64 { return s.start(len(s.marks)) }

// start is how many bytes stand before those that mark i closes.
func (s *sizes) start(i int) int64 {
	if i == 0 {
		return s.before
	}
	return s.marks[i-1].end
}

// behind is the first mark whose entries reach beyond index.
func (s *sizes) behind(index uint64) int {
	return sort.Search(len(s.marks), func(i int) bool { return s.marks[i].index > index })
}

// removeUpTo is told that the log begins behind index now.
func (s *sizes) removeUpTo(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.behind(index)
	s.before, s.gone = s.start(gone), max(s.gone, index)
	s.marks = append(s.marks[:0], s.marks[gone:]...)
}

// removeFrom is told that the log ends before index now.
func (s *sizes) removeFrom(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, before := s.behind(index-1), s.gone
	if keep > 0 {
		before = s.marks[keep-1].index
	}
	if keep < len(s.marks) && before < index-1 {
		s.marks[keep].index = index - 1 // which of its bytes are gone is not known
		keep++
	}
	s.marks = s.marks[:keep]
}

// total is how many bytes the log has.
func (s *sizes) total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end() - s.before
}

// newest is how many of the last entries have no more than so many bytes together; where
// all have, math.MaxUint64.
func (s *sizes) newest(bytes int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, end := len(s.marks), s.end()
	first := sort.Search(n, func(i int) bool { return end-s.start(i) <= bytes })
	if first == 0 {
		return math.MaxUint64
	}
	return s.marks[n-1].index - s.marks[first-1].index
}

// within is the last index of entries from low on that have about so many bytes.
func (s *sizes) within(low uint64, bytes int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.behind(low - 1)
	next := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].end-s.start(first) >= bytes })
	if next == len(s.marks) {
		return math.MaxUint64
	}
	return max(low, s.marks[next].index)
}
