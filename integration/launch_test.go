package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// Coordinators of TestCoordinatorsAreLaunchedInLayers that do not come up.
const (
	failingCoordinator = "cache_orchestrator" // of layer 1
	hangingCoordinator = "ephemeral_guard"    // of layer 4
)

// launchedRow is what the launcher prints of a daemon.
type launchedRow struct {
	Name  string `json:"name"`
	Layer int    `json:"layer"`
	State string `json:"state"`
}

// launched is a launcher of the platform's coordinators, which are programs in Python.
type launched struct {
	c     *cluster
	file  string
	notes string
	cmd   *exec.Cmd
	rows  []launchedRow // that it has printed, complete once it has ended
	ended chan error
}

// launchCoordinators starts the file that ringlog launch prints, with one that fails and one that hangs.
func (c *cluster) launchCoordinators() *launched {
	c.t.Helper()
	dir := c.t.TempDir()
	l := &launched{c: c, file: filepath.Join(dir, "coordinators.toml"), notes: filepath.Join(dir, "notes"),
		ended: make(chan error, 1)}
	text := c.mustRun("launch", "--print-coordinators")
	for old, replacement := range map[string]string{
		`"coordinator.py"`:                      fmt.Sprintf("%q", absolute(c.t, "testdata/coordinator.py")),
		"[daemon." + failingCoordinator + "]\n": "$0max_restarts = 1\nbackoff = \"10ms\"\n",
		"[daemon." + hangingCoordinator + "]\n": "$0max_restarts = 1\nbackoff = \"10ms\"\nready_timeout = \"1s\"\n",
	} {
		if strings.Count(text, old) != 1 {
			c.t.Fatalf("%q is not once in\n%s", old, text)
		}
		text = strings.Replace(text, old, strings.Replace(replacement, "$0", old, 1), 1)
	}
	if err := os.WriteFile(l.file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	l.cmd = l.command(binary, "launch", l.file, "--json")
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var row launchedRow
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
				c.t.Errorf("%s: %v", lines.Text(), err)
			}
			l.rows = append(l.rows, row)
		}
		l.ended <- l.cmd.Wait()
	}()
	c.t.Cleanup(func() { _ = l.cmd.Process.Kill() }) // and its daemons with it
	return l
}

// command returns one with the environment of the coordinators.
func (l *launched) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(l.c.endpoints(), ","),
		"PYTHONPATH="+absolute(l.c.t, "../python"), "PYTHONDONTWRITEBYTECODE=1",
		"NOTES="+l.notes, "FAILS="+failingCoordinator, "HANGS="+hangingCoordinator)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// status returns the states of the daemons, and the notices beside them.
func (l *launched) status() (states map[string]string, notices string, err error) {
	cmd := l.command(binary, "launch", l.file, "--status", "--json")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if _, exited := err.(*exec.ExitError); err != nil && !exited { // it fails while a daemon has
		return nil, "", err
	}
	var answer struct {
		Daemons []launchedRow `json:"daemons"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, "", fmt.Errorf("%w: %s%s", err, out, errors.String())
	}
	states = map[string]string{}
	for _, row := range answer.Daemons {
		states[row.Name] = row.State
	}
	return states, errors.String(), nil
}

// The platform's coordinators start layer by layer, although one of them fails for good and one never becomes ready.
// The audit shows the others wired, and none of the two. They stop in the reverse order.
func TestCoordinatorsAreLaunchedInLayers(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("half a minute of many processes")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	c := newCluster(t, t.TempDir(), 1).startAll()
	list := event.Builtin().Coordinators()
	began := time.Now()
	l := c.launchCoordinators()
	wanted := map[string]string{}
	for _, one := range list {
		wanted[one.Name] = "ready"
	}
	wanted[failingCoordinator], wanted[hangingCoordinator] = "failed for good", "failed for good"
	c.eventually(3*time.Minute, "start of all coordinators", func() error {
		states, _, err := l.status()
		for name, want := range wanted {
			if err == nil && states[name] != want {
				err = fmt.Errorf("%s is %q, and not %q", name, states[name], want)
			}
		}
		return err
	})
	t.Logf("%d coordinators in %s", len(list), time.Since(began).Round(time.Millisecond))

	// What runs is wired, and nothing else is.
	var report struct {
		Components []struct {
			Name  string `json:"name"`
			Named int    `json:"named"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(c.mustRun("audit", "--live", "--json")), &report); err != nil {
		t.Fatal(err)
	}
	wired := map[string]bool{}
	for _, component := range report.Components {
		wired[component.Name] = component.Named > 0
	}
	for name, state := range wanted {
		if wired[name] != (state == "ready") {
			t.Errorf("%s is %s, and wired is %v", name, state, wired[name])
		}
	}
	if _, notices, _ := l.status(); strings.Contains(notices, "warning:") {
		t.Errorf("what is wired is warned about: %s", notices)
	}

	// One that somebody else has started is warned about.
	other := l.command("python3", absolute(t, "testdata/coordinator.py"), failingCoordinator)
	other.Env = append(other.Env, "FAILS=")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	c.eventually(30*time.Second, "warning", func() error {
		_, notices, err := l.status()
		want := fmt.Sprintf("warning: the process %d of this host is registered as the coordinator %s, and this launcher "+
			"has not started it", other.Process.Pid, failingCoordinator)
		if err == nil && !strings.Contains(notices, want) {
			err = fmt.Errorf("the notices are %s", notices)
		}
		return err
	})
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()

	if err := l.command(binary, "launch", l.file, "--stop").Run(); err != nil {
		t.Fatal(err)
	}
	if err := <-l.ended; err != nil {
		t.Errorf("the launcher: %v", err)
	}
	l.checkOrder(wanted)
}

// checkOrder checks that no coordinator started before all of lower layers had settled, and that none ended before
// all of higher layers had.
func (l *launched) checkOrder(wanted map[string]string) {
	l.c.t.Helper()
	layers := map[string]int{}
	for _, one := range event.Builtin().Coordinators() {
		layers[one.Name] = one.Layer
	}
	settled := map[string]bool{}
	for _, row := range l.rows {
		if row.State == wanted[row.Name] {
			settled[row.Name] = true
		}
		if row.State != "starting" {
			continue
		}
		for name, layer := range layers {
			if layer < row.Layer && !settled[name] {
				l.c.t.Errorf("%s of layer %d starts before %s of layer %d has settled", row.Name, row.Layer, name, layer)
			}
		}
	}
	text, err := os.ReadFile(l.notes)
	if err != nil {
		l.c.t.Fatal(err)
	}
	var ends []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "end "); ok {
			ends = append(ends, name)
		}
	}
	downwards := func(a, b string) int { return layers[b] - layers[a] }
	if !slices.IsSortedFunc(ends, downwards) || len(ends) != len(wanted)-2 {
		l.c.t.Errorf("%d ended, not from the highest layer downwards: %v", len(ends), ends)
	}
}
