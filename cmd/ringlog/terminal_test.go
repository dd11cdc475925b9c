package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// tmux is a terminal in which a script runs a program.
type tmux struct {
	ts  *testscript.TestScript
	dir string
}

// startTerminal runs a line of shell in a terminal of a size, which stays once the line has ended.
func startTerminal(ts *testscript.TestScript, columns, lines, command string) *tmux {
	// A server of its own, at a socket of its own: one that ends leaves its socket for a moment.
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "tmux")
	ts.Check(err)
	t := &tmux{ts, dir}
	t.run("new-session", "-d", "-c", ts.Getenv("WORK"), "-x", columns, "-y", lines, command+"; exec cat")
	return t
}

// run runs a command of tmux, and returns what it prints.
func (t *tmux) run(args ...string) string {
	cmd := exec.Command("tmux", append([]string{"-u", "-f", "/dev/null", "-S", filepath.Join(t.dir, "sock")}, args...)...)
	cmd.Env = []string{"PATH=" + t.ts.Getenv("PATH"), "LC_ALL=C.UTF-8", "TERM=xterm-256color",
		"RINGLOG_ENDPOINTS=" + t.ts.Getenv("RINGLOG_ENDPOINTS"), "GORACE=" + quickExit}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.ts.Fatalf("tmux %s: %v: %s", args[0], err, out)
	}
	return strings.TrimRight(string(out), " \n") + "\n"
}

func (t *tmux) close() { t.run("kill-server") }

// await waits until the screen matches a pattern. It fails if the screen then has a line that the terminal has wrapped,
// or a colour that is not legible on a dark and on a light background. The screen becomes the last stdout, with its
// colours as escape sequences.
func (t *tmux) await(pattern string) {
	want := regexp.MustCompile("(?m)" + pattern)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(scriptWithin)
	plain, joined, screen, again := "", "", "", ""
	// The three pictures are of one screen if it has not changed meanwhile: a program may print more once it matches.
	for !want.MatchString(plain) || plain != again {
		select {
		case <-tick.C:
			plain = t.run("capture-pane", "-p")
			// With -J, lines that the terminal has wrapped are one.
			joined = t.run("capture-pane", "-p", "-J")
			screen = t.run("capture-pane", "-p", "-e")
			again = t.run("capture-pane", "-p")
		case <-deadline:
			t.ts.Fatalf("%q did not come:\n%s", pattern, plain)
		}
	}
	if strings.Count(plain, "\n") != strings.Count(joined, "\n") {
		t.ts.Fatalf("the terminal wraps lines:\n%s", plain)
	}
	for _, escape := range regexp.MustCompile(`\x1b\[[^a-zA-Z]*[a-zA-Z]`).FindAllString(screen, -1) {
		if !legible[escape] {
			t.ts.Fatalf("the screen has %q, which is not legible on each background:\n%s", escape, plain)
		}
	}
	t.ts.Check(os.WriteFile(t.ts.MkAbs("screen"), []byte(screen), 0o600))
	t.ts.Check(t.ts.Exec("cat", "screen"))
}

// legible are the escape sequences that a screen may have. The program does not ask which background a terminal has: it
// keeps the terminal's own, and colours text with the green, dark yellow and red of the basic palette alone, which are
// legible on dark and on light. White, black, the bright colours and dim text are not, on one of them.
var legible = map[string]bool{
	"\x1b[0m": true, "\x1b[39m": true, "\x1b[49m": true, // the terminal's own, as tmux writes it
	"\x1b[1m": true, "\x1b[32m": true, "\x1b[33m": true, "\x1b[31m": true,
}

// terminal: terminal COLUMNS PATTERN program args... runs it in a terminal of that width, which has more lines than it
// prints, until the screen matches.
func terminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: terminal COLUMNS PATTERN program args...")
	}
	t := startTerminal(ts, args[0], "1500", strings.Join(args[2:], " "))
	defer t.close()
	t.await(args[1])
}

type screenKey struct{}

// screen: screen start COLUMNS LINES program args... | await PATTERN | press KEY... | end. start runs a program that
// takes the whole screen, and the others are about it. Keys have the names that tmux gives them.
func screen(ts *testscript.TestScript, neg bool, args []string) {
	holder, ok := ts.Value(screenKey{}).(**tmux)
	if neg || !ok || len(args) == 0 || (*holder == nil) != (args[0] == "start") {
		ts.Fatalf("usage: screen start COLUMNS LINES program args... | await PATTERN | press KEY... | end")
	}
	switch args[0] {
	case "start":
		*holder = startTerminal(ts, args[1], args[2], strings.Join(args[3:], " "))
		ts.Defer(func() {
			if *holder != nil {
				(*holder).close()
			}
		})
	case "await":
		(*holder).await(args[1])
	case "press":
		(*holder).run(append([]string{"send-keys"}, args[1:]...)...)
	case "end":
		(*holder).close()
		*holder = nil
	default:
		ts.Fatalf("unknown: screen %s", args[0])
	}
}
