package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
)

// quickExit keeps the race detector from sleeping for a second at each program's end.
const quickExit = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	// Scripts wait most of their time: more of them run beside each other than there are processors.
	if err := errors.Join(os.Setenv("GORACE", quickExit), flag.Set("test.parallel", "4")); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"ringlog": main})
}

// scriptWithin bounds every wait of a script.
const scriptWithin = time.Minute

// TestScripts runs the program as people do. Scripts share one cluster, where they
// keep to names of their own; one that kills or changes nodes starts its own with
// the cluster command.
func TestScripts(t *testing.T) {
	t.Parallel()
	shared := startCluster(t.Context(), t, t.TempDir())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
		defer cancel()
		if err := shared.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	leader, err := shared.WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deadline, _ := t.Deadline() // none is the zero time
	testscript.Run(t, testscript.Params{
		Dir:             "testdata/script",
		ContinueOnError: true,
		Deadline:        deadline,
		Setup: func(env *testscript.Env) error {
			env.Setenv("RINGLOG_ENDPOINTS", endpoints(shared, leader.NodeID))
			env.Setenv("TMPDIR", env.WorkDir)
			env.Setenv("GORACE", quickExit)
			env.Values[clusterKey{}] = new(*devcluster.Cluster)
			env.Values[screenKey{}] = new(*tmux)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "cluster": clusterInScript, "freeport": freePort, "setfrom": setFrom, "flip": flip,
			"post": post, "oldrows": oldRows, "hook": hook, "terminal": terminal, "screen": screen,
		},
	})
}

// endpoints are all nodes, the leader first: what a script has just written it
// can read there at once.
func endpoints(c *devcluster.Cluster, leader string) string {
	var front, others []string
	for _, n := range c.Nodes() {
		if n.ID == leader {
			front = append(front, n.URL())
		} else {
			others = append(others, n.URL())
		}
	}
	return strings.Join(append(front, others...), ",")
}

// fataler is a test or a script.
type fataler interface{ Fatalf(string, ...any) }

func startCluster(ctx context.Context, t fataler, dir string, args ...string) *devcluster.Cluster {
	program, err := exec.LookPath("ringlog")
	if err != nil {
		t.Fatalf("find ringlog: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, scriptWithin)
	defer cancel()
	args = append([]string{"--heartbeat", "400ms"}, args...)
	c, err := devcluster.Start(ctx, devcluster.Options{Program: program, Dir: dir, Args: args})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	if _, err := c.WaitLeader(ctx); err != nil {
		for _, n := range c.Nodes() {
			err = errors.Join(err, errors.New(n.LogTail(20)))
		}
		t.Fatalf("%v", errors.Join(err, c.Close(ctx)))
	}
	return c
}

// exits: exits CODE program args... runs it and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
}

// await: await PATTERN program args... runs it until its output matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN program args...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(scriptWithin)
	for {
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout")
		if err == nil && pattern.MatchString(out) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%q did not come: %v", args[0], err)
		}
	}
}

type clusterKey struct{}

// clusterInScript: cluster start [serve arguments] | stop ID | kill ID | restart ID | settle.
// start makes the script's own cluster, to which it sets RINGLOG_ENDPOINTS and, for each node,
// n1_URL, n1_RAFT and n1_DIR. settle waits for a leader and sets LEADER and FOLLOWER.
func clusterInScript(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: cluster start|stop|kill|restart|settle")
	}
	ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
	defer cancel()
	if args[0] == "start" {
		startInScript(ctx, ts, args[1:])
		return
	}
	c, ok := ts.Value(clusterKey{}).(**devcluster.Cluster)
	if !ok || *c == nil {
		ts.Fatalf("the script has no cluster of its own")
	}
	switch args[0] {
	case "stop":
		ts.Check((*c).Stop(ctx, args[1]))
	case "kill":
		ts.Check((*c).Kill(args[1]))
	case "restart":
		ts.Check((*c).Restart(args[1]))
	case "settle":
		settleInScript(ctx, ts, *c)
	default:
		ts.Fatalf("unknown: cluster %s", args[0])
	}
}

func startInScript(ctx context.Context, ts *testscript.TestScript, args []string) {
	c := startCluster(ctx, ts, ts.MkAbs("cluster"), args...)
	ts.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
		defer cancel()
		ts.Check(c.Close(ctx))
	})
	for _, n := range c.Nodes() {
		ts.Setenv(n.ID+"_URL", n.URL())
		ts.Setenv(n.ID+"_RAFT", n.Raft)
		ts.Setenv(n.ID+"_DIR", n.Dir)
	}
	holder, ok := ts.Value(clusterKey{}).(**devcluster.Cluster)
	if !ok {
		ts.Fatalf("no place for a cluster")
	}
	*holder = c
	settleInScript(ctx, ts, c)
}

func settleInScript(ctx context.Context, ts *testscript.TestScript, c *devcluster.Cluster) {
	leader, err := c.WaitLeader(ctx)
	ts.Check(err)
	ts.Setenv("LEADER", leader.NodeID)
	ts.Setenv("RINGLOG_ENDPOINTS", endpoints(c, leader.NodeID))
	for _, n := range c.Nodes() {
		if n.ID != leader.NodeID && c.PID(n.ID) != 0 {
			ts.Setenv("FOLLOWER", n.ID)
			ts.Setenv("FOLLOWER_DIR", n.Dir)
			ts.Setenv("FOLLOWER_URL", n.URL())
		}
	}
	_, err = c.WaitEqual(ctx, leader.AppliedIndex)
	ts.Check(err)
}

// freePort: freeport NAME... sets each variable to a port that is free now.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	ports, err := devcluster.FreePorts(len(args))
	ts.Check(err)
	for i, name := range args {
		ts.Setenv(name, strconv.Itoa(ports[i]))
	}
}

// setFrom: setfrom NAME PATTERN sets a variable to the first group in the last stdout.
func setFrom(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("%q is not in the output", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// flip: flip FILE OFFSET flips one bit of a file.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	raw, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	raw[at] ^= 4
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), raw, 0o600))
}

// TestDevEndsItsNodes: the processes die with their parent, even when it is killed.
func TestDevEndsItsNodes(t *testing.T) {
	program, err := exec.LookPath("ringlog")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"--http-port", "0", "--raft-port", "0", "--voters", "1", "--data-dir", dir, "-o", "json"}
	cmd := exec.Command(program, append([]string{"dev"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"pid":(\d+)`).FindSubmatch(line[:n])
	if m == nil {
		t.Fatalf("no pid in %s", line[:n])
	}
	pid, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	deadline := time.Now().Add(scriptWithin)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !gone(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlived its parent", pid)
		}
		<-tick.C
	}
	if _, err := os.Stat(filepath.Join(dir, "n1", "node.json")); err != nil {
		t.Errorf("a data folder that was asked for is gone: %v", err)
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
