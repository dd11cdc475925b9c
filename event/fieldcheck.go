package event

import (
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/event/canon"
)

// maxFieldWarnings bounds the warnings about the payload of one event.
const maxFieldWarnings = 8

// fieldCheck compares the members of a payload with the catalogue while the payload is verified.
// It is used for one payload. A new one, or a copy from before, is used for the next.
type fieldCheck struct {
	def         *Definition // nil or without fields: nothing to compare with
	correlation []byte      // the JSON value of a member correlation_id

	// quiet computes the shape and compares nothing: payloads of one type and shape differ from the catalogue in the
	// same way.
	quiet bool
	shape uint64 // hash over keys and kinds of values

	unlisted []string // names, up to maxFieldWarnings
	more     int      // how many unlisted members there are beside those
	// up to maxFieldWarnings; more are not counted
	mistyped []Warning
}

// FNV-1a is cheap, and a collision costs a wrong warning only.
const (
	noMembers   = 14695981039346656037 // the shape of an empty payload
	uniqueShape = 0                    // the shape of a payload whose warnings no other payload shares
	shapePrime  = 1099511628211        // factor for each part of a member, as in FNV-1a
)

// member checks one member: its canonical key without quotes, the hash of the key, its canonical value.
// key and value are parts of the payload, which outlives the check.
func (c *fieldCheck) member(key []byte, hash uint64, value []byte) {
	if string(key) == "correlation_id" {
		c.correlation = value
		return
	}
	// The shape does not depend on a type without listed fields, since its payloads get no warnings.
	switch {
	case c.def == nil || len(c.def.fields) == 0:
	case c.quiet:
		// The same keys with values of other kinds have another shape.
		c.shape = ((c.shape^hash)*shapePrime ^ uint64(kindOf(value))) * shapePrime
	default:
		c.compare(key, value)
	}
}

// compare collects the differences between one member and the catalogue.
func (c *fieldCheck) compare(key, value []byte) {
	// A member is either unlisted or mistyped; both only warn.
	t, listed := c.def.fields[string(key)]
	switch {
	case !listed && len(c.unlisted) < maxFieldWarnings:
		c.unlisted = append(c.unlisted, canon.PathStep(key))
	// Past the bound they are only counted.
	case !listed:
		c.more++
	case !t.accepts(kindOf(value)) && len(c.mistyped) < maxFieldWarnings:
		// The scanner finds the kind's name for people.
		s := canon.Scanner{Data: value}
		c.mistyped = append(c.mistyped, warning(WarningPayloadField, "payload."+canon.PathStep(key),
			"%s, the catalogue has %s for %s", s.Kind(), fieldTypes()[t], c.def.Name))
	}
}

// warnings appends a warning for each mistyped member, and one for all unlisted members together.
func (c *fieldCheck) warnings(to []Warning) []Warning {
	// Field by field: each mistyped member is a mistake of its own.
	to = append(to, c.mistyped...)
	if len(c.unlisted) == 0 {
		return to
	}
	// One warning for all: a payload that is wholly unknown would get dozens.
	names := strings.Join(c.unlisted, ", ")
	if c.more > 0 {
		names += fmt.Sprintf(" and %d more", c.more)
	}
	return append(to, warning(WarningPayloadField, "payload",
		"not among the catalogue's fields of %s: %s", c.def.Name, names))
}
