package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Of the role that candidates run a command under.
const (
	runRole = "PROMOTION_LEADER"
	runTTL  = 2 * time.Second
	runStep = "RUN_STEP" // what the command publishes under the fence, as fast as it can
)

// runScript is the command of a candidate. It ignores SIGTERM, so only SIGKILL ends it. It notes its fence and process
// id, and then the fence of each refusal by the log.
const runScript = `trap '' TERM
echo "$RINGLOG_FENCE $$" >>"$2.started"
while :; do
  "$1" publish ` + runStep + ` --no-dedup --source "$2" --payload "{\"fence\": $RINGLOG_FENCE}" \
    --role "$RINGLOG_ROLE" --fence "$RINGLOG_FENCE" >/dev/null
  test $? -ne 6 || echo "$RINGLOG_FENCE" >>"$2.refused"
done
`

// candidate is a process of ringlog run.
type candidate struct {
	c    *cluster
	name string // also the source of its command's events
	file string // beside it are the notes of the command
	cmd  *exec.Cmd

	script string   // the command
	ttl    string   // of the lease
	within []string // a command that the command line is passed to, if any
}

// candidate returns one that is not started.
func (c *cluster) candidate(name string) *candidate {
	return &candidate{c: c, name: name, file: filepath.Join(c.t.TempDir(), name), script: runScript, ttl: runTTL.String()}
}

// end kills what is left of it, and shows what it has printed if the test has failed.
func (r *candidate) end() {
	if r.cmd != nil && r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
	// What a command has started outlives a run that was killed.
	for _, note := range r.notes("started") {
		_, text, _ := strings.Cut(note, " ")
		if pid, err := strconv.Atoi(text); err == nil && pid > 1 {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
	if r.c.t.Failed() {
		log, _ := os.ReadFile(r.file + ".log")
		r.c.t.Logf("%s printed:\n%s", r.name, log)
	}
}

// start starts it, and waits until it holds the role or waits for it.
func (r *candidate) start() {
	r.c.t.Helper()
	out, err := os.OpenFile(r.file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		r.c.t.Fatal(err)
	}
	defer out.Close()
	args := append(slices.Clone(r.within), binary, "run", "--role", runRole, "--ttl", r.ttl, "--stop-timeout", "300ms",
		"--", "sh", "-c", r.script, "sh", binary, r.file)
	r.cmd = exec.Command(args[0], args[1:]...)
	r.cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(r.c.endpoints(), ","))
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		r.c.t.Fatal(err)
	}
	holder := fmt.Sprintf(":%d", r.cmd.Process.Pid)
	r.c.eventually(30*time.Second, r.name+" in the queue", func() error {
		role, err := r.c.role()
		claims := []string{role.Holder}
		for _, w := range role.Queue {
			claims = append(claims, w.Holder)
		}
		if err == nil && !slices.ContainsFunc(claims, func(h string) bool { return strings.HasSuffix(h, holder) }) {
			err = fmt.Errorf("there are %v, and no %s", claims, holder)
		}
		return err
	})
}

// role returns who holds the role.
func (c *cluster) role() (role client.RoleInfo, err error) {
	out, err := c.run("role", "info", runRole, "-o", "json")
	if err != nil {
		return role, fmt.Errorf("%w: %s", err, out)
	}
	return role, json.Unmarshal([]byte(out), &role)
}

// notes returns the lines that the command has noted in a file.
func (r *candidate) notes(kind string) []string {
	text, err := os.ReadFile(r.file + "." + kind)
	if err != nil && !os.IsNotExist(err) {
		r.c.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// awaitEnd waits until a command of r has ended.
func (r *candidate) awaitEnd(pid string) {
	r.c.t.Helper()
	r.c.eventually(30*time.Second, "end of a command of "+r.name, func() error {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			return fmt.Errorf("%s still runs", pid)
		}
		return nil
	})
}

// awaitStep waits for a command to publish under a later fence than before, and logs how long that took. With r it is
// that of r, and otherwise any that publishes from now on.
func (c *cluster) awaitStep(cl *client.Client, what string, r *candidate, before uint64) (fence uint64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	o := client.TailOptions{From: client.FromEnd(), Filter: event.Filter{Types: []string{runStep}}}
	if r != nil {
		o.From, o.Filter.Sources = client.FromOffset(before+1), []string{r.file}
	}
	for ev, err := range cl.Tail(ctx, o) {
		if err != nil {
			c.t.Fatalf("%s: %v", what, err)
		}
		if fence := fenceIn(c.t, &ev); fence > before {
			c.t.Logf("%s: %s until a step under fence %d", what, time.Since(began).Round(time.Millisecond), fence)
			return fence
		}
	}
	c.t.Fatalf("%s: the log has ended", what)
	return 0
}

// fenceIn returns the fence in the payload of an event.
func fenceIn(t testing.TB, ev *event.Event) uint64 {
	t.Helper()
	var payload struct {
		Fence uint64 `json:"fence"`
	}
	if err := json.Unmarshal(ev.Payload, &payload); err != nil || payload.Fence == 0 {
		t.Fatalf("%s at %d has no fence: %s, %v", ev.Type, ev.Offset, ev.Payload, err)
	}
	return payload.Fence
}

// Three candidates run a command under one role. Whatever happens to them, the log has what the command of the holder
// publishes, and of no other. The next in the queue replaces a holder that was killed, or paused beyond its lease.
func TestACommandRunsOnOneHostAtATime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	cl := c.client()
	one, two, three := c.candidate("one"), c.candidate("two"), c.candidate("three")
	all := []*candidate{one, two, three}
	for _, r := range all {
		t.Cleanup(r.end)
		r.start()
	}
	fence := c.awaitStep(cl, "the first holder", one, 0)

	// The holder is killed: its command ends with it.
	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = one.cmd.Wait()
	fence = c.awaitStep(cl, "the holder was killed", two, fence)
	one.start()

	// The holder is paused beyond its lease. Its command is not, and the log refuses what it publishes.
	paused := fence
	if err := two.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	fence = c.awaitStep(cl, "the holder was paused", three, fence)
	c.eventually(30*time.Second, "refusal of the command of the paused holder", func() error {
		if refused := two.notes("refused"); !slices.Contains(refused, fmt.Sprint(paused)) {
			return fmt.Errorf("refused were %v", refused)
		}
		return nil
	})

	// It continues, and kills its command at once.
	if err := two.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_, pid, _ := strings.Cut(two.notes("started")[0], " ")
	two.awaitEnd(pid)

	// The leader is killed. Whether or not the holder can renew in time, a command publishes afterwards.
	leader := c.leader()
	leader.kill()
	c.awaitStep(cl, "the leader was killed", nil, 0)
	leader.start()

	// All nodes are killed: the holder ends its command by itself, and another lease begins once there is a quorum.
	role, err := c.role()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.nodes {
		p.kill()
	}
	began := time.Now()
	for _, r := range all {
		for _, note := range r.notes("started") {
			if held, pid, _ := strings.Cut(note, " "); held == fmt.Sprint(role.Fence) {
				r.awaitEnd(pid)
			}
		}
	}
	t.Logf("the cluster was killed: %s until the command had ended", time.Since(began).Round(time.Millisecond))
	for _, p := range c.nodes {
		p.start()
	}
	c.awaitStep(cl, "the cluster was restarted", nil, role.Fence)

	// All stop and release the role, in whichever order they held it.
	for _, r := range all {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
	if role, err := c.role(); err != nil || role.Holder != "" || role.Waiting > 0 {
		t.Errorf("afterwards %+v, %v", role, err)
	}
	checkFences(t, cl, fence)
}

// checkFences reads the log: fences rise, and what was published under one lies between its ROLE_ACQUIRED and its end,
// from one source. last is a fence that must be in it.
func checkFences(t *testing.T, cl *client.Client, last uint64) {
	t.Helper()
	held, highest, ended := uint64(0), uint64(0), time.Time{}
	steps, ends := map[uint64]int{}, map[uint64]event.Type{}
	sources := map[uint64]string{}
	o := client.TailOptions{From: client.FromStart(), NoFollow: true, Consistency: client.Linearizable}
	for ev, err := range cl.Tail(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case ev.Type == event.RoleAcquired:
			if held != 0 || ev.Offset <= highest || fenceIn(t, &ev) != ev.Offset {
				t.Fatalf("%s at %d, while %d holds the role and %d is the highest fence", ev.Payload, ev.Offset, held, highest)
			}
			held, highest = ev.Offset, ev.Offset
		case ev.Type == event.RoleLost || ev.Type == event.RoleReleased:
			if fence := fenceIn(t, &ev); fence != held {
				t.Fatalf("%s at %d ends the lease %d, and %d holds the role", ev.Type, ev.Offset, fence, held)
			}
			ends[held] = ev.Type
			held, ended = 0, ev.AppendedAt
		case ev.Type == runStep:
			fence := fenceIn(t, &ev)
			if fence != held || (sources[fence] != "" && sources[fence] != ev.Source) {
				t.Fatalf("a step of %s under %d at %d, while %d holds the role for %s", ev.Source, fence, ev.Offset, held,
					sources[fence])
			}
			steps[fence]++
			sources[fence] = ev.Source
		case ev.Type == event.DaemonStarted || ev.Type == event.DaemonStopped || ev.Type == event.DaemonStatusChanged:
			if fence := fenceIn(t, &ev); fence != held {
				t.Fatalf("%s of %d at %d, while %d holds the role", ev.Type, fence, ev.Offset, held)
			}
		}
	}
	if held != 0 || ended.IsZero() || steps[last] == 0 || len(steps) < 2 {
		t.Errorf("%d holds the role, and fences published %v", held, steps)
	}
	t.Logf("fences published %v and ended as %v", steps, ends)
}
