// Package dev holds the verbs that run a cluster of their own on this machine: dev, to play with until
// Ctrl-C, and demo, the guided tour. Package bench takes its clusters from here, too.
package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/replay"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

const (
	formWithin = 30 * time.Second // a cluster on one machine has a leader
	stopWithin = 20 * time.Second // all its nodes have ended

	// restartAfter is how long a node that ended stays down: long enough to see the others take over.
	restartAfter = 5 * time.Second
)

// Options say how a cluster on this machine is started.
type Options struct {
	// nodes, each with a vote
	Voters             int
	DataDir            string // "" is a temporary one
	httpPort, raftPort int    // of the first node; 0 lets the kernel choose
	// publish a sample of events of every category
	samples   bool
	heartbeat time.Duration // 0 is the default
	Args      []string      // more of serve
}

// Command is the verb dev.
// The nodes are processes of this program with serve's own defaults, so what one tries here is what runs
// elsewhere.
func Command(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "dev", Usage: "run a local cluster to play with, until Ctrl-C",
		UsageText: shell.Examples("ringlog dev", "ringlog dev --voters 1 --data-dir ./kept --sample-events",
			"ringlog dev --incident incident.ringlog --until 4711"),
		Description: "To see a failover, kill a node by the PID that is printed: the others continue, and the node " +
			"starts\nagain after " + shell.Short(restartAfter) + ". Ctrl-C ends all nodes.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "voters", Usage: "start `N` nodes", Value: 3},
			// A named folder keeps the cluster for the next time.
			&cli.StringFlag{Name: "data-dir",
				Usage: "`DIR` to keep the data in (default: a temporary one, removed at the end)"},
			// The ports are those of the documentation, so its examples work.
			&cli.IntFlag{Name: "http-port",
				Usage: "HTTP `PORT` of the first node, counting up for the others; 0 takes free ports", Value: 8770},
			&cli.IntFlag{Name: "raft-port",
				Usage: "raft `PORT` of the first node, counting up for the others; 0 takes free ports", Value: 9770},
			&cli.StringFlag{Name: "incident",
				Usage: "open an incident `FILE` to be read, instead of a cluster; see ringlog incident"},
			&cli.Uint64Flag{Name: "until", Usage: "with --incident: stop at the event at `OFFSET`, and continue from there"},
			&cli.BoolFlag{Name: "sample-events", Usage: "publish a sample of events of every category"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			if file := c.String("incident"); file != "" {
				for _, name := range []string{"voters", "data-dir", "raft-port", "sample-events"} {
					if c.IsSet(name) {
						return shell.Usagef("--%s is for a cluster, and --incident opens one node that is only read", name)
					}
				}
				return replay.Dev(c.Context, sh, file, c.Uint64("until"), c.Int("http-port"))
			}
			if c.IsSet("until") {
				return shell.Usagef("--until needs --incident")
			}
			return dev(c.Context, sh, Options{Voters: c.Int("voters"), DataDir: c.String("data-dir"),
				httpPort: c.Int("http-port"), raftPort: c.Int("raft-port"), samples: c.Bool("sample-events")})
		}),
	}
}

// validate refuses ports that do not exist or overlap.
func (o Options) validate() error {
	// More voters than nine only make each commit slower.
	if o.Voters < 1 || o.Voters > 9 {
		return shell.Usagef("--voters %d: use 1 to 9", o.Voters)
	}
	// The last node's port has to exist, too.
	for _, p := range []struct {
		name string
		port int
	}{{"http-port", o.httpPort}, {"raft-port", o.raftPort}} {
		if p.port < 0 || p.port+o.Voters-1 > 65535 {
			return shell.Usagef("--%s %d: use 0 to %d", p.name, p.port, 65536-o.Voters)
		}
	}
	// Ports that the kernel chooses never overlap.
	if o.httpPort != 0 && o.raftPort != 0 && abs(o.httpPort-o.raftPort) < o.Voters {
		return shell.Usagef("--http-port %d and --raft-port %d overlap for %d voters", o.httpPort, o.raftPort, o.Voters)
	}
	return nil
}

// abs returns the distance from 0.
func abs(n int) int { return max(n, -n) }

// dev runs a cluster until ctx ends.
func dev(ctx context.Context, sh *shell.Shell, o Options) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	// The nodes run until cleanUp, also if what follows fails.
	cluster, cleanUp, err := Start(ctx, sh, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	// The next lines need a leader: they say who leads, and publish the samples.
	leader, err := WaitFormed(ctx, cluster)
	if err != nil {
		// Ctrl-C while the cluster forms is no failure.
		return quiet(ctx, err)
	}
	if o.samples {
		if err := publishSamples(ctx, sh, cluster); err != nil {
			return err
		}
	}
	if err := introduce(ctx, sh, cluster, leader); err != nil {
		return err
	}
	return keepRunning(ctx, sh, cluster)
}

// keepRunning restarts nodes that end, until ctx ends.
func keepRunning(ctx context.Context, sh *shell.Shell, cluster *devcluster.Cluster) error {
	// A node ends again only after its restart, so each has at most one place in the queue.
	// There is room for each, so a timer that fires after the end does not wait.
	due := make(chan string, len(cluster.Nodes()))
	for {
		select {
		case <-ctx.Done():
			sh.Say("stopping %s", shell.Count(len(cluster.Nodes()), "node"))
			return nil
		case exit := <-cluster.Exits():
			// It was killed, or it ended by itself; the notice says which.
			id := exit.Node.ID
			sh.Say("%v\n%s starts again in %s", exit, id, shell.Short(restartAfter))
			time.AfterFunc(restartAfter, func() { due <- id })
		case id := <-due:
			// A node that cannot be started ends the command, and cleanUp the others.
			if err := cluster.Restart(id); err != nil {
				return err
			}
			sh.Say("%s runs again, with the PID %d", id, cluster.PID(id))
		}
	}
}

// quiet returns nil if the user ended the command, else err.
func quiet(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

// Start starts the processes. cleanUp ends them and removes temporary data.
func Start(ctx context.Context, sh *shell.Shell, o Options) (
	cluster *devcluster.Cluster, cleanUp func() error, err error) {
	// Ports that are taken are reported before anything starts.
	httpPorts, raftPorts := countUp(o.httpPort, o.Voters), countUp(o.raftPort, o.Voters)
	if err := requireFree(append(httpPorts, raftPorts...), o); err != nil {
		return nil, nil, err
	}
	// The nodes are this very build.
	program, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	// A temporary folder is removed with the cluster; one that was named stays.
	dir, removeDir := o.DataDir, func() error { return nil }
	if dir == "" {
		dir, err = os.MkdirTemp("", "ringlog-dev-")
		if err != nil {
			return nil, nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		removeDir = func() error { return os.RemoveAll(dir) }
	}
	// The nodes get the token and what bench measures with.
	args := append(tokenArgs(sh), o.Args...)
	if o.heartbeat > 0 {
		args = append(args, "--heartbeat", o.heartbeat.String())
	}
	cluster, err = devcluster.Start(ctx,
		devcluster.Options{Program: program, Name: os.Args[0], Dir: dir, Voters: o.Voters,
			HTTPPorts: httpPorts, RaftPorts: raftPorts, Token: sh.Token, Args: args})
	if err != nil {
		return nil, nil, errors.Join(err, removeDir())
	}
	// ctx has ended by now in most cases, so stopping has a time of its own.
	return cluster, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		// The folder last: nodes write to it until they have ended.
		return errors.Join(cluster.Close(ctx), removeDir())
	}, nil
}

// tokenArgs passes the file of the cluster token to child processes; they inherit the
// variable.
func tokenArgs(sh *shell.Shell) []string {
	// Without a file the token is in the environment, if there is one.
	if sh.TokenFile == "" {
		return nil
	}
	return []string{"--token-file", sh.TokenFile}
}

// countUp lists n ports from the first on; none if the kernel is to choose.
func countUp(first, n int) []int {
	// The kernel chooses.
	if first == 0 {
		return nil
	}
	ports := make([]int, n)
	for i := range ports {
		ports[i] = first + i
	}
	return ports
}

// requireFree names ports that are taken, by whom, and suggests others.
func requireFree(ports []int, o Options) error {
	// All busy ports are named at once, not only the first.
	var busy []string
	for _, p := range ports {
		if addr := "127.0.0.1:" + strconv.Itoa(p); isBusy(addr) {
			busy = append(busy, fmt.Sprintf("%d is in use%s", p, shell.PortHolder(addr)))
		}
	}
	// All are free, or are chosen by the kernel.
	if len(busy) == 0 {
		return nil
	}
	return fmt.Errorf("port %s\n%s", strings.Join(busy, ", port "), freeInstead(o))
}

// isBusy reports an address that somebody listens on.
func isBusy(addr string) bool {
	// To listen for a moment is the only way to know.
	l, err := net.Listen("tcp", addr)
	if err != nil {
		// Any other error, such as a port that needs privileges, is left to the node: its log has the reason.
		return errors.Is(err, syscall.EADDRINUSE)
	}
	l.Close()
	return false
}

// freeInstead suggests a range of free ports, for which it tries in steps of ten, and how clients reach them.
func freeInstead(o Options) string {
	// A range counts only if every port of both is free.
	// Ports are tried, not reserved: another process may take one meanwhile, which is then reported by the next start.
	// Who has the kernel choose HTTP ports can have it choose all.
	for step := 10; step <= 500 && o.httpPort > 0; step += 10 {
		raftPort := o.raftPort
		if raftPort > 0 { // else the kernel chooses
			raftPort += step
		}
		httpPorts, raftPorts := countUp(o.httpPort+step, o.Voters), countUp(raftPort, o.Voters)
		free := true
		for _, p := range append(httpPorts, raftPorts...) {
			free = free && p <= 65535 && !isBusy("127.0.0.1:"+strconv.Itoa(p))
		}
		if free {
			var urls []string
			for _, p := range httpPorts {
				urls = append(urls, "http://127.0.0.1:"+strconv.Itoa(p))
			}
			return fmt.Sprintf("try: ringlog dev --http-port %d --raft-port %d\nclients then need: %s", o.httpPort+step,
				raftPort, exportEndpoints(urls))
		}
	}
	return "try: ringlog dev --http-port 0 --raft-port 0\nclients then need the export line that it prints"
}

// WaitFormed waits until a cluster that has just started has a leader.
func WaitFormed(ctx context.Context, cluster *devcluster.Cluster) (devcluster.Status, error) {
	// The nodes find each other, and elect a leader.
	ctx, cancel := context.WithTimeout(ctx, formWithin)
	defer cancel()
	return cluster.WaitLeader(ctx)
}

// devNode is a row of what dev prints.
// It is a line with -o json, for scripts that start a cluster.
type devNode struct {
	devcluster.Node
	PID  int    `json:"pid"`
	Role string `json:"role"`
}

// introduce prints the nodes and what to try.
func introduce(ctx context.Context, sh *shell.Shell, cluster *devcluster.Cluster, leader devcluster.Status) error {
	var list []devNode
	// A node that does not answer yet is shown all the same.
	for _, n := range cluster.Nodes() {
		role := "follower"
		if s, err := cluster.Status(ctx, n); err == nil {
			role = s.Role
		} else if n.ID == leader.NodeID {
			role = "leader"
		}
		list = append(list, devNode{Node: n, PID: cluster.PID(n.ID), Role: role})
	}
	err := shell.EmitEach(sh, "node", list, table.Row{"id", "pid", "http", "raft", "role"}, func(n devNode) table.Row {
		return table.Row{n.ID, n.PID, n.URL(), n.Raft, n.Role}
	})
	if err != nil {
		return err
	}
	exports, err := exportLines(sh, cluster.URLs())
	if err != nil {
		return err
	}
	// The lines to paste are output as the table is; standard output in JSON has nothing but objects.
	pasted := sh.Out
	if sh.JSON {
		pasted = sh.Err
	}
	if _, err := fmt.Fprintf(pasted, "\nIn another terminal:\n%s\n", exports); err != nil {
		return err
	}
	// The lines are printed with the name by which this program was started, so they can be pasted.
	sh.Say("%s\nconsole: %s/ui/\nlogs: %s\nCtrl-C ends it", strings.ReplaceAll(thingsToTry, "ringlog ", programName()+" "),
		list[0].URL(), filepath.Dir(list[0].Log))
	return nil
}

// exportLines are what another terminal has to export to reach the cluster.
func exportLines(sh *shell.Shell, urls []string) (string, error) {
	// With all nodes as endpoints each command works whichever node leads, or is killed.
	lines := "  " + exportEndpoints(urls)
	switch {
	case sh.TokenFile != "":
		// The other terminal may be in another folder.
		file, err := filepath.Abs(sh.TokenFile)
		if err != nil {
			return "", err
		}
		lines += "\n  export " + shell.TokenFileVariable + "=" + file
	case sh.Token != "": // a secret is not printed
		lines += "\n  # and " + shell.TokenVariable + ", as it is set here"
	}
	return lines, nil
}

// exportEndpoints is the line of a shell that names the nodes to all commands after it.
func exportEndpoints(urls []string) string {
	return "export RINGLOG_ENDPOINTS=" + strings.Join(urls, ",")
}

// thingsToTry shows what a group, dead letters and the log's own records are good for. Each indented line can be
// pasted as it is, in this order: the second react succeeds after the first one has failed.
const thingsToTry = `Share events among the members of a group, and fail on them:
  ringlog group create evaluators --from end --type 'training.*' --max-deliver 1
  o=$(ringlog publish TRAINING_STARTED --key hex8_2p --correlation-id run-42)
  ringlog publish TRAINING_COMPLETED --key hex8_2p --correlation-id run-42
  ringlog react --group evaluators --until-end --retries 0 -- false
  ringlog dlq errors
Ask why an event was not handled, and deliver it again:
  ringlog explain --cursor evaluators --offset $o
  ringlog dlq redrive --all
  ringlog react --group evaluators --until-end -- cat
See a whole run, a change of leaders, and what the cluster recorded of it:
  ringlog chain run-42
  ringlog cluster step-down
  ringlog cluster history`

// programName returns how this program is typed: its name if the shell finds it by that, else as it was typed now.
func programName() string {
	const name = "ringlog"
	found, err := exec.LookPath(name)
	if err != nil {
		// The shell does not find it: it was typed with a path.
		return os.Args[0]
	}
	self, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	a, errA := os.Stat(found)
	b, errB := os.Stat(self)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		// The shell finds another program of that name.
		return os.Args[0]
	}
	return name
}
