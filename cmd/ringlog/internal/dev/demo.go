package dev

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// demoWithin bounds one step of the tour.
const demoWithin = 15 * time.Second

// DemoCommand is the verb demo. compare says in what the nodes at some URLs are alike, or not.
// The comparison is passed in: it is that of verify, which is a verb of the main package.
func DemoCommand(sh *shell.Shell,
	compare func(ctx context.Context, sh *shell.Shell, urls []string) []shell.Finding) *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "take the guided tour: a cluster, a killed leader, and nothing lost",
		UsageText: shell.Examples("ringlog demo"),
		Description: "Starts three nodes on free ports with data in a temporary folder, shows what the log " +
			"promises, and\nremoves all of it. Exits 1 if a promise did not hold.",
		Action: shell.Bare(sh, func(ctx context.Context, sh *shell.Shell) error { return demo(ctx, sh, compare) }),
	}
}

// tour is the demo under way: what one step leaves for the next.
type tour struct {
	sh      *shell.Shell
	cluster *devcluster.Cluster // of this tour alone
	client  *client.Client      // nil until the first step

	// of the last step: all findings about the nodes at these URLs
	compareNodes func(ctx context.Context, sh *shell.Shell, urls []string) []shell.Finding

	chain   string            // correlation id of everything published
	flow    []event.Event     // the training pipeline, in order
	offsets []uint64          // of its events
	leader  devcluster.Status // who leads, as of the newest step
	killed  devcluster.Status // the leader before
	after   uint64            // offset of the event published after the failover
}

// demoStep is one promise: what is done, and the evidence that it held.
type demoStep struct {
	title string                                             // the promise, as people read it
	run   func(context.Context) (evidence string, err error) // an error is a promise that did not hold
}

// demo runs the tour in a cluster of its own and removes it.
func demo(ctx context.Context, sh *shell.Shell,
	compare func(ctx context.Context, sh *shell.Shell, urls []string) []shell.Finding) (err error) {
	// The correlation id is new, so a chain of an earlier run cannot be mistaken for this one.
	t := &tour{sh: sh, compareNodes: compare, chain: uuid.NewString()}
	defer func() {
		// t.client is nil until the first step has made it.
		if t.client != nil {
			err = errors.Join(err, shell.CloseClient(t.client))
		}
	}()
	// Short heartbeats keep the tour short.
	cluster, cleanUp, err := Start(ctx, sh, Options{Voters: 3, heartbeat: 400 * time.Millisecond})
	if err != nil {
		return err
	}
	// This runs before the client is closed: what was deferred last runs first.
	defer func() { err = errors.Join(err, cleanUp()) }()
	t.cluster = cluster
	began := time.Now()
	// The first step that fails ends the tour: the next ones build on it.
	for i, step := range t.steps() {
		if err := t.show(ctx, i+1, step); err != nil {
			return err
		}
	}
	sh.Say("everything held, in %s; now try: ringlog dev", shell.Short(time.Since(began)))
	return nil
}

// steps lists the promises in the order in which they are shown.
func (t *tour) steps() []demoStep {
	// Each step relies on what the steps before have left in t.
	return []demoStep{
		{"Three nodes elect a leader", t.elect},
		{"The training pipeline is published as one chain", t.publishFlow},
		{"A durable cursor reads it in order and commits", t.readCursor},
		{"A duplicate of an event is suppressed", t.duplicate},
		{"The leader is killed with SIGKILL, another takes over", t.killLeader},
		{"The log records that: LEADER_LOST, LEADER_ELECTED", t.leadershipEvents},
		{"Publishing continues, and the cursor resumes where it was", t.proceed},
		{"Nothing is lost and nothing is stored twice", t.nothingLost},
		{"Deduplication survived the change of leaders", t.duplicate},
		{"The killed node starts again and catches up", t.restart},
		{"Compaction removes what the cursor has handled", t.compact},
		{"State, order and cursors are equal on all nodes", t.compare},
	}
}

// show runs a step and prints its evidence, or why it failed.
func (t *tour) show(ctx context.Context, n int, step demoStep) error {
	// The title is printed before the step, which may take seconds.
	if !t.sh.JSON {
		if _, err := fmt.Fprintf(t.sh.Out, "%2d. %s\n", n, step.title); err != nil {
			return err
		}
	}
	// A step that hangs is a promise that did not hold.
	bounded, cancel := context.WithTimeout(ctx, demoWithin)
	defer cancel()
	evidence, err := step.run(bounded)
	// After Ctrl-C the step failed for that reason: there is no evidence, and the logs would explain nothing.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		evidence = err.Error()
	}
	f := shell.Finding{Check: step.title, OK: err == nil, Found: evidence}
	printErr := t.sh.Emit(f, func() error {
		return t.sh.Hang("    ", t.sh.Mark(f.OK), f.Found)
	})
	// The ends of the nodes' logs help to find the reason.
	if err != nil {
		t.tellLogs()
		return errors.Join(shell.CodeError(shell.ExitFailed), printErr)
	}
	return printErr
}

// tellLogs prints the end of each node's log.
func (t *tour) tellLogs() {
	// A few lines of each are enough to see what it did last.
	for _, n := range t.cluster.Nodes() {
		t.sh.Say("the end of the log of %s:\n%s", n.ID, n.LogTail(8))
	}
}

// elect waits for the first leader.
func (t *tour) elect(ctx context.Context) (string, error) {
	// The nodes find each other by their addresses, then elect.
	leader, err := t.cluster.WaitLeader(ctx)
	if err != nil {
		return "", err
	}
	t.leader = leader
	// The client knows all nodes, so it finds the next leader after the failover.
	t.client, err = t.sh.Dial(func(cfg *client.Config) {
		cfg.Endpoints, cfg.Timeout = t.cluster.URLs(),
			demoWithin
	})
	if err != nil {
		return "", err
	}
	// The log has the election, by the term.
	elected, err := t.find(ctx, event.LeaderElected, leader.Term)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s leads term %d; %s is at offset %d: %s", leader.NodeID, leader.Term, elected.Type,
		elected.Offset, elected.Payload), nil
}

// find waits for an event of the cluster's own in a term.
func (t *tour) find(ctx context.Context, kind event.Type, term uint64) (event.Event, error) {
	// The cluster's own events are in the log like any others.
	options := client.TailOptions{From: client.FromStart(), Filter: event.Filter{Types: []string{string(kind)}}}
	// Tail follows the log: it waits until the event is appended, or until the step's time is up.
	for ev, err := range t.client.Tail(ctx, options) {
		if err != nil {
			return ev, fmt.Errorf("find %s of term %d: %w", kind, term, err)
		}
		// An earlier term has events of the same type.
		if ev.Term == term {
			return ev, nil
		}
	}
	// The log ended without one, which Tail does only if the client is closed.
	return event.Event{}, fmt.Errorf("no %s of term %d", kind, term)
}
