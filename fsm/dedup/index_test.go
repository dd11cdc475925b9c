package dedup

import (
	"encoding/binary"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/internal/frame"
)

// key draws from few first words and tags, so many keys share a slot's bits
// and differ only in bytes that the index does not store.
func key(t *rapid.T) frame.Key {
	var k frame.Key
	binary.LittleEndian.PutUint64(k[:], rapid.Uint64Range(0, 40).Draw(t, "word"))
	k[8] = byte(rapid.IntRange(0, 1).Draw(t, "tag"))
	k[15] = byte(rapid.IntRange(0, 3).Draw(t, "tail"))
	return k
}

// The index agrees with a plain map over inserts, lookups, removals and expiries, around
// the point where the 40 stored bits of an offset wrap.
func TestIndexAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, model, at := New(), map[frame.Key]uint64{}, map[uint64]frame.Key{}
		offset := rapid.Uint64Range(1, 1<<41).Draw(t, "start")
		windowStart := offset
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			k := key(t)
			x.Fetch([]frame.Key{key(t), k, key(t)})
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
			case rapid.IntRange(0, 9).Draw(t, "expire") == 0:
				keys := len(model)
				windowStart = rapid.Uint64Range(windowStart, offset+1).Draw(t, "window start")
				maps.DeleteFunc(model, func(_ frame.Key, at uint64) bool { return at < windowStart })
				maps.DeleteFunc(at, func(at uint64, _ frame.Key) bool { return at < windowStart })
				x.Expire(windowStart, keys-len(model))
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

// The package's promise about memory: near 17 bytes a key when full, and nothing kept of
// a window that has passed.
func TestIndexStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, whose memory is measured")
	}
	x := New()
	const n = 1 << 20
	for i := range uint64(n) {
		x.Fetch([]frame.Key{wide(i)})
		x.Insert(wide(i), i+1)
	}
	if perKey := float64(x.Bytes()) / n; perKey > 24 {
		t.Errorf("%.1f bytes a key", perKey)
	}
	// The window moves and keeps its size: sweeping keeps the memory from growing.
	for i := uint64(n); i < 4*n; i++ {
		x.Insert(wide(i), i+1)
		if i%1024 != 1023 {
			continue
		}
		x.Expire(i+2-n, 1024)
		if perKey := float64(x.Bytes()) / n; perKey > 30 {
			t.Fatalf("%.1f bytes a key, %d keys on", perKey, i-n)
		}
	}
	// Then the window becomes small.
	const few = 1000
	x.Expire(4*n+1-few, n-few)
	for range 2 * shards {
		x.Expire(4*n+1-few, 0)
	}
	// No shard is swept while at most half of the slots have expired, so the last shards may
	// keep about as many expired keys as there are live ones, with as many empty slots.
	if x.Len() != few || x.Bytes() > shards*(minSlots*17+group)+2*few*17 {
		t.Errorf("%d keys and %d bytes are left", x.Len(), x.Bytes())
	}
	x.Expire(4*n+1, few)
	if x.Len() != 0 || x.Bytes() != 0 {
		t.Errorf("%d keys and %d bytes are left", x.Len(), x.Bytes())
	}
}

func BenchmarkMovingWindow(b *testing.B) {
	x := New()
	const window = 1 << 20
	for i := range uint64(window) {
		x.Insert(wide(i), i+1)
	}
	next := uint64(window)
	var keys [FetchMost]frame.Key
	for b.Loop() {
		if next%FetchMost == 0 {
			for i := range keys {
				keys[i] = wide(next + uint64(i))
			}
			x.Fetch(keys[:])
		}
		x.Lookup(wide(next), func(uint64) bool { return true })
		x.Insert(wide(next), next+1)
		if next%64 == 0 {
			x.Expire(next+2-window, 64)
		}
		next++
	}
}

// BenchmarkNewKey measures what most events cost: a lookup that finds nothing, and an insert.
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
