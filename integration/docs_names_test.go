package integration

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/event"
)

// What the documents name: tests, files and folders in backquotes, links to other files, and planted breakages.
var (
	namedTest      = regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w+`)
	namedPath      = regexp.MustCompile("`([a-z][\\w.-]*(?:/[\\w.-]+)+)`")
	namedLink      = regexp.MustCompile(`\]\(([^)#: ]+\.\w+)(#[^)]*)?\)`)
	namedBreakages = regexp.MustCompile(`(?m)^- Breakages: ((?:.*\n)(?:  .*\n)*)`)
)

// documents returns the text of every document of the tree, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	return texts
}

// declaredTests returns the names of all tests and fuzz tests of the tree.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := map[string]bool{}
	// From the root of the tree on.
	err := filepath.WalkDir("..", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, found := range declaration.FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A document that names a test, a file or a folder is of use only while it exists. A test name may be the beginning of
// several, where it ends with an ellipsis.
func TestDocsNameWhatExists(t *testing.T) {
	tests := declaredTests(t)
	for file, text := range documents(t) {
		for _, at := range namedTest.FindAllStringIndex(text, -1) {
			name, begins := text[at[0]:at[1]], strings.HasPrefix(text[at[1]:], "…")
			known := tests[name]
			for other := range tests {
				known = known || (begins && strings.HasPrefix(other, name))
			}
			if !known {
				t.Errorf("%s names %s, which no package has", file, name)
			}
		}
		// Paths in backquotes are relative to the root of the tree, if their first element is one of its folders.
		for _, found := range namedPath.FindAllStringSubmatch(text, -1) {
			root, _, _ := strings.Cut(found[1], "/")
			// The root may have a binary of that name.
			if folder, err := os.Stat("../" + root); err != nil || !folder.IsDir() {
				continue
			}
			if _, err := os.Stat("../" + found[1]); err != nil {
				t.Errorf("%s names %s: %v", file, found[1], err)
			}
		}
		// Links are relative to the document.
		for _, found := range namedLink.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(path.Join(path.Dir(file), found[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, found[1], err)
			}
		}
	}
}

// docs/invariants.md lists every planted breakage, and no other.
func TestDocsListEveryBreakage(t *testing.T) {
	text, err := os.ReadFile("../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, found := range namedBreakages.FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(found[1], ",") {
			listed[strings.TrimSpace(name)] = true
		}
	}
	// The patches themselves.
	patches, err := filepath.Glob("mutants/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		if !listed[name] {
			t.Errorf("docs/invariants.md does not list the breakage %s", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs/invariants.md lists %q, which integration/mutants does not have", name)
	}
}

// docs/operations.md names every event that only the cluster emits.
func TestDocsListTheClustersEvents(t *testing.T) {
	text := documents(t)["../docs/operations.md"]
	all := slices.Concat(event.Builtin().Definitions(), event.Builtin().Own())
	for _, d := range all {
		if event.IsReserved(d.Name) && !strings.Contains(text, string(d.Name)) {
			t.Errorf("docs/operations.md does not have %s", d.Name)
		}
	}
}

// The table of ARCHITECTURE.md and docs/invariants.md have the same invariants under the same numbers.
func TestDocsNumberInvariantsAlike(t *testing.T) {
	all := documents(t)
	row := regexp.MustCompile(`(?m)^\| (\d+ \| .*?) \|`)
	heading := regexp.MustCompile(`(?m)^### (\d+)\. (.*)$`)
	var short, long []string
	for _, found := range row.FindAllStringSubmatch(all["../ARCHITECTURE.md"], -1) {
		short = append(short, found[1])
	}
	for _, found := range heading.FindAllStringSubmatch(all["../docs/invariants.md"], -1) {
		long = append(long, found[1]+" | "+found[2])
	}
	if len(short) == 0 || !slices.Equal(short, long) {
		t.Errorf("ARCHITECTURE.md has %q\nand docs/invariants.md %q", short, long)
	}
}

// The table of ARCHITECTURE.md has every room that TestRooms knows, except generated code, generators and the root.
func TestDocsHaveEveryRoom(t *testing.T) {
	text := documents(t)["../ARCHITECTURE.md"]
	for room := range rooms() {
		generated := strings.HasPrefix(room, "api/") || strings.HasPrefix(room, "event/internal/")
		if room == "" || room == "internal/longtest" || room == "internal/testaddr" || generated {
			continue
		}
		if !strings.Contains(text, "\n| "+room+" |") {
			t.Errorf("the table of ARCHITECTURE.md does not have %s", room)
		}
	}
}
