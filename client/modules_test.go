package client

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// modules are those whose code a program with this package alone is linked with. The package's documentation lists
// them: who adds one says so there.
var modules = []string{
	"connectrpc.com/connect",
	"github.com/cenkalti/backoff/v5",
	"github.com/cespare/xxhash/v2",
	"github.com/google/uuid",
	"github.com/klauspost/compress",
	"github.com/ringrift/ringlog",
	"google.golang.org/protobuf",
}

// TestTheClientIsLean lists the modules that the package needs.
func TestTheClientIsLean(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	got = slices.Compact(got)
	if !slices.Equal(got, modules) {
		t.Errorf("it needs\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(modules, "\n"))
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if m != "github.com/ringrift/ringlog" && !strings.Contains(string(doc), m) {
			t.Errorf("the package's documentation does not list %s", m)
		}
	}
}
