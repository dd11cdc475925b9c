package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// aGroup names the argument in errors.
const aGroup = "the name of a group"

// groupCommand is group and its verbs. A group is a cursor whose events several members share; its position is moved
// with cursor seek.
func groupCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "group", Usage: "manage groups: cursors whose events several members share",
		UsageText: shell.Examples(
			"ringlog group create evaluators --type 'training.*'",
			"ringlog group members evaluators",
		),
		Description: "Each event goes to one member, those of a key in order, and is acknowledged individually; " +
			"what is not\n" +
			"acknowledged in time is redelivered, and what fails too often becomes a dead letter (ringlog dlq).\n" +
			"To move a group: ringlog cursor seek.",
		Subcommands: []*cli.Command{
			// What a group is, and what its members do.
			{Name: "ls", Usage: "list groups", Action: shell.Bare(sh, listGroups),
				UsageText: shell.Examples("ringlog group ls")},
			{Name: "info", Usage: "show one group", ArgsUsage: "NAME",
				Action:    checkingName("group", shell.Named(sh, aGroup, showGroup)),
				UsageText: shell.Examples("ringlog group info evaluators")},
			{Name: "members", Usage: "list a group's members and what each did in its session", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog group members evaluators"),
				Action:    checkingName("group", shell.Named(sh, aGroup, listGroupMembers))},
			// To move its position there is cursor seek.
			createGroupCommand(sh), removeGroupCommand(sh),
		},
	}
}

// groupPath is a route of a group.
// rest is appended as it is, as in "/members".
func groupPath(name string, rest ...string) string {
	return "/v1/groups/" + url.PathEscape(name) + strings.Join(rest, "")
}

// listGroups prints all groups.
func listGroups(ctx context.Context, sh *shell.Shell) error {
	// There are few groups: they come in one answer, not in pages.
	var answer struct {
		Groups []api.Cursor `json:"groups"`
	}
	if err := sh.Fetch(ctx, "/v1/groups", &answer); err != nil {
		return err
	}
	return shell.EmitEach(sh, "group", answer.Groups,
		table.Row{"name", "members", "committed", "lag", "lag time", "pending", "redelivering",
			shell.Extra("backpressure"), "filter"},
		func(c api.Cursor) table.Row {
			return table.Row{c.Name, c.Group.Members, c.Committed, lagText(c), lagTime(c), c.Group.Pending,
				c.Group.Redelivering, pressureText(sh, c), filterText(c.Filter)}
		})
}

// showGroup prints one group.
func showGroup(ctx context.Context, sh *shell.Shell, name string) error {
	// It is printed as its cursor is, with the facts of groupFacts after those.
	var c api.Cursor
	if err := sh.Fetch(ctx, groupPath(name), &c); err != nil {
		return err
	}
	return printCursor(sh, c)
}

// listGroupMembers prints the members of a group.
// The leader alone knows them: they are not in the log.
func listGroupMembers(ctx context.Context, sh *shell.Shell, name string) error {
	// The figures are those of the member's session, and begin again with the next one.
	var answer struct {
		Members []api.GroupMember `json:"members"`
	}
	err := sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		return c.Admin().Do(ctx, http.MethodGet, groupPath(name, "/members"), nil, nil, &answer)
	})
	if err != nil {
		return err
	}
	header := table.Row{"member", "since", "last seen", "pending", "oldest", "delivered", "acked", "nacked", "expired"}
	return shell.EmitEach(sh, "member", answer.Members, header, func(m api.GroupMember) table.Row {
		// Without a pending event there is no oldest one.
		oldest := "-"
		if m.Pending > 0 {
			oldest = shell.Short(time.Duration(m.OldestMs) * time.Millisecond)
		}
		return table.Row{m.Member, shell.Time(m.Since), shell.Time(m.LastSeen), m.Pending, oldest,
			m.Delivered, m.Acked, m.Nacked, m.Expired}
	})
}

// groupFacts returns the lines that a group has in addition to those of its cursor.
func groupFacts(g *api.GroupInfo) []any {
	// In the order of the table of group ls, then the policy.
	return []any{"members", g.Members, "pending",
		fmt.Sprintf("%s, %d awaiting redelivery", shell.Count(g.Pending, "event"), g.Redelivering),
		"ack wait", g.AckWait, "max deliver", g.MaxDeliver, "max pending", g.MaxPending, "coordinator", g.Coordinator}
}

// createGroupCommand is group create. A group that exists is printed if it has what is given, and else refused.
func createGroupCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "create a group; one that exists is left as it is", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog group create evaluators --type 'training.*'",
			"ringlog group create archivers --from end --ack-wait 2m --max-deliver 3",
		),
		Flags: append(cursorFlags(),
			&cli.StringFlag{Name: "ack-wait",
				Usage: "`DURATION` for which a member may hold an event without acknowledging or extending it, such as 30s " +
					"(default: the setting group.ack_wait)"},
			&cli.Uint64Flag{Name: "max-deliver",
				Usage: "make an event a dead letter after `N` failed deliveries; 0 means the cluster's setting"},
			&cli.Uint64Flag{Name: "max-pending",
				Usage: "deliver at most `N` events past the oldest unacknowledged one; 0 means the cluster's setting"},
		),
		Action: checkingName("group", shell.Args(1, aGroup, func(c *cli.Context) error {
			o, err := createCursorOptionsOf(c)
			if err != nil {
				return err
			}
			// A flag that is not given is 0, for which the cluster's settings apply.
			group := api.GroupPolicy{MaxDeliver: c.Uint64("max-deliver"), MaxPending: c.Uint64("max-pending")}
			if c.IsSet("ack-wait") {
				group.AckWait, err = shell.ParseAge("ack-wait", c.String("ack-wait"))
				if err != nil {
					return err
				}
			}
			o.given.Group = &group
			return createCursor(c.Context, sh, groupPath(o.name), o)
		})),
	}
}

// removeGroupCommand is group rm, which asks: the position is lost for good.
func removeGroupCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove a group and its position; its members stop", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog group rm evaluators --dry-run",
			"ringlog group rm evaluators --yes",
		),
		Flags: shell.ConsentFlags(),
		Action: checkingName("group", shell.Args(1, aGroup, func(c *cli.Context) error {
			// Asked about as a cursor is, at the route of groups.
			return removeAt(c.Context, sh, groupPath(c.Args().First()), shell.ConsentOf(c))
		})),
	}
}
