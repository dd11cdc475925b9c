// Package event holds the vocabulary of the log: the Event, the catalogue of known types with their aliases, the
// canonical JSON form of a payload with the content hash over it, and the one gate every incoming event passes.
//
// It promises that a payload that went through Policy.Normalize is, byte for byte, what Python's
// json.dumps(payload, sort_keys=True) prints, so that a Python daemon computes the same content hash; that names,
// values, aliases and dotted topics of a type all become the one canonical name; and that whatever input does, the
// answer is an *Error with a reason and a place, never a panic.
//
//	ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})
//	gate := event.Policy{Catalogue: event.Builtin()}
//	hash, warnings, err := gate.Normalize(&ev)
package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"sync"
	"time"
	"unsafe"
)

//go:generate go run ./internal/gencatalogue

// Type is an event type's canonical name, such as TRAINING_COMPLETED.
type Type string

// Event is one event, before or after the log has given it its place.
type Event struct {
	Type    Type            // canonical name once Policy.Normalize has run; before, any spelling Catalogue.Resolve knows
	Value   string          // "" is the default: the built-in type's value, else the lower-cased Type
	Payload json.RawMessage // a JSON object; canonical once Policy.Normalize has run

	Source        string
	Key           string
	CorrelationID string
	CausationID   string
	DedupID       string

	Original string    // the name it came with, where an alias changed its meaning
	Foreign  bool      // a reserved type stored for a client, not emitted by the cluster
	NoDedup  bool      // append it even where the same content was accepted a moment ago
	Time     time.Time // the producer's; zero is none

	// Given by the log.
	Offset     uint64 // dense, from 1; 0 is not yet appended
	AppendedAt time.Time
	Term       uint64
	Target     string // the one cursor it is for, where it was appended again for that; "" is everybody
	Redrive    uint64 // the dead letter that it was then

	err error // what New could not marshal; Policy.Normalize and MarshalJSON return it
}

// SameForm reports whether normalizing an event changed nothing that is stored; sent is a
// copy of it from before, which shares its payload.
func (e *Event) SameForm(sent *Event) bool {
	return e.Type == sent.Type && e.Value == sent.Value && e.CorrelationID == sent.CorrelationID &&
		e.Original == sent.Original && e.Foreign == sent.Foreign &&
		len(e.Payload) == len(sent.Payload) && unsafe.SliceData(e.Payload) == unsafe.SliceData(sent.Payload)
}

// New makes an event of a payload: a struct, a map, JSON as json.RawMessage or []byte, or nil for {}. A payload that
// can not be marshalled is reported by Policy.Normalize and by MarshalJSON.
func New(t Type, payload any) Event {
	e := Event{Type: t}
	switch p := payload.(type) {
	case nil:
		e.Payload = json.RawMessage("{}")
	case json.RawMessage:
		e.Payload = p
	case []byte:
		e.Payload = p
	default:
		e.Payload, e.err = marshalPayload(p)
	}
	return e
}

func marshalPayload(payload any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(payload); err != nil {
		return nil, fmt.Errorf("event: marshal payload: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// EffectiveValue is Value, or the default it stands for.
func (e *Event) EffectiveValue() string {
	if e.Value != "" {
		return e.Value
	}
	return defaultValue(e.Type)
}

func defaultValue(t Type) string {
	if d, ok := Builtin().Definition(t); ok {
		return d.Value
	}
	return strings.ToLower(string(t))
}

// Hash is an event's content hash: SHA-256 over its value, a colon and its canonical payload. A type that becomes
// built-in with a value other than its name in lower case has other hashes from that build on.
type Hash [sha256.Size]byte

// Hash computes the content hash. The payload must be canonical already.
func (e *Event) Hash() Hash {
	return contentHash(e.EffectiveValue(), e.Payload)
}

func contentHash(value string, payload []byte) Hash {
	h := hashers.Get().(*hasher)
	defer hashers.Put(h)
	return h.hash(value, payload)
}

// hasher keeps what a content hash needs of memory, which would be allocated for each.
type hasher struct {
	digest hash.Hash
	head   []byte
	sum    Hash
}

var hashers = sync.Pool{New: func() any { return newHasher() }}

func newHasher() *hasher { return &hasher{digest: sha256.New()} }

func (h *hasher) hash(value string, payload []byte) Hash {
	h.head = append(append(h.head[:0], value...), ':')
	h.digest.Reset()
	h.digest.Write(h.head)
	h.digest.Write(payload)
	h.digest.Sum(h.sum[:0])
	return h.sum
}

// String is the hash in lower-case hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads 64 hex digits.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != hex.EncodedLen(len(h)) {
		return h, fieldError(ReasonInvalidField, "hash", "a content hash has %d hex digits, not %d", 2*len(h), len(s))
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fieldError(ReasonInvalidField, "hash", "not a hex string: %v", err)
	}
	return h, nil
}
