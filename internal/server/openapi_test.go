package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/raftnode"
)

// document is what of /openapi.json the test reads.
type document struct {
	Info       struct{ Version string }
	Paths      map[string]map[string]operation
	Components struct {
		Schemas    map[string]map[string]any
		Parameters map[string]parameter
	}
}

type parameter struct {
	Ref      string `json:"$ref"` // to one of the document's; the rest is empty then
	Name, In string
	Example  any
	Required bool
	Schema   map[string]any
}

type operation struct {
	OperationID string
	Parameters  []parameter
	RequestBody *struct {
		Content map[string]struct {
			Schema  map[string]any
			Example any
		}
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
}

func readDocument(t *testing.T, s *site) (d document) {
	t.Helper()
	s.ok("GET", "/openapi.json", "").decode(t, &d)
	return d
}

func TestTheDocumentListsTheRoutesAndNoOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	var documented, there []string
	for path, operations := range readDocument(t, s).Paths {
		for method := range operations {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	for _, r := range s.server.routes {
		if r.service != nil {
			continue // ringlog.proto documents it
		}
		there = append(there, r.method+" "+strings.TrimSuffix(r.path, "{$}"))
	}
	slices.Sort(documented)
	slices.Sort(there)
	if !slices.Equal(documented, there) {
		t.Errorf("documented %v\nthere      %v", documented, there)
	}
}

// constants returns the values of the constants that a pattern finds in source files, sorted, each once.
func constants(t *testing.T, pattern string, files ...string) (values []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			values = append(values, found[1])
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// TestTheDocumentListsEveryCodeAndReason compares the enums of ErrorDetail with the constants of the program.
func TestTheDocumentListsEveryCodeAndReason(t *testing.T) {
	t.Parallel()
	detail := readDocument(t, newSite(t, nil)).Components.Schemas["ErrorDetail"]
	for field, want := range map[string][]string{
		"code": constants(t, `(?m)^\t\w+ +Code = "(\w+)"`, "../../api/errors.go"),
		"reason": constants(t, `(?m)^\tReason\w+ += "(\w+)"`, "../../api/errors.go", "../../event/errors.go",
			"../../event/canon/errors.go"),
	} {
		var listed []string
		for _, value := range detail["properties"].(map[string]any)[field].(map[string]any)["enum"].([]any) {
			listed = append(listed, value.(string))
		}
		slices.Sort(listed)
		if len(want) < 20 || !slices.Equal(listed, want) {
			t.Errorf("%s: the document lists %v\nthe program has    %v", field, listed, want)
		}
	}
}

func TestTheDocumentListsEveryReasonOfAGap(t *testing.T) {
	t.Parallel()
	gap := readDocument(t, newSite(t, nil)).Components.Schemas["Gap"]
	listed := fmt.Sprint(gap["properties"].(map[string]any)["reason"].(map[string]any)["enum"])
	want := constants(t, `(?m)^(?:const|\t)\s*Reason(?:Trimmed|Retention|Compacted|Forced) += "(\w+)"`,
		"../../fsm/trim.go", "../../log/read.go")
	for _, reason := range want {
		if !strings.Contains(listed, reason) {
			t.Errorf("the document lacks %s: it lists %s", reason, listed)
		}
	}
	if len(want) != 4 {
		t.Errorf("the program has %v", want)
	}
}

// TestTheDocumentHasTheVersionOfTheChangelog also fails on a description that is empty.
func TestTheDocumentHasTheVersionOfTheChangelog(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	d := readDocument(t, s)
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindStringSubmatch(string(changelog))
	if newest == nil || newest[1] != d.Info.Version {
		t.Errorf("the document has version %s, the newest of the changelog is %q", d.Info.Version, newest)
	}
	if text := s.ok("GET", "/openapi.json", "").body; strings.Contains(text, `"description": ""`) {
		t.Error("a description is empty")
	}
}

// TestEveryPropertyIsDescribed: what a stranger reads says what each property is, and not its type alone.
func TestEveryPropertyIsDescribed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]map[string]any
			}
		}
	}
	s.ok("GET", "/openapi.json", "").decode(t, &document)
	count := 0
	for name, schema := range document.Components.Schemas {
		for property, as := range schema.Properties {
			count++
			if as["description"] == nil && as["$ref"] == nil {
				t.Errorf("%s.%s has no description", name, property)
			}
		}
	}
	if count < 500 {
		t.Errorf("only %d properties were found", count)
	}
}

// TestEveryConnectMethodHasARow compares the table of routes with the services of ringlog.proto.
func TestEveryConnectMethodHasARow(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	var rows []string
	for _, r := range s.server.routes {
		if r.service == nil {
			continue
		}
		rows = append(rows, r.path)
		if method := procedures[r.path]; method == nil || method.IsStreamingServer() != r.stream {
			t.Errorf("%s: stream %v, in ringlog.proto it is %v", r.path, r.stream, method)
		}
	}
	slices.Sort(rows)
	if methods := slices.Sorted(maps.Keys(procedures)); !slices.Equal(rows, methods) {
		t.Errorf("rows    %v\nmethods %v", rows, methods)
	}
}

// callOrder is an order in which the document's examples work one after the other.
func callOrder() []string {
	return []string{
		"getRoot", "getOpenAPI", "getPythonIndex", "getPythonProject", "getPythonFile",
		"getConsole", "getConsoleAsset",
		"getHealth", "getReady", "publish", "read", "getEvent",
		"setDedupPolicy", "getDedupPolicy", "listDedupPolicies", "explainDedup", "removeDedupPolicy",
		"chain", "createCursor", "getCursor", "listCursors",
		"openCursor",
		"readCursor", "commitCursor", "deadLetter", "listDeadLetters", "getDeadLetter",
		"deadLetterErrors", "redriveDeadLetters", "importDeadLetters", "purgeDeadLetters",
		"waitForCursors", "explainDelivery", "changeCursor", "createGroup", "getGroup",
		"listGroups", "exchange", "listGroupMembers", "deleteGroup", "seekCursor", "listSettings",
		"setSetting", "getSetting", "compact", "snapshot", "exportIncident", "getStacks", "listCatalogue", "registerTypes",
		"validateEvents", "getType", "getTypeSchema", "getAsyncAPI", "registerFlows",
		"listFlows", "getFlow", "removeFlow", "registerClient", "listClients", "getReadiness", "acquireRole", "renewRoles",
		"getRole", "listRoles", "releaseRole", "scheduleEvent", "getScheduled", "listScheduled", "unscheduleEvent",
		"setResource", "getResource", "listResources", "requestAllocation",
		"renewAllocations", "getAllocation", "listAllocations", "releaseAllocation", "removeResource",
		"listTransfers", "listCopiesOfHost", "listCopies",
		"defineView", "getView", "listViews", "readView", "watchView", "removeView",
		"createToken", "listTokens", "rotateToken", "revokeToken", "createSession", "deleteSession",
		"audit", "auditSources", "auditCoordinator",
		"getStatus", "getCluster", "history", "getOutage", "getMetrics", "removeClient",
		"deleteCursor", "addMember", "listMembers", "promoteMember", "stepDown", "demoteMember",
		"removeMember",
	}
}

// TestTheExamplesOfTheDocumentWork makes every call of the document with its own
// example and holds the example and the answer against their schemas.
func TestTheExamplesOfTheDocumentWork(t *testing.T) {
	t.Parallel()
	// Tokens are made where there is a cluster token.
	known := func(c *Config) { c.Token = "examples" }
	s := newSite(t, known)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	newcomer := startSite(t, l, known, raftnode.Config{ID: "n4", Dir: filepath.Join(t.TempDir(), "n4")})
	d := readDocument(t, s)
	type call struct {
		method, path string
		op           operation
	}
	calls := map[string]call{}
	for path, operations := range d.Paths {
		for method, op := range operations {
			calls[op.OperationID] = call{strings.ToUpper(method), path, op}
		}
	}
	delete(calls, "openPublishStream") // is no call: publish_stream_test.go
	delete(calls, "stepIncident")      // is for no node: internal/sealed
	both := []*site{s, newcomer}
	for _, id := range callOrder() {
		c, there := calls[id]
		if !there {
			t.Errorf("%s is not in the document", id)
			continue
		}
		delete(calls, id)
		// a leader does not do it to itself
		if leader, _ := leading(t, both[:min(2, len(s.node.Status().Members))]); id == "demoteMember" && leader != s {
			s.ok("POST", "/v1/cluster/step-down", `{"to":"n1"}`)
			leading(t, both)
		}
		path, body := example(t, d, c.path, c.op)
		body = strings.ReplaceAll(body, "node-4:8770", l.Addr().String())
		// A leader may lose its lease on a busy machine; the call is repeated as clients do.
		var a answer
		eventually(t, id+" is answered", func() bool {
			a = s.do(c.method, path, body)
			return a.status != 503
		})
		if a.status != 200 {
			t.Fatalf("%s: %d %s", id, a.status, a.body)
		}
		d.check(t, id, c.op, a)
	}
	for id := range calls {
		t.Errorf("%s is not called", id)
	}
	read := d.Paths["/v1/events"]["get"]
	read.Responses["200"] = read.Responses["default"]
	d.check(t, "an error", read, s.do("GET", "/v1/events/0", ""))
}

// example fills a path and a body with the document's examples.
func example(t *testing.T, d document, path string, op operation) (filled, body string) {
	t.Helper()
	query := url.Values{}
	for _, p := range d.parameters(t, op) {
		if p.Example != nil {
			if problem := d.fits(p.Schema, p.Example, p.Name); problem != "" {
				t.Errorf("%s: its own example: %s", op.OperationID, problem)
			}
		}
		switch {
		case p.In == "path" && p.Example != nil:
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(p.texts()[0]))
		case p.In == "query" && p.Example != nil:
			query[p.Name] = p.texts()
		case p.Required:
			t.Errorf("%s: %s has no example", op.OperationID, p.Name)
		}
	}
	if op.RequestBody != nil {
		content := op.RequestBody.Content[contentJSON]
		text, err := json.Marshal(content.Example)
		if err != nil || content.Example == nil {
			t.Errorf("%s: no example: %v", op.OperationID, err)
		}
		if problem := d.fits(content.Schema, content.Example, "body"); problem != "" {
			t.Errorf("%s: its own example: %s", op.OperationID, problem)
		}
		body = string(text)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, body
}

// parameters returns the parameters of an operation, with those of the document that it refers to.
func (d document) parameters(t *testing.T, op operation) []parameter {
	t.Helper()
	list := slices.Clone(op.Parameters)
	for i, p := range list {
		if p.Ref == "" {
			continue
		}
		name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/")
		list[i] = d.Components.Parameters[name]
		if !ok || list[i].Name == "" {
			t.Errorf("%s: %q is no parameter of the document", op.OperationID, p.Ref)
		}
	}
	return list
}

// texts returns the values of a parameter's example.
func (p parameter) texts() (values []string) {
	list, repeated := p.Example.([]any)
	if !repeated {
		list = []any{p.Example}
	}
	for _, v := range list {
		values = append(values, fmt.Sprint(v))
	}
	return values
}

// check holds an answer against the schema of its content type.
func (d document) check(t *testing.T, id string, op operation, a answer) {
	t.Helper()
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content, documented := op.Responses["200"].Content[kind]
	if !documented {
		t.Errorf("%s: answers with %s, which is not documented", id, kind)
		return
	}
	texts := []string{a.body}
	switch {
	case kind == contentNDJSON:
		texts = slices.Collect(strings.Lines(a.body))
	case !strings.Contains(kind, "json"):
		return
	}
	for _, text := range texts {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Errorf("%s: %v", id, err)
		} else if problem := d.fits(content.Schema, v, "answer"); problem != "" {
			t.Errorf("%s: %s in %s", id, problem, text)
		}
	}
}

// fits holds a value against a schema, as far as this document uses the language. It
// returns what is wrong, "" if nothing.
func (d document) fits(schema map[string]any, v any, at string) string {
	if ref, ok := schema["$ref"].(string); ok {
		return d.fits(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v, at)
	}
	if list, ok := schema["oneOf"].([]any); ok {
		var problems []string
		for _, one := range list {
			problem := d.fits(one.(map[string]any), v, at)
			if problem == "" {
				return ""
			}
			problems = append(problems, problem)
		}
		return strings.Join(problems, " and ")
	}
	if !ofType(schema["type"], v) {
		return fmt.Sprintf("%s: %T, want %v", at, v, schema["type"])
	}
	switch v := v.(type) {
	case map[string]any:
		return d.fitsObject(schema, v, at)
	case []any:
		for i, element := range v {
			if problem := d.fits(schema["items"].(map[string]any), element, fmt.Sprintf("%s[%d]", at, i)); problem != "" {
				return problem
			}
		}
	case string:
		return fitsText(schema, v, at)
	case float64:
		if least, ok := schema["minimum"].(float64); ok && v < least {
			return fmt.Sprintf("%s: %v is below %v", at, v, least)
		}
	}
	return ""
}

func (d document) fitsObject(schema, v map[string]any, at string) string {
	properties, required := d.fieldsOf(schema)
	for _, key := range required {
		if _, there := v[key.(string)]; !there {
			return fmt.Sprintf("%s: no %v", at, key)
		}
	}
	for key, value := range v {
		property, documented := properties[key].(map[string]any)
		if !documented {
			more, isSchema := schema["additionalProperties"].(map[string]any)
			switch {
			case schema["additionalProperties"] == false, schema["unevaluatedProperties"] == false:
				return fmt.Sprintf("%s: %s is not documented", at, key)
			case !isSchema:
				continue
			}
			property = more
		}
		if problem := d.fits(property, value, at+"."+key); problem != "" {
			return problem
		}
	}
	return ""
}

// fieldsOf returns the properties of an object's schema and those that it requires, with those of its allOf.
func (d document) fieldsOf(schema map[string]any) (properties map[string]any, required []any) {
	properties = map[string]any{}
	if list, ok := schema["allOf"].([]any); ok {
		for _, one := range list {
			ref := one.(map[string]any)["$ref"].(string)
			more, needed := d.fieldsOf(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
			maps.Copy(properties, more)
			required = append(required, needed...)
		}
	}
	own, _ := schema["properties"].(map[string]any)
	maps.Copy(properties, own)
	needed, _ := schema["required"].([]any)
	return properties, append(required, needed...)
}

func fitsText(schema map[string]any, v, at string) string {
	if list, ok := schema["enum"].([]any); ok && !slices.Contains(list, any(v)) {
		return fmt.Sprintf("%s: %q is none of %v", at, v, list)
	}
	if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
		return fmt.Sprintf("%s: %q does not match %s", at, v, pattern)
	}
	return ""
}

func ofType(want any, v any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return ofType(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	default:
		return want == "object" || want == nil
	}
}
