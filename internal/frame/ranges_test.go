package frame

import (
	"slices"
	"testing"
)

func TestJoinRanges(t *testing.T) {
	for _, in := range []struct{ list, want []Range }{
		{nil, nil},
		{[]Range{{From: 5, To: 6}, {From: 1, To: 2}}, []Range{{From: 1, To: 2}, {From: 5, To: 6}}},
		{[]Range{{From: 3, To: 4}, {From: 1, To: 2}, {From: 4, To: 9}, {From: 5, To: 5}}, []Range{{From: 1, To: 9}}},
		{[]Range{{From: 1, To: 1<<64 - 1}, {From: 7, To: 8}}, []Range{{From: 1, To: 1<<64 - 1}}},
	} {
		if got := JoinRanges(slices.Clone(in.list)); !slices.Equal(got, in.want) {
			t.Errorf("%v: %v, want %v", in.list, got, in.want)
		}
	}
}

// Both ends of the offsets that there are: a range that ends at the largest is not widened
// by one that begins at 0.
func TestAppendRangeAtTheLargestOffset(t *testing.T) {
	const largest = 1<<64 - 1
	list := AppendRange([]Range{{From: 1, To: 2}}, Range{From: 3, To: largest})
	if want := []Range{{From: 1, To: largest}}; !slices.Equal(list, want) {
		t.Fatalf("%v, want %v", list, want)
	}
	list = AppendRange(list, Range{From: 0, To: 0})
	if len(list) != 2 {
		t.Errorf("%v", list)
	}
	for offset, want := range map[uint64]bool{0: false, 1: true, largest: true} {
		if got := HasOffset([]Range{{From: 1, To: largest}}, offset); got != want {
			t.Errorf("offset %d: %v", offset, got)
		}
	}
}
