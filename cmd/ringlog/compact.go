package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// compactOptions say up to where to remove, and what to ask before.
// At most one of Before, OlderThan and Keep is set; with none the retention settings apply.
type compactOptions struct {
	api.Compaction
	shell.Consent
}

// compactCommand is compact. It shows what would go, asks, and removes; cursors are not overtaken without --force.
func compactCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "compact", Usage: "remove old events",
		UsageText: shell.Examples(
			"ringlog compact --dry-run",
			"ringlog compact --older-than 7d --yes",
			"ringlog compact --keep 1000000 --yes",
		),
		Description: "Without flags it removes what the retention settings allow. Only whole blocks are removed, so " +
			"a little more may stay than you asked for. A cursor holds back events that it has not committed; " +
			"--force removes them, and the cursor gets a gap.",
		Flags: append(shell.ConsentFlags(),
			// Three ways to say how far, of which one may be given.
			&cli.StringFlag{Name: "before", Usage: "remove events before `OFFSET`"},
			&cli.StringFlag{Name: "older-than", Usage: "remove events older than `AGE`, such as 12h or 7d"},
			&cli.Uint64Flag{Name: "keep", Usage: "remove all but the newest `N` events"},
			// Without it cursors keep what they have not committed.
			&cli.BoolFlag{Name: "force", Usage: "also remove what cursors hold back"},
		),
		Action: shell.NoArgs(func(c *cli.Context) error {
			o, err := compactOptionsOf(c)
			if err != nil {
				return err
			}
			return compact(c.Context, sh, o)
		}),
	}
}

// compactOptionsOf reads the flags; only one of them may say how far.
func compactOptionsOf(c *cli.Context) (o compactOptions, err error) {
	// The node refuses contradictions, too; here the error names the flags.
	o = compactOptions{Compaction: api.Compaction{Force: c.Bool("force")}, Consent: shell.ConsentOf(c)}
	// A flag that is set counts, even with the value 0.
	given := 0
	if c.IsSet("before") {
		given++
		before, err := shell.ParseOffset(c.String("before"))
		if err != nil {
			return o, err
		}
		o.Before = &before
	}
	if c.IsSet("older-than") {
		given++
		age, err := shell.ParseAge("older-than", c.String("older-than"))
		if err != nil {
			return o, err
		}
		o.OlderThan = age.String()
	}
	if c.IsSet("keep") {
		given++
		keep := c.Uint64("keep")
		o.Keep = &keep
	}
	// Several ways to say how far would contradict each other; --force alone says nothing.
	switch {
	case given > 1:
		return o, shell.Usagef("--before, --older-than and --keep exclude each other")
	case given == 0 && o.Force:
		return o, shell.Usagef("--force goes with --before, --older-than or --keep")
	}
	return o, nil
}

// bare reports a compaction by the retention settings, which happens by itself too.
func (o compactOptions) bare() bool { return o.Before == nil && o.OlderThan == "" && o.Keep == nil }

// request returns the body of the call that plans the compaction, or carries it out.
func (o compactOptions) request(dryRun bool) api.Compaction {
	// The options stay as they are, for the second call.
	in := o.Compaction
	in.DryRun = dryRun
	return in
}

// compact shows the plan, asks, and removes. It makes two calls, of which the first changes nothing.
func compact(ctx context.Context, sh *shell.Shell, o compactOptions) error {
	// The plan is the node's own, by a dry run: it knows its blocks and cursors.
	var plan, done api.TrimResult
	if err := sh.Call(ctx, http.MethodPost, "/v1/compact", nil, o.request(true), &plan); err != nil {
		return err
	}
	if o.Consent.DryRun {
		return printTrim(sh, plan, "would be ")
	}
	// Events that the settings would remove by themselves need no consent.
	if !o.bare() && plan.Removed > 0 {
		if err := sh.Confirm(o.Consent, "Remove %s, so that %d is the first offset kept?",
			shell.Count(plan.Removed, "event"), plan.First); err != nil {
			return err
		}
	}
	// The log may have grown since the plan was made, so this answer is what is printed.
	if err := sh.Call(ctx, http.MethodPost, "/v1/compact", nil, o.request(false), &done); err != nil {
		return err
	}
	return printTrim(sh, done, "")
}

// printTrim prints what was removed, or would be.
func printTrim(sh *shell.Shell, t api.TrimResult, mood string) error {
	// The cursors that hold events back, and those that lose some, are notices beside the figures.
	if t.HeldBy != "" {
		sh.Say("cursor %s holds back the next events; --force removes them", t.HeldBy)
	}
	if len(t.Passed) > 0 {
		sh.Say("%spassed, with a gap: %s", mood, strings.Join(t.Passed, ", "))
	}
	return sh.Emit(t, func() error {
		return sh.Facts(mood+"removed", t.Removed, "first kept", t.First)
	})
}
