package canon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Expected describes a Go type by the JSON value that is decoded into it, as an error for people names it: "a string",
// "a whole number from 0 to 255", "a list", "an object {from, to}".
func Expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return Expected(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct:
		return "an object {" + strings.Join(keys(t), ", ") + "}"
	default:
		return "an object"
	}
}

// keys returns the names of a struct's fields in JSON.
func keys(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" && (name != "" || !f.Anonymous) {
			names = append(names, cmp.Or(name, f.Name))
		}
	}
	return names
}

// Found names the kind of JSON value that encoding/json met: "a number", "an object".
func Found(err *json.UnmarshalTypeError) string {
	// A number that does not fit follows its kind: "number 1.5".
	switch kind, value, _ := strings.Cut(err.Value, " "); {
	case value != "":
		return value
	case kind == "bool":
		return "true or false"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	default:
		return "a " + kind
	}
}
