package dedup

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/frame"
)

// key draws from few first words and tags, so that many keys share a slot's bits
// and differ only where the index does not look.
func key(t *rapid.T) frame.Key {
	var k frame.Key
	binary.LittleEndian.PutUint64(k[:], rapid.Uint64Range(0, 40).Draw(t, "word"))
	k[8] = byte(rapid.IntRange(0, 1).Draw(t, "tag"))
	k[15] = byte(rapid.IntRange(0, 3).Draw(t, "tail"))
	return k
}

// The index against a plain map, over inserts, lookups, removals and windows that
// pass, around the point where the 40 stored bits of an offset wrap.
func TestIndexAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model, at := New(), map[frame.Key]uint64{}, map[uint64]frame.Key{}
		offset := rapid.Uint64Range(1, 1<<41).Draw(t, "start")
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			k := key(t)
			confirm := func(o uint64) bool { return at[o] == k }
			got, hit := x.Lookup(k, confirm)
			want, known := model[k]
			if hit != known || got != want {
				t.Fatalf("lookup %x: %d %v, want %d %v", k, got, hit, want, known)
			}
			switch {
			case !known:
				offset++
				x.Insert(k, offset)
				model[k], at[offset] = offset, k
			case rapid.Bool().Draw(t, "remove"):
				if !x.Remove(k, want) || x.Remove(k, want) {
					t.Fatalf("remove %x at %d: want once", k, want)
				}
				delete(model, k)
				delete(at, want)
			}
			if x.Len() != len(model) {
				t.Fatalf("%d keys, want %d", x.Len(), len(model))
			}
		}
	})
}

func wide(i uint64) frame.Key {
	var k frame.Key
	binary.LittleEndian.PutUint64(k[:], i*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(k[8:], i)
	return k
}

// What the package promises of memory: near 16 bytes a key when full, and nothing
// kept of a window that has passed.
func TestIndexStaysSmall(t *testing.T) {
	x := New()
	const n = 1 << 20
	for i := range uint64(n) {
		x.Insert(wide(i), i+1)
	}
	if perKey := float64(x.Bytes()) / n; perKey > 24 {
		t.Errorf("%.1f bytes a key", perKey)
	}
	for i := range uint64(n) {
		if !x.Remove(wide(i), i+1) {
			t.Fatalf("key %d is not there", i)
		}
	}
	if x.Len() != 0 || x.Bytes() > shards*(minSlots*17+group) {
		t.Errorf("%d keys and %d bytes left behind", x.Len(), x.Bytes())
	}
}

func BenchmarkInsertLookupRemove(b *testing.B) {
	x := New()
	const window = 1 << 20
	for i := range uint64(window) {
		x.Insert(wide(i), i+1)
	}
	next := uint64(window)
	for b.Loop() {
		x.Lookup(wide(next), func(uint64) bool { return true })
		x.Insert(wide(next), next+1)
		x.Remove(wide(next-window), next-window+1)
		next++
	}
}

// BenchmarkNewKey is what most events cost: a lookup that finds nothing, and an insert.
func BenchmarkNewKey(b *testing.B) {
	x := New()
	next := uint64(0)
	for b.Loop() {
		k := wide(next)
		if _, hit := x.Lookup(k, func(uint64) bool { return true }); !hit {
			x.Insert(k, next+1)
		}
		if next++; next == 4<<20 {
			x, next = New(), 0
		}
	}
}
