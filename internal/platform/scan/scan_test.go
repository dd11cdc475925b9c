package scan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/scan"
)

var update = flag.Bool("update", false, "write the golden file")

func TestTheFixtureHasWhatIsWrittenInItsSources(t *testing.T) {
	// The fixture is copied, so that a link out of it can be made.
	dir := filepath.Join(t.TempDir(), "fixture")
	if err := os.CopyFS(dir, os.DirFS("testdata/fixture")); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside.py")
	if err := os.WriteFile(outside, []byte(`publish("MODEL_SYNCED")`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link.py")), os.Symlink(dir, filepath.Join(dir, "self")),
		os.WriteFile(filepath.Join(dir, "go", "broken.go"), []byte("package broken\nfunc {"), 0o600),
		os.MkdirAll(filepath.Join(dir, ".hidden"), 0o700),
		os.WriteFile(filepath.Join(dir, ".hidden", "h.py"), []byte(`publish("MODEL_SYNCED")`), 0o600),
		os.WriteFile(filepath.Join(dir, "large.py"), make([]byte, 4<<20+1), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	report, err := scan.Dir(event.Builtin(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, p := range report.Places {
		flags := ""
		if p.Dynamic {
			flags += " dynamic"
		}
		if p.Unknown {
			flags += " unknown, near " + strings.Join(p.Nearest, " ")
		}
		fmt.Fprintf(&got, "%s %s %s:%d%s\n", p.Type, p.Role, p.File, p.Line, flags)
	}
	for _, b := range report.Broken {
		fmt.Fprintf(&got, "broken %s: %s\n", b.File, b.Error)
	}
	fmt.Fprintf(&got, "files %d\norphans %v\ndead %v\n", report.Files, report.Orphans, report.Dead)
	golden := filepath.Join("testdata", "fixture.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != got.String() {
		t.Errorf("-update writes %s: %v\n%s", golden, err, got.String())
	}
}

// scanOne returns the report of one file.
func scanOne(t *testing.T, name, src string) *scan.Report {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := scan.Dir(event.Builtin(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestWhatIsFoundInOneFile(t *testing.T) {
	const imports = "package p\nimport (\"github.com/ringrift/ringlog/event\"; \"github.com/ringrift/ringlog/router\")\n"
	for _, test := range []struct{ name, file, src, want string }{
		{"a quote in the format of a field", "a.py",
			`x = f"{n:'>10} {m!r:{width}}"` + "\npublish('HOST_ONLINE')", "HOST_ONLINE 2"},
		{"a string continued in a file of CRLF", "a.py", "s = 'a\\\r\nb'\r\npublish('HOST_ONLINE')\r\n", "HOST_ONLINE 3"},
		{"calls of other libraries", "a.py",
			"subprocess.call('make')\nsio.emit('connect')\nbus.emit('HOST_ONLIN_E')", "HOST_ONLIN_E 3"},
		{"types in nested lists", "a.py", "log.tail(types=[a[0], 'HOST_ONLINE'])", " 1 HOST_ONLINE 1"},
		{"a list of events", "a.go", imports + "var _ = []event.Event{{Type: event.HostOnline}}", "HOST_ONLINE 3"},
		{"a map of lists of pointers", "a.go",
			imports + `var _ = map[string][]*router.Subscription{"a": {{Types: []string{"HOST_ONLINE"}}}}`,
			"HOST_ONLINE 3"},
	} {
		report := scanOne(t, test.file, test.src)
		var got []string
		for _, p := range report.Places {
			got = append(got, fmt.Sprintf("%s %d", p.Type, p.Line))
		}
		if strings.Join(got, " ") != test.want || len(report.Broken) > 0 {
			t.Errorf("%s: %q, broken %v", test.name, got, report.Broken)
		}
	}
}

// A file that would take minutes if each level looked for the brackets of all that it holds.
func TestDeepNestingEnds(t *testing.T) {
	const levels = 40_000
	report := scanOne(t, "a.py", strings.Repeat("group(types=[", levels)+strings.Repeat("])", levels))
	if report.Files != 1 || len(report.Broken) > 0 {
		t.Errorf("%d files, broken %v", report.Files, report.Broken)
	}
}

// FuzzPython: any file is scanned or refused, and every place is a line of it.
func FuzzPython(f *testing.F) {
	raw, err := os.ReadFile("testdata/fixture/trainer.py")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(raw), `f"{f'{x}'}"`, `publish(`, `log.tail(types=[)`, `'''`, `"\`, `f"{`,
		`publish(())`, `cursor(types=)`, `subscribe(type=)`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.py"), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := scan.Dir(event.Builtin(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Places {
			if p.Line < 1 || p.Line > strings.Count(src, "\n")+1 {
				t.Errorf("%+v of a file of %d lines", p, strings.Count(src, "\n")+1)
			}
		}
	})
}
