package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
)

// Hash is the content hash of an event: SHA-256 over its value, a colon and its canonical payload. A type that
// becomes built-in with a value other than its name in lower case has other hashes from that build on.
type Hash [sha256.Size]byte

// String is the hash in lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads 64 hex digits.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != hex.EncodedLen(len(h)) {
		return h, FieldError(ReasonInvalidField, "hash", "a content hash has %d hex digits, not %d", 2*len(h), len(s))
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, FieldError(ReasonInvalidField, "hash", "not a hex string: %v", err)
	}
	return h, nil
}

// ContentHash computes the content hash of an event by its value and its canonical payload.
func ContentHash(value string, payload []byte) Hash {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	return h.ContentHash(value, payload)
}

// Hasher computes content hashes one after another without allocating. It is not safe for concurrent use.
type Hasher struct {
	digest hash.Hash
	head   []byte // value and colon, so the digest is fed from memory that does not escape each time
	sum    Hash
}

// hashers keeps the memory of hashers, as one is needed at every gate.
var hashers = sync.Pool{New: func() any { return NewHasher() }}

// NewHasher returns a Hasher.
func NewHasher() *Hasher { return &Hasher{digest: sha256.New()} }

// ContentHash computes one content hash.
func (h *Hasher) ContentHash(value string, payload []byte) Hash {
	// The value has no length in front: it is a type's, which never contains a colon.
	h.head = append(append(h.head[:0], value...), ':')
	h.digest.Reset()
	h.digest.Write(h.head)
	h.digest.Write(payload)
	h.digest.Sum(h.sum[:0]) // writes into h.sum, which has the capacity
	return h.sum
}
