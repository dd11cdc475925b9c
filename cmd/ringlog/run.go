package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/daemon"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/procgroup"
)

// run is a shell around package daemon: this file and run_allocate.go make its options of the flags, and daemon.Run
// acquires the role and the amounts, runs the command, and reports what becomes of it. launch does the same with a
// file for many daemons.

// runCommand is run: a command that runs on one host at a time, or with its share of resources.
func runCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run a command while this process holds a role or resources, and restart it",
		ArgsUsage: "-- COMMAND ARGUMENTS…",
		UsageText: shell.Examples(
			"ringlog run --role SYNC_LEADER -- sh -c 'echo fence $RINGLOG_FENCE'",
			"ringlog run --role SYNC_LEADER --restart never --health 'test -d .' -- date",
			"ringlog run --allocate net:gpu-1=50 --priority high -- echo --bwlimit={net}",
		),
		Description: "Start it on several hosts: one of them holds the role and runs COMMAND, the others wait. COMMAND " +
			"gets RINGLOG_ROLE,\n" +
			"RINGLOG_FENCE and RINGLOG_ENDPOINTS. What it publishes with --role and --fence is refused once another host " +
			"may run it.\n" +
			"With --allocate run waits for amounts of resources, all or none, and keeps them while COMMAND runs. {net} in an\n" +
			"argument is the amount of net:gpu-1, as is RINGLOG_ALLOCATION_NET; {{net}} is the text {net} itself.\n" +
			"If the lease cannot be renewed, COMMAND and its process group get SIGTERM, then SIGKILL, before the lease is " +
			"over, and\n" +
			"run waits again. Ctrl-C and SIGTERM end COMMAND and release what it holds, with exit code 0; otherwise " +
			"the exit\n" +
			"code is that of COMMAND, 128 and more for a signal. DAEMON_STARTED, DAEMON_STOPPED, DAEMON_STATUS_CHANGED,\n" +
			"DAEMON_CRASH_LOOP_DETECTED and DAEMON_PERMANENTLY_FAILED report what happens to it.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "role", Usage: "run COMMAND only while this process holds `ROLE`"},
			&cli.StringSliceFlag{Name: "allocate",
				Usage: "run COMMAND only while this process has `RESOURCE=AMOUNT` (repeatable)"},
			&cli.StringFlag{Name: "priority", Usage: "`CLASS` to wait in: low, normal, high or critical", Value: "normal"},
			&cli.DurationFlag{Name: "ttl", Usage: "how long the lease lasts unless it is renewed, from 2s to 1h",
				Value: 15 * time.Second},
			&cli.BoolFlag{Name: "wait",
				Usage: "wait in the queue for what others hold; with --wait=false exit with 6", Value: true},
			&cli.StringFlag{Name: "restart",
				Usage: "restart COMMAND after `WHICH` ends: always, on-failure (another exit code than 0) or never",
				Value: string(daemon.OnFailure)},
			&cli.DurationFlag{Name: "backoff", Usage: "wait before the first restart, doubled each time up to 5m",
				Value: time.Second},
			&cli.IntFlag{Name: "max-restarts",
				Usage: "release all and exit after `N` restarts without a run of 5m between them; 0 is no limit", Value: 10},
			&cli.StringFlag{Name: "health",
				Usage: "restart COMMAND once this `CHECK` has failed three times in a row: a shell command, or a URL that " +
					"answers 2xx"},
			&cli.DurationFlag{Name: "health-interval", Usage: "time between two checks, and the time limit of each",
				Value: 10 * time.Second},
			&cli.DurationFlag{Name: "stop-timeout", Usage: "time between SIGTERM and SIGKILL, at most a third of --ttl",
				DefaultText: "a fifth of --ttl, at most 10s"},
			&cli.BoolFlag{Name: "pass-token", Usage: "give COMMAND the cluster token, so that it can publish"},
		},
		Action: func(c *cli.Context) error {
			o, err := daemonOptions(c)
			if err != nil {
				return err
			}
			// The amounts come last, so that they win over variables of the same names that run itself was given.
			o.Env, o.Stdout, o.Stderr, o.Say = childEnvironment(sh, c.Bool("pass-token")), sh.Out, sh.Err, sh.Say
			o.Env = append(o.Env, amountVariables(o.Allocation.Amounts)...)
			return runDaemon(c.Context, sh, o)
		},
	}
}

// maxStopTimeout bounds the default of --stop-timeout.
const maxStopTimeout = 10 * time.Second

// daemonOptions reads the flags and the command. It refuses everything that can be found wrong before the cluster
// is asked. The environment, the outputs and Say are left to the caller.
func daemonOptions(c *cli.Context) (o daemon.Options, err error) {
	o = daemon.Options{Name: c.String("role"), Role: c.String("role"), Holder: processName(), TTL: c.Duration("ttl"),
		NoWait: !c.Bool("wait"), Args: c.Args().Slice(), Restart: daemon.Restart(c.String("restart")),
		Backoff: c.Duration("backoff"), MaxRestarts: c.Int("max-restarts"), Health: c.String("health"),
		HealthInterval: c.Duration("health-interval"), StopTimeout: c.Duration("stop-timeout")}
	// The default of --stop-timeout is 0 here, which is not given. All others have a default above 0.
	for _, name := range []string{"ttl", "backoff", "health-interval", "stop-timeout"} {
		if d := c.Duration(name); d <= 0 && (c.IsSet(name) || name != "stop-timeout") {
			return o, shell.Usagef("--%s %s must be above 0", name, d)
		}
	}
	if !c.IsSet("stop-timeout") {
		o.StopTimeout = min(o.TTL/5, maxStopTimeout)
	}
	// A longer time to stop would leave the client too little time to repeat a renewal that fails.
	most := client.MaxReserve(o.TTL)
	switch {
	// A name that is empty is most likely an unset variable of a script, which must not mean no role.
	case c.IsSet("role") && o.Role == "":
		return o, shell.Usagef("--role is empty: give the name of a role")
	case o.Role == "" && !c.IsSet("allocate"):
		return o, shell.Usagef("run needs --role ROLE, which one host holds at a time, or --allocate RESOURCE=AMOUNT")
	case len(o.Args) == 0 || o.Args[0] == "":
		return o, shell.Usagef("run needs a command, such as ringlog run --role %s -- ./daemon.sh", cmp.Or(o.Role, "ROLE"))
	case o.Restart != daemon.Always && o.Restart != daemon.OnFailure && o.Restart != daemon.Never:
		return o, shell.Usagef("--restart %q: use always, on-failure or never", o.Restart)
	case o.MaxRestarts < 0:
		return o, shell.Usagef("--max-restarts %d: use 1 or more, or 0 for no limit", o.MaxRestarts)
	case c.IsSet("health") && o.Health == "":
		return o, shell.Usagef("--health is empty: give a shell command or a URL")
	case c.IsSet("health-interval") && o.Health == "":
		return o, shell.Usagef("--health-interval needs --health")
	case o.StopTimeout > most:
		return o, shell.Usagef("--stop-timeout %s does not fit --ttl %s: the command has to end before the lease is over; "+
			"use --stop-timeout %s at most, or --ttl %s", o.StopTimeout, o.TTL, most, 3*o.StopTimeout)
	}
	// A shell command cannot be checked without running it.
	if err := daemon.CheckURL(o.Health); err != nil {
		return o, shell.Usagef("--health %w", err)
	}
	// A command without a role is known by its program.
	o.Name = cmp.Or(o.Role, filepath.Base(o.Args[0]))
	if err := allocationOptions(c, &o); err != nil {
		return o, err
	}
	// Before anything is acquired: a command that is not there takes it from nobody.
	o.Path, err = procgroup.Find(o.Args[0])
	if err != nil {
		return o, shell.UsageError{Err: err}
	}
	return o, nil
}

// runDaemon runs the command while this process holds what it needs. A cluster that cannot be reached is an error
// at once, and not something to wait for.
func runDaemon(ctx context.Context, sh *shell.Shell, o daemon.Options) error {
	c, err := sh.DialReachable(ctx, func(cfg *client.Config) { cfg.Logger = warningsTo(sh) })
	if err != nil {
		return err
	}
	code, err := daemon.Run(ctx, c, o)
	// The client is closed before the exit code is given, as what it still sends may fail.
	err = errors.Join(err, shell.CloseClient(c))
	if err == nil && code != shell.ExitDone {
		err = shell.CodeError(code)
	}
	return err
}
