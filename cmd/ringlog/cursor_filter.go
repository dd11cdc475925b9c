package main

import (
	"context"
	"net/http"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

func filterCursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "filter", Usage: "give a cursor another filter, and leave it where it is", ArgsUsage: "NAME",
		Description: "What it has committed does not come again, and nothing behind that is lost. Who has it\nopen is fenced off. What the cursor may hold back stays as it is.",
		Flags:       append(filterFlags(), &cli.BoolFlag{Name: "all", Usage: "every event"}),
		Action: func(c *cli.Context) error {
			if err := shell.Exactly(c, 1, aCursor); err != nil {
				return err
			}
			filter, err := filterOf(c)
			switch {
			case err != nil:
				return err
			case filter.Empty() && !c.Bool("all"):
				return shell.Usagef("say which events it is to get, with --type and the like, or --all")
			case !filter.Empty() && c.Bool("all"):
				return shell.Usagef("--all goes with no other filter")
			}
			return filterCursor(c.Context, sh, c.Args().First(), filter)
		},
	}
}

func filterCursor(ctx context.Context, sh *shell.Shell, name string, filter event.Filter) error {
	var before, after cursorInfo
	if err := sh.Fetch(ctx, cursorPath(name), &before); err != nil {
		return err
	}
	in := map[string]any{"filter": filter, "policy": before.Policy}
	if err := sh.Call(ctx, http.MethodPut, cursorPath(name, "/filter"), nil, in, &after); err != nil {
		return err
	}
	sh.Say("the filter was %s and is %s, from behind %d", filterText(before.Filter), filterText(after.Filter), after.Committed)
	return printCursor(sh, after)
}
