package event

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// maxFieldWarnings bounds what one event is told about its payload.
const maxFieldWarnings = 8

// fieldCheck compares the members of a payload with the catalogue while it is being verified.
type fieldCheck struct {
	def         *Definition // nil or without fields: nothing to compare with
	correlation []byte      // the JSON value of a member correlation_id

	// Quietly it only takes the shape: payloads of one type and shape differ from the catalogue in the same way.
	quiet bool
	shape uint64

	unlisted []string // names, the first few
	more     int      // and how many beyond
	mistyped []Warning
}

const (
	noMembers    = 14695981039346656037 // the shape to begin with
	unlikeOthers = 0                    // the shape of what is to be looked at by itself
	shapePrime   = 1099511628211        // what members are folded in with
)

// see is told of a member: its canonical key without quotes, the key's hash, its canonical value.
func (c *fieldCheck) see(key []byte, hash uint64, value []byte) {
	if string(key) == "correlation_id" {
		c.correlation = value
		return
	}
	switch {
	case c.def == nil || len(c.def.fields) == 0:
	case c.quiet:
		c.shape = ((c.shape^hash)*shapePrime ^ uint64(kindOf(value))) * shapePrime
	default:
		c.compare(key, value)
	}
}

// keySeed makes shapes the secret of a process: nobody makes a payload of another's shape up, whose warnings he would
// then be told.
var keySeed = maphash.MakeSeed()

// hashKey is what shapes are made of.
func hashKey(key []byte) uint64 { return maphash.Bytes(keySeed, key) }

func (c *fieldCheck) compare(key, value []byte) {
	t, listed := c.def.fields[string(key)]
	switch {
	case !listed && len(c.unlisted) < maxFieldWarnings:
		c.unlisted = append(c.unlisted, pathStep(key))
	case !listed:
		c.more++
	case !t.accepts(kindOf(value)) && len(c.mistyped) < maxFieldWarnings:
		s := scanner{data: value}
		c.mistyped = append(c.mistyped, warning(WarningPayloadField, "payload."+pathStep(key),
			"%s, the catalogue has %s for %s", s.kind(), fieldTypes()[t], c.def.Name))
	}
}

// warnings appends what was seen.
func (c *fieldCheck) warnings(to []Warning) []Warning {
	to = append(to, c.mistyped...)
	if len(c.unlisted) == 0 {
		return to
	}
	names := strings.Join(c.unlisted, ", ")
	if c.more > 0 {
		names += fmt.Sprintf(" and %d more", c.more)
	}
	return append(to, warning(WarningPayloadField, "payload", "not among the catalogue's fields of %s: %s", c.def.Name, names))
}
