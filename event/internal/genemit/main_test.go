package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/event"
)

const target = "../../emit"

func TestGeneratedPayloadsAreCurrent(t *testing.T) {
	files, err := generate(event.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(target, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("event/emit/%s is stale: run go generate ./event/emit (%v)", name, err)
		}
	}
	modules, err := generatePython(event.Builtin())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range modules {
		got, err := os.ReadFile(filepath.Join("..", pythonDir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("python/ringlog/%s is stale: run go generate ./event/emit (%v)", name, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(target, "*_gen*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range there {
		there[i] = filepath.Base(path)
	}
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(there, want) {
		t.Errorf("event/emit has %v, want %v", there, want)
	}
}

func TestRunRemovesOldCategories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"gone_gen.go", "emit.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(dir, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gone_gen.go")); !os.IsNotExist(err) {
		t.Errorf("gone_gen.go: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "emit.go")); err != nil {
		t.Error(err)
	}
}

func TestNamesThatCollideAreRefused(t *testing.T) {
	for want, field := range map[string]string{
		"extra and extra both become Extra":             "extra",
		"a method and event_type both become EventType": "event_type",
		"2nd is not a name for a Go field":              "2nd",
	} {
		c, err := event.Builtin().With(event.Definition{Name: "X_Y", Payload: []event.Field{{Name: field, Type: "any"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := generate(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestNamesThatPythonCannotTakeAreRefused(t *testing.T) {
	for _, name := range []string{"from", "class", "to_json", "extra", "Upper"} {
		def := &event.Definition{Name: "X_Y", Payload: []event.Field{{Name: name, Type: "any"}}}
		shown := payloadType{def: def, name: "XY"}
		if err := shown.printPython(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
