package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// block is a fenced piece of a document.
type block struct {
	language string
	text     string
	line     int
}

// blocks returns the fenced blocks of a document, in order.
func blocks(t testing.TB, file string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A fence opens a block or closes the open one.
	var open *block
	for i, line := range strings.Split(string(text), "\n") {
		fence, ok := strings.CutPrefix(line, "```")
		switch {
		case ok && open == nil:
			open = &block{language: fence, line: i + 2}
		case ok:
			list = append(list, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return list
}

// runIn runs a command and its children in a folder, ends them all afterwards, and fails with what they printed.
func runIn(t testing.TB, dir string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// Its output goes to a file: processes that it leaves in the background would keep a pipe open.
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left in the background
	}
	text, _ := os.ReadFile(out.Name())
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text[max(0, len(text)-6000):])
	}
	// A block that means to be warned about has the warning as a comment.
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		// A node's answer has its warnings as a list.
		warned := strings.Contains(line, "warning:") || strings.Contains(line, `"warnings":[`)
		if warned && !strings.Contains(strings.Join(args, "\n"), "# "+line) {
			t.Errorf("an example is warned about: %s", line)
		}
	}
}

// published is an example of publishing, on a command line, with its payload as written.
var published = regexp.MustCompile(`publish ([A-Z_]+)[^\n]* --payload '([^']*)'`)

// A copied example must not be warned about because the catalogue does not know its fields.
func TestNoExampleOfPublishingIsWarnedAbout(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := 0 // so that a changed notation does not make the test pass
	for _, file := range append(files, "../README.md", "../cmd/ringlog/internal/dev/dev.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range published.FindAllStringSubmatch(string(text), -1) {
			// As a node checks it; warnings about the type's name are meant in some examples.
			examples++
			ev := event.New(event.Type(found[1]), []byte(found[2]))
			policy := event.Policy{Reserved: event.ReservedForeign}
			_, warnings, err := policy.Normalize(&ev)
			for _, w := range warnings {
				if w.Field == "payload" || strings.HasPrefix(w.Field, "payload.") {
					t.Errorf("%s: %s: %s", file, found[0], w.Message)
				}
			}
			if err != nil {
				t.Errorf("%s: %s: %v", file, found[0], err)
			}
		}
	}
	if examples < 8 {
		t.Errorf("only %d examples found", examples)
	}
}

// The commands of docs/operations.md run as they are, with a leader that is not the first endpoint.
func TestOperationsDocument(t *testing.T) {
	if !longtest.Enabled() {
		t.Skip("a long way through the life of a cluster")
	}
	// Before a block that finds a healthy cluster, n1 hands over, which the document's addresses name first.
	const unlead = `if command -v healthy >/dev/null && ringlog check 2>/dev/null | grep -q "OK - n1 leads"; then
  ringlog cluster step-down >/dev/null
  healthy
fi
`
	whileTheMachineRuns(t, func(t testing.TB) {
		script := "set -euo pipefail\n"
		for _, b := range blocks(t, "../docs/operations.md") {
			if b.language == "sh" {
				script += fmt.Sprintf("echo '--- operations.md:%d' >&2\n%s%s", b.line, unlead, b.text)
			}
		}
		runIn(t, t.TempDir(), nil, "bash", "-c", script)
	})
}

// goProgram is what surrounds the Go examples of docs/migration.md.
const goProgram = `package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

var _ = fmt.Sprint(event.TrainingCompleted)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.New(client.Config{Endpoints: strings.Split(os.Getenv("RINGLOG_ENDPOINTS"), ",")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	example(ctx, c)
}

func example(ctx context.Context, c *client.Client) {
%s}
`

// documentsWithCommands are run on a cluster whose leader is the last endpoint.
var documentsWithCommands = []string{
	"../README.md", "../docs/capacity.md", "../docs/daemons.md", "../docs/http.md", "../docs/migration.md",
	"../docs/reacting.md", "../docs/security.md", "../docs/tracing.md", "../docs/transfers.md", "../docs/views.md",
	"../docs/wiring.md",
}

// The examples of each document run in their order, as they are. Shell blocks share their variables; Python blocks of
// docs/http.md are one program, those of others stand alone; a Go block is the body of a function.
func TestDocuments(t *testing.T) {
	for _, file := range documentsWithCommands {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			whileTheMachineRuns(t, func(t testing.TB) { runDocument(t, file) })
		})
	}
}

// docs/security.md promises that so few commands lead from nothing to a publish over TLS with a token of its own.
func TestASecureClusterTakesEightCommands(t *testing.T) {
	t.Parallel()
	commands, continued := 0, false
	for line := range strings.Lines(blocks(t, "../docs/security.md")[0].text) {
		line = strings.TrimSuffix(line, "\n")
		// The lines of a function are those of a command that calls it.
		own := !continued && !strings.HasPrefix(line, " ") && line != "}" && !strings.Contains(line, "() {")
		if continued = strings.HasSuffix(line, "\\"); own {
			commands++
		}
	}
	if commands != 8 {
		t.Errorf("%d commands", commands)
	}
}

// runDocument runs the blocks of a document in one script, in a folder that has a program ringlog.
func runDocument(t testing.TB, file string) {
	for _, tool := range []string{"curl", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, t.TempDir(), 3).startAll()
	c.converged() // every node knows the leader
	nodes, dir := c.leaderLast(), t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "ringlog")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	script, python := "set -euo pipefail\n", ""
	for _, b := range blocks(t, file) {
		script += fmt.Sprintf("echo '--- %s:%d' >&2\n", filepath.Base(file), b.line)
		// The first node of ringlog dev is the first endpoint here.
		b.text = strings.ReplaceAll(b.text, "http://127.0.0.1:8770", nodes[0])
		switch b.language {
		case "sh":
			script += b.text
		case "python":
			python += b.text + "\n"
			if filepath.Base(file) != "http.md" {
				script += "python3 " + write(fmt.Sprintf("line%d.py", b.line), b.text) + "\n"
			}
		case "go": // inside the module, whose packages it imports
			if !strings.HasPrefix(b.text, "package main") {
				b.text = fmt.Sprintf(goProgram, b.text)
			}
			name := write(fmt.Sprintf("line%d.go", b.line), b.text)
			script += fmt.Sprintf("(cd %s && go run %s)\n", filepath.Dir(here), name)
		}
	}
	if filepath.Base(file) == "http.md" {
		script += "python3 " + write("all.py", python) + "\n"
	}
	env := []string{"RINGLOG=" + nodes[0], "RINGLOG_ENDPOINTS=" + strings.Join(nodes, ","),
		"PYTHONPATH=" + filepath.Join(filepath.Dir(here), "python"), "PYTHONDONTWRITEBYTECODE=1"}
	runIn(t, dir, env, "bash", "-c", script)
}

// Every document that has shell blocks is run by a test.
func TestEveryDocumentWithCommandsIsRun(t *testing.T) {
	// python.md is run by the tests of the package.
	run := append([]string{"../docs/operations.md", "../docs/troubleshooting.md", "../docs/python.md"},
		documentsWithCommands...)
	for file := range documents(t) {
		isShell := func(b block) bool { return b.language == "sh" || b.language == "console" }
		if slices.ContainsFunc(blocks(t, file), isShell) != slices.Contains(run, file) {
			t.Errorf("%s: has it shell blocks, and does a test run it? One of the two only", file)
		}
	}
}

// The README's recording of the demo has the steps of a real one, and what each begins with.
func TestReadmeShowsTheDemo(t *testing.T) {
	recorded := ""
	for _, b := range blocks(t, "../README.md") {
		if text, ok := strings.CutPrefix(b.text, "$ ringlog demo\n"); ok {
			recorded = text
		}
	}
	whileTheMachineRuns(t, func(t testing.TB) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, binary, "demo").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		shown := strings.Split(strings.TrimSpace(recorded), "\n")
		printed := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(shown) != len(printed) {
			t.Fatalf("README.md shows %d lines, the demo prints %d:\n%s", len(shown), len(printed), out)
		}
		for i := range shown {
			// An ellipsis ends what is shown of a line.
			begins, cut := strings.CutSuffix(shapeOf(shown[i]), " …")
			if full := shapeOf(printed[i]); !strings.HasPrefix(full, begins) || (!cut && full != begins) {
				t.Errorf("README.md shows\n%s\nand the demo prints\n%s", shown[i], printed[i])
			}
		}
	})
}

// The script that docs/capacity.md names measures every row.
func TestCapacityScript(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("a minute of measuring")
	}
	runIn(t, t.TempDir(), nil, "bash", "-c", `"$1" "$2" 5000 | tee rows >&2; test "$(grep -c '  *[0-9.]* ' rows)" -ge 15`,
		"bash", absolute(t, "bench/capacity.sh"), binary)
}

// absolute returns a path as it is from every folder.
func absolute(t testing.TB, name string) string {
	t.Helper()
	name, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return name
}
