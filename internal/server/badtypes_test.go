package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// goNames finds what belongs into no answer: a package in front of an error, a type of Go or a word of encoding/json.
var goNames = regexp.MustCompile(`\b(raftnode|datadir|membership|batcher|server|service|engine|fsm|api|json): |` +
	`\b[a-z]\w*\.[A-Z]\w*|Body\b|UnmarshalJSON|cannot unmarshal|parsing time|\bGo |` +
	`\b(u?int(8|16|32|64)?|float(32|64)|struct|interface)\b|\[\]\w|map\[`)

// protoTypes are names of types that errors about Connect messages have from ringlog.proto.
var protoTypes = regexp.MustCompile(`\bu?int(32|64) field|google\.protobuf\.\w+`)

// wrongValues are of each JSON type; at most one of them is what a field expects.
var wrongValues = []string{`"x"`, `7`, `-1.5`, `1e400`, `true`, `null`,
	`[]`, `["x"]`, `[7]`, `[{"x":1}]`, `{}`, `{"x":1}`}

// bodies returns what a schema asks for with one value of it replaced, at every depth, by each of wrongValues.
func (d *document) bodies(schema map[string]any, depth int) []string {
	if name, ok := schema["$ref"].(string); ok {
		schema = d.Components.Schemas[strings.TrimPrefix(name, "#/components/schemas/")]
	}
	all := slices.Clone(wrongValues)
	if depth == 0 {
		return all
	}
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := schema[key].([]any)
		for _, one := range list {
			all = append(all, d.bodies(one.(map[string]any), depth)...)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		for _, value := range d.bodies(property.(map[string]any), depth-1) {
			all = append(all, fmt.Sprintf("{%q:%s}", name, value))
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		for _, value := range d.bodies(items, depth-1) {
			all = append(all, "["+value+"]")
		}
	}
	return all
}

// messageBodies returns what a message of ringlog.proto asks for, in JSON, with one field replaced as above.
func messageBodies(m protoreflect.MessageDescriptor, depth int) []string {
	all := slices.Clone(wrongValues)
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		values := wrongValues
		if f.Message() != nil && depth > 1 {
			values = messageBodies(f.Message(), depth-1)
		}
		for _, value := range values {
			if f.IsList() {
				value = "[" + value + "]"
			}
			all = append(all, fmt.Sprintf("{%q:%s}", f.JSONName(), value))
		}
	}
	return all
}

// TestAnAnswerToAWrongTypeNamesNothingOfGo sends every call that has a body values of the wrong JSON type.
func TestAnAnswerToAWrongTypeNamesNothingOfGo(t *testing.T) {
	s := newSite(t, nil)
	d := readDocument(t, s)
	for _, r := range s.server.routes {
		method, path, bodies := r.method, regexp.MustCompile(`\{\w+\}`).ReplaceAllString(r.path, "1"), []string(nil)
		if r.service != nil {
			method, bodies = http.MethodPost, messageBodies(procedures[r.path].Input(), 3)
		} else if body := d.Paths[r.path][strings.ToLower(r.method)].RequestBody; body != nil {
			for kind, content := range body.Content {
				if strings.HasSuffix(kind, "json") {
					bodies = append(bodies, d.bodies(content.Schema, 4)...)
				}
			}
		}
		if r.stream && r.service != nil {
			continue // streams take framed messages
		}
		if r.service != nil {
			answer := s.do(method, path, "\xff", "Content-Type", "application/proto")
			if name := goNames.FindString(protoTypes.ReplaceAllString(answer.body, "")); answer.status != 400 || name != "" {
				t.Errorf("%s of no message is answered with %d, %s", path, answer.status, answer.body)
			}
		}
		slices.Sort(bodies)
		refused := 0
		for _, body := range slices.Compact(bodies) {
			answer := s.do(method, path, body, "Content-Type", "application/json")
			if answer.status < 400 {
				continue
			}
			refused++
			if answer.status == http.StatusInternalServerError {
				t.Errorf("%s %s %s is an internal error: %s", method, path, body, answer.body)
			}
			var text struct {
				Error struct{ Message, Field, Remedy string }
				// Of a Connect method.
				Message string
				Details []struct{ Value string }
			}
			if err := json.Unmarshal([]byte(answer.body), &text); err != nil {
				t.Fatalf("%s %s %s: %s", method, path, body, answer.body)
			}
			for _, detail := range text.Details {
				plain, err := base64.RawStdEncoding.DecodeString(detail.Value)
				if err != nil {
					t.Fatal(err)
				}
				text.Message += "\n" + string(plain)
			}
			// The types of ringlog.proto are what its callers write.
			said := protoTypes.ReplaceAllString(text.Error.Message+text.Error.Field+text.Error.Remedy+text.Message, "")
			if name := goNames.FindString(said); name != "" {
				t.Errorf("%s %s %s: %q is in %s", method, path, body, name, answer.body)
			}
		}
		if len(bodies) > 0 && refused < len(wrongValues)/2 {
			t.Errorf("%s %s refuses %d of %d bodies", method, path, refused, len(bodies))
		}
	}
}
