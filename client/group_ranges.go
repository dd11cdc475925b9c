package client

import (
	"slices"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/internal/frame"
)

// addOffset appends an offset to ranges, or widens the last one where it follows directly.
func addOffset(list []frame.Range, offset uint64) []frame.Range {
	return frame.AppendRange(list, frame.Range{From: offset, To: offset})
}

// compact sorts ranges and joins those that touch, in place.
func compact(list []frame.Range) []frame.Range { return frame.JoinRanges(list) }

// rangesOf are the ranges of offsets in any order.
func rangesOf(offsets []uint64) (list []frame.Range) {
	slices.Sort(offsets)
	for _, offset := range slices.Compact(offsets) {
		list = addOffset(list, offset)
	}
	return list
}

func covers(list []frame.Range, offset uint64) bool {
	return slices.ContainsFunc(list, func(r frame.Range) bool { return r.From <= offset && offset <= r.To })
}

func rangesToWire(list []frame.Range) []*ringlogv1.OffsetRange {
	all := make([]ringlogv1.OffsetRange, len(list))
	out := make([]*ringlogv1.OffsetRange, len(list))
	for i, r := range list {
		all[i].From, all[i].To = r.From, r.To
		out[i] = &all[i]
	}
	return out
}

// eachOffset calls do with the offsets of ranges that a node sent, at most the limit of
// what a member can hold.
func eachOffset(list []*ringlogv1.OffsetRange, do func(uint64)) {
	left := maxShares
	for _, r := range list {
		for offset := r.GetFrom(); offset <= r.GetTo() && left > 0; offset++ {
			do(offset)
			left--
		}
	}
}
