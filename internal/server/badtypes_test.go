package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
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

// inWords returns what an error answer says to people, without what callers themselves write of ringlog.proto.
func inWords(t *testing.T, body string) string {
	t.Helper()
	var text struct {
		Error struct{ Message, Field, Remedy string }
		// Of a Connect method.
		Message string
		Details []struct{ Value string }
	}
	if err := json.Unmarshal([]byte(body), &text); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, detail := range text.Details {
		plain, err := base64.RawStdEncoding.DecodeString(detail.Value)
		if err != nil {
			t.Fatal(err)
		}
		text.Message += "\n" + string(plain)
	}
	return protoTypes.ReplaceAllString(text.Error.Message+text.Error.Field+text.Error.Remedy+text.Message, "")
}

// checkRefusal checks that an error answer is the caller's fault and names nothing of Go.
func checkRefusal(t *testing.T, what string, status int, body string) {
	t.Helper()
	if status == http.StatusInternalServerError {
		t.Errorf("%s is an internal error: %s", what, body)
	}
	if name := goNames.FindString(inWords(t, body)); name != "" {
		t.Errorf("%s: %q is in %s", what, name, body)
	}
}

// connectEnd returns the error that ends a stream of Connect, "" for none or for the end of the caller's time.
func connectEnd(t *testing.T, stream string) string {
	t.Helper()
	for len(stream) >= 5 {
		flags, rest := stream[0], stream[5:]
		message := rest[:binary.BigEndian.Uint32([]byte(stream[1:5]))]
		stream = rest[len(message):]
		var end struct{ Error json.RawMessage }
		switch err := json.Unmarshal([]byte(message), &end); {
		case flags != 2:
		case err != nil:
			t.Fatalf("%v in %s", err, message)
		case !strings.Contains(string(end.Error), `"deadline_exceeded"`):
			return string(end.Error)
		}
	}
	return ""
}

// TestAnAnswerToAWrongTypeNamesNothingOfGo sends every call that has a body values of the wrong JSON type.
func TestAnAnswerToAWrongTypeNamesNothingOfGo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("what is answered is read, one request after another")
	}
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
		if r.service != nil && !r.stream {
			answer := s.do(method, path, "\xff", "Content-Type", "application/proto")
			if name := goNames.FindString(protoTypes.ReplaceAllString(answer.body, "")); answer.status != 400 || name != "" {
				t.Errorf("%s of no message is answered with %d, %s", path, answer.status, answer.body)
			}
		}
		slices.Sort(bodies)
		refused := 0
		for _, body := range slices.Compact(bodies) {
			what := method + " " + path + " " + body
			if r.service != nil && r.stream {
				// A stream takes framed messages, and what is accepted follows the log until its time is over.
				answer := s.do(method, path, string(enveloped(0, []byte(body))),
					"Content-Type", "application/connect+json", "Connect-Timeout-Ms", "50")
				if end := connectEnd(t, answer.body); end != "" {
					refused++
					if strings.Contains(end, `"internal"`) {
						t.Errorf("%s is an internal error: %s", what, end)
					}
					checkRefusal(t, what, answer.status, end)
				}
				continue
			}
			if answer := s.do(method, path, body, "Content-Type", "application/json"); answer.status >= 400 {
				refused++
				checkRefusal(t, what, answer.status, answer.body)
			}
		}
		if len(bodies) > 0 && refused < len(wrongValues)/2 {
			t.Errorf("%s %s refuses %d of %d bodies", method, path, refused, len(bodies))
		}
	}
}

// wrongTexts are values of parameters; each is wrong for most of them.
var wrongTexts = []string{"", "x", "-1.5", "1e400", "0x10", "18446744073709551616", "[7]", "null", "\x00", "\xff"}

// TestAnAnswerToAWrongParameterNamesNothingOfGo gives every parameter of every call, streams included, values of the
// wrong type.
func TestAnAnswerToAWrongParameterNamesNothingOfGo(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	d := readDocument(t, s)
	for path, operations := range d.Paths {
		for method, op := range operations {
			parameters := d.parameters(t, op)
			for i, wrong := range parameters {
				if wrong.Name == "where" {
					continue // CEL has types of the same names; badEvents has its refusals
				}
				refused := 0
				for _, text := range wrongTexts {
					if wrong.Name == "timeout" && text == "" {
						continue // none, so that a wait would last
					}
					at, query, headers := path, url.Values{"timeout": {"50ms"}}, http.Header{}
					for j, p := range parameters {
						value := "1"
						switch {
						case i == j:
							value = text
						case p.Example != nil:
							value = p.texts()[0]
						case !p.Required:
							continue
						}
						switch p.In {
						case "path":
							at = strings.ReplaceAll(at, "{"+p.Name+"}", url.PathEscape(value))
						case "query":
							query.Set(p.Name, value)
						case "header":
							headers.Set(p.Name, strings.Map(func(r rune) rune { return max(r, ' ') }, value))
						}
					}
					what := fmt.Sprintf("%s %s with %s %q", method, path, wrong.Name, text)
					if status, body := s.start(strings.ToUpper(method), at+"?"+query.Encode(), headers); status >= 400 {
						refused++
						checkRefusal(t, what, status, body)
					}
				}
				if typed[wrong.Name] && refused < len(wrongTexts)/2 {
					t.Errorf("%s %s: %s refuses %d of %q", method, path, wrong.Name, refused, wrongTexts)
				}
			}
		}
	}
}

// typed are the parameters that are no free text.
var typed = map[string]bool{"from": true, "limit": true, "follow": true, "consistency": true, "min_offset": true,
	"timeout": true, "offset": true, "generation": true, "deadline": true, "state": true, "id": true, "status": true}

// start sends a request and returns the status, and the body of an error. A stream is left after its head.
func (s *site) start(method, path string, headers http.Header) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	maps.Copy(r.Header, headers)
	resp, err := s.http.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 {
		return resp.StatusCode, ""
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
