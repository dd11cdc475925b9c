package main

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// aContext names the argument in errors.
const aContext = "the name of a context"

// contextCommand is context: clusters by name, as kubectl and nats have them.
func contextCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "context", Usage: "manage named clusters: endpoints, token file, TLS and output",
		Description: "Every verb uses the current context, or the one that --context or RINGLOG_CONTEXT names. A flag, or " +
			"its variable, counts more than the context. serve, dev and demo use none.",
		UsageText: shell.Examples("ringlog context add local -e http://127.0.0.1:8770", "ringlog context ls"),
		Subcommands: []*cli.Command{
			{Name: "add", Usage: "add a context made of the flags of every verb, or replace it", ArgsUsage: "NAME",
				Description: "It takes --endpoints, --cluster-id, --token-file, --tls-ca, --tls-cert, --tls-key and --output. " +
					"The token itself stays in its file.",
				UsageText: shell.Examples("ringlog context add local -e http://127.0.0.1:8770"),
				Flags:     []cli.Flag{&cli.BoolFlag{Name: "use", Usage: "make it the current one, too"}},
				Action: shell.Args(1, aContext, func(c *cli.Context) error {
					return changeContexts(sh, func(all *shell.Contexts) error {
						name := c.Args().First()
						// These are the global flags of the command line, which this verb does not use itself.
						added, err := shell.ContextOf(c)
						if err != nil {
							return err
						}
						if added == (shell.Context{}) {
							return shell.Usagef("a context needs at least --endpoints")
						}
						// A context of that name is replaced as a whole: what is not given is not kept.
						all.Contexts[name] = added
						if c.Bool("use") {
							all.Current = name
						}
						return nil
					})
				})},
			{Name: "use", Usage: "make a context the current one", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog context use local"),
				Action: shell.Args(1, aContext, func(c *cli.Context) error {
					return changeContexts(sh, func(all *shell.Contexts) error {
						if _, there := all.Contexts[c.Args().First()]; !there {
							return all.Unknown(c.Args().First())
						}
						all.Current = c.Args().First()
						return nil
					})
				})},
			{Name: "ls", Usage: "list the contexts", UsageText: shell.Examples("ringlog context ls"),
				Action: shell.NoArgs(func(*cli.Context) error { return listContexts(sh) })},
			{Name: "rm", Usage: "remove a context", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog context rm local"),
				Action: shell.Args(1, aContext, func(c *cli.Context) error {
					return changeContexts(sh, func(all *shell.Contexts) error {
						name := c.Args().First()
						if _, there := all.Contexts[name]; !there {
							return all.Unknown(name)
						}
						delete(all.Contexts, name)
						// Without a current context the defaults apply.
						if all.Current == name {
							all.Current = ""
						}
						return nil
					})
				})},
		},
	}
}

// changeContexts reads the contexts, changes them, and writes them. If change fails, nothing is written. Of two
// commands at a time one may lose its change. The file is whole in any case.
func changeContexts(sh *shell.Shell, change func(*shell.Contexts) error) error {
	all, err := sh.ReadContexts()
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	return all.Write()
}

// namedContext is a row of context ls.
type namedContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	shell.Context
}

// listContexts prints the contexts; the current one has a star.
func listContexts(sh *shell.Shell) error {
	all, err := sh.ReadContexts()
	if err != nil {
		return err
	}
	var list []namedContext
	// Programs get all of a context, people what distinguishes contexts.
	for _, name := range all.Names() {
		list = append(list, namedContext{Name: name, Current: name == all.Current, Context: all.Contexts[name]})
	}
	return shell.EmitEach(sh, "context", list, table.Row{"name", "endpoints", "token file", "ca", "output"},
		func(x namedContext) table.Row {
			name := x.Name
			if x.Current {
				name += " *"
			}
			return table.Row{name, x.Endpoints, x.TokenFile, x.TLSCA, x.Output}
		})
}
