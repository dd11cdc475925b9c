package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/launch"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// The verb has three sides. Reading and checking a file starts nothing. Running it makes this process its launcher,
// with a board on a terminal. --status and --stop ask the launcher, which may be another process, over its socket.

// launchCommand is launch: the daemons of a host, in order.
func launchCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "launch", Usage: "run the daemons of this host, layer by layer", ArgsUsage: "FILE.toml",
		UsageText: shell.Examples(
			"ringlog launch daemons.toml --check",
			"ringlog launch daemons.toml --only sync",
			"ringlog launch --print-coordinators",
		),
		Description: "FILE.toml has a table [daemon.NAME] for each daemon, with command, layer or after, and what " +
			"docs/daemons.md\n" +
			"lists; [defaults] is for all. A daemon starts once all of lower layers and those in after are ready, or " +
			"wait\n" +
			"for a role that another host holds. Ctrl-C, SIGTERM and --stop end them in the reverse order, with exit " +
			"code 0.\n" +
			"One that fails for good ends launch, with exit code 1, if it is critical; otherwise only those that name it " +
			"in after\n" +
			"do not start. --status exits with 0 if nothing has failed, with 1 if something has, and with 4 if no " +
			"launcher runs.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "run all daemons, which is the default"},
			&cli.StringFlag{Name: "only", Usage: "run only the daemons of these comma-separated `GROUPS`, and those that " +
				"they name in after"},
			&cli.BoolFlag{Name: "check", Usage: "check FILE, print the order of the daemons, and exit with 2 if it is wrong"},
			&cli.BoolFlag{Name: "status", Usage: "print what the launcher of FILE on this host does"},
			&cli.BoolFlag{Name: "stop", Usage: "have the launcher of FILE on this host end its daemons, and wait for that"},
			&cli.BoolFlag{Name: "print-coordinators", Usage: "print a file with the platform's coordinators"},
			&cli.StringFlag{Name: "log-dir", Usage: "write what the daemons print to NAME.log and NAME.log.1 in `DIR`, each " +
				"of at most 64 MiB, instead of the standard error"},
			&cli.StringFlag{Name: "run-dir", Usage: "`DIR` in which --status and --stop find the launcher",
				EnvVars: []string{"RINGLOG_RUN_DIR"}, DefaultText: "ringlog-UID in the folder for temporary files"},
		},
		Action: func(c *cli.Context) error { return launchAction(c, sh) },
	}
}

// launchAction does the one thing that is asked for.
func launchAction(c *cli.Context, sh *shell.Shell) error {
	// The flags are modes of one verb, of which at most one is asked for. --only alone may be combined, with
	// --check.
	var asked []string
	for _, name := range []string{"all", "only", "check", "status", "stop", "print-coordinators"} {
		if c.IsSet(name) && !(name == "only" && c.Bool("check")) {
			asked = append(asked, "--"+name)
		}
	}
	if len(asked) > 1 {
		return shell.Usagef("%s exclude each other", strings.Join(asked, " and "))
	}
	// It needs no file. All other modes do.
	if c.Bool("print-coordinators") {
		if err := shell.Exactly(c, 0, ""); err != nil {
			return err
		}
		return sh.Print(strings.TrimSuffix(launch.Coordinators(), "\n"))
	}
	if err := shell.Exactly(c, 1, "a file, such as daemons.toml"); err != nil {
		return err
	}
	file, dir := c.Args().First(), cmp.Or(c.String("run-dir"), launch.RuntimeFolder())
	// These ask the launcher that runs, which has read the file: the file is not read again here.
	switch {
	case c.Bool("status"):
		return launchStatus(c.Context, sh, dir, file)
	case c.Bool("stop"):
		return launchStop(c.Context, sh, dir, file)
	}
	var groups []string
	// An empty --only is most likely an unset variable of a script, and would run nothing.
	if c.IsSet("only") {
		groups = strings.FieldsFunc(c.String("only"), func(r rune) bool { return r == ',' || r == ' ' })
		if len(groups) == 0 {
			return shell.Usagef("--only is empty: give the names of groups")
		}
	}
	// The file is checked completely before any daemon starts.
	f, err := launch.Read(file, groups)
	if err != nil {
		return err
	}
	if c.Bool("check") {
		return printOrder(sh, f)
	}
	return launchAll(c.Context, sh, f, dir, c.String("log-dir"))
}

// printOrder prints the daemons in the order in which they start.
func printOrder(sh *shell.Shell, f *launch.File) error {
	// A row is what decides when a daemon starts, with the layer that it was given.
	type checked struct {
		Name        string   `json:"name"`
		Layer       int      `json:"layer"`
		After       []string `json:"after,omitempty"`
		Group       string   `json:"group,omitempty"`
		Role        string   `json:"role,omitempty"`
		Coordinator string   `json:"coordinator,omitempty"`
		Ready       string   `json:"ready"`
		Command     []string `json:"command"`
	}
	var list []checked
	for _, d := range f.Daemons {
		list = append(list, checked{d.Name, d.Layer, d.After, d.Group, d.Role, d.Coordinator, d.Ready, d.Args})
	}
	return shell.EmitEach(sh, "daemon", list,
		table.Row{"layer", "name", "after", "group", shell.Extra("role"), shell.Extra("ready"), shell.Extra("command")},
		func(d checked) table.Row {
			return table.Row{d.Layer, d.Name, cmp.Or(strings.Join(d.After, ", "), "-"), cmp.Or(d.Group, "-"),
				cmp.Or(d.Role, "-"), d.Ready, strings.Join(d.Command, " ")}
		})
}

// launchAll runs the daemons until they end or are stopped.
func launchAll(ctx context.Context, sh *shell.Shell, f *launch.File, dir, logDir string) (err error) {
	// Before the lock, since a folder that cannot be made is wrong usage.
	if logDir != "" {
		if err := os.MkdirAll(logDir, 0o755); err != nil {
			return shell.Usagef("--log-dir: %w", err)
		}
	}
	// From here on this process is the launcher of the file.
	control, err := launch.Hold(dir, f.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	// What is printed from here on may be above a table, one write at a time.
	live := newBoard(sh, f)
	above := *sh
	above.Err = live
	// A daemon may be a node of the cluster, and most run without one: only what needs it waits for it.
	if unreachable := sh.Reach(ctx); unreachable != nil {
		sh.Say("%v: daemons without a role start nonetheless", unreachable)
	}
	c, err := above.Dial(func(cfg *client.Config) { cfg.Logger = warningsTo(&above) })
	if err != nil {
		return err
	}
	// The client is closed before the control: whoever waits for the stop hears of it when all is done.
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()

	// Lines of daemons are aligned by the longest name.
	width := 0
	for _, d := range f.Daemons {
		width = max(width, len(d.Name))
	}
	o := launch.Options{Client: c, Control: control, Holder: processName(), Say: above.Say,
		Environment: func(withToken bool) []string { return childEnvironment(sh, withToken) },
		Output: &launch.Output{Dir: logDir, Say: above.Say, Print: func(name string, line []byte) {
			fmt.Fprintf(above.Err, "%-*s | %s\n", width, name, line)
		}},
		Changed: func(row launch.Row) {
			// The table says that it is ready.
			if shown := live.set(row); !shown || row.State != launch.Ready {
				printDaemonChange(&above, row)
			}
		},
		Started: func(s launch.Status) {
			live.end(func() {
				if sh.OutTerminal && !sh.JSON {
					_ = printDaemons(sh, s) // without a reader the launcher continues
				}
			})
			above.Say("started in %s: %s", shell.Short(time.Since(s.Began)), countStates(s))
			warnOfWiring(ctx, sh, c, s, above.Say)
		}}
	return launch.New(f, o).Run(ctx)
}

// printDaemonChange prints a daemon's new state: for programs each one, for people what no other notice says.
func printDaemonChange(sh *shell.Shell, row launch.Row) {
	if sh.JSON {
		_ = sh.PrintLine(row) // without a reader the launcher continues
		return
	}
	// The other states are no news to people, or daemon.Run has said them itself.
	switch row.State {
	case launch.Ready:
		sh.Say("%s: ready, process %d", row.Name, row.PID)
	case launch.Failed, launch.NotStarted, launch.Stopped:
		state := string(row.State)
		if tone := toneOf(row); tone != "" {
			state = sh.PaintErr(tone, state)
		}
		if row.Why != "" {
			state += ": " + row.Why
		}
		sh.Say("%s: %s", row.Name, state)
	}
}

// toneOf is the colour of a daemon's state, "" if it has none.
func toneOf(row launch.Row) shell.Tone {
	// What is on its way to ready, or has stopped, has no colour.
	switch {
	case row.State == launch.Ready || row.State == launch.StandingBy:
		return shell.Good
	case row.State == launch.Failed || row.State == launch.NotStarted:
		return shell.Bad
	case row.Bad():
		return shell.Warn
	}
	return ""
}

// countStates prints how many daemons are in each state.
func countStates(s launch.Status) string {
	count := map[launch.State]int{}
	for _, row := range s.Daemons {
		count[row.State]++
	}
	var parts []string
	// A state that no daemon has is left out.
	for _, state := range launch.States() {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	return strings.Join(parts, ", ")
}

// warnOfWiring prints how the coordinators that run differ from those that are registered. It only warns: the
// daemons run whether their clients are registered or not.
func warnOfWiring(
	ctx context.Context, sh *shell.Shell, c *client.Client, s launch.Status, say func(format string, args ...any),
) {
	ctx, cancel := context.WithTimeout(ctx, min(sh.Timeout, wiringWithin))
	defer cancel()
	// An error is a notice, too: it must not hide what the caller prints.
	warnings, err := launch.Audit(ctx, c, s)
	if err != nil {
		say("what is registered is not known: %s", shell.Brief(err))
	}
	for _, w := range warnings {
		say("%s %s", sh.PaintErr(shell.Warn, "warning:"), w)
	}
}

// wiringWithin bounds how long the registrations are asked for.
const wiringWithin = 5 * time.Second

// launchStatus prints what the launcher of a file does, and fails if a daemon has.
func launchStatus(ctx context.Context, sh *shell.Shell, dir, file string) error {
	s, err := launch.Ask(ctx, dir, file, false)
	if err != nil {
		return err
	}
	// The status is printed before the cluster is asked, which may not answer.
	if err := sh.Emit(s, func() error { return printDaemons(sh, s) }); err != nil {
		return err
	}
	if c, err := sh.Dial(); err == nil {
		warnOfWiring(ctx, sh, c, s, sh.Say)
		if err := shell.CloseClient(c); err != nil {
			return err
		}
	}
	// A daemon that restarts counts as a failure, too, so that a script notices it.
	for _, row := range s.Daemons {
		if row.Bad() {
			return shell.CodeError(shell.ExitFailed)
		}
	}
	return nil
}

// launchStop ends the launcher of a file. The answer comes once all daemons have ended, however long that takes.
func launchStop(ctx context.Context, sh *shell.Shell, dir, file string) error {
	s, err := launch.Ask(ctx, dir, file, true)
	if err != nil {
		return err
	}
	return sh.Emit(s, func() error {
		sh.Say("stopped: %s", shell.Count(len(s.Daemons), "daemon"))
		return nil
	})
}

// printDaemons prints a row for each daemon.
func printDaemons(sh *shell.Shell, s launch.Status) error {
	return sh.Print(daemonTable(sh, s.Daemons, true))
}

// daemonTable returns a table with a row for each daemon, with the time since it has its state if that is asked for.
func daemonTable(sh *shell.Shell, daemons []launch.Row, since bool) string {
	header := table.Row{"name", "layer", shell.Extra("group"), "state", "pid", "restarts", shell.Extra("why")}
	// The board has no times: a table that is drawn with each change would show them standing still.
	if since {
		header = slices.Insert(header, len(header)-1, any("since"))
	}
	var rows []table.Row
	// A daemon whose command does not run has no process.
	for _, r := range daemons {
		pid, state := "-", string(r.State)
		if r.PID != 0 {
			pid = strconv.Itoa(r.PID)
		}
		if tone := toneOf(r); tone != "" {
			state = sh.Paint(tone, state)
		}
		row := table.Row{r.Name, r.Layer, cmp.Or(r.Group, "-"), state, pid, r.Restarts, r.Why}
		if since {
			row = slices.Insert(row, len(row)-1, any(shell.Short(time.Since(r.Since))+" ago"))
		}
		rows = append(rows, row)
	}
	return sh.TableText(header, rows)
}
