package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/event/canon"
)

// ReservedPolicy decides about events of the types that only the cluster emits.
// A cluster refuses them unless the setting catalogue.reserved says otherwise.
type ReservedPolicy uint8

// The reserved policies.
// The zero value refuses, so a policy that says nothing is the safe one.
const (
	ReservedRefuse  ReservedPolicy = iota // refuse it
	ReservedForeign                       // accept it and mark it as foreign: the flag value accept-as-foreign
	ReservedOwn                           // accept it unmarked: for the cluster's own events
)

// Policy is the gate every incoming event passes. It is safe for concurrent use once set up.
// Two policies that are equal decide alike, so it can be compared with ==.
type Policy struct {
	Catalogue *Catalogue // nil means Builtin
	Strict    bool       // refuse unknown types
	// how reserved types are treated
	Reserved ReservedPolicy
	// zero fields take their defaults
	Limits Limits
	// NoTraces drops the trace contexts of events: some member of the cluster cannot read them.
	NoTraces bool
	// Dedup has the dedup policies of types; nil is none. It changes nothing about an event: whoever makes a key of
	// the event asks it.
	Dedup *DedupPolicies
}

// Reasons of a Warning.
const (
	WarningUnknownType   = "unknown_type"   // not in the catalogue; stored unchanged
	WarningRenamedType   = "renamed_type"   // the name is an alias of a type with another meaning
	WarningPayloadField  = "payload_field"  // a field differs from the catalogue
	WarningCorrelationID = "correlation_id" // the payload's correlation_id could not be used
	WarningNoMatch       = "no_match"       // no type of the catalogue passes the filter
)

// Warning is what a producer should know about an event that was accepted, or a subscriber about a filter.
type Warning struct {
	Reason  string `json:"reason"` // one of the Warning constants
	Field   string `json:"field"`
	Message string `json:"message"`
}

// warning returns a Warning with a formatted message.
func warning(reason, field, format string, args ...any) Warning {
	return Warning{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Normalize changes an event to the form in which it is stored, and returns its content hash: the type becomes
// canonical, Value empty if it is the default, the payload canonical, and a correlation_id in the payload fills an
// absent CorrelationID. If there is an error, it is an *Error, and the event must not be used. Normalizing an event
// that is in that form already changes nothing and does not allocate.
func (p *Policy) Normalize(e *Event) (Hash, []Warning, error) {
	sent := e.Type
	known, _, warnings, err := p.normalize(e, nil, false)
	if err != nil {
		return Hash{}, nil, err
	}
	// The nearest known types, in the warning of an unknown one.
	for i := range warnings {
		if warnings[i].Reason == WarningUnknownType {
			warnings[i].Message += p.catalogue().nearText(string(sent))
		}
	}
	return canon.ContentHash(known.Value, e.Payload), warnings, nil
}

// Check is Normalize without the hash and the warnings, for a client whose node normalizes again.
func (p *Policy) Check(e *Event) error {
	_, _, _, err := p.normalize(e, nil, true)
	return err
}

// normalize is Normalize without the hash. If quiet, it returns no warnings, which cost more than all other work, but
// the shape of the event: events of the same type and shape have the same warnings. before are the outlines of earlier
// events, nil for none.
func (p *Policy) normalize(e *Event, before *outlines, quiet bool) (
	known Resolved, shape uint64, warnings []Warning, err error,
) {
	// Limits that the policy leaves open have their defaults.
	lim := p.Limits.orDefault()
	known, warnings, err = p.envelope(e, lim, quiet)
	if err != nil {
		return known, 0, nil, err
	}
	// The payload, compared with the catalogue on the way.
	// Quiet checks compute the shape, others the warnings.
	check := fieldCheck{def: known.Definition, quiet: quiet, shape: noMembers}
	var like *canon.Outline
	if before != nil {
		like = &before.of(known.Definition).Outline
	}
	if err := canonicalizeEvent(e, &check, like, lim); err != nil {
		return known, 0, nil, err
	}
	// A quiet check has collected none.
	if !quiet {
		warnings = check.warnings(warnings)
	}
	// The correlation id. A warning about it depends on its value, so the event shares its warnings with no other.
	if e.CorrelationID == "" && check.correlation != nil {
		// A correlation_id of the payload that cannot be used stays in the payload.
		if err := fillCorrelation(e, check.correlation, lim); err != nil {
			if quiet {
				check.shape = uniqueShape
			} else {
				warnings = append(warnings, warning(WarningCorrelationID, "payload.correlation_id",
					"not usable as correlation_id: %v", err))
			}
		}
	}
	return known, check.shape, warnings, nil
}

// envelope is normalize for everything except the payload.
func (p *Policy) envelope(e *Event, lim Limits, quiet bool) (known Resolved, warnings []Warning, err error) {
	// New could not marshal the payload; that is reported here, where errors are expected.
	if e.err != nil {
		return known, nil, fieldError(ReasonInvalidPayload, "payload", "%v", e.err)
	}
	known, warnings, err = p.resolve(e, lim, quiet)
	if err != nil {
		return known, nil, err
	}
	if p.NoTraces {
		e.Trace = Trace{}
	}
	return known, warnings, checkFields(e, lim)
}

// resolve makes the type canonical.
func (p *Policy) resolve(e *Event, lim Limits, quiet bool) (Resolved, []Warning, error) {
	// Look the type up; only an unknown one needs its characters checked.
	var r Resolved
	known := false
	// A name beyond the limit is not looked up: the error below is about its length.
	if len(e.Type) <= lim.NameBytes {
		r, known = p.catalogue().Resolve(string(e.Type))
	}
	if !known {
		if err := checkType(string(e.Type), lim); err != nil {
			return Resolved{}, nil, err
		}
	}
	// The resolved name decides: a spelling cannot get around it.
	if err := p.checkReserved(e, r.Type); err != nil {
		return r, nil, err
	}
	// A reserved type is known even if the catalogue does not list it.
	var warnings []Warning
	if !known && !IsReserved(r.Type) {
		if p.Strict {
			return r, nil, p.unknownType(e.Type)
		}
		if !quiet {
			warnings = append(warnings, warning(WarningUnknownType, "type", "%s is not in the catalogue", r.Type))
		}
	}

	// The stored type means something else than the name that was sent: keep that name.
	if r.Renamed {
		e.Original = string(e.Type)
		if !quiet {
			warnings = append(warnings, warning(WarningRenamedType, "type",
				"%s is listed as an alias of %s and was stored as that; %sD is a type of its own",
				e.Original, r.Type, foldName(e.Original)))
		}
	}
	if err := p.checkValue(e.Value, r); err != nil {
		return r, nil, err
	}
	// Only now is the event changed, apart from Original: before, it may be refused.
	e.Type, e.Value = r.Type, r.storedValue()
	return r, warnings, nil
}

// storedValue returns the Value that an event of the type is stored with: "" if EffectiveValue computes it.
func (r Resolved) storedValue() string {
	// A built-in type never changes its value, and any other is computed from the name unless it differs.
	if r.Definition == nil || r.Definition.builtin() || r.Value == strings.ToLower(string(r.Type)) {
		return ""
	}
	return r.Value
}

// catalogue returns the policy's catalogue, or the built-in one.
func (p *Policy) catalogue() *Catalogue {
	if p.Catalogue != nil {
		return p.Catalogue
	}
	return Builtin()
}

// checkType checks the characters of a type that is not in the catalogue.
func checkType(name string, lim Limits) error {
	const remedy = "letters, digits, _ . and - are allowed"
	switch {
	case name == "":
		return missingType(false)
	case len(name) > lim.NameBytes:
		return fieldError(ReasonTooLarge, "type", "%d bytes, the limit is %d", len(name), lim.NameBytes)
	}
	// Only what foldName leaves in a name: words of letters and digits, with at least one of them.
	letters := false
	// Bytes: a character outside of ASCII has bytes that are none of these.
	for i := range len(name) {
		c := foldByte(name[i])
		alphanumeric := ('A' <= c && c <= 'Z') || isDigit(c)
		if !alphanumeric && c != '_' {
			err := fieldError(ReasonInvalidType, "type", "%q has a character no event type has", name)
			err.Remedy = remedy
			return err
		}
		letters = letters || alphanumeric
	}
	if !letters {
		err := fieldError(ReasonInvalidType, "type", "no letter or digit in it")
		err.Remedy = remedy
		return err
	}
	return nil
}

// missingType is the error for an event without a type, or with an empty one.
func missingType(empty bool) *Error {
	err := fieldError(ReasonInvalidType, "type", "missing")
	if empty {
		err.Message = "empty"
	}
	err.Remedy = "name the event type, such as TRAINING_COMPLETED"
	return err
}

// checkReserved applies the reserved policy and sets Foreign.
func (p *Policy) checkReserved(e *Event, t Type) error {
	// With ReservedOwn the event is the cluster's own, and is marked as nothing.
	reserved := IsReserved(t)
	if reserved && p.Reserved == ReservedRefuse {
		err := fieldError(ReasonReservedType, "type", "only the cluster emits %s", t)
		err.Remedy = "choose another type; for a migration: PUT /v1/settings/catalogue.reserved, " +
			"or ringlog settings set catalogue.reserved accept-as-foreign"
		return err
	}
	// Set in both directions: a producer's own Foreign counts for nothing.
	e.Foreign = reserved && p.Reserved == ReservedForeign
	return nil
}

// unknownType returns the error for a type that is not in the catalogue. Its message names the nearest, since many
// clients only show the message.
func (p *Policy) unknownType(t Type) error {
	return fieldError(ReasonUnknownType, "type",
		"%s is not in the catalogue, and validation is strict%s", t, p.catalogue().nearText(string(t)))
}

// checkValue accepts a value that is a spelling of the type.
func (p *Policy) checkValue(value string, r Resolved) error {
	if value == "" || value == r.Value {
		return nil
	}
	// Any spelling of the type will do, since the stored value is the catalogue's.
	if other, _ := p.catalogue().Resolve(value); other.Type == r.Type {
		return nil
	}
	err := fieldError(ReasonInvalidField, "value", "%q is not the value of %s, which is %q", value, r.Type, r.Value)
	err.Remedy = "leave value out"
	return err
}

// checkFields checks the names and the time.
func checkFields(e *Event, lim Limits) error {
	for _, f := range [...]struct{ field, text string }{
		{"source", e.Source}, {"key", e.Key}, {"correlation_id", e.CorrelationID},
		{"causation_id", e.CausationID}, {"dedup_id", e.DedupID}, {"original_type", e.Original},
	} {
		if err := checkName(f.field, f.text, lim); err != nil {
			return err
		}
	}
	return checkTime(e.Time)
}

// checkName checks the length and the characters of a name. Printable ASCII is checked first: it is the common case.
func checkName(field, text string, lim Limits) *Error {
	if len(text) > lim.NameBytes {
		return fieldError(ReasonTooLarge, field, "%d bytes, the limit is %d", len(text), lim.NameBytes)
	}
	if isPrintable(text) {
		return nil
	}
	// Any other valid text is accepted unless it has control characters.
	if !utf8.ValidString(text) {
		return fieldError(ReasonInvalidUTF8, field, "not valid UTF-8")
	}
	if i := indexControl(text); i >= 0 {
		return fieldError(ReasonInvalidField, field, "control character at its byte %d", i)
	}
	return nil
}

// checkTime refuses a time that does not fit into an int64 of nanoseconds since 1970.
func checkTime(t time.Time) error {
	// The zero time means that there is none.
	// UnixNano wraps around outside of these years, so it does not come back as the same time.
	if t.IsZero() || time.Unix(0, t.UnixNano()).Equal(t) {
		return nil
	}
	return fieldError(ReasonInvalidField, "time", "%s is outside the years 1678 to 2261", t.Format(time.RFC3339))
}

// canonicalizeEvent makes the payload canonical and applies check to its members.
func canonicalizeEvent(e *Event, check *fieldCheck, like *canon.Outline, lim Limits) error {
	// No payload is the empty object, so that every stored event has one.
	if len(e.Payload) == 0 {
		e.Payload = json.RawMessage("{}")
	}
	// The common case: it is canonical.
	// A copy, in case that the payload has to be rewritten and checked from the start.
	unchecked := *check
	if verifyPayload(e.Payload, check, like, lim) {
		if len(e.Payload) > lim.EventBytes {
			return fieldError(ReasonTooLarge, "payload",
				"%d bytes in canonical form, the limit is %d", len(e.Payload), lim.EventBytes)
		}
		return nil
	}
	// Otherwise rewrite it, drop what was checked so far, and check the members of the result.
	// The result is in memory of its own.
	out, err := canon.Rewrite(e.Payload, lim.Depth, lim.EventBytes)
	if err != nil {
		return err
	}
	e.Payload = out
	*check = unchecked
	// It is canonical now, so this only collects.
	verifyPayload(out, check, like, lim)
	return nil
}

// verifyPayload reports whether a payload is canonical, and applies check to its members on the way.
func verifyPayload(payload []byte, check *fieldCheck, like *canon.Outline, lim Limits) bool {
	// A verifier that stops early has seen only some of the members: the caller drops what it noted.
	v := canon.Verifier{Data: payload, MaxDepth: lim.Depth, Like: like}
	for v.Next() {
		check.member(v.Key, v.Hash, v.Value)
	}
	return v.Payload()
}

// fillCorrelation copies the correlation id from the payload; value is that member, in JSON.
func fillCorrelation(e *Event, value []byte, lim Limits) error {
	// A number or an object is a field of the payload that happens to have this name.
	if value[0] != '"' {
		return nil
	}
	// The payload is canonical by now, so its string cannot be malformed.
	s := canon.Scanner{Data: value}
	text, _ := s.Text()
	id := string(text)
	if err := checkName("payload.correlation_id", id, lim); err != nil {
		return err
	}
	e.CorrelationID = id
	return nil
}
