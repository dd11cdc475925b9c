package prefetch

import (
	"slices"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/internal/frame"
)

// addOffset appends an offset to ranges, or widens the last one if it follows directly.
func addOffset(list []frame.Range, offset uint64) []frame.Range {
	return frame.AppendRange(list, frame.Range{From: offset, To: offset})
}

// rangesOf returns the ranges of offsets, which it sorts.
func rangesOf(offsets []uint64) (list []frame.Range) {
	slices.Sort(offsets)
	for _, offset := range slices.Compact(offsets) {
		list = addOffset(list, offset)
	}
	return list
}

// RangesToWire is ranges as they are sent.
func RangesToWire(list []frame.Range) []*ringlogv1.OffsetRange {
	all := make([]ringlogv1.OffsetRange, len(list))
	out := make([]*ringlogv1.OffsetRange, len(list))
	for i, r := range list {
		all[i].From, all[i].To = r.From, r.To
		out[i] = &all[i]
	}
	return out
}

// maxOffsets bounds the offsets of one answer that are looked at.
const maxOffsets = 1 << 20

// EachOffset calls do with the offsets of ranges that a node sent, at most as many as a
// member can hold.
func EachOffset(list []*ringlogv1.OffsetRange, do func(uint64)) {
	left := maxOffsets
	for _, r := range list {
		for offset := r.GetFrom(); offset <= r.GetTo() && left > 0; offset++ {
			do(offset)
			left--
		}
	}
}
