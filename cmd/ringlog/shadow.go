package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/python"
)

// shadowCommand is shadow. The observations that it compares are files of this host, which the Python package has
// written and reads: no cluster is asked.
func shadowCommand(sh *shell.Shell) *cli.Command {
	examples := shell.Examples("ringlog shadow report seen", "ringlog shadow report seen --max-delay 2s -o json")
	return &cli.Command{
		Name: "shadow", Usage: "compare what an old bus and the log have delivered to Python daemons",
		UsageText: examples,
		Subcommands: []*cli.Command{
			{Name: "report", Usage: "show what each handler got from both, and whether it is safe to switch",
				ArgsUsage: "[FOLDER]...", UsageText: examples,
				Description: "It runs the Python package that this program carries, with python3. Exit code 0 if it is " +
					"safe, else 1. Without a FOLDER it reads RINGLOG_SHADOW, or the folder of this user.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "since", Usage: "leave out what is older than an `AGE` or RFC 3339 time"},
					&cli.DurationFlag{Name: "grace", Value: 10 * time.Second,
						Usage: "how long the other bus may take to deliver an event"},
					&cli.DurationFlag{Name: "max-delay", Value: 5 * time.Second,
						Usage: "how much later one bus may deliver an event than the other"},
					&cli.UintFlag{Name: "min-events", Value: 1, Usage: "require `COUNT` events of each handler"},
					&cli.UintFlag{Name: "evidence", Value: 20, Usage: "name at most `COUNT` events for each finding"},
				},
				Action: func(c *cli.Context) error { return shadowReport(c.Context, sh, c) }},
		},
	}
}

// shadowReport runs the report of the package that this program carries.
func shadowReport(ctx context.Context, sh *shell.Shell, c *cli.Context) (err error) {
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("shadow report: there is no python3 on this host; run it where the daemons run: %w", err)
	}
	// The package is in the binary and is unpacked for this run alone.
	dir, err := os.MkdirTemp("", "ringlog-shadow-")
	if err != nil {
		return fmt.Errorf("shadow report: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := python.Built().Install(dir); err != nil {
		return fmt.Errorf("shadow report: install the Python package: %w", err)
	}

	// -B: Python writes no compiled files into the folder.
	args := []string{"-B", "-m", python.Project, "shadow", "report",
		"--grace", seconds(c.Duration("grace")), "--max-delay", seconds(c.Duration("max-delay")),
		"--min-events", strconv.FormatUint(uint64(c.Uint("min-events")), 10),
		"--evidence", strconv.FormatUint(uint64(c.Uint("evidence")), 10)}
	if since := c.String("since"); since != "" {
		args = append(args, "--since="+since)
	}
	// The package prints the same form as other verbs do.
	if sh.JSON {
		args = append(args, "--json")
	}
	// Folders follow --, as one may begin with a dash.
	report := exec.CommandContext(ctx, interpreter, append(append(args, "--"), c.Args().Slice()...)...)
	// The package of this program comes before one that is installed on the host.
	report.Env = append(os.Environ(), "PYTHONPATH="+dir)
	report.Stdout, report.Stderr = sh.Out, sh.Err
	var exit *exec.ExitError
	// The report has printed what it found; a signal has no exit code, and counts as a failure.
	if err := report.Run(); errors.As(err, &exit) {
		return shell.CodeError(max(exit.ExitCode(), shell.ExitFailed))
	} else if err != nil {
		return fmt.Errorf("shadow report: %w", err)
	}
	return nil
}

// seconds is a duration as the package takes it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
