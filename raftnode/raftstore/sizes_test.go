package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// The answers of sizes are compared with a list of all entries' sizes.
func TestSizesKnowsWhereTheBytesStand(t *testing.T) {
	for range 50 { // the package's other properties take a disk, and are checked less often
		rapid.Check(t, agreeOnSizes)
	}
}

func agreeOnSizes(rt *rapid.T) {
	var s sizes
	var all []int64 // of the entries first..
	first, vague := uint64(1), int64(0)
	from := func(index uint64) (n int64) {
		for _, bytes := range all[index-first:] {
			n += bytes
		}
		return n
	}
	const largest = 4 << 20
	const step = markBytes + largest // what a mark and the next entry may have
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		last := first + uint64(len(all)) - 1
		switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
		case what < 7 || len(all) == 0:
			for range rapid.IntRange(1, 20).Draw(rt, "entries") {
				last++
				bytes := rapid.SampledFrom([]int64{1, 300, 1 << 10, 100 << 10, 1 << 20, largest}).Draw(rt, "bytes")
				s.add(last, bytes)
				all = append(all, bytes)
			}
		case what < 9:
			high := rapid.Uint64Range(first, last).Draw(rt, "up to")
			s.removeUpTo(high)
			all, first = all[high+1-first:], high+1
		default:
			low := rapid.Uint64Range(first, last).Draw(rt, "from")
			s.removeFrom(low)
			all = all[:low-first]
			vague += markBytes
		}
		if last = first + uint64(len(all)) - 1; len(all) == 0 {
			if s.total() > vague {
				rt.Fatalf("of nothing: %d bytes", s.total())
			}
			continue
		}
		if got, is := s.total(), from(first); got < is || got > is+markBytes+vague {
			rt.Fatalf("got %d bytes in all, they are %d", got, is)
		}
		limit := rapid.Int64Range(0, 64<<20).Draw(rt, "limit")
		n := min(s.newest(limit), last+1-first)
		if is := from(last + 1 - n); is > limit || n < last+1-first && is < limit-step-vague {
			rt.Fatalf("of %d entries the newest %d are said to have up to %d bytes, they have %d", last+1-first, n, limit, is)
		}
		low := rapid.Uint64Range(first, last).Draw(rt, "low")
		to := s.within(low, limit)
		if to < low {
			rt.Fatalf("from %d on within %d bytes up to %d", low, limit, to)
		}
		if is := from(low) - from(min(to, last)+1); is > limit+step || to < last && is < limit-step-vague {
			rt.Fatalf("from %d on within %d bytes up to %d, these have %d", low, limit, to, is)
		}
	}
}

// A log knows the sizes of its entries also when it has been opened again.
func TestALogTellsItsSize(t *testing.T) {
	dir := t.TempDir()
	const count, size = 100, 512 << 10
	s := openStores(t, dir)
	for index := uint64(1); index <= count; index++ {
		l := &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: make([]byte, size)}
		if err := s.Log().StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	want := func(entries int64) {
		t.Helper()
		if is := s.LogBytes(); is < entries*size || is > (entries+3)*size {
			t.Errorf("%d entries of %d bytes: LogBytes is %d", entries, size, is)
		}
	}
	want(count)
	if n := s.Newest(16 << 20); n < 28 || n > 32 {
		t.Errorf("%d entries of %d bytes are said to have 16 MiB", n, size)
	}
	if err := s.Log().DeleteRange(1, 25); err != nil {
		t.Fatal(err)
	}
	want(count - 25)
	closeStores(t, s)
	s = openStores(t, dir)
	want(count - 25)
	if n := s.Newest(16 << 20); n < 28 || n > 32 {
		t.Errorf("opened again %d entries of %d bytes are said to have 16 MiB", n, size)
	}
}
