package event

import (
	"cmp"
	"fmt"
	"strings"
)

// Reasons an event, a filter or a definition is refused for. They are part of the HTTP interface.
const (
	ReasonEmpty          = "empty"
	ReasonInvalidJSON    = "invalid_json"
	ReasonDuplicateKey   = "duplicate_key"
	ReasonUnknownKey     = "unknown_key"
	ReasonTooDeep        = "too_deep"
	ReasonTrailingBytes  = "trailing_bytes"
	ReasonInvalidUTF8    = "invalid_utf8"
	ReasonLoneSurrogate  = "lone_surrogate"
	ReasonInvalidType    = "invalid_type"
	ReasonUnknownType    = "unknown_type"
	ReasonReservedType   = "reserved_type"
	ReasonInvalidPayload = "invalid_payload"
	ReasonNotANumber     = "not_a_number"
	ReasonTooLarge       = "too_large"
	ReasonInvalidField   = "invalid_field"
)

// Error says why input was refused, where, and what would be accepted instead. Every error of this package
// that input can cause is an *Error.
type Error struct {
	Reason   string // one of the Reason constants
	Field    string // path of what was refused, such as events[3].payload.metrics.loss; "" is the input as a whole
	Message  string // what is wrong, for a person
	Remedy   string // what to send instead, "" where that is plain
	Position int64  // byte position in the input, from 0; -1 if unknown
}

// Error prints field, message and position.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("event: ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(cmp.Or(e.Message, e.Reason))
	if e.Position >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Position)
	}
	return b.String()
}

// under prefixes the field with a container's path: "loss" under "payload" is "payload.loss".
func (e *Error) under(container string) *Error {
	switch {
	case container == "":
	case e.Field == "" || e.Field[0] == '[':
		e.Field = container + e.Field
	default:
		e.Field = container + "." + e.Field
	}
	return e
}

// fieldError is an Error about one field, without a position.
func fieldError(reason, field, format string, args ...any) *Error {
	return &Error{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...), Position: -1}
}

// Limits bound what one event and one request may hold. A zero field means its default.
type Limits struct {
	EventBytes    int // payload in canonical form, in bytes
	NameBytes     int // type, source, key and each id, in bytes
	Depth         int // nesting of a payload; the payload object itself is level 1
	RequestEvents int // events in one request
	RequestBytes  int // body of one request, in bytes
}

// DefaultLimits are 1 MiB an event, 256 bytes a name, depth 128, 10 000 events and 4 MiB a request.
func DefaultLimits() Limits {
	return Limits{EventBytes: 1 << 20, NameBytes: 256, Depth: 128, RequestEvents: 10_000, RequestBytes: 4 << 20}
}

// orDefault fills the zero fields.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		EventBytes:    cmp.Or(l.EventBytes, d.EventBytes),
		NameBytes:     cmp.Or(l.NameBytes, d.NameBytes),
		Depth:         cmp.Or(l.Depth, d.Depth),
		RequestEvents: cmp.Or(l.RequestEvents, d.RequestEvents),
		RequestBytes:  cmp.Or(l.RequestBytes, d.RequestBytes),
	}
}
