package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// aToken is what the argument of most verbs of token is.
const aToken = "the name of a token (to list them: ringlog token ls)"

// tokenCommand is token and its verbs: who may do what.
func tokenCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "token", Aliases: []string{"tokens"},
		Usage: "make, list, renew and revoke the tokens by which callers are let in",
		UsageText: shell.Examples("ringlog token create trainer --role subscriber --type 'TRAINING_*'",
			"ringlog token ls"),
		Description: "A token has one or more roles: monitor, subscriber, publisher, operator, admin. Those of a\n" +
			"subscriber or publisher may be bound to types of events, and to names of cursors and groups. The cluster token\n" +
			"stays root's and the nodes' own.",
		Subcommands: []*cli.Command{
			{Name: "create", Usage: "make a token, and print it this once", ArgsUsage: "NAME",
				UsageText: shell.Examples(
					"ringlog token create trainer --role subscriber --type 'TRAINING_*'",
					"ringlog token create dashboards --role monitor --expires 90d"),
				Description: "Whoever has the token may do what its roles allow. Nobody can print it again: one that is\n" +
					"lost is given another secret by token rotate.",
				Flags: []cli.Flag{
					&cli.StringSliceFlag{Name: "role",
						Usage: "a `ROLE`: monitor, subscriber, publisher, operator or admin; may be repeated"},
					&cli.StringSliceFlag{Name: "type",
						Usage: "only events of types that match this `PATTERN`; may be repeated"},
					&cli.StringSliceFlag{Name: "cursor",
						Usage: "only cursors and groups that match this `PATTERN`; may be repeated"},
					&cli.StringFlag{Name: "expires",
						Usage: "how long it is good, as an `AGE` such as 90d; without it, until it is revoked"},
				},
				Action: shell.Args(1, "a name for the token", func(c *cli.Context) error {
					return createToken(c.Context, sh, c.Args().First(), api.NewToken{Roles: c.StringSlice("role"),
						Types: c.StringSlice("type"), Cursors: c.StringSlice("cursor"), Expires: c.String("expires")})
				})},
			{Name: "ls", Usage: "list the tokens, without their secrets",
				UsageText: shell.Examples("ringlog token ls", "ringlog token ls -o json"), Action: shell.Bare(sh, listTokens)},
			{Name: "rotate", Usage: "change the secret of a token, and print it this once", ArgsUsage: "NAME",
				UsageText:   shell.Examples("ringlog token rotate trainer --grace 10m"),
				Description: "The secret before counts for the grace, so that those who have it can change over.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "grace", Value: "1h",
						Usage: "for how long the secret before counts, as an `AGE`; 0s is not at all"},
				},
				Action: shell.Args(1, aToken, func(c *cli.Context) error {
					return rotateToken(c.Context, sh, c.Args().First(), c.String("grace"))
				})},
			{Name: "revoke", ArgsUsage: "NAME",
				Usage:     "remove a token: every node refuses it within a second, and ends its streams",
				UsageText: shell.Examples("ringlog token revoke trainer --dry-run", "ringlog token revoke trainer --yes"),
				Flags:     shell.ConsentFlags(),
				Action: shell.Args(1, aToken, func(c *cli.Context) error {
					return revokeToken(c.Context, sh, c.Args().First(), shell.ConsentOf(c))
				})},
		},
	}
}

// tokenPath is the route of a token.
func tokenPath(name string) string { return "/v1/tokens/" + url.PathEscape(name) }

// createToken makes a token.
func createToken(ctx context.Context, sh *shell.Shell, name string, n api.NewToken) error {
	// The node would refuse it as well, but knows nothing of the flag.
	if len(n.Roles) == 0 {
		return shell.Usagef("--role is missing: monitor, subscriber, publisher, operator or admin")
	}
	var made api.TokenMade
	if err := sh.Call(ctx, http.MethodPut, tokenPath(name), nil, n, &made); err != nil {
		return err
	}
	return printMade(sh, made)
}

// printMade prints a token with its secret: on stdout alone, so that it can be put into a file.
func printMade(sh *shell.Shell, made api.TokenMade) error {
	// Warnings and the notice go to the standard error.
	for _, w := range made.Warnings {
		sh.Say("warning: %s", w)
	}
	return sh.Emit(made, func() error {
		sh.Say("this is shown once: keep it in a file that nobody else can read")
		_, err := fmt.Fprintln(sh.Out, made.Bearer)
		return err
	})
}

// listTokens prints all tokens.
func listTokens(ctx context.Context, sh *shell.Shell) error {
	var all api.Tokens
	if err := sh.Fetch(ctx, "/v1/tokens", &all); err != nil {
		return err
	}
	header := table.Row{"token", "roles", "types", "cursors", "expires", "by"}
	// Secrets are not in the answer: a node keeps no more than what recognizes one.
	return shell.EmitEach(sh, "token", all.Tokens, header, func(t api.Token) table.Row {
		return table.Row{t.Name, strings.Join(t.Roles, ","), patterns(t.Types), patterns(t.Cursors), expiry(&t), t.By}
	})
}

// patterns lists patterns, of which none is all.
func patterns(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return strings.Join(list, ",")
}

// expiry says when a token expires. The node says whether it has expired, by its own clock.
func expiry(t *api.Token) string {
	switch {
	case t.Expired:
		return "expired"
	case t.Expires.IsZero():
		return "never"
	}
	return shell.Moment(t.Expires)
}

// rotateToken gives a token another secret. The node reads the grace, which is an age.
func rotateToken(ctx context.Context, sh *shell.Shell, name, grace string) error {
	var made api.TokenMade
	err := sh.Call(ctx, http.MethodPost, tokenPath(name)+"/rotate", nil, api.TokenRotation{Grace: grace}, &made)
	if err != nil {
		return err
	}
	return printMade(sh, made)
}

// revokeToken removes a token.
func revokeToken(ctx context.Context, sh *shell.Shell, name string, leave shell.Consent) error {
	// A token that does not exist is reported before the question.
	var all api.Tokens
	if err := sh.Fetch(ctx, "/v1/tokens", &all); err != nil {
		return err
	}
	known := slices.IndexFunc(all.Tokens, func(t api.Token) bool { return t.Name == name })
	// A name that is not in the list is left to the node, whose error says what is near.
	if leave.DryRun && known >= 0 {
		sh.Say("%s would be revoked (%s)", name, strings.Join(all.Tokens[known].Roles, ", "))
		return nil
	}
	if known >= 0 {
		roles := strings.Join(all.Tokens[known].Roles, ", ")
		if err := sh.Confirm(leave, "Revoke the token %q (%s)?", name, roles); err != nil {
			return err
		}
	}
	if err := sh.Call(ctx, http.MethodDelete, tokenPath(name), nil, nil, nil); err != nil {
		return err
	}
	sh.Say("revoked %s", name)
	return nil
}
