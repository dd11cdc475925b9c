package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// read reads a file with this text.
func read(t *testing.T, text string) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path, nil)
}

// What a daemon does not say is in the defaults, wherever these are, and in whichever form the file is written.
func TestDefaultsAreEachDaemons(t *testing.T) {
	for _, text := range []string{`
[daemon.a]
after = ["b"]
env = { OWN = "{name}" }
[daemon.b]
layer = 3
[defaults]
command = ["sh", "-c", "{name}"]
backoff = "7s"
[defaults.env]
ALL = "x"
OWN = "y"
`, `
defaults = { command = ["sh", "-c", "{name}"], backoff = "7s", env = { ALL = "x", OWN = "y" } }
daemon.a.after = ["b"]
daemon.a.env.OWN = "{name}"
daemon.b.layer = 3
`} {
		f, err := read(t, text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range f.Daemons {
			got += fmt.Sprint(d.Name, d.Layer, d.After, d.Args, d.Backoff, d.Env, d.StopTimeout, "\n")
		}
		const want = `b3 [] [sh -c b] 7s [ALL=x OWN=y] 10s
a3 [b] [sh -c a] 7s [ALL=x OWN=a] 10s
`
		if got != want {
			t.Errorf("%s is read as\n%s", text, got)
		}
	}
}

// No file, however broken, is more than an error that names a line.
func TestBrokenFilesAreErrors(t *testing.T) {
	whole := Coordinators()
	files := []string{
		strings.Repeat("[", 1<<19), "a = " + strings.Repeat("[", 1<<19), strings.Repeat("{a=", 1<<15), "\xff",
		"[daemon]\na = 1",
		"[[daemon.a]]\n[[daemon.a]]", "[daemon.a]\ncommand = [[\"a\"]]", "[daemon.a.b.c]", "daemon = 1", "defaults = []",
		"[daemon.a]\ncommand = \"\\u0000\"", "[daemon.a]\nlayer = 99999999999999999999", "[daemon.a]\nenv = 1",
		"[daemon.\"\"]", strings.Repeat("x", maxFile+1), "[daemon.a]\nafter = [\"a\"]\ncommand = \"x\"",
	}
	var many strings.Builder
	for i := range maxDaemons + 1 {
		fmt.Fprintf(&many, "[daemon.d%d]\nafter = [\"d%d\"]\n", i, i+1)
	}
	files = append(files, many.String())
	for i := 0; i < len(whole); i += 7 {
		files = append(files, whole[:i]+"=[\x00"+whole[i:])
	}
	began := time.Now()
	for _, text := range files {
		if _, err := read(t, text); err == nil || !strings.Contains(err.Error(), "f.toml") {
			t.Errorf("%.200q: %v", text, err)
		}
	}
	t.Logf("%d files in %s", len(files), time.Since(began))
}

// Output comes line by line, a long line in parts, and what a command leaves open does not hold up its end. A file is
// bounded.
func TestOutputIsBounded(t *testing.T) {
	var lines []string
	o := &Output{Print: func(name string, line []byte) { lines = append(lines, name+string(line)) }, Say: t.Logf}
	w, done, err := o.Open("d ")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxLine)
	fmt.Fprintf(w, "one\n\n%sy\nlast", long)
	done()
	if want := []string{"d one", "d ", "d " + long, "d y", "d last"}; fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("%.100q", lines)
	}

	o.Dir, o.limit = t.TempDir(), 100
	w, done, err = o.Open("d")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		fmt.Fprintf(w, "line %02d\n", i)
	}
	done()
	for name, want := range map[string]string{"d.log": "line 91\nline 92\n", "d.log.1": "line 78\nline 79\n"} {
		text, err := os.ReadFile(filepath.Join(o.Dir, name))
		if err != nil || !strings.HasPrefix(string(text), want) || len(text) > 110 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
