package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/canon"
)

// Whether a request may come without a body.
const (
	requiredBody = false
	optionalBody = true
)

// jsonWeight is what an object of an administrator's body takes at most, in bytes of memory.
const jsonWeight = 512

// readJSON reads an object into a struct, as strictly as events are read: it refuses unknown and repeated keys and
// anything after the object, and its errors name the place. The route takes no query parameters but timeout.
func (b *bodyReader) readJSON(r *http.Request, into any, optional bool) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return b.readObject(r, into, optional)
}

// readObject is readJSON for a route that has read its query parameters.
func (b *bodyReader) readObject(r *http.Request, into any, optional bool) error {
	read, err := b.readBody(r, contentJSON)
	if err != nil {
		return err
	}
	defer b.putBuffer(read.buffer)
	// A body of blanks is empty.
	text := bytes.TrimSpace(read.bytes)
	if len(text) == 0 {
		if optional {
			return nil
		}
		return api.Refuse(api.InvalidJSON, "body", "the body is empty", "send a JSON object")
	}
	// Memory is reserved for the decoded values before they are built.
	if err := holdOf(r.Context()).reserve(weighJSON(text, jsonWeight)); err != nil {
		return err
	}
	// The canonical form has no repeated keys and nothing after the object, which encoding/json would take.
	canonical, err := event.Canonicalize(read.bytes, event.Limits{EventBytes: math.MaxInt, NameBytes: math.MaxInt})
	if err != nil {
		return bodyPath(err)
	}
	// Keys are checked on their own, since encoding/json would ignore or merge them.
	shape := bodyShape{json.NewDecoder(bytes.NewReader(canonical)), canonical}
	if err := shape.check(reflect.TypeOf(into), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(canonical, into); err != nil {
		return typeError(reflect.TypeOf(into).Elem(), err)
	}
	return nil
}

// bodyPath returns an error about a payload as one about the body, its place included.
func bodyPath(err error) error {
	// Only the canonical form has errors of package event.
	in, ok := errors.AsType[*event.Error](err)
	if !ok {
		return err
	}
	out := *in
	// event reports places below "payload", which this body is not.
	out.Field = strings.TrimPrefix(strings.TrimPrefix(in.Field, "payload"), ".")
	if out.Reason == event.ReasonInvalidPayload {
		out.Message, out.Remedy = "the body is not a JSON object", "send a JSON object"
	}
	return &out
}

// bodyShape reads a body in canonical form beside the type that it is to go into.
type bodyShape struct {
	*json.Decoder
	text []byte // what the decoder reads
}

// check reads a value that is to go into t and refuses keys that t does not have.
// encoding/json would take those that differ in case alone, and so a key twice.
//
// A whole number may be written as 80.0 or 8e1, as JSON Schema has it and as Python prints a float, which encoding/json
// would refuse: check makes the fraction blank.
func (d bodyShape) check(t reflect.Type, at string) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := d.Token()
	if err != nil {
		return shapeError(err)
	}
	// A time's own errors name neither the field nor what JSON has to be there.
	if t == reflect.TypeFor[time.Time]() && token != nil {
		text, _ := token.(string)
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return api.Refuse(api.InvalidArgument, at,
				"it is not a time",
				"send a string such as 2026-01-05T10:00:00Z")
		}
	}
	if n, isNumber := token.(float64); isNumber && math.Abs(n) < maxExact && takesWhole(t) {
		literal := d.text[:d.InputOffset()]
		if fraction := literal[max(0, len(literal)-2):]; string(fraction) == ".0" {
			copy(fraction, "  ")
		}
	}
	switch token {
	case json.Delim('{'):
		// An object: each key must be one of t, and its value is checked against the type of that field.
		keys := keysOf(t)
		for d.More() {
			token, err := d.Token()
			if err != nil {
				return shapeError(err)
			}
			// In an object every other token is a key.
			name, _ := token.(string)
			below, known := keys[name]
			if t != nil && t.Kind() == reflect.Map {
				below = t.Elem()
			}
			if path := strings.TrimPrefix(at+"."+name, "."); keys != nil && !known {
				return &api.Error{
					Code:    api.InvalidJSON,
					Reason:  event.ReasonUnknownKey,
					Field:   path,
					Message: fmt.Sprintf("there is no key %q here", name),
					Remedy: "the keys are " + strings.Join(slices.Sorted(maps.Keys(keys)), ", ") +
						"; see /openapi.json for the form",
				}
			} else if err := d.check(below, path); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		// A list: its items are checked against the type of an element. A type of another kind is left to
		// json.Unmarshal.
		var below reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			below = t.Elem()
		}
		for i := 0; d.More(); i++ {
			if err := d.check(below, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	if err != nil {
		return shapeError(err)
	}
	return nil
}

// maxExact is the bound below which a double is the number that was written, and not one beside it.
const maxExact = 1 << 53

// takesWhole reports whether a number that goes into a t is to be a whole one: an integer, or a position as an offset.
func takesWhole(t reflect.Type) bool {
	if t == nil {
		return false
	}
	return t == reflect.TypeFor[json.RawMessage]() || (t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64)
}

// keysOf returns the keys of a struct and the types of their values. It returns nil if any key is taken: for
// what is not a struct, and for types that decode themselves.
func keysOf(t reflect.Type) map[string]reflect.Type {
	// What decodes itself knows its own keys.
	if t == nil || t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	// A name in the tag wins over that of the field, as encoding/json has it.
	keys := map[string]reflect.Type{}
	// Fields of an embedded struct are visible as fields of t; the struct itself is not a key.
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" && (name != "" || !f.Anonymous) {
			keys[cmp.Or(name, f.Name)] = f.Type
		}
	}
	return keys
}

// typeError names the JSON value that encoding/json found on its way into a t, and the one that is expected there.
func typeError(t reflect.Type, err error) error {
	kind, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return shapeError(err)
	}
	// encoding/json names an embedded struct, which is no key of the body.
	field := kind.Field
	if first, rest, _ := strings.Cut(field, "."); t.Kind() == reflect.Struct {
		if f, known := t.FieldByName(first); known && f.Anonymous {
			field = rest
		}
	}
	return api.Refuse(api.InvalidArgument, cmp.Or(field, "body"),
		fmt.Sprintf("%s where %s is expected", canon.Found(kind), canon.Expected(kind.Type)),
		"see /openapi.json for the form")
}

// shapeError is the error of a body that is not the JSON it should be.
func shapeError(err error) error {
	return api.Refuse(api.InvalidArgument, "body", err.Error(), "see /openapi.json for the form")
}
