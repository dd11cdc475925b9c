package main

import (
	"context"
	"net/http"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// filterCursorCommand is cursor filter, which replaces the filter of a cursor and keeps its position.
func filterCursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "filter", Usage: "change a cursor's filter, keeping its position", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog cursor filter trainer --type 'evaluation.*'",
			"ringlog cursor filter trainer --all",
		),
		Description: "Committed events are not delivered again, and nothing after them is lost. A reader that " +
			"has the\ncursor open is fenced. What the cursor may hold back does not change.",
		Flags: append(filterFlags(), &cli.BoolFlag{Name: "all", Usage: "choose all events"}),
		Action: checkingName("cursor", shell.Args(1, aCursor, func(c *cli.Context) error {
			// Everything has to be asked for: a forgotten flag would widen the cursor to all events.
			filter, err := filterOf(c)
			switch {
			case err != nil:
				return err
			case filter.Empty() && !c.Bool("all"):
				return shell.Usagef("say which events the cursor gets: --type, --category, --source, --key, " +
					"--correlation-id or --all")
			case !filter.Empty() && c.Bool("all"):
				return shell.Usagef("--all excludes other filters")
			}
			return filterCursor(c.Context, sh, c.Args().First(), filter)
		})),
	}
}

// filterCursor changes a filter and prints what it was.
func filterCursor(ctx context.Context, sh *shell.Shell, name string, filter event.Filter) error {
	var before, after api.Cursor
	// A cursor that does not exist is not created: that is what cursor create is for.
	if err := sh.Fetch(ctx, cursorPath(name), &before); err != nil {
		return err
	}
	// The policy is sent along as it is, so only the filter changes.
	in := map[string]any{"filter": filter, "policy": before.Policy}
	if err := sh.Call(ctx, http.MethodPut, cursorPath(name, "/filter"), nil, in, &after); err != nil {
		return err
	}
	sh.Say("the filter was %s, is now %s for events after %d", filterText(before.Filter), filterText(after.Filter),
		after.Committed)
	return printCursor(sh, after)
}
