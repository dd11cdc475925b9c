package emit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ringrift/ringlog/event"
)

// field is one field of a payload struct, except Extra.
type field struct {
	name  string // in JSON
	value reflect.Value
}

// fieldsOf returns the fields of a payload struct, and its Extra.
// Reflection costs little beside the publish or the read that follows.
func fieldsOf(payload reflect.Value) (fields []field, extra reflect.Value) {
	for i := range payload.NumField() {
		// genemit gives each field a tag.
		f := payload.Type().Field(i)
		// Extra has what no field of the struct names.
		if f.Name == "Extra" {
			extra = payload.Field(i)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, field{name, payload.Field(i)})
	}
	return fields, extra
}

// encode prints the fields that are set and the members of Extra, sorted by name.
func encode(p Payload) ([]byte, error) {
	fields, extra := fieldsOf(reflect.Indirect(reflect.ValueOf(p)))
	// encoding/json sorts a map by key, as the canonical form does.
	members := make(map[string]json.RawMessage, len(fields)+extra.Len())
	add := func(name string, v any) error {
		// encoding/json would replace the bytes and send another text.
		if s, ok := v.(string); ok && !utf8.ValidString(s) {
			return fmt.Errorf("field %s: not valid UTF-8", name)
		}
		data, err := marshal(v)
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		members[name] = data
		return nil
	}
	for _, f := range fields {
		// A field that is not set is not sent: pointers distinguish 0 and false from that.
		if f.value.IsZero() {
			continue
		}
		if err := add(f.name, f.value.Interface()); err != nil {
			return nil, err
		}
	}
	for name, v := range extra.Interface().(Extra) {
		if _, taken := members[name]; taken {
			return nil, fmt.Errorf("field %s: given twice, in Extra too", name)
		}
		if err := add(name, v); err != nil {
			return nil, err
		}
	}
	return marshal(members)
}

// marshal leaves <, > and & unescaped, as the canonical form does.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	// The encoder ends its output with a newline, which is cut off.
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// decode fills an empty payload struct from a JSON object. If the error is a *MismatchError, the payload is filled
// except for the fields that it names, whose values are in Extra.
func decode(data []byte, p reflect.Value, t event.Type) error {
	// Numbers stay literals, so no digit is lost.
	values := Extra{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&values); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	// Each listed field takes its value out of values, unless the value is of another type. null means not set.
	mismatch := &MismatchError{Type: t}
	fields, extra := fieldsOf(p)
	for _, f := range fields {
		v, sent := values[f.name]
		if sent && v != nil && !assign(f.value.Addr().Interface(), v) {
			f.value.SetZero()
			mismatch.Fields = append(mismatch.Fields, f.name)
			continue
		}
		delete(values, f.name)
	}
	// The rest is Extra.
	if len(values) > 0 {
		extra.Set(reflect.ValueOf(values))
	}
	if len(mismatch.Fields) > 0 {
		return mismatch
	}
	return nil
}

// assign sets a field to a decoded value and reports whether the value is of the field's type. If not, the field is
// undefined.
func assign(to, v any) (ok bool) {
	// The types that genemit gives to fields, and no others.
	switch to := to.(type) {
	case *any:
		*to, ok = v, true
	case *string:
		*to, ok = v.(string)
	case *Timestamp:
		*to, ok = timestamp(v)
	case **bool:
		var b bool
		b, ok = v.(bool)
		*to = &b
	case **int64:
		var n int64
		n, ok = integer(v)
		*to = &n
	case **float64:
		var f float64
		f, ok = number(v)
		*to = &f
	}
	return ok
}

// integer takes 3.0 for 3, as the gate does: a Python producer may have computed it.
func integer(v any) (int64, bool) {
	literal, ok := v.(json.Number)
	n, err := strconv.ParseInt(strings.TrimSuffix(string(literal), ".0"), 10, 64)
	return n, ok && err == nil
}

// number reads a decoded JSON number as a float.
func number(v any) (float64, bool) {
	// Any number is a float, as in Python.
	literal, ok := v.(json.Number)
	f, err := literal.Float64()
	return f, ok && err == nil
}
