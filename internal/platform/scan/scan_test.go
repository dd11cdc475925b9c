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
