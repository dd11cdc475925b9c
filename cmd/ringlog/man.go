package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// manCommand is man, which makes the manual page for packages. The help does not list it: people have man.
func manCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page", Hidden: true,
		Action: shell.NoArgs(func(c *cli.Context) error {
			_, err := fmt.Fprint(sh.Out, shell.ManPage(c.App))
			return err
		}),
	}
}
