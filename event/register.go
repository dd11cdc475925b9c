package event

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event/canon"
)

// maxDefinitionFields bounds the payload fields of one registered type.
const maxDefinitionFields = 256

// longestTypeName bounds the name of a type that is registered or is a stage, and a value, in bytes.
const longestTypeName = 128

// With returns a catalogue that also has the given types; c itself does not change. Stored events keep their
// meaning: a built-in type may only gain payload fields, a registered one may also change its category, and no name
// or value may be taken from another type. A definition without a value gets the lower-cased name, a field without
// a type gets any. Errors are *Error, and their Field names the definition, as in TYPE.payload[2].type.
func (c *Catalogue) With(defs ...Definition) (*Catalogue, error) {
	// Readers of c never see a change: maps are copied, and definitions are replaced, not changed.
	next := *c
	next.types, next.spellings = maps.Clone(c.types), maps.Clone(c.spellings)
	for _, d := range defs {
		if err := next.register(d); err != nil {
			return nil, err.Under(canon.PathStep([]byte(d.Name)))
		}
	}
	next.sort()
	return &next, nil
}

// register checks one definition against the catalogue and adds it. c is a copy that With has not returned yet.
func (c *Catalogue) register(d Definition) *Error {
	// Defaults are filled in first, so that the checks see what is stored.
	d.Status, d.Value = StatusRegistered, cmp.Or(d.Value, strings.ToLower(string(d.Name)))
	d.Payload = slices.Clone(d.Payload)
	for i := range d.Payload {
		d.Payload[i].Type = cmp.Or(d.Payload[i].Type, "any")
	}
	if err := checkDefinition(&d); err != nil {
		return err
	}
	// Neither name nor value may be a spelling of another type.
	for _, spelt := range []string{string(d.Name), foldName(d.Value)} {
		if s, taken := c.spellings[spelt]; taken && s.def.Name != d.Name {
			return fieldError(ReasonInvalidField, "", "%s already is a spelling of %s", spelt, s.def.Name)
		}
	}
	if old, ok := c.types[d.Name]; ok {
		if err := d.redefine(old); err != nil {
			return err
		}
	}
	// From here on d belongs to the catalogue, and may be shared.
	c.add(&d)
	return nil
}

// checkDefinition checks a definition without regard to the catalogue.
func checkDefinition(d *Definition) *Error {
	// Compiled here, since types are registered rarely.
	nameForm := regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
	valueForm := regexp.MustCompile(`^[a-z][a-z0-9]*([_.][a-z0-9]+)*$`)
	categoryForm := regexp.MustCompile(`^[a-z0-9_-]{0,64}$`)
	switch {
	case !nameForm.MatchString(string(d.Name)) || len(d.Name) > longestTypeName:
		return fieldError(ReasonInvalidType, "name",
			"a type's name is UPPER_CASE words of letters and digits, %d bytes at most", longestTypeName)
	case IsReserved(d.Name):
		return fieldError(ReasonReservedType, "name", "the name is reserved for the cluster")
	case !valueForm.MatchString(d.Value) || len(d.Value) > longestTypeName:
		return fieldError(ReasonInvalidField, "value",
			"a value is lower_case words of letters and digits, %d bytes at most", longestTypeName)
	case IsReserved(Type(foldName(d.Value))):
		return fieldError(ReasonReservedType, "value", "the value is reserved for the cluster")
	case !categoryForm.MatchString(d.Category):
		return fieldError(ReasonInvalidField, "category", "a category is up to 64 of a-z, 0-9, _ and -")
	}
	return checkDefinitionFields(d.Payload)
}

// checkDefinitionFields checks number, names and types of the payload fields.
func checkDefinitionFields(fields []Field) *Error {
	if len(fields) > maxDefinitionFields {
		return fieldError(ReasonTooLarge, "payload", "%d fields, the limit is %d", len(fields), maxDefinitionFields)
	}
	// Each field needs a name of its own and a known type.
	seen := map[string]bool{}
	for i, f := range fields {
		path := fmt.Sprintf("payload[%d]", i)
		if err := checkName(path+".name", f.Name, DefaultLimits()); err != nil || f.Name == "" {
			return fieldError(ReasonInvalidField, path+".name",
				"a field needs a name of at most %d bytes without control characters", DefaultLimits().NameBytes)
		}
		// encoding/json would take the last one silently.
		if seen[f.Name] {
			return fieldError(ReasonInvalidField, path+".name", "%s is listed twice", f.Name)
		}
		if !slices.Contains(fieldTypes(), f.Type) {
			return fieldError(ReasonInvalidField, path+".type",
				"%q is none of %s", f.Type, strings.Join(fieldTypes(), ", "))
		}
		seen[f.Name] = true
	}
	return nil
}

// redefine checks d against the type's definition so far. For a built-in type, d becomes that definition with the
// payload fields of d added.
func (d *Definition) redefine(old *Definition) *Error {
	// The category and the fields of a stored event may be described better later, its value may not change.
	if d.Value != old.Value {
		return fieldError(ReasonInvalidField, "value",
			"it is %q already; hashes of stored events depend on it", old.Value)
	}
	// A registered type may change its category and its fields.
	if !old.builtin() {
		return nil
	}
	if d.Category != "" && d.Category != old.Category {
		return fieldError(ReasonInvalidField, "category", "the built-in type is of category %q", old.Category)
	}
	// A copy of the built-in definition, so that the catalogue before keeps its fields.
	added := d.Payload
	*d = *old
	d.Payload = slices.Clone(old.Payload)
	return d.merge(added)
}

// merge adds payload fields. A field that exists already may get a type if it had none.
func (d *Definition) merge(added []Field) *Error {
	for i, f := range added {
		// A new field is added, an untyped one gets the type, and a typed one must agree.
		have := slices.IndexFunc(d.Payload, func(g Field) bool { return g.Name == f.Name })
		switch {
		case have < 0:
			d.Payload = append(d.Payload, f)
		case d.Payload[have].Type == "any":
			d.Payload[have].Type = f.Type
		case f.Type != "any" && f.Type != d.Payload[have].Type:
			return fieldError(ReasonInvalidField, fmt.Sprintf("payload[%d].type", i),
				"the built-in field %s is %s", f.Name, d.Payload[have].Type)
		}
	}
	return nil
}

// ParseDefinitions reads definitions to register: one object or an array of them, each with name, value, category,
// payload and the other keys of an entry of the built-in catalogue. It is strict; errors are *Error with a position.
// With checks whether the definitions fit the catalogue. The state machine decides by what this refuses, so a key that
// a later build accepts needs a feature level.
func ParseDefinitions(data []byte) ([]Definition, error) {
	d := definitionReader{}
	if err := d.list(data, "definition", d.definition); err != nil {
		return nil, err
	}
	return d.defs, nil
}

// listReader reads what is registered: objects with known keys, each first for its syntax, then for its keys, and at
// last for its values. The scanner finds what encoding/json would accept: unknown keys, keys in other case, duplicates.
type listReader struct{ canon.Rewriter }

// list reads one object or an array of them, one at least, by calling one at the place of each.
func (d *listReader) list(data []byte, what string, one func() *Error) *Error {
	// Their only bound is the request's: they have no size of their own.
	d.Data, d.MaxDepth, d.MaxBytes = data, DefaultLimits().Depth, math.MaxInt
	d.Space()
	if d.Pos == len(data) {
		return &Error{Reason: ReasonEmpty, Message: "no " + what, Position: 0}
	}
	// A single one needs no array, as with events.
	n, err := 1, (*Error)(nil)
	if d.Peek() != '[' {
		err = one()
	} else {
		n = 0
		err = d.Elements(func(i int) *Error {
			n++
			if err := one(); err != nil {
				return err.Under(fmt.Sprintf("[%d]", i))
			}
			return nil
		})
	}
	// Nothing may follow.
	if err == nil {
		err = d.End()
	}
	if err == nil && n == 0 {
		err = d.Fail(0, ReasonEmpty, "no %s", what)
	}
	return err
}

// definitionReader reads definitions.
type definitionReader struct {
	listReader
	defs []Definition
}

// definition reads one definition three times: for its syntax, for its keys, and for its values.
func (d *definitionReader) definition() *Error {
	start := d.Pos
	if d.Peek() != '{' {
		return d.Unexpected("a definition object")
	}
	// The syntax, with the errors of a payload: duplicate keys, depth, UTF-8.
	if err := d.Skip(); err != nil {
		return err
	}
	end := d.Pos
	// The keys, which encoding/json would accept in any case and skip if unknown.
	d.Pos = start
	keys := []string{"name", "value", "status", "alias_of", "category", "payload", "emitters", "subscribers",
		"cross_process", "cross_process_basis", "impact", "documents"}
	err := d.known(keys, func(key string) *Error {
		if key == "payload" && d.Peek() == '[' {
			return d.Elements(d.definitionField)
		}
		return d.Skip()
	})
	if err != nil {
		return err
	}
	// The values.
	var def Definition
	if bad := json.Unmarshal(d.Data[start:end], &def); bad != nil {
		return d.shape(start, bad)
	}
	// With would find it too, but without a position.
	if def.Name == "" {
		err := d.Fail(start, ReasonInvalidField, "missing").Under("name")
		err.Remedy = "name the type"
		return err
	}
	d.defs = append(d.defs, def)
	return nil
}

// definitionField checks the keys of the i-th payload field; encoding/json reads the values later.
func (d *definitionReader) definitionField(i int) *Error {
	if d.Peek() != '{' {
		return d.Unexpected("a field object")
	}
	err := d.known([]string{"name", "type", "source", "in_both"}, func(string) *Error { return d.Skip() })
	if err != nil {
		return err.Under(fmt.Sprintf("payload[%d]", i))
	}
	return nil
}

// known reads an object that may only have these keys.
func (d *listReader) known(keys []string, read func(key string) *Error) *Error {
	return d.Members(func(key []byte) *Error {
		if !slices.Contains(keys, string(key)) {
			err := d.Fail(d.Key, ReasonUnknownKey, "no such key").Under(canon.PathStep(key))
			err.Remedy = "known keys: " + strings.Join(keys, ", ")
			return err
		}
		// The key is in a buffer that reading the value overwrites.
		return read(string(bytes.Clone(key)))
	})
}

// shape returns the error for an object, at start, that encoding/json did not accept.
func (d *listReader) shape(start int, err error) *Error {
	if bad, ok := err.(*json.UnmarshalTypeError); ok {
		// The offset is within the definition, the position within the whole input.
		e := d.Fail(start+int(bad.Offset), ReasonInvalidField, "%s is expected, not %s",
			canon.Expected(bad.Type), canon.Found(bad))
		return e.Under(bad.Field)
	}
	return d.Fail(start, ReasonInvalidJSON, "%v", err)
}
