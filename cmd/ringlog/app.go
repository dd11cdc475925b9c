package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

const (
	defaultEndpoint = "http://127.0.0.1:8770"
	defaultTimeout  = 10 * time.Second
)

// newApp is the whole command line, bound to sh.
func newApp(sh *shell) *cli.App {
	app := &cli.App{
		Name:                      "ringlog",
		Usage:                     "a replicated event log",
		UsageText:                 "ringlog [global options] VERB [options] [arguments]\n\nTry it: ringlog demo, or ringlog dev for a cluster to play with.",
		Version:                   buildVersion().Version,
		HideVersion:               true,
		EnableBashCompletion:      true,
		DisableSliceFlagSeparator: true,
		Reader:                    sh.in,
		Writer:                    sh.out,
		ErrWriter:                 sh.err,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     globalFlags(),
		Before:                    sh.configure,
		Commands: []*cli.Command{
			devCommand(sh), demoCommand(sh), serveCommand(sh),
			publishCommand(sh), tailCommand(sh), getCommand(sh), cursorCommand(sh), groupCommand(sh), dlqCommand(sh), dedupCommand(sh), clientsCommand(sh),
			statusCommand(sh), checkCommand(sh), verifyCommand(sh), clusterCommand(sh), settingsCommand(sh), catalogueCommand(sh), auditCommand(sh),
			chainCommand(sh), explainCommand(sh), waitCommand(sh), reactCommand(sh),
			compactCommand(sh), snapshotCommand(sh), inspectCommand(sh), benchCommand(sh),
			versionCommand(sh), completionCommand(sh),
		},
	}
	app.Action = group(app.Commands)
	app.OnUsageError = usageProblem
	for _, c := range app.Commands {
		prepare(c)
	}
	return app
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "endpoints", Aliases: []string{"e"}, Usage: "nodes to talk to, comma separated `URL`s",
			EnvVars: []string{"RINGLOG_ENDPOINTS", "RINGRIFT_COORDINATOR_URL"}, Value: defaultEndpoint},
		&cli.StringFlag{Name: "cluster-id", Usage: "`ID` of the cluster: refuse nodes of any other; without it, of any other than the first that answers",
			EnvVars: []string{"RINGLOG_CLUSTER_ID"}},
		&cli.StringFlag{Name: "consistency", Usage: "of reads that end: linearizable, with all that was acknowledged before, or local, as the node that answers has it",
			Value: "linearizable"},
		&cli.DurationFlag{Name: "timeout", Usage: "how long a command may take; streams are bounded per attempt", Value: defaultTimeout,
			EnvVars: []string{"RINGLOG_TIMEOUT"}},
		&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the cluster token (or RINGRIFT_CLUSTER_AUTH_TOKEN)", EnvVars: []string{tokenFileVariable}},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT` of the output: text, or json with one object a line", Value: "text",
			EnvVars: []string{"RINGLOG_OUTPUT"}},
		&cli.BoolFlag{Name: "json", Usage: "the same as -o json"},
	}
}

// prepare makes a command and those below it answer wrong usage alike.
func prepare(c *cli.Command) {
	if c.OnUsageError == nil {
		c.OnUsageError = usageProblem
	}
	if len(c.Subcommands) == 0 {
		return
	}
	if c.Action == nil {
		c.Action = group(c.Subcommands)
	}
	for _, sub := range c.Subcommands {
		prepare(sub)
	}
}

// group is the action of a command that only holds others: help, or the near one
// where the name is wrong.
func group(commands []*cli.Command) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.Args().Present() {
			if c.Command == nil || c.Command.Name == "" || c.Command.Name == c.App.Name {
				return cli.ShowAppHelp(c)
			}
			return cli.ShowSubcommandHelp(c)
		}
		name := c.Args().First()
		return usagef("there is no verb %q%s", name, nearVerb(commands, name))
	}
}

// asFlags turns what people type for help and the version into what the parser takes: help
// NOUN VERB into NOUN VERB --help, and --version into the verb.
func asFlags(app *cli.App, args []string) ([]string, error) {
	switch {
	case len(args) == 2 && args[1] == "--version":
		return []string{args[0], "version"}, nil
	case len(args) < 3 || args[1] != "help" && args[1] != "h" || strings.HasPrefix(args[2], "-"):
		return args, nil
	}
	commands := app.Commands
	for _, name := range args[2:] {
		c := find(commands, name)
		if c == nil {
			return args, usagef("there is no verb %q%s", strings.Join(args[2:], " "), nearVerb(commands, name))
		}
		commands = c.Subcommands
	}
	return append(append([]string{args[0]}, args[2:]...), "--help"), nil
}

func nearVerb(commands []*cli.Command, name string) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Names()...)
	}
	return didYouMean(name, names, "")
}

func nearFlag(flags []cli.Flag, name string) string {
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()...)
	}
	dashes := "--"
	if len(name) == 1 {
		dashes = "-"
	}
	return didYouMean(name, names, dashes)
}

// didYouMean suggests the name that differs from what was typed by at most two letters, and by at
// most half of them: a suggestion that is far off is worse than none.
func didYouMean(typed string, names []string, dashes string) string {
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

// usageProblem answers flags that can not be read, with the near one where there
// is none of that name.
func usageProblem(c *cli.Context, err error, _ bool) error {
	const unknown = "flag provided but not defined: -"
	name, isUnknown := strings.CutPrefix(err.Error(), unknown)
	if !isUnknown {
		return usageError{err}
	}
	flags := c.App.Flags
	if c.Command != nil {
		flags = append(append([]cli.Flag(nil), c.Command.Flags...), flags...)
	}
	return usagef("there is no flag %s%s", dashed(name), nearFlag(flags, strings.TrimLeft(name, "-")))
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + strings.TrimLeft(name, "-")
}

// exactly checks the number of arguments of a verb.
func exactly(c *cli.Context, n int, what string) error {
	if c.NArg() == n {
		return nil
	}
	verb := strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
	switch {
	case n == 0:
		return usagef("%s takes no argument, %q is one", verb, c.Args().First())
	case c.NArg() == 0:
		return usagef("%s needs %s", verb, what)
	default:
		return usagef("%s takes %s; there are %d arguments", verb, what, c.NArg())
	}
}

// bare is the action of a verb without arguments.
func bare(sh *shell, body func(context.Context, *shell) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := exactly(c, 0, ""); err != nil {
			return err
		}
		return body(c.Context, sh)
	}
}

// named is the action of a verb with one argument.
func named(sh *shell, what string, body func(ctx context.Context, sh *shell, arg string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := exactly(c, 1, what); err != nil {
			return err
		}
		return body(c.Context, sh, c.Args().First())
	}
}
