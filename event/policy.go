package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ReservedPolicy says what becomes of a type that only the cluster emits.
type ReservedPolicy uint8

// The reserved policies.
const (
	ReservedRefuse  ReservedPolicy = iota // refuse it
	ReservedForeign                       // accept it, marked as foreign: the flag value accept-as-foreign
	ReservedOwn                           // accept it as it is: for the cluster's own events
)

// Policy is the gate every incoming event passes. It is safe for concurrent use once set up.
type Policy struct {
	Catalogue *Catalogue // nil means Builtin
	Strict    bool       // refuse unknown types
	Reserved  ReservedPolicy
	Limits    Limits
}

// Reasons of a Warning.
const (
	WarningUnknownType   = "unknown_type"   // not in the catalogue; stored as it is
	WarningRenamedType   = "renamed_type"   // the alias stands for a type of another meaning
	WarningPayloadField  = "payload_field"  // a field differs from the catalogue
	WarningCorrelationID = "correlation_id" // the payload's could not be used
)

// Warning is what a producer should know about an event that was accepted.
type Warning struct {
	Reason  string `json:"reason"` // one of the Warning constants
	Field   string `json:"field"`
	Message string `json:"message"`
}

func warning(reason, field, format string, args ...any) Warning {
	return Warning{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Normalize brings an event into the form it is stored in, and returns its content hash: the type becomes canonical,
// Value empty where it is the default, the payload canonical, and a correlation_id of the payload fills an absent one
// outside. The error is an *Error, the event then is of no use. An event that is in that form already costs no
// allocation; normalizing again changes nothing.
func (p *Policy) Normalize(e *Event) (Hash, []Warning, error) {
	known, _, warnings, err := p.normalize(e, nil, false)
	if err != nil {
		return Hash{}, nil, err
	}
	return contentHash(known.Value, e.Payload), warnings, nil
}

// Check is Normalize without the hash and the warnings, for a gate in front of another.
func (p *Policy) Check(e *Event) error {
	_, _, _, err := p.normalize(e, nil, true)
	return err
}

// normalize is Normalize without the hash. Quietly it gives no warnings, which cost more than all other work, and the
// shape of what it read instead. The outlines are of the events before, nil for none.
func (p *Policy) normalize(e *Event, before *outlines, quiet bool) (known Resolved, shape uint64, warnings []Warning, err error) {
	lim := p.Limits.orDefault()
	known, warnings, err = p.envelope(e, lim, quiet)
	if err != nil {
		return known, 0, nil, err
	}
	v := verifier{maxDepth: lim.Depth, check: fieldCheck{def: known.Definition, quiet: quiet, shape: noMembers}}
	if before != nil {
		v.like = before.of(known.Definition)
	}
	check, err := canonicalizeEvent(e, v, lim)
	if err != nil {
		return known, 0, nil, err
	}
	if !quiet {
		warnings = check.warnings(warnings)
	}
	if e.CorrelationID == "" && check.correlation != nil {
		err := fillCorrelation(e, check.correlation, lim)
		switch {
		case err == nil:
		case quiet:
			check.shape = unlikeOthers
		default:
			warnings = append(warnings, warning(WarningCorrelationID, "payload.correlation_id", "not usable as correlation_id: %v", err))
		}
	}
	return known, check.shape, warnings, nil
}

// envelope is normalize for all but the payload.
func (p *Policy) envelope(e *Event, lim Limits, quiet bool) (known Resolved, warnings []Warning, err error) {
	if e.err != nil {
		return known, nil, fieldError(ReasonInvalidPayload, "payload", "%v", e.err)
	}
	known, warnings, err = p.resolve(e, lim, quiet)
	if err != nil {
		return known, nil, err
	}
	return known, warnings, checkFields(e, lim)
}

// resolve makes the type canonical.
func (p *Policy) resolve(e *Event, lim Limits, quiet bool) (Resolved, []Warning, error) {
	var r Resolved
	known := false
	if len(e.Type) <= lim.NameBytes {
		r, known = p.catalogue().Resolve(string(e.Type))
	}
	if !known {
		if err := checkType(string(e.Type), lim); err != nil {
			return Resolved{}, nil, err
		}
	}
	if err := p.checkReserved(e, r.Type); err != nil {
		return r, nil, err
	}
	var warnings []Warning
	switch {
	case !known && p.Strict && !IsReserved(r.Type):
		return r, nil, p.unknownType(e.Type)
	case quiet && !r.Renamed:
	case !known && !IsReserved(r.Type):
		warnings = append(warnings, warning(WarningUnknownType, "type", "%s is not in the catalogue", r.Type))
	case r.Renamed && quiet:
		e.Original = string(e.Type)
	case r.Renamed:
		e.Original = string(e.Type)
		warnings = append(warnings, warning(WarningRenamedType, "type",
			"%s is listed as an alias of %s and was stored as that; %sD is a type of its own", e.Original, r.Type, foldName(e.Original)))
	}
	if err := p.checkValue(e.Value, r); err != nil {
		return r, nil, err
	}
	e.Type, e.Value = r.Type, r.storedValue()
	return r, warnings, nil
}

// storedValue is the value an event of the type carries: none where it is the default.
func (r Resolved) storedValue() string {
	if r.Definition == nil || r.Definition.builtin() || r.Value == strings.ToLower(string(r.Type)) {
		return ""
	}
	return r.Value
}

func (p *Policy) catalogue() *Catalogue {
	if p.Catalogue != nil {
		return p.Catalogue
	}
	return Builtin()
}

func checkType(name string, lim Limits) error {
	const remedy = "letters, digits, _ . and - are allowed"
	switch {
	case name == "":
		return &Error{Reason: ReasonInvalidType, Field: "type", Message: "missing", Remedy: "name the event type", Position: -1}
	case len(name) > lim.NameBytes:
		return fieldError(ReasonTooLarge, "type", "%d bytes, the limit is %d", len(name), lim.NameBytes)
	}
	letters := false
	for i := range len(name) {
		c := foldByte(name[i])
		alphanumeric := 'A' <= c && c <= 'Z' || isDigit(c)
		if !alphanumeric && c != '_' {
			err := fieldError(ReasonInvalidType, "type", "%q has a character no event type has", name)
			err.Remedy = remedy
			return err
		}
		letters = letters || alphanumeric
	}
	if !letters {
		return &Error{Reason: ReasonInvalidType, Field: "type", Message: "no letter or digit in it", Remedy: remedy, Position: -1}
	}
	return nil
}

func (p *Policy) checkReserved(e *Event, t Type) error {
	reserved := IsReserved(t)
	if reserved && p.Reserved == ReservedRefuse {
		err := fieldError(ReasonReservedType, "type", "%s is emitted by the cluster alone", t)
		err.Remedy = "choose another type; for a migration: ringlog settings set catalogue.reserved accept-as-foreign"
		return err
	}
	e.Foreign = reserved && p.Reserved == ReservedForeign
	return nil
}

func (p *Policy) unknownType(t Type) error {
	err := fieldError(ReasonUnknownType, "type", "%s is not in the catalogue, and validation is strict", t)
	err.Remedy = "nearest known types: " + strings.Join(p.catalogue().Nearest(string(t), 3), ", ")
	err.Message += "; " + err.Remedy
	return err
}

// checkValue allows a value that says the same as the type.
func (p *Policy) checkValue(value string, r Resolved) error {
	if value == "" || value == r.Value {
		return nil
	}
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

func checkName(field, text string, lim Limits) error {
	if len(text) > lim.NameBytes {
		return fieldError(ReasonTooLarge, field, "%d bytes, the limit is %d", len(text), lim.NameBytes)
	}
	if isPrintable(text) {
		return nil
	}
	if !utf8.ValidString(text) {
		return fieldError(ReasonInvalidUTF8, field, "not valid UTF-8")
	}
	if i := indexControl(text); i >= 0 {
		return fieldError(ReasonInvalidField, field, "control character at its byte %d", i)
	}
	return nil
}

// checkTime refuses what nanoseconds since 1970 in an int64 can not hold.
func checkTime(t time.Time) error {
	if t.IsZero() || time.Unix(0, t.UnixNano()).Equal(t) {
		return nil
	}
	return fieldError(ReasonInvalidField, "time", "%s is outside the years 1678 to 2261", t.Format(time.RFC3339))
}

// canonicalizeEvent makes the payload canonical; v has not read anything yet, and shows its check the members.
func canonicalizeEvent(e *Event, v verifier, lim Limits) (fieldCheck, error) {
	if len(e.Payload) == 0 {
		e.Payload = json.RawMessage("{}")
	}
	unread := v
	v.data = e.Payload
	if v.payload() {
		if len(e.Payload) > lim.EventBytes {
			return v.check, fieldError(ReasonTooLarge, "payload", "%d bytes in canonical form, the limit is %d", len(e.Payload), lim.EventBytes)
		}
		return v.check, nil
	}
	out, err := canonicalPayload(e.Payload, lim)
	if err != nil {
		return v.check, err
	}
	e.Payload = out
	v = unread
	v.data = out
	v.payload()
	return v.check, nil
}

// fillCorrelation takes the correlation id over from the payload, which keeps it.
func fillCorrelation(e *Event, value []byte, lim Limits) error {
	if value[0] != '"' {
		return nil
	}
	s := scanner{data: value}
	text, _ := s.text()
	id := string(text)
	if err := checkName("payload.correlation_id", id, lim); err != nil {
		return err
	}
	e.CorrelationID = id
	return nil
}
