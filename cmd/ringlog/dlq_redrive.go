package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/frame"
)

// Both verbs work alike. choiceOf reads which letters are meant, plan counts them, Confirm asks if they are purged,
// and step does the next ones until all were looked at. A step that has been done stays done, so that a run which
// fails can be repeated.

// letterWork redrives or purges many letters, in steps; call does one step. to is the cursor to redrive to, "" is
// each letter's own.
type letterWork struct {
	// the letters: ids, a condition, or all; steps take ids off its front
	which client.LetterSelector
	to    string // with redrive alone
	shell.Consent
	past string // what was done: redriven, purged
	call func(ctx context.Context, c *client.Client, which client.LetterSelector) (client.LettersResult, error)
}

// choiceFlags choose letters, and how many of them.
// The condition's flags are those of dlq ls, so a list shows what a redrive would take.
func choiceFlags() []cli.Flag {
	return append(letterFlags(),
		// All has to be said: without any condition nothing is chosen.
		&cli.BoolFlag{Name: "all", Usage: "choose all dead letters"},
		&cli.Uint64Flag{Name: "max-events", Usage: "choose at most `N` dead letters"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print how many dead letters it would be, and do nothing"},
	)
}

// redriveCommand is dlq redrive. Each event goes to the cursor that failed on it, and to no other reader.
func redriveCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "redrive", Aliases: []string{"retry"},
		Usage: "deliver dead letters again, to the cursors that failed on them", ArgsUsage: "[ID...]",
		UsageText: shell.Examples(
			"ringlog dlq redrive 1",
			"ringlog dlq redrive --type 'training.*' --max-events 100 --dry-run",
		),
		Description: "The event of each dead letter is appended again, and no other reader gets it. Dead letters that " +
			"are being redriven are skipped, so that it may be interrupted and run again.",
		Flags: append(choiceFlags(),
			&cli.StringFlag{Name: "to", Usage: "redrive to this `CURSOR` instead; imported ones have none of " +
				"their own"}),
		Action: func(c *cli.Context) error { return redriveOf(c, sh, c.Bool("all")) },
	}
}

// redriveAllCommand is the name that the old queue's tool had. It is hidden, and works as redrive --all does.
func redriveAllCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "retry-all", Usage: "redrive all dead letters", Hidden: true,
		Flags: append(choiceFlags(), &cli.StringFlag{Name: "to"}),
		Action: shell.NoArgs(func(c *cli.Context) error {
			// Conditions together with all are refused, as for redrive --all.
			return redriveOf(c, sh, true)
		}),
	}
}

// redriveOf reads the flags of redrive.
func redriveOf(c *cli.Context, sh *shell.Shell, all bool) error {
	// A redrive destroys nothing, so it does not ask.
	w := letterWork{to: c.String("to"), Consent: shell.Consent{DryRun: c.Bool("dry-run"), Yes: true}, past: "redriven"}
	var err error
	w.which, err = choiceOf(c, all)
	if err != nil {
		return err
	}
	w.call = func(ctx context.Context, c *client.Client, which client.LetterSelector) (client.LettersResult, error) {
		return c.Admin().Redrive(ctx, which, w.to)
	}
	return w.run(c.Context, sh)
}

// purgeCommand is dlq purge. A letter that is purged cannot be redriven any more, so it asks.
func purgeCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "purge", Aliases: []string{"cleanup"}, Usage: "remove dead letters permanently", ArgsUsage: "[ID...]",
		UsageText: shell.Examples(
			"ringlog dlq purge --older-than 30d --dry-run",
			"ringlog dlq purge --older-than 30d --yes",
		),
		Flags: append(choiceFlags(),
			&cli.StringFlag{Name: "older-than",
				Usage: "only those that have been dead for `AGE`, such as 12h or 30d"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask for confirmation"}),
		Action: func(c *cli.Context) error {
			// A letter that is purged is gone for good, so purge asks.
			w := letterWork{Consent: shell.ConsentOf(c), past: "purged"}
			var err error
			w.which, err = choiceOf(c, c.Bool("all"))
			if err != nil {
				return err
			}
			w.call = func(ctx context.Context, c *client.Client, which client.LetterSelector) (client.LettersResult,
				error) {
				return c.Admin().Purge(ctx, which)
			}
			return w.run(c.Context, sh)
		},
	}
}

// choiceOf reads which letters are meant: ids, a condition, or all.
func choiceOf(c *cli.Context, all bool) (which client.LetterSelector, err error) {
	which = client.LetterSelector{All: all, Type: c.String("type"), Cursor: c.String("cursor"),
		Error: c.String("error"), MaxEvents: c.Uint64("max-events")}
	// Ids are checked before any letter is touched.
	for _, arg := range c.Args().Slice() {
		id, err := parseLetter(arg)
		if err != nil {
			return which, err
		}
		// The node counts and reports those that do not exist.
		which.IDs = append(which.IDs, id)
	}
	if text := c.String("older-than"); text != "" {
		which.OlderThan, err = shell.ParseAge("older-than", text)
		if err != nil {
			return which, err
		}
	}
	// Ids, a condition or all: exactly one of them, so nothing is purged by omission.
	// Conditions may be combined: a letter has to meet all of them.
	conditions := which.Type != "" || which.Cursor != "" || which.Error != "" || which.OlderThan != 0
	switch {
	case c.IsSet("max-events") && which.MaxEvents == 0:
		err = shell.Usagef("--max-events 0: there is nothing to do")
	case len(which.IDs) > 0 && (all || conditions):
		err = shell.Usagef("ids and conditions exclude each other")
	case all && conditions:
		err = shell.Usagef("--all and conditions exclude each other")
	case len(which.IDs) == 0 && !all && !conditions:
		err = shell.Usagef("say which letters: ids, --all, --type, --cursor or --error")
	}
	return which, err
}

// run does the work in steps, each of which lasts if the next one fails.
func (w *letterWork) run(ctx context.Context, sh *shell.Shell) error {
	// How many there are is known before anything is changed: for the question, and for the bar.
	sum, err := w.plan(ctx, sh)
	if err != nil || w.DryRun {
		if err == nil {
			err = w.print(sh, sum, "would be "+w.past)
		}
		return err
	}
	// Nothing to do needs no question.
	total := sum.Matched
	if total > 0 && !w.Yes {
		if err := sh.Confirm(w.Consent, "%s will be permanently %s. Continue?",
			shell.Count(total, "dead letter"), w.past); err != nil {
			return err
		}
	}
	bar := w.bar(sh, total)
	// The plan's other counts are dropped: the steps count what they do.
	sum = client.LettersResult{Matched: sum.Matched}
	// Each step is one request of at most frame.MaxLetters letters, with a time limit of its own.
	// looked counts the letters that were dealt with, skipped and missing ones included.
	for looked := 0; looked < total; {
		step, err := w.step(ctx, sh, &sum, min(total-looked, frame.MaxLetters))
		if err != nil {
			if sum.Done > 0 {
				sh.Say("stopped: %s %s; run it again to continue",
					shell.Count(sum.Done, "letter is", "letters are"), w.past)
			}
			return err
		}
		if step.Matched == step.Left {
			break // somebody else was faster
		}
		looked += step.Matched - step.Left
		if bar != nil {
			_ = bar.Set(min(looked, total))
		}
	}
	// The bar ends its line, so what follows begins a new one.
	if bar != nil {
		_ = bar.Finish()
	}
	return w.print(sh, sum, w.past)
}

// plan returns how many letters the choice matches, and changes none.
func (w *letterWork) plan(ctx context.Context, sh *shell.Shell) (sum client.LettersResult, err error) {
	// A dry run of the node counts the matches, and changes nothing.
	which := w.which
	which.DryRun = true
	// Ids are counted without asking: those that do not exist are reported later.
	if n := uint64(len(which.IDs)); n > 0 && !w.DryRun {
		if which.MaxEvents > 0 {
			n = min(n, which.MaxEvents)
		}
		return client.LettersResult{Matched: int(n)}, nil
	}
	err = sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		sum, err = w.call(ctx, c, which)
		return err
	})
	return sum, err
}

// step redrives or purges the next n letters, and adds the outcome to sum.
func (w *letterWork) step(ctx context.Context, sh *shell.Shell, sum *client.LettersResult,
	n int) (done client.LettersResult, err error) {
	// The rest of a condition is found by the id of the last letter looked at, that of a list by cutting it.
	which := w.which
	// Where there are ids, After has no effect, and the list is cut instead.
	which.MaxEvents, which.After = uint64(n), sum.Last
	if len(which.IDs) > 0 {
		which.IDs, w.which.IDs = which.IDs[:n], which.IDs[n:]
	}
	err = sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		done, err = w.call(ctx, c, which)
		return err
	})
	// Only a step that succeeded counts: one that failed is reported by its error.
	if err == nil {
		sum.Done, sum.Skipped, sum.Last = sum.Done+done.Done, sum.Skipped+done.Skipped, done.Last
		sum.Missing, sum.NoCursor = append(sum.Missing, done.Missing...), append(sum.NoCursor, done.NoCursor...)
	}
	return done, err
}

// bar returns a progress bar for total letters, nil if standard error is no terminal.
func (w *letterWork) bar(sh *shell.Shell, total int) *progressbar.ProgressBar {
	// A bar is made without a total, which is set here.
	bar := newProgress(sh, "letters")
	if bar != nil {
		bar.ChangeMax(total)
	}
	return bar
}

// print prints what was done, and which letters were left out.
func (w *letterWork) print(sh *shell.Shell, sum client.LettersResult, past string) error {
	// Letters that were left out are reported by reason, with the first of their ids.
	for _, left := range []struct {
		ids []uint64
		why string
	}{{sum.Missing, "not found (handled after a redrive, purged, or never existed)"},
		{sum.NoCursor, "of a cursor that does not exist: redrive them --to another"}} {
		if len(left.ids) > 0 {
			sh.Say("%d %s: %s", len(left.ids), left.why, someIDs(left.ids))
		}
	}
	// Skipped letters are no failure: somebody takes care of them, or they are too young by now.
	if sum.Skipped > 0 {
		sh.Say("skipped %s: being redriven already, or no longer old enough", shell.Count(sum.Skipped, "letter"))
	}
	err := sh.Emit(sum, func() error {
		// A dry run does nothing: it has counted what matches.
		n := sum.Done
		if w.DryRun {
			n = sum.Matched
		}
		_, err := fmt.Fprintf(sh.Out, "%d %s\n", n, past)
		return err
	})
	// Letters without a cursor were not redriven, which a script has to notice.
	if err == nil && len(sum.NoCursor) > 0 {
		err = shell.CodeError(shell.ExitNotFound)
	}
	return err
}

// someIDs prints the first ten of many ids.
func someIDs(ids []uint64) string {
	// Ids of letters that do not exist may be many: the whole list is in the input.
	const shown = 10
	text := strings.ReplaceAll(lineageText(ids[:min(len(ids), shown)]), " → ", ", ")
	if len(ids) > shown {
		text += ", …"
	}
	return text
}
