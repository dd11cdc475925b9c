package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/dev"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

const (
	// actWithin bounds one act: the loss of a leader until all voters are caught up again.
	actWithin = time.Minute
	// maxActs bounds how often a leader may be taken away.
	maxActs = 10_000
)

// failoverOptions say what is done to a cluster of its own.
type failoverOptions struct {
	// nodes, and how often the leader is taken away in each way
	voters, kills, stepDowns int
	// "" is a temporary folder
	dataDir string
	timing  []string // more arguments of serve
}

// timingFlags are serve's, and passed on to the nodes.
// Their values are not read here: serve refuses what it does not take.
func timingFlags() []string { return []string{"heartbeat", "election-timeout", "leader-lease"} }

// failoverCommand is the verb bench failover.
func failoverCommand(sh *shell.Shell) *cli.Command {
	flags := []cli.Flag{
		&cli.IntFlag{Name: "voters", Usage: "start `N` nodes", Value: 3},
		&cli.IntFlag{Name: "kills", Usage: "kill the leader `N` times with SIGKILL", Value: 20},
		&cli.IntFlag{Name: "step-downs", Usage: "let the leader step down `N` times", Value: 20},
		&cli.StringFlag{Name: "data-dir",
			Usage: "new or empty `DIR` to keep data and logs in (default: a temporary one, removed at the end)"},
	}
	// Flags that are not set stay out, so the nodes have serve's defaults.
	for _, name := range timingFlags() {
		flags = append(flags, &cli.StringFlag{Name: name, Usage: "`DURATION` as for serve"})
	}
	return &cli.Command{
		Name: "failover", Usage: "measure how long nothing is acknowledged when the leader fails", Flags: flags,
		UsageText: shell.Examples("ringlog bench failover --kills 3 --step-downs 3"),
		Description: "Starts its own nodes on free ports and has one client publish event after event, without a " +
			"pause. Then it\n" +
			"kills the leader with SIGKILL, waits until events are acknowledged again, restarts the node, waits " +
			"until it\n" +
			"has caught up, and repeats; then the same with step-downs. A gap is the longest time between two " +
			"acknowledged\n" +
			"events around an act. Its parts: detect, until a node no longer follows the old leader; elect, " +
			"until a node\n" +
			"leads; resume, until an event is acknowledged.\n" +
			"At the end it reads the log, and exits 1 if an acknowledged event is missing or is stored twice.",
		Action: shell.NoArgs(func(c *cli.Context) error {
			o := failoverOptions{voters: c.Int("voters"), kills: c.Int("kills"), stepDowns: c.Int("step-downs"),
				dataDir: c.String("data-dir")}
			for _, name := range timingFlags() {
				if c.IsSet(name) {
					o.timing = append(o.timing, "--"+name, c.String(name))
				}
			}
			if err := o.validate(); err != nil {
				return err
			}
			return benchFailover(c.Context, sh, o)
		}),
	}
}

// validate refuses figures out of bounds, and folders that are in use.
func (o failoverOptions) validate() error {
	// Fewer than three voters cannot lose one.
	switch {
	case o.voters < 3 || o.voters > 9:
		return shell.Usagef("--voters %d: use 3 to 9; with fewer nobody can take over", o.voters)
	case o.kills < 0 || o.kills > maxActs:
		return shell.Usagef("--kills %d: use 0 to %d", o.kills, maxActs)
	case o.stepDowns < 0 || o.stepDowns > maxActs:
		return shell.Usagef("--step-downs %d: use 0 to %d", o.stepDowns, maxActs)
	case o.kills+o.stepDowns == 0:
		return shell.Usagef("--kills 0 and --step-downs 0: there is nothing to do")
	}
	// Data of an earlier run would be measured, too.
	// For "" it fails, which the first case below accepts.
	entries, err := os.ReadDir(o.dataDir)
	switch {
	case o.dataDir == "" || errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return shell.Usagef("--data-dir: %w", err)
	case len(entries) > 0:
		return shell.Usagef("--data-dir %s is not empty: name a new folder", o.dataDir)
	}
	return nil
}

// failover is the benchmark under way.
type failover struct {
	sh      *shell.Shell
	opts    failoverOptions
	cluster *devcluster.Cluster
	admin   *client.Client // not the writer's, which learns of leaders by itself
	writer  *writer
	// those that are complete, in their order; only the goroutine of perform appends to it
	acts []failoverAct
}

// benchFailover starts the cluster and runs the benchmark in it.
func benchFailover(ctx context.Context, sh *shell.Shell, o failoverOptions) (err error) {
	// A cluster of its own: the leaders of another one are not to be killed.
	cluster, cleanUp, err := dev.Start(ctx, sh, dev.Options{Voters: o.voters, DataDir: o.dataDir, Args: o.timing})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	// The election of the first leader is not measured.
	if _, err := dev.WaitFormed(ctx, cluster); err != nil {
		return err
	}
	// The admin is not the writer: what that learns about leaders is part of the measurement.
	reach := func(cfg *client.Config) { cfg.Endpoints, cfg.Timeout = cluster.URLs(), actWithin }
	admin, err := sh.Dial(reach)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(admin)) }()
	publisher, err := sh.Dial(reach)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(publisher)) }()
	f := &failover{sh: sh, opts: o, cluster: cluster, admin: admin, writer: newWriter(publisher)}
	return f.run(ctx)
}

// run writes, does the acts meanwhile, and reports, also what an error or a Ctrl-C
// cut short.
func (f *failover) run(ctx context.Context) error {
	// The meter shows that events are acknowledged, and when they are not.
	stopMeter := startMeter(f.sh, "publishing one by one, while leaders fail", -1, &f.writer.count)
	writing, stop := context.WithCancelCause(ctx)
	// There is room for the error, so the writer ends even while an act is under way.
	over := make(chan error, 1)
	go func() {
		err := f.writer.run(writing)
		stop(err) // an act waits for nothing more
		over <- err
	}()
	// After an error of the writer, stop(nil) changes nothing: the first cause stays.
	// The acts end first, then the writer, whose error is the better reason.
	failed := f.perform(writing)
	stop(nil)
	written := <-over
	stopMeter()
	// If both failed, the act failed because the writer did, and its error comes second.
	if failed == nil || written != nil {
		failed = errors.Join(written, failed)
	}
	// After Ctrl-C everything fails; the interrupt is the reason.
	if ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	return f.report(ctx, failed)
}

// perform does one act after the other.
func (f *failover) perform(ctx context.Context) error {
	// The first act begins once events are acknowledged: the time until then is no gap.
	if err := f.writer.acknowledgedAfter(ctx, time.Now()); err != nil {
		return err
	}
	// Each act begins with a whole cluster, as the one before has left it.
	for range f.opts.kills {
		if err := f.act(ctx, actKill, f.killLeader, f.reviveKilled); err != nil {
			return err
		}
	}
	for range f.opts.stepDowns {
		if err := f.act(ctx, actStepDown, f.stepLeaderDown, f.followedByAll); err != nil {
			return err
		}
	}
	return nil
}

// report reads the log and prints what was found.
func (f *failover) report(ctx context.Context, failed error) error {
	// The figures of complete acts are printed even if a later act failed.
	result := f.result(failed != nil)
	var checked error
	if failed == nil {
		result.Audit, checked = f.audit(ctx)
	}
	// Without a complete act there is no figure to print.
	if len(f.acts) > 0 {
		checked = errors.Join(checked, result.print(f.sh))
	}
	switch {
	// The measurements are printed in any case; the comparison needs a whole run.
	case failed != nil || checked != nil:
		f.sh.Say("cut short: %d of %d acts were measured, and the log was not compared", len(f.acts),
			f.opts.kills+f.opts.stepDowns)
		return errors.Join(failed, checked)
	case !result.Audit.holds():
		// Every act went well, and a promise of the log did not hold: that is a failure, too.
		f.sh.Say("what was acknowledged and what the log holds differ: %s", result.Audit)
		return shell.CodeError(shell.ExitFailed)
	}
	return nil
}

// audit compares what was acknowledged with the log.
func (f *failover) audit(ctx context.Context) (*failoverAudit, error) {
	// The reading has the time of one act, however long the run was.
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	// All events are read, not the writer's alone: the cluster's own count the elections.
	a := newFailoverAudit(f.writer.all())
	for ev, err := range f.admin.Tail(ctx,
		client.TailOptions{From: client.FromStart(), NoFollow: true, Consistency: client.Linearizable}) {
		// A gap is an error as well: what was trimmed cannot be compared.
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		if err := a.stored(ev, f.writer.name); err != nil {
			return nil, err
		}
	}
	a.finish(len(f.acts))
	return a, nil
}
