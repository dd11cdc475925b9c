package main

import (
	_ "embed" // the scripts below
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// bashCompletion and zshCompletion ask the program itself what could follow, with the flag
// that urfave/cli answers.
var (
	//go:embed completion.bash
	bashCompletion string
	//go:embed completion.zsh
	zshCompletion string
)

// completionCommand is completion. It prints a script and changes nothing: people source it, or put it where their
// shell looks for it.
func completionCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell's completion script", ArgsUsage: "bash|zsh|fish",
		// In the shell of that name, which reads what is printed.
		UsageText: shell.Examples("source <(ringlog completion bash)", "source <(ringlog completion zsh)",
			"ringlog completion fish | source"),
		Action: shell.Args(1, "bash, zsh or fish", func(c *cli.Context) error {
			// The script is for the program as it is now, flags and verbs are asked for at run time.
			script, err := completionScript(c.App, c.Args().First())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(sh.Out, script)
			return err
		}),
	}
}

// completionScript is the script for a shell.
func completionScript(app *cli.App, name string) (string, error) {
	// fish has no way to ask the program, so its script has all verbs and flags.
	switch name {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	default:
		return "", shell.Usagef("there is no completion for %q: use bash, zsh or fish", name)
	}
}
