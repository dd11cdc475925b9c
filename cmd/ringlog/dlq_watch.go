package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

func watchLettersCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "watch", Usage: "the summary again and again, until Ctrl-C",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "interval", Usage: "how often", Value: 30 * time.Second},
			&cli.Uint64Flag{Name: "n", Usage: "end after `COUNT` times"},
		},
		Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			if c.Duration("interval") < 100*time.Millisecond {
				return usagef("--interval %s: use 100ms or more", c.Duration("interval"))
			}
			return watchLetters(c.Context, sh, c.Duration("interval"), c.Uint64("n"))
		},
	}
}

// clearScreen puts the next table in the place of the one before.
const clearScreen = "\x1b[H\x1b[2J"

// watchLetters prints the summary every so often, and what has changed since the one
// before. That nobody answers does not end it.
func watchLetters(ctx context.Context, sh *shell, every time.Duration, times uint64) error {
	ctx, stop := sh.whileRead(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before *letterTotals
	for n := uint64(1); ; n++ {
		now, err := sh.letterTotals(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			err = sh.printWatch(now, before)
			before = &now
		case exitCode(err) == exitUnreachable || exitCode(err) == exitTimeout:
			sh.say("%s %s", time.Now().Format(time.TimeOnly), brief(err))
			err = nil
		}
		if errors.Is(err, syscall.EPIPE) || err == nil && n == times {
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

func (sh *shell) printWatch(now letterTotals, before *letterTotals) error {
	if sh.json {
		return sh.line(struct {
			Time time.Time `json:"time"`
			letterTotals
		}{time.Now().UTC(), now})
	}
	head := time.Now().Format(time.TimeOnly)
	if before != nil {
		head += fmt.Sprintf("  %+d letters since the last look, %d new", int64(now.Count)-int64(before.Count), now.Ever-min(now.Ever, before.Ever))
	}
	if sh.outTerminal {
		head = clearScreen + head
	}
	if _, err := io.WriteString(sh.out, head+"\n"); err != nil {
		return err
	}
	return sh.printTotals(now)
}
