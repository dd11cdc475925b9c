package main

import (
	"cmp"
	"context"
	"errors"
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

// A claim of a role is a lease under a session. Commands are processes that end, so the session is the one of the
// shell that runs them, or is named. The fence is what the holder publishes under.

// aRole is what the argument of most verbs of role is.
const aRole = "the name of a role"

// roleCommand is role and its verbs: which process holds which role.
func roleCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "role", Usage: "show, acquire and release roles, which one process holds at a time",
		UsageText: shell.Examples(
			"ringlog role ls",
			"ringlog role acquire PROMOTION_LEADER --session nightly-7 --ttl 1m",
			"ringlog role release PROMOTION_LEADER --session nightly-7",
		),
		Description: "A role has at most one holder, until its lease is over. The fence is the offset of the\n" +
			"ROLE_ACQUIRED event; a later holder has a higher one. What is published with --role and --fence is refused once\n" +
			"the lease is over.",
		Subcommands: []*cli.Command{
			// A role is named by whoever acquires it: there is nothing to create.
			{Name: "ls", Usage: "list the roles that are held", Action: shell.Bare(sh, listRoles),
				UsageText: shell.Examples("ringlog role ls", "ringlog role ls -o json")},
			{Name: "info", Usage: "show who holds a role and who waits for it", ArgsUsage: "ROLE",
				UsageText: shell.Examples("ringlog role info PROMOTION_LEADER"), Action: shell.Named(sh, aRole, showRole)},
			acquireRoleCommand(sh),
			{Name: "release", Usage: "release a role, or leave its queue", ArgsUsage: "ROLE",
				UsageText: shell.Examples("ringlog role release PROMOTION_LEADER --session nightly-7"),
				Flags:     []cli.Flag{sessionFlag()},
				Action: shell.Args(1, aRole, func(c *cli.Context) error {
					session, err := sessionOf(c.String("session"), os.Getppid())
					if err != nil {
						return err
					}
					return endLease(c.Context, sh, c.Args().First(), url.Values{"session": {session}})
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
					// It is a tail of the events that the cluster emits about roles.
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
			"ringlog role acquire PROMOTION_LEADER --session nightly-7",
			"ringlog role acquire EXTERNAL_SYNC_LEADER --ttl 1m --wait",
		),
		Description: "The lease ends after the TTL unless the same command renews it: no process stays. The session says\n" +
			"who holds the role; by default it is of the process that runs the command, so commands of one shell share it.\n" +
			"A subshell is another process, and the recipes of one make -j are of one: name a --session there.\n" +
			"With --wait a command that ends without the role, also by Ctrl-C, leaves the queue.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "ttl", Usage: "how long the lease lasts, from 2s to 1h", Value: 15 * time.Second},
			&cli.BoolFlag{Name: "wait", Usage: "wait in the queue until the role is free, or --timeout is over"},
			&cli.StringFlag{Name: "holder", Usage: "`NAME` that others see (default: host and process)"},
			sessionFlag(),
		},
		Action: shell.Args(1, aRole, func(c *cli.Context) error {
			// The parent is the shell, which stays: this process ends before its lease does.
			session, err := sessionOf(c.String("session"), os.Getppid())
			if err != nil {
				return err
			}
			ask := api.RoleAcquire{Session: session, TTL: c.Duration("ttl").String()}
			ask.Holder = cmp.Or(c.String("holder"), c.String("session"), hostAnd(os.Getppid()))
			return acquireRole(c.Context, sh, c.Args().First(), ask, c.Bool("wait"))
		}),
	}
}

// sessionFlag is --session. It has the same default for all verbs, so that release finds what acquire has acquired.
func sessionFlag() cli.Flag {
	return &cli.StringFlag{Name: "session", Usage: "`ID` of the claim, the same for each command about it " +
		"(default: host and process that runs the command)"}
}

// sessionOf returns the session of a command that parent has run: what --session says, or one of the parent, which all
// commands of a shell have in common. When the parent began distinguishes it from a later process of the same number.
func sessionOf(named string, parent int) (string, error) {
	switch {
	case named != "":
		return named, nil
	// The process has no parent in sight, or the first one, which adopts the children of those that have ended.
	case parent <= 1:
		return "", shell.Usagef("--session is needed: the process that ran this command has ended, or is the machine's " +
			"first, and other commands have the same: give each command about the claim one random session, such as $(uuidgen)")
	}
	session := hostAnd(parent)
	// Where the system does not say when it began, the number has to do.
	if stat, err := processStat(parent); err == nil {
		session += ":" + stat[statStarted]
	}
	return session, nil
}

// hostAnd names a process of this host.
func hostAnd(pid int) string {
	host, _ := os.Hostname() // a part of a name
	return fmt.Sprintf("%.200s:%d", host, pid)
}

// rolePath is the route of a role.
func rolePath(name string) string { return "/v1/roles/" + url.PathEscape(name) }

// listRoles prints the roles that are held.
func listRoles(ctx context.Context, sh *shell.Shell) error {
	var list []api.Role
	query := url.Values{"limit": {"1000"}}
	// The list comes in pages; Next is "" after the last.
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
	return shell.EmitEach(sh, "role", list, header, func(r api.Role) table.Row {
		return table.Row{r.Role, r.Holder, r.Fence, shell.Clock(r.Since), r.TTL, shell.Short(time.Since(r.Renewed)) + " ago",
			r.Waiting}
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
	// A role that nobody holds has neither fence nor lease.
	if r.Holder != "" {
		facts = append(facts, "fence", r.Fence, "since", shell.Clock(r.Since), "ttl", r.TTL,
			"renewed", shell.Short(time.Since(r.Renewed))+" ago")
	}
	// The node lists the head of the queue alone, and how many wait in all.
	for i, c := range r.Queue {
		facts = append(facts, fmt.Sprintf("waiting %d", i+1), c.Holder+" since "+shell.Clock(c.Since))
	}
	if more := r.Waiting - len(r.Queue); more > 0 {
		facts = append(facts, "waiting", fmt.Sprintf("%d more", more))
	}
	return sh.Facts(facts...)
}

// acquireRole acquires a role and prints the fence. With wait it may take as long as --timeout says.
func acquireRole(ctx context.Context, sh *shell.Shell, name string, ask api.RoleAcquire, wait bool) error {
	if wait {
		return waitForRole(ctx, sh, name, ask)
	}
	// A role that is held is no error of the node: the answer says by whom.
	var answer api.RoleAcquired
	if err := sh.Call(ctx, http.MethodPut, rolePath(name), nil, ask, &answer); err != nil {
		return err
	}
	if answer.Acquired {
		return printAcquired(sh, answer)
	}
	return printHeld(sh, answer, shell.ExitRefused,
		fmt.Sprintf("%s holds %s with fence %d: wait for it with --wait", answer.Holder, name, answer.Fence))
}

// printAcquired prints what the caller holds now. Standard output has the fence alone, for $(...).
func printAcquired(sh *shell.Shell, answer api.RoleAcquired) error {
	return sh.Emit(answer, func() error {
		sh.Say("%s holds %s for %s", answer.Holder, answer.Role, answer.TTL)
		// A script takes the fence.
		_, err := fmt.Fprintln(sh.Out, answer.Fence)
		return err
	})
}

// printHeld prints who holds a role that the caller did not get, and ends with the exit code.
func printHeld(sh *shell.Shell, answer api.RoleAcquired, code int, notice string) error {
	sh.Say("%s", notice)
	if err := sh.Emit(answer, func() error { return nil }); err != nil {
		return err
	}
	return shell.CodeError(code)
}

// waitForRole waits in the queue of a role until --timeout is over.
func waitForRole(ctx context.Context, sh *shell.Shell, name string, ask api.RoleAcquire) (err error) {
	began := time.Now()
	// The first call takes a place in the queue, or finds that the session holds the role already. From then on a command
	// that ends otherwise leaves the queue.
	ask.Wait = "1ms"
	queued := false
	defer func() {
		if !queued {
			return
		}
		if left := leaveQueue(ctx, sh, name, ask.Session); left != nil {
			err = errors.Join(err, left)
		}
	}()
	for place := 0; ; {
		var answer api.RoleAcquired
		if queued {
			answer, err = askFromQueue(ctx, sh, name, ask)
		} else {
			err = sh.Call(ctx, http.MethodPut, rolePath(name), nil, ask, &answer)
		}
		if err != nil {
			return err
		}
		left := sh.Timeout - time.Since(began)
		// The call before may have lasted nearly until --timeout. Less than an eighth of it is no time for another
		// one.
		switch {
		case answer.Acquired:
			queued = false
			return printAcquired(sh, answer)
		case left < sh.Timeout/8:
			// The deferred function leaves the queue, so no place is reported.
			queued = true
			answer.Place = 0
			return printHeld(sh, answer, shell.ExitTimeout,
				fmt.Sprintf("%s still holds %s after %s", answer.Holder, name, shell.Short(sh.Timeout)))
		case answer.Place != place:
			place = answer.Place
			sh.Say("%s holds %s; place %d of %d", answer.Holder, name, place, answer.Waiting)
		}
		queued = true
		// Half of what is left, so the call itself has time.
		ask.Wait = max(time.Millisecond, min(left/2, 20*time.Second).Round(time.Millisecond)).String()
	}
}

// askFromQueue makes a call for a role of which the session has a place in the queue. If it is interrupted, it releases
// the claim, which ends the call, and waits for the answer. A node may have carried the call out after the release, so
// the caller has to release once more.
func askFromQueue(
	ctx context.Context, sh *shell.Shell, name string, ask api.RoleAcquire,
) (answer api.RoleAcquired, err error) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		err = sh.Call(call, http.MethodPut, rolePath(name), nil, ask, &answer)
	}()
	select {
	case <-answered:
		return answer, err
	case <-ctx.Done():
	}
	_ = leaveQueue(ctx, sh, name, ask.Session) // the caller repeats it
	defer time.AfterFunc(leaveWithin, cancel).Stop()
	<-answered
	return answer, context.Cause(ctx)
}

// leaveWithin bounds the wait for the answer that a claim is released.
const leaveWithin = 3 * time.Second

// leaveQueue releases the claim of a command that ends without the role, also if it was interrupted.
func leaveQueue(ctx context.Context, sh *shell.Shell, name, session string) error {
	// The caller's ctx is done if the command was interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	err := sh.Call(ctx, http.MethodDelete, rolePath(name), url.Values{"session": {session}}, nil, nil)
	if err != nil {
		return fmt.Errorf("leave the queue of %s, where the claim expires by itself: %w", name, err)
	}
	return nil
}

// endLease ends a claim and prints the role after it.
func endLease(ctx context.Context, sh *shell.Shell, name string, query url.Values) error {
	var r api.RoleReleased
	if err := sh.Call(ctx, http.MethodDelete, rolePath(name), query, nil, &r); err != nil {
		return err
	}
	if err := sh.Emit(r, func() error { return printRole(sh, r.Role) }); err != nil {
		return err
	}
	// The role is printed before: it says who holds it instead.
	if !r.Released {
		sh.Say("nothing to release: this session neither holds %s nor waits for it; name the --session that acquired it",
			name)
		return shell.CodeError(shell.ExitNotFound)
	}
	return nil
}

// revokeRole takes a role from its holder after asking.
func revokeRole(ctx context.Context, sh *shell.Shell, name string, leave shell.Consent) error {
	var r api.Role
	if err := sh.Fetch(ctx, rolePath(name), &r); err != nil {
		return err
	}
	// Before the question, so that nobody agrees to what changes nothing.
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

// leaseOf reads leaseFlags. Without both flags it is the zero value, which is no condition.
func leaseOf(c *cli.Context) (client.Lease, error) {
	l := client.Lease{Role: c.String("role"), Fence: c.Uint64("fence")}
	if (l.Role == "") != (l.Fence == 0) {
		return l, shell.Usagef("--role and --fence belong together: ringlog role acquire prints the fence")
	}
	return l, nil
}
