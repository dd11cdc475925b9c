package procgroup_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/procgroup"
)

// start runs a script that prints its own process id and those of its children, in any order.
func start(t *testing.T, script string, pids int) (*procgroup.Group, []int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = w
	g, err := procgroup.Start(cmd, true)
	w.Close() // the command has its own
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for lines := bufio.NewScanner(r); len(list) < pids && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // where the test fails
	}
	if len(list) != pids || !slices.Contains(list, g.PID()) {
		t.Fatalf("the processes %v, and the command is %d", list, g.PID())
	}
	return g, list
}

// ended fails the test unless all processes end soon.
func ended(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, pid := range pids {
		for !gone(pid) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%d of %v still runs", pid, pids)
			}
		}
	}
}

// gone reports a process that has ended; one that nobody has waited for counts.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// within fails the test if f takes long.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal(what + " does not return")
	}
}

// Stop ends a command that ends on SIGTERM by that, and one that does not by SIGKILL, with all that each has started.
func TestStopEndsTheGroup(t *testing.T) {
	const ignoring = `sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & `
	for name, c := range map[string]struct {
		script string
		pids   int
		signal syscall.Signal
		graced bool // SIGKILL is due at once
	}{
		"on SIGTERM":              {`sleep 600 & echo $!; echo $$; wait`, 2, syscall.SIGTERM, false},
		"a child ignores SIGTERM": {ignoring + `echo $$; wait`, 2, syscall.SIGTERM, false},
		"ignoring SIGTERM":        {`trap "" TERM; echo $$; while :; do sleep 1; done`, 1, syscall.SIGKILL, true},
		"with its child":          {`trap "" TERM; ` + ignoring + `echo $$; wait`, 2, syscall.SIGKILL, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, pids := start(t, c.script, c.pids)
			grace, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.graced {
				cancel()
			}
			within(t, "Stop", func() { g.Stop(grace) })
			ended(t, pids)
			exit, ok := g.Wait().(*exec.ExitError)
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != c.signal {
				t.Errorf("it ended with %v, and not by %v", g.Wait(), c.signal)
			}
		})
	}
}

// Kill ends what a command that has ended has left in the background.
func TestKillEndsWhatIsLeft(t *testing.T) {
	g, pids := start(t, `sleep 600 & echo $!; echo $$`, 2)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	// The script prints the child first.
	if gone(pids[0]) {
		t.Error("what it has left ended by itself")
	}
	within(t, "Kill", g.Kill)
	ended(t, pids)
}

// A command that cannot be started, or found, is an error that names why.
func TestACommandThatCannotBeStarted(t *testing.T) {
	if _, err := procgroup.Start(exec.Command(t.TempDir()), false); err == nil {
		t.Error("a folder was started")
	}
	const want = `the command "no-such-command-here" cannot be run: executable file not found in $PATH`
	if _, err := procgroup.Find("no-such-command-here"); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
