package canon

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
)

// Reasons of an Error of this package. Package event lists them with its own.
const (
	ReasonInvalidJSON    = "invalid_json"
	ReasonDuplicateKey   = "duplicate_key"
	ReasonTooDeep        = "too_deep"
	ReasonTrailingBytes  = "trailing_bytes"
	ReasonInvalidUTF8    = "invalid_utf8"
	ReasonLoneSurrogate  = "lone_surrogate"
	ReasonInvalidPayload = "invalid_payload"
	ReasonNotANumber     = "not_a_number"
	ReasonTooLarge       = "too_large"
	ReasonInvalidField   = "invalid_field"
)

// Error says why input was refused, where, and what would be accepted instead. Every error of packages event and
// canon that input can cause is an *Error.
type Error struct {
	Reason   string // one of the Reason constants of package event
	Field    string // path of what was refused, such as events[3].payload.metrics.loss; "" is the input as a whole
	Message  string // what is wrong, for a person
	Remedy   string // what to send instead; "" if the message says it
	Position int64  // byte position in the input, from 0; -1 if unknown
}

// Error prints field, message and position.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("event: ")
	// Each part that is known is printed, in the order in which a reader looks for it.
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(cmp.Or(e.Message, e.Reason))
	if e.Position >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Position)
	}
	return b.String()
}

// Under prefixes the field with the path of a container: "loss" under "payload" is "payload.loss". It returns e.
func (e *Error) Under(container string) *Error {
	switch {
	case container == "":
	case e.Field == "" || e.Field[0] == '[':
		e.Field = container + e.Field
	default:
		e.Field = container + "." + e.Field
	}
	return e
}

// FieldError returns an Error about one field, without a position.
func FieldError(reason, field, format string, args ...any) *Error {
	return &Error{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...), Position: -1}
}

// PathStep prints a key for the path of an error: quoted where it could be misread, truncated where it is long.
func PathStep(key []byte) string {
	const longest = 64
	// A key comes from the input, so it may have any length and any characters.
	s := string(key)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	if s == "" || strings.ContainsAny(s, `.[]"`) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// Clip truncates a literal for an error message.
func Clip(literal []byte) string {
	const longest = 32
	// The beginning of a literal is enough to find it.
	if len(literal) > longest {
		return string(literal[:longest]) + "…"
	}
	return string(literal)
}
