package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// getCommand is get. An offset without an event is reported as not found, whether it is trimmed or not appended yet.
func getCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "print one event", ArgsUsage: "OFFSET",
		UsageText: shell.Examples(
			"ringlog get 7",
			"ringlog get 7 -o json",
		),
		Action: shell.Args(1, "an offset", func(c *cli.Context) error {
			// Offsets begin at 1: anything else is wrong usage, and no node is asked.
			offset, err := shell.ParseOffset(c.Args().First())
			if err != nil {
				return err
			}
			return get(c.Context, sh, offset)
		}),
	}
}

// get prints one event.
func get(ctx context.Context, sh *shell.Shell, offset uint64) error {
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		// The client asks the leader before it reports an offset as not appended.
		ev, err := c.Get(ctx, offset)
		if err != nil {
			return err
		}
		// On a terminal the whole event is printed, else a line as tail prints it.
		p := shell.NewPrinter(sh)
		if err := p.Whole(&ev); err != nil {
			return err
		}
		return p.Out.Flush()
	})
}
