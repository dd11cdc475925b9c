// Package dedup is the in-memory half of duplicate suppression: which keys were
// accepted within the window, and at which offset.
//
// It takes 17 bytes a key plus the slack of open addressing, 20 to 28 in all. A hit
// is a candidate only: the caller confirms it against the stored key column, so
// suppression is exact to the full key. The index reads no clock; the caller says
// which offsets have left the window.
package dedup

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/ringrift/ringlog/internal/frame"
)

// A slot is two words:
//
//	hi  bytes 0 to 7 of the key
//	lo  1 bit occupied, 23 bits of the key's bytes 8 to 10, 40 bits of the offset
//
// The offset's upper 24 bits follow from the newest offset, since a window never spans
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

// Index is a hash table in shards. Each shard grows and shrinks by itself, so no
// single insert moves the whole table. Lookups skip the slots of expired keys until their
// shard is full or has its turn to be swept: looking up each key that expires would cost a
// cache miss. It is not safe for concurrent use.
type Index struct {
	shards      [shards]shard
	seed        uint64 // random; decides where a key is, never what a lookup returns
	count       int    // keys in the window
	slots       int    // occupied slots, including those of expired keys
	windowStart uint64 // offsets below it have expired
	newest      uint64
	swept       int  // the shard that was swept last
	read        byte // what Fetch has read
}

// A shard has a tag for each slot: 0 for an empty one, else 1 bit occupied and 7 bits of
// the hash. A lookup reads eight tags at a time, and a slot only where the tag matches,
// so a new key, the usual case, costs one cache line.
//
// A key is in the first slot that was empty from its home on, around the end: no empty slot
// is between the two.
type shard struct {
	slots []slot
	tags  []byte // one a slot, then the first seven again, so eight can be read anywhere
	count int    // occupied slots
}

const (
	group    = 8                  // tags that are read at a time
	everyTag = 0x0101010101010101 // times a tag: that tag in each byte
	topBits  = everyTag << 7
)

// newShard returns an empty shard. It has group-1 tags more than slots: see shard.
func newShard(slots int) shard {
	return shard{slots: make([]slot, slots), tags: make([]byte, slots+group-1)}
}

// setTag sets the tag of slot i, and its copy after the last one.
func (s *shard) setTag(i int, tag byte) {
	s.tags[i] = tag
	if i < group-1 {
		s.tags[len(s.slots)+i] = tag
	}
}

// tagOf takes other bits of the hash than the shard, which is in the low ten.
func tagOf(h uint64) byte { return 1<<7 | byte(h>>24) }

// New returns an empty index.
func New() *Index { return &Index{seed: rand.Uint64() | 1} }

// Len returns the number of keys.
func (x *Index) Len() int { return x.count }

// Bytes returns the memory that slots and tags take.
func (x *Index) Bytes() int {
	n := 0
	for i := range x.shards {
		n += len(x.shards[i].slots)*16 + len(x.shards[i].tags)
	}
	return n
}

// split returns what a slot stores of a key: its first eight bytes, and the bits of the
// next three where lo has them.
func split(k frame.Key) (hi, tag uint64) {
	hi = binary.LittleEndian.Uint64(k[:8])
	tag = uint64(binary.LittleEndian.Uint32(k[8:12])) << offsetBits & tagMask
	return hi, tag
}

// place returns a key's shard and its hash. The seed keeps producers from choosing keys that
// collide.
func (x *Index) place(hi uint64) (*shard, uint64) {
	high, low := bits.Mul64(hi^x.seed, 0x9e3779b97f4a7c15^x.seed<<1|1)
	h := (high ^ low) * 0xd6e8feb86659fd93
	return &x.shards[h%shards], h
}

// home is the slot from which on a key with this hash is looked for.
func (s *shard) home(h uint64) int {
	at, _ := bits.Mul64(h, uint64(len(s.slots)))
	return int(at)
}

// wrap maps an index that is less than one length past the end into the shard.
func (s *shard) wrap(i int) int {
	if i >= len(s.slots) {
		return i - len(s.slots)
	}
	return i
}

// emptyTags reads the eight tags from slot i on and has the top bit of each byte whose slot
// is empty.
func (s *shard) emptyTags(i int) uint64 { return ^binary.LittleEndian.Uint64(s.tags[i:]) & topBits }

// FetchMost is how many keys can be fetched at once.
const FetchMost = 64

// Fetch makes the processor load what looking up and inserting these keys will read, all of
// it at once; otherwise each key would wait twice for memory. It changes no result.
func (x *Index) Fetch(keys []frame.Key) {
	var homes [FetchMost]struct {
		of *shard
		at int
	}
	n := 0
	var read byte // keeps the compiler from removing the reads

	// First the tags at each key's home.
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

	// Then the slot that an insert takes: the first empty one, most often among these tags.
	for _, home := range homes[:n] {
		s, at := home.of, home.at
		at = s.wrap(at + bits.TrailingZeros64(s.emptyTags(at))/8)
		read ^= byte(s.slots[at].hi)
	}
	x.read = read
}

// Lookup returns the offset of k, which confirm has to confirm. It calls confirm for every
// candidate, and there is hardly ever more than one.
func (x *Index) Lookup(k frame.Key, confirm func(offset uint64) bool) (uint64, bool) {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count == 0 {
		return 0, false
	}
	want := everyTag * uint64(tagOf(h))
	for at := s.home(h); ; at = s.wrap(at + group) {
		tags := binary.LittleEndian.Uint64(s.tags[at:])
		empty := ^tags & topBits
		beforeEmpty := empty&-empty - 1 // the bits below the first empty tag, all where there is none

		// Each bit of matches is a slot whose tag matches. The key is not after an empty slot.
		for matches := zeroBytes(tags^want) & beforeEmpty; matches != 0; matches &= matches - 1 {
			c := s.slots[s.wrap(at+bits.TrailingZeros64(matches)/8)]
			if c.hi != hi || c.lo&tagMask != tag {
				continue
			}
			if offset := x.offsetOf(c); offset >= x.windowStart && confirm(offset) {
				return offset, true
			}
		}
		if empty != 0 {
			return 0, false
		}
	}
}

// zeroBytes has the top bit of each byte of v that is zero. Sometimes it has the bit of the
// byte above a zero one too, which costs a lookup one slot more and no wrong result.
func zeroBytes(v uint64) uint64 { return (v - everyTag) &^ v & topBits }

// offsetOf completes the offset of a slot: it is the largest one with these bits that is not
// above the newest.
func (x *Index) offsetOf(c slot) uint64 { return x.newest - (x.newest-c.lo)&offsetMask }

// Insert adds k at offset, which must be at least as large as every offset before.
// The caller has looked k up and found nothing.
func (x *Index) Insert(k frame.Key, offset uint64) {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count >= maxOccupied(len(s.slots)) {
		x.sweep(s) // which may make room, and makes the shard larger otherwise
	}
	s.insert(h, slot{hi, occupied | tag | offset&offsetMask})
	x.newest = max(x.newest, offset)
	x.count++
	x.slots++
}

// maxOccupied is how many slots of a shard may be occupied: with more, probes get long.
func maxOccupied(slots int) int { return slots - slots/8 }

// Expire removes all keys at offsets below windowStart; the caller says how many these are.
// One call sweeps at most one shard, and only while more slots have expired than have not.
func (x *Index) Expire(windowStart uint64, keys int) {
	x.windowStart = windowStart
	x.count -= keys
	switch {
	case x.count == 0:
		x.shards, x.slots = [shards]shard{}, 0 // gives the memory back to the runtime
	case x.slots > 2*x.count:
		x.swept = (x.swept + 1) % shards
		x.sweep(&x.shards[x.swept])
	}
}

// sweep rebuilds a shard from the keys that have not expired, with room for at least an
// eighth more, so the next sweep is at least that many inserts away.
func (x *Index) sweep(s *shard) {
	live := 0
	for _, c := range s.slots {
		if x.inWindow(c) {
			live++
		}
	}

	// It grows where live keys nearly fill it, and shrinks where they take less than a quarter.
	size := len(s.slots)
	switch {
	case live >= maxOccupied(maxOccupied(size)):
		size = max(minSlots, size+size/4)
	case live < size/4:
		size = max(minSlots, 2*live)
	}

	old := *s
	*s = newShard(size)
	for _, c := range old.slots {
		if x.inWindow(c) {
			_, h := x.place(c.hi)
			s.insert(h, c)
		}
	}
	x.slots -= old.count - s.count
}

// inWindow reports whether a slot has a key that has not expired.
func (x *Index) inWindow(c slot) bool { return c.lo&occupied != 0 && x.offsetOf(c) >= x.windowStart }

// insert puts c into the first empty slot from its home on. There is one, since a shard is
// never full.
func (s *shard) insert(h uint64, c slot) {
	i := s.home(h)
	empty := s.emptyTags(i)
	// A group of tags without an empty one is skipped as a whole.
	for empty == 0 {
		i = s.wrap(i + group)
		empty = s.emptyTags(i)
	}
	i = s.wrap(i + bits.TrailingZeros64(empty)/8)
	s.slots[i] = c
	s.setTag(i, tagOf(h))
	s.count++
}

// Remove removes k at offset and reports whether it was there.
func (x *Index) Remove(k frame.Key, offset uint64) bool {
	hi, tag := split(k)
	s, h := x.place(hi)
	if s.count == 0 {
		return false
	}
	// The offset is compared as well: another key may share the bits that a slot has.
	want := slot{hi, occupied | tag | offset&offsetMask}

	// No empty slot is between a key's home and its slot.
	for i := s.home(h); s.slots[i].lo&occupied != 0; i = s.wrap(i + 1) {
		if s.slots[i] == want {
			x.removeAt(s, i)
			return true
		}
	}
	return false
}

// removeAt empties a slot. Each later key up to the next empty slot moves into the hole if
// the hole is not before the key's home, and leaves the hole that is closed next: no
// tombstones remain.
func (x *Index) removeAt(s *shard, hole int) {
	for i := s.wrap(hole + 1); s.slots[i].lo&occupied != 0; i = s.wrap(i + 1) {
		_, h := x.place(s.slots[i].hi)
		// Whether the hole is at the home of this key or after it.
		if distance(s.home(h), i, len(s.slots)) >= distance(hole, i, len(s.slots)) {
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

// distance is the number of steps forward from a to b on a ring of n.
func distance(a, b, n int) int {
	if d := b - a; d >= 0 {
		return d
	}
	return b - a + n
}
