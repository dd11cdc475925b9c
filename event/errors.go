package event

import (
	"cmp"

	"github.com/ringrift/ringlog/event/canon"
)

// Reasons an event, a filter or a definition is refused for. They are part of the HTTP interface.
const (
	ReasonEmpty          = "empty" // no event, no definition or no flow
	ReasonInvalidJSON    = canon.ReasonInvalidJSON
	ReasonDuplicateKey   = canon.ReasonDuplicateKey
	ReasonUnknownKey     = "unknown_key" // of an event, a definition or a flow; a payload may have any
	ReasonTooDeep        = canon.ReasonTooDeep
	ReasonTrailingBytes  = canon.ReasonTrailingBytes
	ReasonInvalidUTF8    = canon.ReasonInvalidUTF8
	ReasonLoneSurrogate  = canon.ReasonLoneSurrogate
	ReasonInvalidType    = "invalid_type"
	ReasonUnknownType    = "unknown_type"  // while validation is strict
	ReasonReservedType   = "reserved_type" // only the cluster emits it
	ReasonInvalidPayload = canon.ReasonInvalidPayload
	ReasonNotANumber     = canon.ReasonNotANumber   // NaN or Infinity, which Python writes
	ReasonTooLarge       = canon.ReasonTooLarge     // an event, a request or a list in it
	ReasonInvalidField   = canon.ReasonInvalidField // any other value of a field that is refused
)

// Error says why input was refused, where, and what would be accepted instead. Every error of this package that input
// can cause is an *Error.
type Error = canon.Error

// fieldError is an Error about one field, without a position.
func fieldError(reason, field, format string, args ...any) *Error {
	return canon.FieldError(reason, field, format, args...)
}

// Limits bound what one event and one request may hold. A zero field means its default.
// A cluster's settings give them; a client leaves them to the nodes.
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

// Canonicalize returns the canonical form of a payload, or the payload itself if it is canonical already. The payload
// must be one JSON object within the limits.
func Canonicalize(payload []byte, lim Limits) ([]byte, error) {
	lim = lim.orDefault()
	v := canon.Verifier{Data: payload, MaxDepth: lim.Depth}
	if v.Payload() && len(payload) <= lim.EventBytes {
		return payload, nil
	}

	// Rewrite makes it canonical, or says what is wrong with it.
	out, err := canon.Rewrite(payload, lim.Depth, lim.EventBytes)
	if err != nil {
		return nil, err
	}
	return out, nil
}
