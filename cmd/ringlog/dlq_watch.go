package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// watchLettersCommand is dlq watch, for a screen on the wall. A program reads one summary a line with -o json.
func watchLettersCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "watch", Usage: "print the summary periodically, until Ctrl-C",
		UsageText: shell.Examples(
			"ringlog dlq watch",
			"ringlog dlq watch --interval 1s -n 2",
		),
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "interval", Usage: "how often to print it", Value: 30 * time.Second},
			&cli.Uint64Flag{Name: "n", Usage: "stop after `COUNT` summaries"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			// More often it would be load, and nobody could read it.
			if c.Duration("interval") < 100*time.Millisecond {
				return shell.Usagef("--interval %s: use 100ms or more", c.Duration("interval"))
			}
			return watchLetters(c.Context, sh, c.Duration("interval"), c.Uint64("n"))
		}),
	}
}

// clearScreen puts the next table in the place of the one before.
const clearScreen = "\x1b[H\x1b[2J"

// watchLetters prints the summary every so often, and what has changed since the one before. An unreachable cluster
// does not end it. times is how many summaries are printed, 0 for no end.
func watchLetters(ctx context.Context, sh *shell.Shell, every time.Duration, times uint64) error {
	ctx, stop := sh.WhileRead(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	// The last summary that was printed; nil before the first one.
	var before *api.LetterSummary
	for n := uint64(1); ; n++ {
		now, err := fetchTotals(ctx, sh)
		// An interrupt during the call is how it ends, too.
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			// before changes only with a summary that was printed, so nothing is lost over a failure.
			err = printWatch(sh, now, before)
			before = &now
		// An unreachable cluster may return: report it, and keep watching.
		case shell.ExitCode(err) == shell.ExitUnreachable || shell.ExitCode(err) == shell.ExitTimeout:
			sh.Say("%s %s", shell.Clock(time.Now()), shell.Brief(err))
			err = nil
		}
		// Nobody reads any more, or all summaries that were asked for are printed.
		if errors.Is(err, syscall.EPIPE) || (err == nil && n == times) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printWatch prints a summary with the changes since the one before.
func printWatch(sh *shell.Shell, now api.LetterSummary, before *api.LetterSummary) error {
	// Programs compute differences themselves, and need the time of each summary.
	if sh.JSON {
		return sh.PrintLine(struct {
			Time time.Time `json:"time"`
			api.LetterSummary
		}{time.Now().UTC(), now})
	}
	// People look for the letters that are new since the summary before.
	head := shell.Clock(time.Now())
	// Count may have fallen, after redrives and purges; Ever only grows.
	if before != nil {
		head += fmt.Sprintf("  %+d letters since the last summary, %d new", int64(now.Count)-int64(before.Count),
			now.Ever-min(now.Ever, before.Ever))
	}
	// In a file the summaries follow each other.
	if sh.OutTerminal {
		head = clearScreen + head
	}
	if _, err := io.WriteString(sh.Out, head+"\n"); err != nil {
		return err
	}
	return printTotals(sh, now)
}
