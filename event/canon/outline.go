package canon

import "hash/maphash"

// Bounds of an Outline.
const (
	OutlineKeys     = 64  // keys of one outline
	OutlineKeyBytes = 256 // text of one key
)

// Outline holds the first keys of the outermost object of a payload that a Verifier accepted, in their order. Most
// payloads of a type have the same keys: where the next key of a payload equals the one at its position in the
// outline, the Verifier compares bytes and skips the checks, which it made when the key was stored.
//
// Invariant: keys[0:i] are canonical and strictly ascending for every i. A key is therefore only accepted by the
// outline if all keys before it were, or if they replaced the stored ones.
//
// The zero Outline is empty. It is not safe for concurrent use.
type Outline struct {
	keys []outlineKey
}

// outlineKey is the key of a member, as the payload spells it, and its hash.
type outlineKey struct {
	text []byte // from its first quote to its value: "elo":_
	hash uint64
}

// at returns the i-th key, empty if there is none.
func (o *Outline) at(i int) (text []byte, hash uint64) {
	if i < len(o.keys) {
		return o.keys[i].text, o.keys[i].hash
	}
	return nil, 0
}

// put stores text as the i-th key and forgets the keys after it, which followed another key.
func (o *Outline) put(i int, text []byte, hash uint64) {
	// A payload with very many keys is remembered as far as its first ones.
	if i >= OutlineKeys || i > len(o.keys) {
		return
	}
	o.keys = o.keys[:i]
	switch {
	// A long key would be kept in memory by each gate.
	case len(text) > OutlineKeyBytes:
		return
	case i < cap(o.keys):
		o.keys = o.keys[:i+1] // reuses the memory of the text that was stored there
	default:
		o.keys = append(o.keys, outlineKey{})
	}
	k := &o.keys[i]
	k.text, k.hash = append(k.text[:0], text...), hash
}

// keySeed is random per process, so nobody can craft a key whose hash collides with another's.
var keySeed = maphash.MakeSeed()

// hashKey returns the hash that an outline keeps beside a key.
func hashKey(key []byte) uint64 { return maphash.Bytes(keySeed, key) }
