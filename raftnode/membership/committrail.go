package membership

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const keptCommits = 256 // points of a commitTrail

// commitTrail remembers when the commit index had which value, to within a few percent of the age. It is not safe
// for concurrent use.
type commitTrail struct {
	points []commitPoint // both ascending
}

// commitPoint is a commit index and when it was first seen.
type commitPoint struct {
	at    time.Time
	index uint64
}

// add notes the commit index at a time. An index that is not above the latest adds nothing.
func (t *commitTrail) add(at time.Time, index uint64) {
	if index <= t.latest() {
		return
	}
	t.points = append(t.points, commitPoint{at, index})
	if len(t.points) > keptCommits {
		// The memory is bounded: a new point costs the one whose loss is noticed least.
		i := t.leastMissed(at)
		t.points = slices.Delete(t.points, i, i+1)
	}
}

// leastMissed returns the point whose removal leaves the smallest gap relative to its age. It is neither the first
// nor the last point.
func (t *commitTrail) leastMissed(now time.Time) int {
	least, smallest := 0, math.Inf(1)
	for i := 1; i < len(t.points)-1; i++ {
		// As a share of its age: of what is long ago a rough answer is enough.
		gap := float64(t.points[i+1].at.Sub(t.points[i-1].at)) / float64(now.Sub(t.points[i].at))
		if gap < smallest {
			least, smallest = i, gap
		}
	}
	return least
}

// latest returns the newest commit index; 0 without points.
func (t *commitTrail) latest() uint64 {
	if len(t.points) == 0 {
		return 0
	}
	return t.points[len(t.points)-1].index
}

// at returns the commit index at a time: of the last point not after it, or of the first point if all are later; 0
// without points.
func (t *commitTrail) at(when time.Time) uint64 {
	byTime := func(p commitPoint, when time.Time) int { return p.at.Compare(when) }
	i, found := slices.BinarySearchFunc(t.points, when, byTime)
	switch {
	case len(t.points) == 0:
		return 0
	case found || i == 0:
		return t.points[i].index
	}
	return t.points[i-1].index
}

// passed is when the commit index was first seen above index, which is below
// latest.
func (t *commitTrail) passed(index uint64) time.Time {
	byIndex := func(p commitPoint, index uint64) int { return cmp.Compare(p.index, index) }
	// The first point above index, which exists as latest is above it.
	i, _ := slices.BinarySearchFunc(t.points, index+1, byIndex)
	return t.points[i].at
}
