package event

import "encoding/hex"

// Trace is a W3C trace context: the span that an event was published in. The zero value, and any other that is not
// Valid, is none. It is kept with the event and counts for nothing else: not for the content hash, not for
// deduplication, not for filters. A tracestate is not kept, since it is for the vendors that a request passes.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// traceSampled is the bit of Trace.Flags that says that the trace is recorded.
const traceSampled = 1

// A traceparent of version 00:
//
//	2   version, "00"
//	1   "-"
//	32  trace id, lower-case hex, not all zero
//	1   "-"
//	16  span id, lower-case hex, not all zero
//	1   "-"
//	2   flags, lower-case hex
const (
	traceparentSize = 55
	traceAt         = 3
	spanAt          = 36
	flagsAt         = 53
)

// Valid reports whether there is a trace: neither of its ids is zero.
func (t Trace) Valid() bool { return t.TraceID != [16]byte{} && t.SpanID != [8]byte{} }

// Sampled reports whether the trace is recorded.
func (t Trace) Sampled() bool { return t.Flags&traceSampled != 0 && t.Valid() }

// String returns the trace context as a traceparent of version 00, or "" if there is none.
func (t Trace) String() string {
	if !t.Valid() {
		return ""
	}
	return string(t.append(make([]byte, 0, traceparentSize)))
}

// append appends the traceparent of a valid trace context.
func (t Trace) append(dst []byte) []byte {
	dst = hex.AppendEncode(append(dst, "00-"...), t.TraceID[:])
	dst = hex.AppendEncode(append(dst, '-'), t.SpanID[:])
	return hex.AppendEncode(append(dst, '-'), []byte{t.Flags})
}

// ParseTrace reads a traceparent of version 00. The error is an *Error.
func ParseTrace(s string) (Trace, error) {
	t, bad := parseTrace(s)
	if bad != nil {
		return Trace{}, bad
	}
	return t, nil
}

// parseTrace is ParseTrace with the error as this package passes it on.
func parseTrace(s string) (t Trace, _ *Error) {
	switch {
	case len(s) != traceparentSize:
		return Trace{}, traceError("%d bytes, a traceparent has %d", len(s), traceparentSize)
	case s[:2] != "00":
		return Trace{}, traceError("the version is %q, not 00", s[:2])
	case s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-':
		return Trace{}, traceError("no - between its parts")
	}
	// Both cases of a letter are hex to package hex; the standard has lower case only.
	var flags [1]byte
	for _, part := range [...]struct {
		name string
		to   []byte
		from string
	}{
		{"trace id", t.TraceID[:], s[traceAt : spanAt-1]},
		{"span id", t.SpanID[:], s[spanAt : flagsAt-1]},
		{"flags", flags[:], s[flagsAt:]},
	} {
		for i := range len(part.from) {
			if c := part.from[i]; !isDigit(c) && (c < 'a' || c > 'f') {
				return Trace{}, traceError("the %s %q is not lower-case hex", part.name, part.from)
			}
		}
		hex.Decode(part.to, []byte(part.from)) // has hex digits alone
	}
	if !t.Valid() {
		return Trace{}, traceError("a trace id or span id of zeros")
	}
	t.Flags = flags[0]
	return t, nil
}

// traceError is an error about a traceparent.
func traceError(format string, args ...any) *Error {
	err := fieldError(ReasonInvalidField, "traceparent", format, args...)
	err.Remedy = "send 00-<32 hex digits>-<16 hex digits>-<2 hex digits> in lower case, or leave traceparent out"
	return err
}
