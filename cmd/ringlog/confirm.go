package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// consent is how a verb that destroys something is let do it.
type consent struct {
	dryRun bool // say what would be done, and do nothing
	yes    bool // do not ask
}

func consentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "say what would be done, and do nothing"},
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
	}
}

func consentOf(c *cli.Context) consent { return consent{dryRun: c.Bool("dry-run"), yes: c.Bool("yes")} }

// confirm asks on a terminal. Without one, only --yes will do.
func (sh *shell) confirm(c consent, question string, args ...any) error {
	question = fmt.Sprintf(question, args...)
	if c.yes {
		return nil
	}
	if !sh.inTerminal || !sh.errTerminal {
		return usagef("%s Without a terminal to ask on, say so with --yes, or look first with --dry-run", question)
	}
	fmt.Fprintf(sh.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(sh.in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	if err != nil && answer == "" || answer != "y" && answer != "yes" {
		sh.say("nothing was done")
		return codeError(exitFailed)
	}
	return nil
}
