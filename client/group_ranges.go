package client

import (
	"cmp"
	"slices"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/frame"
)

// addOffset appends an offset to ranges, to the last where it follows it.
func addOffset(list []frame.Range, offset uint64) []frame.Range {
	if n := len(list); n > 0 && list[n-1].To+1 == offset {
		list[n-1].To = offset
		return list
	}
	return append(list, frame.Range{From: offset, To: offset})
}

// compact sorts ranges and joins those that touch, in place.
func compact(list []frame.Range) []frame.Range {
	slices.SortFunc(list, func(a, b frame.Range) int { return cmp.Compare(a.From, b.From) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r.From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, r.To)
			continue
		}
		out = append(out, r)
	}
	return out
}

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
