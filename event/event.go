// Package event holds the vocabulary of the log: the Event, the catalogue of known types with their aliases, filters,
// and the one gate that every incoming event passes. Package event/canon has the canonical form of a payload and the
// content hash over it.
//
// It promises that a payload that went through Policy.Normalize is, byte for byte, what Python's
// json.dumps(payload, sort_keys=True) prints, so a Python daemon computes the same content hash; that names,
// values, aliases and dotted topics of a type all become the one canonical name; and that whatever input does, the
// answer is an *Error with a reason and a place, never a panic.
//
//	ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})
//	gate := event.Policy{Catalogue: event.Builtin()}
//	hash, warnings, err := gate.Normalize(&ev)
package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/event/canon"
)

//go:generate go run ./internal/gencatalogue

// Type is an event type's canonical name, such as TRAINING_COMPLETED.
type Type string

// Event is one event, before or after the log has given it its place.
// Events are passed by value. Copies share the payload, which nobody changes.
type Event struct {
	// what happened:
	Type    Type            // canonical after Policy.Normalize; before, any spelling that Catalogue.Resolve knows
	Value   string          // "" is the default: the built-in type's value, else the lower-cased Type
	Payload json.RawMessage // a JSON object; canonical once Policy.Normalize has run

	// who and what it is about, all optional:
	Source        string
	Key           string
	CorrelationID string
	CausationID   string
	DedupID       string

	// how it was sent and is to be treated:
	Original string    // the name it was sent with, if an alias changed its meaning
	Foreign  bool      // a reserved type stored for a client, not emitted by the cluster
	NoDedup  bool      // append it even if the same content was accepted within the dedup window
	Time     time.Time // when it happened, by the producer's clock; zero is unknown
	Trace    Trace     // the span that published it; zero is none

	// Given by the log.
	Offset     uint64 // dense, from 1; 0 is not yet appended
	AppendedAt time.Time
	Term       uint64
	Target     string // the only cursor that receives it, if it was redriven for that cursor; "" is every cursor
	Redrive    uint64 // the dead letter that was redriven; 0 is none

	err error // why New could not marshal the payload; Policy.Normalize and MarshalJSON return it
}

// SameForm reports whether normalizing an event changed nothing that is stored. sent is a copy from before that shares
// the payload: a payload at the same address was canonical already, so its bytes need no comparison.
// A block that a client encoded is stored as it came if all its events are in the form already.
func (e *Event) SameForm(sent *Event) bool {
	return e.Type == sent.Type && e.Value == sent.Value && e.CorrelationID == sent.CorrelationID &&
		e.Original == sent.Original && e.Foreign == sent.Foreign &&
		// The lengths are equal as well: a payload may begin where another one does.
		len(e.Payload) == len(sent.Payload) && unsafe.SliceData(e.Payload) == unsafe.SliceData(sent.Payload)
}

// New makes an event of a payload: a struct, a map, JSON as json.RawMessage or []byte, or nil for {}. A payload that
// cannot be marshalled is reported by Policy.Normalize and by MarshalJSON.
func New(t Type, payload any) Event {
	// JSON is taken as it is; the gate checks it. Everything else is marshalled now, so later changes to the
	// payload do not show in the event.
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

// marshalPayload leaves <, > and & unescaped, as the canonical form does.
func marshalPayload(payload any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// The encoder ends its output with a newline, which is not part of the payload.
	if err := enc.Encode(payload); err != nil {
		return nil, fmt.Errorf("event: marshal payload: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// maxShown is how much of a payload String shows.
const maxShown = 200

// String is the event for people, such as "7 TRAINING_COMPLETED key=hex8_2p source=trainer-3 {...}". Long payloads are
// cut.
func (e Event) String() string {
	var b strings.Builder
	// Only an event of the log has an offset.
	if e.Offset > 0 {
		fmt.Fprintf(&b, "%d ", e.Offset)
	}
	b.WriteString(string(e.Type))
	for _, f := range [...][2]string{{"key", e.Key}, {"source", e.Source}, {"correlation", e.CorrelationID},
		{"causation", e.CausationID}, {"dedup", e.DedupID}} {
		if f[1] != "" {
			fmt.Fprintf(&b, " %s=%s", f[0], f[1])
		}
	}
	b.WriteByte(' ')
	if len(e.Payload) > maxShown {
		// The cut may be within a character; what is left of that is dropped.
		b.WriteString(strings.ToValidUTF8(string(e.Payload[:maxShown]), "") + "…")
	} else {
		b.Write(e.Payload)
	}
	return b.String()
}

// EffectiveValue returns Value, or the default value of the type if Value is empty.
func (e *Event) EffectiveValue() string {
	if e.Value != "" {
		return e.Value
	}
	return defaultValue(e.Type)
}

// defaultValue returns the value of a type that is stored without one.
func defaultValue(t Type) string {
	// A registered type whose value is another has it in the event.
	if d, ok := Builtin().Definition(t); ok {
		return d.Value
	}
	return strings.ToLower(string(t))
}

// Hash is the content hash of an event: SHA-256 over its value, a colon and its canonical payload.
type Hash = canon.Hash

// ParseHash reads 64 hex digits.
func ParseHash(s string) (Hash, error) { return canon.ParseHash(s) }

// Hash computes the content hash. The payload must be canonical already.
func (e *Event) Hash() Hash { return canon.ContentHash(e.EffectiveValue(), e.Payload) }
