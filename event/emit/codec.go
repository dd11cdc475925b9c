package emit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// field is one field of a payload struct, but for Extra.
type field struct {
	name  string // in JSON
	value reflect.Value
}

// fieldsOf takes a payload struct apart.
func fieldsOf(p Payload) (fields []field, extra *map[string]any) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "-" {
			extra = v.Field(i).Addr().Interface().(*map[string]any)
			continue
		}
		fields = append(fields, field{name, v.Field(i)})
	}
	return fields, extra
}

// encode prints what is set, sorted by name.
func encode(p Payload) ([]byte, error) {
	fields, extra := fieldsOf(p)
	members := make(map[string]json.RawMessage, len(fields)+len(*extra))
	add := func(name string, v any) error {
		if s, ok := v.(string); ok && !utf8.ValidString(s) {
			return fmt.Errorf("field %s: not valid UTF-8", name) // encoding/json would send another text
		}
		data, err := marshal(v)
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		members[name] = data
		return nil
	}
	for _, f := range fields {
		if f.value.IsZero() {
			continue
		}
		if err := add(f.name, f.value.Interface()); err != nil {
			return nil, err
		}
	}
	for name, v := range *extra {
		if _, taken := members[name]; taken {
			return nil, fmt.Errorf("field %s: given twice, in Extra too", name)
		}
		if err := add(name, v); err != nil {
			return nil, err
		}
	}
	return marshal(members)
}

// marshal leaves <, > and & as they are, as the canonical form does.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// decode fills p with what data holds, whatever p held before. The error is a *MismatchError where p is
// filled all the same.
func decode(data []byte, p Payload) error {
	values := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&values); err != nil {
		return err
	}
	reflect.ValueOf(p).Elem().SetZero()
	mismatch := &MismatchError{Type: p.EventType()}
	fields, extra := fieldsOf(p)
	for _, f := range fields {
		v, sent := values[f.name]
		if sent && v != nil && !assign(f.value.Addr().Interface(), v) {
			mismatch.Fields = append(mismatch.Fields, f.name)
			continue
		}
		delete(values, f.name)
	}
	if len(values) > 0 {
		*extra = values
	}
	if len(mismatch.Fields) > 0 {
		return mismatch
	}
	return nil
}

// assign sets a field to a decoded value and reports whether that is of the field's type.
func assign(to, v any) (ok bool) {
	switch to := to.(type) {
	case *any:
		*to, ok = v, true
	case *string:
		*to, ok = v.(string)
	case *Timestamp:
		*to, ok = timestamp(v)
	case **bool:
		var b bool
		if b, ok = v.(bool); ok {
			*to = &b
		}
	case **int64:
		var n int64
		if n, ok = integer(v); ok {
			*to = &n
		}
	case **float64:
		var f float64
		if f, ok = number(v); ok {
			*to = &f
		}
	}
	return ok
}

// integer takes 3.0 for 3, as the gate does: a Python producer may have computed it.
func integer(v any) (int64, bool) {
	literal, ok := v.(json.Number)
	n, err := strconv.ParseInt(strings.TrimSuffix(string(literal), ".0"), 10, 64)
	return n, ok && err == nil
}

func number(v any) (float64, bool) {
	literal, ok := v.(json.Number)
	f, err := literal.Float64()
	return f, ok && err == nil
}
