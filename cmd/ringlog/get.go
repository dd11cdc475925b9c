package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
)

func getCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "print one event", ArgsUsage: "OFFSET",
		Action: func(c *cli.Context) error {
			if err := exactly(c, 1, "an offset"); err != nil {
				return err
			}
			offset, err := parseOffset(c.Args().First())
			if err != nil {
				return err
			}
			return get(c.Context, sh, offset)
		},
	}
}

func get(ctx context.Context, sh *shell, offset uint64) error {
	return sh.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		ev, err := c.Get(ctx, offset)
		if err != nil {
			return err
		}
		p := newPrinter(sh)
		if err := p.event(&ev); err != nil {
			return err
		}
		return p.out.Flush()
	})
}
