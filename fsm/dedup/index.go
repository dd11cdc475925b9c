// Package dedup is the in-memory half of duplicate suppression: which keys were
// accepted within the window, and at which offset.
//
// It holds 17 bytes a key plus the slack of open addressing, 20 to 28 in all, and
// promises no decision of its own: a hit is a candidate that the caller confirms
// against the stored key column, so that suppression is exact to the full key. It
// never looks at a clock; the caller says which offsets fell out of the window.
package dedup

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/ringrift/ringlog/frame"
)

// A slot is two words:
//
//	hi  bytes 0 to 7 of the key
//	lo  1 bit occupied, 23 bits of the key's bytes 8 to 10, 40 bits of the offset
//
// The offset's upper bits follow from the newest offset: a window never spans
// 2^40 events.
type slot struct{ hi, lo uint64 }

const (
	occupied   = 1 << 63
	offsetBits = 40
	offsetMask = 1<<offsetBits - 1
	tagMask    = 1<<63 - 1<<offsetBits

	shards   = 1024
	minSlots = 16
)

// Index is a hash table in shards, each of which grows and shrinks on its own, so
// that no single insert has to move the whole table. Slots of offsets below the floor
// are passed over until their shard is full or has its turn: to look for each key that
// expires would cost a cache miss for it. It is not safe for concurrent use.
type Index struct {
	shards [shards]shard
	seed   uint64 // places keys only: it never shows in an answer
	count  int    // keys
	slots  int    // that are occupied, also by what expired
	floor  uint64 // offsets below it have expired
	newest uint64
	swept  int  // the shard swept last
	read   byte // by Fetch
}

// A shard has a tag beside each slot: 0 for an empty one, else 1 bit occupied and 7
// bits of the hash. A lookup reads eight tags at a time and a slot only where its tag
// fits, so that a new key, which is the usual one, costs one cache line.
type shard struct {
	slots []slot
	tags  []byte // one a slot, then the first ones again, so that eight can be read anywhere
	count int
}

const (
	group    = 8
	everyTag = 0x0101010101010101 // times a tag: eight of them
	topBits  = everyTag << 7
)

func newShard(slots int) shard {
	return shard{slots: make([]slot, slots), tags: make([]byte, slots+group-1)}
}

// setTag marks slot i.
func (s *shard) setTag(i int, tag byte) {
	s.tags[i] = tag
	if i < group-1 {
		s.tags[len(s.slots)+i] = tag
	}
}

func tagOf(h uint64) byte { return 1<<7 | byte(h>>24) }

// New returns an empty index.
func New() *Index { return &Index{seed: rand.Uint64() | 1} }

// Len returns the number of keys.
func (x *Index) Len() int { return x.count }

// Bytes returns the memory taken by the slots.
func (x *Index) Bytes() int {
	n := 0
	for i := range x.shards {
		n += len(x.shards[i].slots)*16 + len(x.shards[i].tags)
	}
	return n
}

func split(k frame.Key) (hi, tag uint64) {
	hi = binary.LittleEndian.Uint64(k[:8])
	tag = uint64(binary.LittleEndian.Uint32(k[8:12])) << offsetBits & tagMask
	return hi, tag
}

func (x *Index) place(hi uint64) (*shard, uint64) {
	high, low := bits.Mul64(hi^x.seed, 0x9e3779b97f4a7c15^x.seed<<1|1)
	h := (high ^ low) * 0xd6e8feb86659fd93
	return &x.shards[h%shards], h
}

// home is where a key with this hash would like to stand.
func (s *shard) home(h uint64) int {
	at, _ := bits.Mul64(h, uint64(len(s.slots)))
	return int(at)
}

func (s *shard) next(i int) int {
	if i++; i == len(s.slots) {
		return 0
	}
	return i
}

// FetchMost is how many keys can be fetched at once.
const FetchMost = 64

// Fetch has the processor read what a lookup of these keys and their inserts will, all
// of it at once: else each key would wait twice for memory. It changes no answer.
func (x *Index) Fetch(keys []frame.Key) {
	var homes [FetchMost]struct {
		of *shard
		at int
	}
	n := 0
	var read byte // keeps the compiler from leaving the reads out
	for _, k := range keys[:min(len(keys), FetchMost)] {
		hi, _ := split(k)
		s, h := x.place(hi)
		if len(s.slots) == 0 {
			continue
		}
		homes[n].of, homes[n].at = s, s.home(h)
		read ^= s.tags[homes[n].at]
		n++
	}
	for _, home := range homes[:n] {
		s, at := home.of, home.at
		empty := ^binary.LittleEndian.Uint64(s.tags[at:]) & topBits
		if at += bits.TrailingZeros64(empty) / 8; at >= len(s.slots) {
			at -= len(s.slots)
		}
		read ^= byte(s.slots[at].hi)
	}
	x.read = read
}

// Lookup returns the offset at which confirm agrees that k stands. It asks confirm
// for every candidate, of which there is hardly ever more than one.
func (x *Index) Lookup(k frame.Key, confirm func(offset uint64) bool) (uint64, bool) {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count == 0 {
		return 0, false
	}
	want := everyTag * uint64(tagOf(h))
	for at := s.home(h); ; {
		tags := binary.LittleEndian.Uint64(s.tags[at:])
		empty := ^tags & topBits
		before := empty&-empty - 1 // the bits below the first empty tag, all of them if there is none
		for fits := equalTags(tags^want) & before; fits != 0; fits &= fits - 1 {
			i := at + bits.TrailingZeros64(fits)/8
			if i >= len(s.slots) {
				i -= len(s.slots)
			}
			if c := s.slots[i]; c.hi == hi && c.lo&tagMask == tag {
				if offset := x.offset(c); offset >= x.floor && confirm(offset) {
					return offset, true
				}
			}
		}
		if empty != 0 {
			return 0, false
		}
		if at += group; at >= len(s.slots) {
			at -= len(s.slots)
		}
	}
}

// equalTags has the top bit of each byte that is zero in x, and now and then of the
// one above such a byte.
func equalTags(x uint64) uint64 { return (x - everyTag) &^ x & topBits }

func (x *Index) offset(c slot) uint64 {
	behind := (x.newest - c.lo) & offsetMask
	return x.newest - behind
}

// Insert adds k at offset, which is at least as large as every offset before.
// The caller has looked k up.
func (x *Index) Insert(k frame.Key, offset uint64) {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count >= full(len(s.slots)) {
		x.sweep(s)
	}
	s.insert(h, slot{hi, occupied | tag | offset&offsetMask})
	x.newest = max(x.newest, offset)
	x.count++
	x.slots++
}

// full is how many slots of a shard may be occupied.
func full(slots int) int { return slots - slots/8 }

// Expire takes all keys at offsets below floor out, of which there are so many. The
// next shard is swept while more slots have expired than have not.
func (x *Index) Expire(floor uint64, keys int) {
	x.floor = floor
	x.count -= keys
	switch {
	case x.count == 0:
		x.shards, x.slots = [shards]shard{}, 0
	case x.slots > 2*x.count:
		x.swept = (x.swept + 1) % shards
		x.sweep(&x.shards[x.swept])
	}
}

// sweep makes a shard anew of what has not expired, with room for an eighth more at
// least, so that the next sweep is as many inserts away.
func (x *Index) sweep(s *shard) {
	live := 0
	for _, c := range s.slots {
		if x.holds(c) {
			live++
		}
	}
	size := len(s.slots)
	switch {
	case live >= full(full(size)):
		size = max(minSlots, size+size/4)
	case live < size/4:
		size = max(minSlots, 2*live)
	}
	old := *s
	*s = newShard(size)
	for _, c := range old.slots {
		if x.holds(c) {
			_, h := x.place(c.hi)
			s.insert(h, c)
		}
	}
	x.slots -= old.count - s.count
}

// holds reports whether a slot has a key that has not expired.
func (x *Index) holds(c slot) bool { return c.lo&occupied != 0 && x.offset(c) >= x.floor }

func (s *shard) insert(h uint64, c slot) {
	i := s.home(h)
	for {
		empty := ^binary.LittleEndian.Uint64(s.tags[i:]) & topBits
		if empty != 0 {
			i += bits.TrailingZeros64(empty) / 8
			break
		}
		if i += group; i >= len(s.slots) {
			i -= len(s.slots)
		}
	}
	if i >= len(s.slots) {
		i -= len(s.slots)
	}
	s.slots[i] = c
	s.setTag(i, tagOf(h))
	s.count++
}

// Remove takes k at offset out and reports whether it stood there.
func (x *Index) Remove(k frame.Key, offset uint64) bool {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count == 0 {
		return false
	}
	want := slot{hi, occupied | tag | offset&offsetMask}
	for i := s.home(h); s.slots[i].lo&occupied != 0; i = s.next(i) {
		if s.slots[i] == want {
			x.removeAt(s, i)
			return true
		}
	}
	return false
}

// removeAt closes the hole by moving back whoever stands behind it away from home,
// so that no tombstones gather.
func (x *Index) removeAt(s *shard, hole int) {
	for i := s.next(hole); s.slots[i].lo&occupied != 0; i = s.next(i) {
		_, h := x.place(s.slots[i].hi)
		home := s.home(h)
		if distance(home, i, len(s.slots)) >= distance(hole, i, len(s.slots)) {
			s.slots[hole] = s.slots[i]
			s.setTag(hole, s.tags[i])
			hole = i
		}
	}
	s.slots[hole] = slot{}
	s.setTag(hole, 0)
	s.count--
	x.count--
	x.slots--
}

// distance is how many steps lead from a forward to b on a ring of n.
func distance(a, b, n int) int {
	if d := b - a; d >= 0 {
		return d
	}
	return b - a + n
}
