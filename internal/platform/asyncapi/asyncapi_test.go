package asyncapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// described is a cluster with a type of its own, and with names that are no keys of JSON documents.
func described(t *testing.T) Log {
	t.Helper()
	c, err := event.Builtin().With(event.Definition{Name: "MY_TYPE", Payload: []event.Field{
		{Name: "a/b~c $ref \"x\"", Type: "integer"}, {Name: "when", Type: "timestamp"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return Log{
		Catalogue: c,
		Version:   "0.1.0-dev",
		ClusterID: "5573f0",
		Token:     true,
		Members: []Member{
			{"n 1/ä", "http://10.0.0.1:8770"}, {"n2", "https://proxy.example/ringlog"}, {"n3", ""},
		},
		Listeners: []audit.Subscription{
			{Name: "promoter", Basis: audit.ByCursor, Filter: event.Filter{Types: []string{"training.*"}}},
			{Name: "a \"b\"", Basis: audit.ByClient, Filter: event.Filter{Types: []string{"MY_TYPE"}}},
			{Name: "archive", Basis: audit.ByCursor},
		},
		Unlisted: 3,
	}
}

// read returns the document of a log as a program reads it.
func read(t *testing.T, l Log) (text []byte, d document) {
	t.Helper()
	text, err := Document(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return text, d
}

func TestTheDocumentSaysWhoSendsAndReceives(t *testing.T) {
	l := described(t)
	_, d := read(t, l)
	if want := len(l.Catalogue.Definitions()) + len(l.Catalogue.Own()); len(d.Channels) != want ||
		len(d.Components.Messages) != want {
		t.Errorf("%d channels and %d messages of %d types", len(d.Channels), len(d.Components.Messages), want)
	}
	archive := listener{"archive", audit.ByCursor}
	for name, want := range map[string][]listener{
		"TRAINING_COMPLETED.receive": {{"promoter", audit.ByCursor}, archive},
		"MY_TYPE.receive":            {{`a "b"`, audit.ByClient}, archive},
		"QUORUM_LOST.receive":        {archive},
	} {
		op := d.Operations[name]
		if op.Action != "receive" || !slices.Equal(op.Listeners, want) {
			t.Errorf("%s: %+v", name, op)
		}
	}
	if op := d.Operations["CATCHUP_AT_RISK.send"]; op.Action != "send" || !slices.Equal(op.Emitters, []string{"ringlog"}) {
		t.Errorf("the cluster's own: %+v", op)
	}
	if _, there := d.Operations["MY_TYPE.send"]; there {
		t.Error("MY_TYPE has emitters")
	}
	completed := d.Components.Messages["TRAINING_COMPLETED"]
	if !slices.Contains(completed.Tags, tag{"training"}) ||
		!slices.Contains(completed.Tags, tag{"flow:training_pipeline"}) ||
		!slices.Contains(completed.Aliases, "TRAINING_COMPLETE") {
		t.Errorf("%+v", completed)
	}
	if got := d.Servers["node2"]; got.Host != "proxy.example" || got.Protocol != "https" || got.Pathname != "/ringlog" ||
		len(got.Security) != 1 || len(d.Servers) != 2 {
		t.Errorf("%+v", d.Servers)
	}
	if len(d.Flows) != len(l.Catalogue.Flows()) || d.Unlisted != 3 || d.ID != "urn:ringlog:5573f0" {
		t.Errorf("%+v, %d unlisted, %s", d.Flows, d.Unlisted, d.ID)
	}
}

// Every reference leads to something, and equal input gives equal bytes.
func TestReferencesResolve(t *testing.T) {
	l := described(t)
	text, _ := read(t, l)
	if again, _ := read(t, l); !bytes.Equal(text, again) {
		t.Error("the document differs from time to time")
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"\$ref":"#/([^"]+)"`).FindAllSubmatch(text, -1)
	for _, ref := range found {
		at := whole
		for step := range strings.SplitSeq(string(ref[1]), "/") {
			at, _ = at.(map[string]any)[step]
		}
		if at == nil {
			t.Fatalf("%s leads to nothing", ref[1])
		}
	}
	if len(found) < 1000 {
		t.Errorf("only %d references were read", len(found))
	}
}

// Listeners without a filter are listed at every type, so there is a bound.
func TestTheDocumentIsBounded(t *testing.T) {
	l := Log{Catalogue: event.Builtin()}
	for i := range 10_000 {
		l.Listeners = append(l.Listeners, audit.Subscription{Name: fmt.Sprintf("listener-%d", i), Basis: audit.ByClient})
	}
	text, d := read(t, l)
	if len(text) > 8<<20 || d.Unlisted != 10_000 {
		t.Errorf("%d bytes, %d unlisted", len(text), d.Unlisted)
	}
}

// The parser of AsyncAPI itself finds nothing wrong. It comes from npm: RINGLOG_ASYNCAPI_PARSER is a folder with
// node_modules/@asyncapi/parser, as .ci/run makes it.
func TestTheFormatsOwnParserAccepts(t *testing.T) {
	folder := os.Getenv("RINGLOG_ASYNCAPI_PARSER")
	if folder == "" {
		t.Skip("needs node, and RINGLOG_ASYNCAPI_PARSER: a folder with node_modules/@asyncapi/parser")
	}
	const program = `
		const { Parser } = require("@asyncapi/parser");
		new Parser().parse(require("fs").readFileSync(process.argv[1], "utf8")).then(({ document, diagnostics }) => {
			const wrong = diagnostics.filter((d) => d.severity <= 1); // errors and warnings
			console.log(JSON.stringify(wrong.slice(0, 10), null, 1));
			if (!document || wrong.length) process.exit(1);
			console.log(document.channels().length, "channels", document.operations().length, "operations");
		});`
	for name, l := range map[string]Log{"described": described(t), "built-in": {Catalogue: event.Builtin()}} {
		text, _ := read(t, l)
		path := filepath.Join(t.TempDir(), "asyncapi.json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		run := exec.Command("node", "-e", program, path)
		run.Dir = folder
		out, err := run.CombinedOutput()
		if err != nil || !strings.Contains(string(out), fmt.Sprintf("%d channels", len(l.Catalogue.Definitions())+
			len(l.Catalogue.Own()))) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
