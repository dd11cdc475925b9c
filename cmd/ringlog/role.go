package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// aRole is what the argument of most verbs of role is.
const aRole = "the name of a role"

// roleCommand is role and its verbs: which process holds which role.
func roleCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "role", Usage: "show, acquire and release roles, which one process holds at a time",
		UsageText: shell.Examples(
			"ringlog role ls",
			"ringlog role acquire PROMOTION_LEADER --ttl 1m",
			"ringlog role release PROMOTION_LEADER",
		),
		Description: "A role has at most one holder, until its lease is over. The fence is the offset of the ROLE_ACQUIRED\n" +
			"event; a later holder has a higher one. What is published with --role and --fence is refused once\n" +
			"the lease is over.",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list the roles that are held", Action: shell.Bare(sh, listRoles),
				UsageText: shell.Examples("ringlog role ls", "ringlog role ls -o json")},
			{Name: "info", Usage: "show who holds a role and who waits for it", ArgsUsage: "ROLE",
				UsageText: shell.Examples("ringlog role info PROMOTION_LEADER"), Action: shell.Named(sh, aRole, showRole)},
			acquireRoleCommand(sh),
			{Name: "release", Usage: "release a role, or leave its queue", ArgsUsage: "ROLE",
				UsageText: shell.Examples("ringlog role release PROMOTION_LEADER"),
				Flags:     []cli.Flag{sessionFlag()},
				Action: shell.Args(1, aRole, func(c *cli.Context) error {
					query := url.Values{"session": {sessionOf(c)}}
					return endLease(c.Context, sh, c.Args().First(), query)
				})},
			{Name: "revoke", Usage: "take a role from its holder", ArgsUsage: "ROLE",
				UsageText: shell.Examples("ringlog role revoke EXTERNAL_SYNC_LEADER --dry-run"),
				Description: "The holder learns of it with its next renewal, and what it publishes under its fence is refused\n" +
					"at once. The first in the queue gets the role.",
				Flags: shell.ConsentFlags(), Action: shell.Args(1, aRole, func(c *cli.Context) error {
					return revokeRole(c.Context, sh, c.Args().First(), shell.ConsentOf(c))
				})},
			{Name: "watch", Usage: "print who acquires, releases and loses roles, until Ctrl-C", ArgsUsage: "[ROLE]",
				UsageText: shell.Examples("ringlog role watch --from start --until-end",
					"ringlog role watch PROMOTION_LEADER --from -1000 --until-end"),
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", Usage: "`POSITION` to begin at, as of ringlog tail", Value: "end"},
					&cli.BoolFlag{Name: "until-end", Usage: "stop at the current end of the log"},
				},
				Action: func(c *cli.Context) error {
					from, err := shell.ParsePosition("from", c.String("from"))
					if err != nil {
						return err
					}
					o := tailOptions{filter: event.Filter{Types: []string{"ROLE_*"}}, from: &from, untilEnd: c.Bool("until-end")}
					if c.NArg() > 0 {
						if err := shell.Exactly(c, 1, aRole); err != nil {
							return err
						}
						// The events of a role have its name as their key.
						o.filter.Keys = []string{c.Args().First()}
					}
					return tail(c.Context, sh, o)
				}},
		},
	}
}

// acquireRoleCommand is role acquire.
func acquireRoleCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "acquire", Usage: "acquire a role, or renew the lease of this shell", ArgsUsage: "ROLE",
		UsageText: shell.Examples(
			"ringlog role acquire DISTILLATION_LEADER",
			"ringlog role acquire EXTERNAL_SYNC_LEADER --ttl 1m --wait",
		),
		Description: "The lease ends after the TTL unless the same command renews it: no process stays. The session says who\n" +
			"holds the role; by default it is of the process that runs the command, so commands of one shell share it.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "how long the lease lasts, from 2s to 1h", Value: 15 * time.Second},
			&cli.BoolFlag{Name: "wait", Usage: "wait in the queue until the role is free, or --timeout is over"},
			&cli.StringFlag{Name: "holder", Usage: "`NAME` that others see (default: host and process)"},
			sessionFlag(),
		},
		Action: shell.Args(1, aRole, func(c *cli.Context) error {
			ask := api.RoleAcquire{Session: sessionOf(c), TTL: c.Duration("ttl").String()}
			ask.Holder = cmp.Or(c.String("holder"), ask.Session)
			return acquireRole(c.Context, sh, c.Args().First(), ask, c.Bool("wait"))
		}),
	}
}

// sessionFlag is --session.
func sessionFlag() cli.Flag {
	return &cli.StringFlag{Name: "session", Usage: "`ID` of the claim, the same for each command about it " +
		"(default: host and process that runs the command)"}
}

// sessionOf returns the session of a command. All commands of a shell have one parent.
func sessionOf(c *cli.Context) string {
	host, _ := os.Hostname() // a part of a name
	return cmp.Or(c.String("session"), fmt.Sprintf("%.200s:%d", host, os.Getppid()))
}

// rolePath is the route of a role.
func rolePath(name string) string { return "/v1/roles/" + url.PathEscape(name) }

// listRoles prints the roles that are held.
func listRoles(ctx context.Context, sh *shell.Shell) error {
	var list []api.Role
	query := url.Values{"limit": {"1000"}}
	for {
		var page api.RolePage
		if err := sh.Call(ctx, http.MethodGet, "/v1/roles", query, nil, &page); err != nil {
			return err
		}
		list = append(list, page.Roles...)
		if page.Next == "" {
			break
		}
		query.Set("after", page.Next)
	}
	header := table.Row{"role", "holder", "fence", "since", "ttl", "renewed", "waiting"}
	return shell.EmitEach(sh, list, header, func(r api.Role) table.Row {
		return table.Row{r.Role, r.Holder, r.Fence, shell.Clock(r.Since), r.TTL, shell.Short(time.Since(r.Renewed)) + " ago",
			len(r.Waiting)}
	})
}

// showRole prints a role and its queue.
func showRole(ctx context.Context, sh *shell.Shell, name string) error {
	var r api.Role
	if err := sh.Fetch(ctx, rolePath(name), &r); err != nil {
		return err
	}
	return sh.Emit(r, func() error { return printRole(sh, r) })
}

// printRole prints who holds a role and who waits for it.
func printRole(sh *shell.Shell, r api.Role) error {
	facts := []any{"role", r.Role, "holder", cmp.Or(r.Holder, "nobody")}
	if r.Holder != "" {
		facts = append(facts, "fence", r.Fence, "since", shell.Clock(r.Since), "ttl", r.TTL,
			"renewed", shell.Short(time.Since(r.Renewed))+" ago")
	}
	for i, c := range r.Waiting {
		facts = append(facts, fmt.Sprintf("waiting %d", i+1), c.Holder+" since "+shell.Clock(c.Since))
	}
	return sh.Facts(facts...)
}

// acquireRole acquires a role and prints the fence. With wait it may take as long as --timeout says.
func acquireRole(ctx context.Context, sh *shell.Shell, name string, ask api.RoleAcquire, wait bool) error {
	began, place := time.Now(), 0
	for {
		left := sh.Timeout - time.Since(began)
		if wait {
			// Half of what is left, so the call itself has time.
			ask.Wait = min(left/2, 20*time.Second).Round(time.Millisecond).String()
		}
		var answer api.RoleAcquired
		if err := sh.Call(ctx, http.MethodPut, rolePath(name), nil, ask, &answer); err != nil {
			return err
		}
		switch {
		case answer.Acquired:
			return sh.Emit(answer, func() error {
				sh.Say("%s holds %s for %s", answer.Holder, name, answer.TTL)
				// A script takes the fence.
				_, err := fmt.Fprintln(sh.Out, answer.Fence)
				return err
			})
		case !wait:
			sh.Say("%s holds %s with fence %d: wait for it with --wait", answer.Holder, name, answer.Fence)
			return shell.CodeError(shell.ExitRefused)
		case time.Since(began) > sh.Timeout-sh.Timeout/8:
			sh.Say("%s still holds %s after %s", answer.Holder, name, shell.Short(sh.Timeout))
			return shell.CodeError(shell.ExitTimeout)
		case answer.Place != place:
			place = answer.Place
			sh.Say("%s holds %s; place %d of %d", answer.Holder, name, place, answer.Waiting)
		}
	}
}

// endLease ends a claim and prints the role after it.
func endLease(ctx context.Context, sh *shell.Shell, name string, query url.Values) error {
	var r api.Role
	if err := sh.Call(ctx, http.MethodDelete, rolePath(name), query, nil, &r); err != nil {
		return err
	}
	return sh.Emit(r, func() error { return printRole(sh, r) })
}

// revokeRole takes a role from its holder after asking.
func revokeRole(ctx context.Context, sh *shell.Shell, name string, leave shell.Consent) error {
	var r api.Role
	if err := sh.Fetch(ctx, rolePath(name), &r); err != nil {
		return err
	}
	switch {
	case r.Holder == "":
		sh.Say("nobody holds %s", name)
		return shell.CodeError(shell.ExitNotFound)
	case leave.DryRun:
		sh.Say("%s would lose %s, which it holds with fence %d", r.Holder, name, r.Fence)
		return nil
	}
	if err := sh.Confirm(leave, "Revoke the role %q of %s?", name, r.Holder); err != nil {
		return err
	}
	// By its fence: who gets the role meanwhile keeps it.
	return endLease(ctx, sh, name, url.Values{"fence": {strconv.FormatUint(r.Fence, 10)}})
}

// leaseFlags are --role and --fence, under which an event is published.
func leaseFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "role", Usage: "refuse the event unless the lease of this `ROLE` with --fence is held"},
		&cli.Uint64Flag{Name: "fence", Usage: "`OFFSET` with which the role was acquired"},
	}
}

// leaseOf reads leaseFlags.
func leaseOf(c *cli.Context) (client.Lease, error) {
	l := client.Lease{Role: c.String("role"), Fence: c.Uint64("fence")}
	if (l.Role == "") != (l.Fence == 0) {
		return l, shell.Usagef("--role and --fence belong together: ringlog role acquire prints the fence")
	}
	return l, nil
}
