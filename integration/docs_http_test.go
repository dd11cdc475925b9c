package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// leaderLast returns the URLs of all nodes, the leader's last: an example must not depend on asking the leader.
func (c *cluster) leaderLast() []string {
	urls, leader := c.endpoints(), c.leader().url()
	return append(slices.DeleteFunc(urls, func(url string) bool { return url == leader }), leader)
}

// pythonOf returns the Python blocks of docs/http.md that the function chooses, as one program. It skips the test
// where there is no Python.
func pythonOf(t *testing.T, chosen func(text string) bool) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	var program strings.Builder
	for _, b := range blocks(t, "../docs/http.md") {
		if b.language == "python" && chosen(b.text) {
			program.WriteString(b.text + "\n")
		}
	}
	return program.String()
}

// handleSlowly is what the members of TestThePythonMemberUnderKills run. They write to one file what they handle, as
// it begins and as it ends.
const handleSlowly = `
import sys
journal = open("journal", "a", buffering=1)
def handle(event):
    key, i = event["key"], event["payload"]["i"]
    journal.write(f"begin {key} {i}\n")
    time.sleep(0.005)
    if i % 50 == 7 and event["delivery"] == 1:
        raise ValueError("the first delivery fails")
    journal.write(f"end {key} {i}\n")
member("workers", sys.argv[1], handle)
`

// Members written as docs/http.md shows lose nothing, and handle the events of a key in order, while the leader and
// one of them are killed.
func TestThePythonMemberUnderKills(t *testing.T) {
	t.Parallel()
	const events, keys = 400, 8
	program := pythonOf(t, func(text string) bool {
		return strings.HasPrefix(text, "# Requests") || strings.HasPrefix(text, "# A member")
	})
	program, _, _ = strings.Cut(program, "\nhandled = []") // the example of its use
	c := newCluster(t, t.TempDir(), 3).startAll()
	c.mustRun("settings", "set", "group.session_timeout", "5s")
	c.mustRun("group", "create", "workers", "--from", "start", "--type", "DATA_SYNC_COMPLETED")
	// Events of a few keys, before any member runs.
	cl := c.client()
	batch := make([]event.Event, events)
	for i := range batch {
		batch[i] = event.New(event.DataSyncCompleted, map[string]any{"i": i})
		batch[i].Key = fmt.Sprintf("k%d", i%keys)
	}
	if _, err := cl.PublishBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}

	// Three members write to one journal, in lines that are short enough not to mix.
	dir := t.TempDir()
	journal := filepath.Join(dir, "journal")
	start := func(name string) *exec.Cmd {
		cmd := exec.Command("python3", "-c", program+handleSlowly, name)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(c.leaderLast(), ","))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	victim := start("a")
	start("b")
	start("c")
	handled := func(want int) func() error {
		return func() error {
			text, err := os.ReadFile(journal)
			if n := strings.Count(string(text), "end "); n < want {
				return errors.Join(fmt.Errorf("%d of %d are", n, want), err)
			}
			return nil
		}
	}
	// A member and the leader are killed in the midst of the work.
	c.eventually(time.Minute, "some events are handled", handled(events/8))
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.leader().kill()
	c.eventually(time.Minute, "all events are handled", handled(events))
	c.eventually(time.Minute, "all events are acknowledged", func() error {
		g, err := cl.Cursor(t.Context(), "workers")
		if err == nil && g.LagEvents != 0 {
			err = fmt.Errorf("the group lags by %d events", g.LagEvents)
		}
		return err
	})
	requireOrderPerKey(t, journal, events, keys)
}

// requireOrderPerKey reads what members wrote: an event begins after the one before it in its key has ended, and
// before any later one has begun. Each of the events has ended.
func requireOrderPerKey(t *testing.T, journal string, events, keys int) {
	t.Helper()
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	began, ended := map[string]int{}, map[int]bool{} // by key: the latest; by event
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		i, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		if words[0] == "end" {
			ended[i] = true
			continue
		}
		// Keys take turns, so the event before it in its key is that many earlier.
		if before := i - keys; before >= 0 && !ended[before] {
			t.Errorf("%d began before %d, of the same key, had ended", i, before)
		}
		if latest, ok := began[words[1]]; ok && latest > i {
			t.Errorf("%d began after %d of the same key", i, latest)
		}
		began[words[1]] = i
	}
	if len(ended) != events {
		t.Errorf("%d of %d events were handled", len(ended), events)
	}
}

// The tables of docs/http.md have every error code, with its status and whether it may be repeated.
func TestHTTPDocumentListsEveryErrorCode(t *testing.T) {
	source, err := os.ReadFile("../api/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t[A-Z]\w+ +Code = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 25 {
		t.Fatalf("only %d codes found", len(declared))
	}
	for _, found := range declared {
		code := api.Code(found[1])
		// | `code` | status | repeat | meaning |
		pattern := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| (\\d+) \\| (yes|no|if safe) \\|", code))
		row := pattern.FindStringSubmatch(string(document))
		if row == nil {
			t.Errorf("docs/http.md has no row for %s", code)
			continue
		}
		if row[1] != strconv.Itoa(code.Status()) {
			t.Errorf("docs/http.md: %s has status %s, it is %d", code, row[1], code.Status())
		}
		if code.Retryable() && row[2] != "yes" {
			t.Errorf("docs/http.md: %s may be repeated, the table says %s", code, row[2])
		}
	}
}
