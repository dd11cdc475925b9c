package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "warning: payload") {
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

// The commands of docs/operations.md run as they are.
func TestOperationsDocument(t *testing.T) {
	if !longtest.Enabled() {
		t.Skip("a long way through the life of a cluster")
	}
	whileTheMachineRuns(t, func(t testing.TB) {
		script := "set -euo pipefail\n"
		for _, b := range blocks(t, "../docs/operations.md") {
			if b.language == "sh" {
				script += fmt.Sprintf("echo '--- operations.md:%d' >&2\n%s", b.line, b.text)
			}
		}
		runIn(t, t.TempDir(), nil, "bash", "-c", script)
	})
}

// The examples of docs/reacting.md run one after the other, as they are.
func TestReactingDocument(t *testing.T) {
	whileTheMachineRuns(t, func(t testing.TB) {
		c := newCluster(t, t.TempDir(), 3).startAll()
		script := "set -euo pipefail\n"
		for _, b := range blocks(t, "../docs/reacting.md") {
			if b.language == "sh" {
				script += fmt.Sprintf("echo '--- reacting.md:%d' >&2\n%s", b.line, b.text)
			}
		}
		runIn(t, t.TempDir(), []string{"RINGLOG_ENDPOINTS=" + strings.Join(c.endpoints(), ",")}, "bash", "-c", script)
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

// The examples of docs/migration.md run in their order.
func TestMigrationDocument(t *testing.T) {
	c := newCluster(t, t.TempDir(), 3).startAll()
	env := []string{"RINGLOG=" + c.leader().url(), "RINGLOG_ENDPOINTS=" + strings.Join(c.endpoints(), ",")}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(t, "../docs/migration.md") {
		t.Run(fmt.Sprintf("%s at line %d", b.language, b.line), func(t *testing.T) {
			switch b.language {
			case "sh":
				runIn(t, t.TempDir(), env, "bash", "-c", "set -euo pipefail\n"+b.text)
			case "python":
				if _, err := exec.LookPath("python3"); err != nil {
					t.Skip("python3 is not installed")
				}
				runIn(t, t.TempDir(), env, "python3", "-c", b.text)
			case "go":
				file := filepath.Join(t.TempDir(), "main.go")
				if err := os.WriteFile(file, fmt.Appendf(nil, goProgram, b.text), 0o644); err != nil {
					t.Fatal(err)
				}
				runIn(t, filepath.Dir(here), env, "go", "run", file) // inside the module, whose packages it imports
			default:
				t.Fatalf("no runner for %q", b.language)
			}
		})
	}
}
