package frame

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// bloom is a filter of about one byte a distinct value, four probes: one false
// hit in forty. Empty means that no event of the block has such a field.
type bloom []byte

const bloomProbes = 4

func bloomHash(s string) uint64 { return xxhash.Sum64String(s) }

// newBloom builds a filter of the hashes.
func newBloom(hashes []uint64) bloom {
	hashes = slices.Clone(hashes)
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

func (f bloom) bit(h uint64, probe int) uint64 {
	step := h>>33 | 1
	return (h + uint64(probe)*step) % uint64(len(f)*8)
}

func (f bloom) mayHave(s string) bool {
	if len(f) == 0 {
		return false
	}
	h := bloomHash(s)
	for i := range bloomProbes {
		bit := f.bit(h, i)
		if f[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

func (f bloom) mayHaveAny(list []string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, f.mayHave)
}
