package shell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// What the global flags are by default.
const (
	DefaultEndpoint = "http://127.0.0.1:8770"
	DefaultTimeout  = 10 * time.Second
)

// Prepare makes a command and those below it answer wrong usage alike.
func Prepare(c *cli.Command) {
	if c.OnUsageError == nil {
		c.OnUsageError = UsageProblem
	}
	// A verb has an action of its own.
	if len(c.Subcommands) == 0 {
		return
	}
	// A command that only holds others prints help, or suggests a verb.
	if c.Action == nil {
		c.Action = RunGroup(c.Subcommands)
	}
	for _, sub := range c.Subcommands {
		Prepare(sub)
	}
}

// RunGroup is the action of a command that only holds others: help, or the near one
// where the name is wrong.
func RunGroup(commands []*cli.Command) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.Args().Present() {
			// Without a name, the program and a group of verbs have help of different forms.
			if c.Command == nil || c.Command.Name == "" || c.Command.Name == c.App.Name {
				return cli.ShowAppHelp(c)
			}
			return cli.ShowSubcommandHelp(c)
		}
		name := c.Args().First()
		return Usagef("there is no verb %q%s", name, nearVerb(commands, name))
	}
}

// AsFlags rewrites the usual ways to ask for help and the version into those that the parser takes: help
// NOUN VERB into NOUN VERB --help, and --version into the verb.
func AsFlags(app *cli.App, args []string) ([]string, error) {
	switch {
	case len(args) == 2 && args[1] == "--version":
		return []string{args[0], "version"}, nil
	case len(args) < 3 || (args[1] != "help" && args[1] != "h") || strings.HasPrefix(args[2], "-"):
		return args, nil
	}
	// Follow the nouns and verbs down to the one whose help is asked for.
	commands := app.Commands
	for _, name := range args[2:] {
		c := find(commands, name)
		if c == nil {
			return args, Usagef("there is no verb %q%s", strings.Join(args[2:], " "), nearVerb(commands, name))
		}
		commands = c.Subcommands
	}
	return append(append([]string{args[0]}, args[2:]...), "--help"), nil
}

// nearVerb suggests a verb for one that does not exist.
// The result is the end of a sentence, "" where no name is near.
func nearVerb(commands []*cli.Command, name string) string {
	// Aliases are candidates, too.
	var names []string
	for _, c := range commands {
		names = append(names, c.Names()...)
	}
	return DidYouMean(name, names, "")
}

// nearFlag suggests a flag for one that does not exist.
func nearFlag(flags []cli.Flag, name string) string {
	var names []string
	// Short names are candidates, too.
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	// A short flag has one dash, and is compared with all names all the same.
	dashes := "--"
	if len(name) == 1 {
		dashes = "-"
	}
	return DidYouMean(name, names, dashes)
}

// DidYouMean suggests the name that differs from what was typed by at most two letters, and by at
// most half of them: a suggestion that is far off is worse than none.
func DidYouMean(typed string, names []string, dashes string) string {
	// The distance must be below the bound, and the nearest name wins.
	nearest, least := "", min(2, len(typed)/2)+1
	for _, name := range names {
		if d := smetrics.WagnerFischer(typed, name, 1, 1, 1); d < least {
			nearest, least = name, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(". Did you mean %q?", dashes+nearest)
}

// UsageProblem answers flags that cannot be read, with the near one where there
// is none of that name.
func UsageProblem(c *cli.Context, err error, _ bool) error {
	// Package flag reports an unknown flag by its text alone.
	// The text is that of Go's package flag, which has no error value for it.
	const unknown = "flag provided but not defined: -"
	name, isUnknown := strings.CutPrefix(err.Error(), unknown)
	// A flag that exists and has a wrong value keeps the library's own text.
	if !isUnknown {
		return UsageError{err}
	}
	// The program's flags may be anywhere on the line, so they are candidates, too.
	flags := c.App.Flags
	if c.Command != nil {
		flags = append(append([]cli.Flag(nil), c.Command.Flags...), flags...)
	}
	return Usagef("there is no flag %s%s", dashed(name), nearFlag(flags, strings.TrimLeft(name, "-")))
}

// dashed returns a flag's name as it is typed.
func dashed(name string) string {
	// A name of one letter is typed with one dash.
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// Exactly checks the number of arguments of a verb.
func Exactly(c *cli.Context, n int, what string) error {
	if c.NArg() == n {
		return nil
	}
	// HelpName is the way from the program to the verb, such as "ringlog cursor seek".
	verb := strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
	switch {
	case n == 0:
		return Usagef("%s takes no arguments, but got %q", verb, c.Args().First())
	case c.NArg() == 0:
		return Usagef("%s needs %s", verb, what)
	default:
		return Usagef("%s takes %s, but got %d arguments", verb, what, c.NArg())
	}
}

// Args is the action of a verb that takes n arguments; what names them in the error about any other number.
func Args(n int, what string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := Exactly(c, n, what); err != nil {
			return err
		}
		return action(c)
	}
}

// NoArgs is the action of a verb that takes flags alone.
func NoArgs(action cli.ActionFunc) cli.ActionFunc { return Args(0, "", action) }

// Bare is the action of a verb without flags or arguments.
func Bare(sh *Shell, body func(context.Context, *Shell) error) cli.ActionFunc {
	return NoArgs(func(c *cli.Context) error { return body(c.Context, sh) })
}

// Named is the action of a verb with one argument and no flags.
func Named(sh *Shell, what string, body func(ctx context.Context, sh *Shell, arg string) error) cli.ActionFunc {
	return Args(1, what, func(c *cli.Context) error { return body(c.Context, sh, c.Args().First()) })
}
