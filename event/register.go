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
)

// maxDefinitionFields bounds the payload fields of one registered type.
const maxDefinitionFields = 256

// With returns a catalogue that also has the given types; c itself stays as it is. What a type was is kept: a
// built-in may only get more payload fields, a registered one also another category, and no name or value may be
// taken from another type. A definition without a value gets the lower-cased name, a
// field without a type gets any. Errors are *Error, their Field
// names the definition, as in TYPE.payload[2].type.
func (c *Catalogue) With(defs ...Definition) (*Catalogue, error) {
	next := *c
	next.types, next.spellings = maps.Clone(c.types), maps.Clone(c.spellings)
	for _, d := range defs {
		if err := next.register(d); err != nil {
			return nil, err.under(pathStep([]byte(d.Name)))
		}
	}
	next.sort()
	return &next, nil
}

func (c *Catalogue) register(d Definition) *Error {
	d.Status, d.Value = StatusRegistered, cmp.Or(d.Value, strings.ToLower(string(d.Name)))
	d.Payload = slices.Clone(d.Payload)
	for i := range d.Payload {
		d.Payload[i].Type = cmp.Or(d.Payload[i].Type, "any")
	}
	if err := checkDefinition(&d); err != nil {
		return err
	}
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
	c.add(&d)
	return nil
}

// checkDefinition checks a definition by itself.
func checkDefinition(d *Definition) *Error {
	const longest = 128
	switch {
	case !regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`).MatchString(string(d.Name)) || len(d.Name) > longest:
		return fieldError(ReasonInvalidType, "name", "a type's name is UPPER_CASE words of letters and digits, %d bytes at most", longest)
	case IsReserved(d.Name):
		return fieldError(ReasonReservedType, "name", "the cluster keeps this name for itself")
	case !regexp.MustCompile(`^[a-z][a-z0-9]*([_.][a-z0-9]+)*$`).MatchString(d.Value) || len(d.Value) > longest:
		return fieldError(ReasonInvalidField, "value", "a value is lower_case words of letters and digits, %d bytes at most", longest)
	case IsReserved(Type(foldName(d.Value))):
		return fieldError(ReasonReservedType, "value", "the cluster keeps this value for itself")
	case !regexp.MustCompile(`^[a-z0-9_-]{0,64}$`).MatchString(d.Category):
		return fieldError(ReasonInvalidField, "category", "a category is up to 64 of a-z, 0-9, _ and -")
	}
	return checkDefinitionFields(d.Payload)
}

func checkDefinitionFields(fields []Field) *Error {
	if len(fields) > maxDefinitionFields {
		return fieldError(ReasonTooLarge, "payload", "%d fields, the limit is %d", len(fields), maxDefinitionFields)
	}
	seen := map[string]bool{}
	for i, f := range fields {
		path := fmt.Sprintf("payload[%d]", i)
		if err := checkName(path+".name", f.Name, DefaultLimits()); err != nil || f.Name == "" {
			return fieldError(ReasonInvalidField, path+".name", "a field needs a name of at most %d bytes without control characters", DefaultLimits().NameBytes)
		}
		if seen[f.Name] {
			return fieldError(ReasonInvalidField, path+".name", "%s is listed twice", f.Name)
		}
		if !slices.Contains(fieldTypes(), f.Type) {
			return fieldError(ReasonInvalidField, path+".type", "%q is none of %s", f.Type, strings.Join(fieldTypes(), ", "))
		}
		seen[f.Name] = true
	}
	return nil
}

// redefine checks d against what the type was, and merges the payload fields of a built-in into it.
func (d *Definition) redefine(old *Definition) *Error {
	if d.Value != old.Value {
		return fieldError(ReasonInvalidField, "value", "it is %q already; hashes of stored events depend on it", old.Value)
	}
	if !old.builtin() {
		return nil
	}
	if d.Category != "" && d.Category != old.Category {
		return fieldError(ReasonInvalidField, "category", "the built-in type is of category %q", old.Category)
	}
	added := d.Payload
	*d = *old
	d.Payload = slices.Clone(old.Payload)
	return d.merge(added)
}

// merge adds payload fields; one that is there already may get a type where it had none.
func (d *Definition) merge(added []Field) *Error {
	for i, f := range added {
		have := slices.IndexFunc(d.Payload, func(g Field) bool { return g.Name == f.Name })
		switch {
		case have < 0:
			d.Payload = append(d.Payload, f)
		case d.Payload[have].Type == "any":
			d.Payload[have].Type = f.Type
		case f.Type != "any" && f.Type != d.Payload[have].Type:
			return fieldError(ReasonInvalidField, fmt.Sprintf("payload[%d].type", i), "the built-in field %s is %s", f.Name, d.Payload[have].Type)
		}
	}
	return nil
}

// ParseDefinitions reads definitions to register: one object or an array of them, each with name, value, category and
// payload and whatever else an entry of the built-in catalogue has. It is strict; errors are *Error with the place.
// Whether the definitions fit the catalogue is for With to say. The state machine decides by what this refuses: a key
// that is known from one build on needs a feature level.
func ParseDefinitions(data []byte) ([]Definition, error) {
	d := definitionReader{}
	d.data, d.maxDepth, d.maxBytes = data, DefaultLimits().Depth, math.MaxInt
	if d.space(); d.pos == len(data) {
		return nil, &Error{Reason: ReasonEmpty, Message: "no definition", Position: 0}
	}
	err := d.list()
	if err == nil {
		err = d.end()
	}
	if err == nil && len(d.defs) == 0 {
		err = d.fail(0, ReasonEmpty, "no definition")
	}
	if err != nil {
		return nil, err
	}
	return d.defs, nil
}

type definitionReader struct {
	canonicalizer
	defs []Definition
}

func (d *definitionReader) list() *Error {
	if d.peek() != '[' {
		return d.definition()
	}
	return d.elements(func(i int) *Error {
		if err := d.definition(); err != nil {
			return err.under(fmt.Sprintf("[%d]", i))
		}
		return nil
	})
}

// definition reads one entry: its syntax with the canonicalizer, its keys one by one, then its shape.
func (d *definitionReader) definition() *Error {
	start := d.pos
	if d.peek() != '{' {
		return d.unexpected("a definition object")
	}
	d.out = d.out[:0]
	if err := d.value(); err != nil {
		return err
	}
	end := d.pos
	d.pos = start
	keys := []string{"name", "value", "status", "alias_of", "category", "payload", "emitters", "subscribers",
		"cross_process", "cross_process_basis", "impact", "documents"}
	err := d.known(keys, func(key string) *Error {
		if key == "payload" && d.peek() == '[' {
			return d.elements(d.definitionField)
		}
		return d.value()
	})
	if err != nil {
		return err
	}
	var def Definition
	if bad := json.Unmarshal(d.data[start:end], &def); bad != nil {
		return d.shape(start, bad)
	}
	if def.Name == "" {
		return d.fail(start, ReasonInvalidField, "missing").under("name")
	}
	d.defs = append(d.defs, def)
	return nil
}

func (d *definitionReader) definitionField(i int) *Error {
	if d.peek() != '{' {
		return d.unexpected("a field object")
	}
	err := d.known([]string{"name", "type", "source", "in_both"}, func(string) *Error { return d.value() })
	if err != nil {
		return err.under(fmt.Sprintf("payload[%d]", i))
	}
	return nil
}

// known reads an object that has no keys but these.
func (d *definitionReader) known(keys []string, read func(key string) *Error) *Error {
	return d.members(func(key []byte) *Error {
		if !slices.Contains(keys, string(key)) {
			err := d.fail(d.key, ReasonUnknownKey, "no such key").under(pathStep(key))
			err.Remedy = "known keys: " + strings.Join(keys, ", ")
			return err
		}
		return read(string(bytes.Clone(key)))
	})
}

func (d *definitionReader) shape(start int, err error) *Error {
	if bad, ok := err.(*json.UnmarshalTypeError); ok {
		e := d.fail(start+int(bad.Offset), ReasonInvalidField, "%s is expected, not a %s", bad.Type, bad.Value)
		return e.under(bad.Field)
	}
	return d.fail(start, ReasonInvalidJSON, "%v", err)
}
