package frame

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// bloom is a Bloom filter with one byte for each distinct value and four probes: about one
// false hit in forty. An empty one means that no event of the block has such a field.
type bloom []byte

const bloomProbes = 4

// bloomHash is part of the format: the filters are stored.
func bloomHash(s string) uint64 { return xxhash.Sum64String(s) }

// newBloom returns the filter of the hashes. Equal sets give equal filters.
func newBloom(hashes []uint64) bloom {
	hashes = slices.Clone(hashes)
	// The size follows from the number of distinct values.
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	f := make(bloom, len(hashes))
	for _, h := range hashes {
		for i := range bloomProbes {
			bit := f.bit(h, i)
			f[bit/8] |= 1 << (bit % 8)
		}
	}
	return f
}

// bit is the number of the bit of one probe. The step is odd, so the probes of a hash
// rarely meet.
func (f bloom) bit(h uint64, probe int) uint64 {
	step := h>>33 | 1
	return (h + uint64(probe)*step) % uint64(len(f)*8)
}

// mayHave reports whether s may be one of the values; false is certain.
func (f bloom) mayHave(s string) bool {
	if len(f) == 0 {
		return false
	}
	// A value that was added has set every bit of its probes.
	h := bloomHash(s)
	for i := range bloomProbes {
		bit := f.bit(h, i)
		if f[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// mayHaveAny reports whether one of list may be a value. An empty list asks for nothing.
func (f bloom) mayHaveAny(list []string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, f.mayHave)
}
