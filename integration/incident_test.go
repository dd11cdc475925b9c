package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/longtest"
)

// moment is what a node said of its state at one index.
type moment struct {
	index, offset uint64
	digest        string
	cursors       map[string]uint64 // what each has committed
	holdEvents    string            // a setting
}

// ask gets a route of a node.
func ask(url string, out any) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// momentOf records the state of a node, all of one index.
func momentOf(url string) (m moment, err error) {
	var before, after api.Status
	var cursors api.CursorPage
	var setting api.Setting
	err = errors.Join(ask(url+"/status", &before), ask(url+"/v1/cursors?limit=1000", &cursors),
		ask(url+"/v1/settings/cursor.hold_events", &setting), ask(url+"/status", &after))
	if err == nil && before.Digest != after.Digest {
		err = errors.New("the state has moved on")
	}
	m = moment{before.Digest.Index, before.LastOffset, before.Digest.Hex, map[string]uint64{}, setting.Value}
	for _, c := range cursors.Cursors {
		m.cursors[c.Name] = c.Committed
	}
	return m, err
}

// An incident in which the leader is killed is exported from a survivor, opened elsewhere, and gone through: at ten
// moments the state is what a node said of its own then. A handler runs against it.
func TestAnIncidentIsReplayedElsewhere(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("half a minute of many processes")
	}
	c := newCluster(t, t.TempDir(), 3,
		"--raft-compact-interval", "1s", "--raft-compact-entries", "60", "--raft-trailing-entries", "120").startAll()
	number := 0
	publish := func() {
		t.Helper()
		number++
		c.mustRun("publish", "TRAINING_COMPLETED", "--payload", fmt.Sprintf(`{"n": %d}`, number))
	}
	// The beginning of the log is gone from raft's log: what is exported begins with a checkpoint.
	c.write(newLedger(), 3000)
	c.eventually(2*time.Minute, "a checkpoint of each node's history", func() error {
		if publish(); number < 200 {
			return fmt.Errorf("%d entries are not enough", number)
		}
		for _, p := range c.nodes {
			if kept, err := os.ReadDir(filepath.Join(p.dir, "history")); err != nil || len(kept) == 0 {
				return fmt.Errorf("%s has none: %w", p.id, err)
			}
		}
		return nil
	})
	begin := number + 1
	var moments []moment
	for i := range 10 {
		publish()
		c.mustRun("cursor", "create", fmt.Sprintf("c%d", i), "--from", "start")
		c.mustRun("settings", "set", "cursor.hold_events", fmt.Sprint(1000+i))
		c.mustRun("tail", "--cursor", fmt.Sprintf("c%d", i), "-n", fmt.Sprint(i+1))
		c.eventually(time.Minute, "a moment in which the state rests", func() error {
			m, err := momentOf(c.leader().url())
			if err == nil {
				moments = append(moments, m)
			}
			return err
		})
		if i == 4 {
			c.leader().kill()
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "incident.ringlog")
	out := c.mustRun("incident", "export", file, "-o", "json")
	var meta struct {
		Index uint64 `json:"index"`
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &meta); err != nil || meta.Index == 0 {
		t.Fatalf("%v: it begins with the entry %d: %s", err, meta.Index, out)
	}

	// Elsewhere: nothing of the cluster is there any more.
	c.close()
	past := openPast(t, file, moments[0].offset)
	for i, want := range moments {
		// Cursors move in entries without an event: one continues by offset, and then by entry.
		if err := postStep(past, fmt.Sprintf(`{"until":%d}`, want.offset)); err != nil {
			t.Fatal(err)
		}
		var got moment
		for got.index < want.index {
			m, err := momentOf(past)
			if err != nil {
				t.Fatal(err)
			}
			if got = m; got.index < want.index {
				if err := postStep(past, `{}`); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(moment{})); d != "" {
			t.Errorf("moment %d: %s", i, d)
		}
		// The same by the command.
		var state struct {
			Digest  string       `json:"digest"`
			Cursors []api.Cursor `json:"cursors"`
		}
		text, err := exec.Command(binary, "state", "--index", fmt.Sprint(want.index), "--incident", file,
			"-o", "json").Output()
		if err = errors.Join(err, json.Unmarshal(text, &state)); err != nil {
			t.Fatal(err)
		}
		if state.Digest != want.digest || len(state.Cursors) != len(want.cursors) {
			t.Errorf("state --index %d has the digest %s and %d cursors, want %s and %d", want.index, state.Digest,
				len(state.Cursors), want.digest, len(want.cursors))
		}
	}
	handled, err := exec.Command(binary, "react", "--incident", file, "--type", "TRAINING_COMPLETED", "--retries", "0",
		"--where", fmt.Sprintf("payload.n >= %d", begin), "--", "cat").CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^handled +10$`).Match(handled) {
		t.Errorf("%v: %s", err, handled)
	}
}

// openPast opens an incident at an offset, and returns where it answers.
func openPast(t *testing.T, file string, until uint64) string {
	t.Helper()
	cmd := exec.Command(binary, "dev", "--incident", file, "--until", fmt.Sprint(until), "--http-port", "0")
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "RINGLOG_ENDPOINTS="); found {
			return url
		}
	}
	t.Fatal("it does not say where it answers")
	return ""
}

func postStep(url, body string) error {
	resp, err := http.Post(url+"/v1/incident/step", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("step %s: %s: %s", body, resp.Status, text)
	}
	return nil
}
