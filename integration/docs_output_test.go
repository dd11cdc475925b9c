package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shown is a command of a document and what the document says it prints.
type shown struct {
	command string
	output  []string
	line    int
}

// commandsShown takes a console block apart: a command begins with "$ ".
func commandsShown(b block) (list []shown) {
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, shown{command: command, line: b.line + i})
		} else if n := len(list); n > 0 {
			list[n-1].output = append(list[n-1].output, line)
		}
	}
	return list
}

// shapes are what varies from one run to the next, and its replacement.
var shapes = []struct {
	pattern *regexp.Regexp
	shape   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "DATE"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{16})\b`), "HEX"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|m\d+s|s)\b`), "TIME"},
	{regexp.MustCompile(`\d+(\.\d+)?`), "#"},
	{regexp.MustCompile(` +`), " "},
}

// shapeOf returns a line with everything that varies between runs replaced.
func shapeOf(line string) string {
	for _, s := range shapes {
		line = s.pattern.ReplaceAllString(line, s.shape)
	}
	return strings.TrimSpace(line)
}

// sameShape compares lines; … matches any number of them.
func sameShape(shown, printed []string) bool {
	// An ellipsis is tried with every number of lines, the fewest first.
	switch {
	case len(shown) == 0:
		return len(printed) == 0
	case shown[0] == "…":
		for from := range len(printed) + 1 {
			if sameShape(shown[1:], printed[from:]) {
				return true
			}
		}
		return false
	}
	return len(printed) > 0 && shapeOf(shown[0]) == shapeOf(printed[0]) && sameShape(shown[1:], printed[1:])
}

// The commands of docs/troubleshooting.md print what the document shows.
func TestTroubleshootingDocument(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	whileTheMachineRuns(t, func(t testing.TB) {
		c := newCluster(t, t.TempDir(), 3).startAll()
		c.converged()
		c.eventually(30*time.Second, "a healthy cluster", func() error {
			out, err := c.run("check")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		// One script of all blocks, in which a line marks the output of each command that the document shows.
		endpoints := c.leaderLast()
		const mark = "--- command "
		script, commands := "set -euo pipefail\n", []shown{}
		for _, b := range blocks(t, "../docs/troubleshooting.md") {
			if b.language != "console" {
				script += b.text
				continue
			}
			for _, s := range commandsShown(b) {
				script += fmt.Sprintf("echo '%s%d'\n{ %s\n} 2>&1 || true\n", mark, len(commands), s.command)
				commands = append(commands, s)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-c", script)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "RINGLOG="+endpoints[0], "RINGLOG_ENDPOINTS="+strings.Join(endpoints, ","),
			"PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		var failure strings.Builder
		cmd.Stderr = &failure
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, failure.String(), out)
		}
		if strings.Contains(failure.String(), "warning:") {
			t.Errorf("a block is warned about: %s", failure.String())
		}
		// The first line after a mark ends it; the rest is the command's output.
		for i, text := range strings.Split(string(out), mark)[1:] {
			_, text, _ = strings.Cut(text, "\n")
			printed := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if s := commands[i]; !sameShape(s.output, printed) {
				t.Errorf("troubleshooting.md:%d: %s\nprints\n%s\nand the document shows\n%s",
					s.line, s.command, text, strings.Join(s.output, "\n"))
			}
		}
	})
}
