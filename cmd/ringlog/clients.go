package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// clientsCommand is clients: what processes have registered, which is what they report of themselves. A process
// that is killed stays listed until its registration expires.
func clientsCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "clients", Usage: "list registered clients and their subscriptions", ArgsUsage: "[VERB]",
		UsageText: shell.Examples(
			"ringlog clients",
			"ringlog clients -o json",
		),
		Description: "A client registers its subscriptions (PUT /v1/clients/ID, router.Options.Register) and " +
			"expires when it has\n" +
			"not renewed that for its TTL. It is lost then: a critical subscription that no other client " +
			"has is listed\n" +
			"in the state lost until some client registers one of that name, or the lost client is removed.\n" +
			"Timed out and failed count attempts of the handler since its process started, as of the last renewal.\n" +
			"With -o json there is one client per line.",
		// Without a verb the clients are listed: that is nearly all there is to do.
		Action: shell.Bare(sh, listClients),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list them, as without a verb", Action: shell.Bare(sh, listClients),
				UsageText: shell.Examples("ringlog clients ls")},
			{Name: "rm", Usage: "remove a client's registration; it may register again", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog clients rm trainer-3 --dry-run", "ringlog clients rm trainer-3 --yes"),
				Flags:     shell.ConsentFlags(), Action: shell.Args(1, "the id of a client", func(c *cli.Context) error {
					return removeClient(c.Context, sh, c.Args().First(), shell.ConsentOf(c))
				})},
		},
	}
}

// listedSubscription is a row: a subscription and its client.
type listedSubscription struct {
	api.Subscription
	// which reported the subscription
	of api.Client
}

// listClients prints a line for each client, or a row for each subscription.
func listClients(ctx context.Context, sh *shell.Shell) error {
	list, unheard, err := fetchClients(ctx, sh)
	if err != nil {
		return err
	}
	// JSON has a line for each client; the table has a row for each subscription.
	if sh.JSON {
		for _, c := range list {
			if err := sh.PrintLine(c); err != nil {
				return err
			}
		}
		return nil
	}
	// A client without a subscription is in the JSON alone.
	return shell.EmitEach(sh, "subscription", subscriptionRows(list, unheard),
		table.Row{
			"client", shell.Extra("host"), "heard", "subscription", shell.Extra("mode"), "state", "listens to",
			shell.Extra("timeout"), "critical", shell.Extra("timed out"), shell.Extra("failed"),
			shell.Extra("breaker"), shell.Extra("last error"),
		},
		func(r listedSubscription) table.Row {
			row := table.Row{r.of.ID, cmp.Or(r.of.Host, "-"), shell.Short(time.Since(r.of.Seen)) + " ago", r.Name,
				r.Mode, r.State, listensTo(r.Subscription), timeoutText(r.TimeoutSeconds), yesNo(r.Critical)}
			return append(row, healthRow(r.Health)...)
		})
}

// subscriptionRows returns a row for each subscription of a client, and for each critical one without a listener. A
// client without a subscription has no row.
func subscriptionRows(list []api.Client, unheard []api.Unheard) (rows []listedSubscription) {
	for _, c := range list {
		for _, s := range c.Subscriptions {
			rows = append(rows, listedSubscription{s, c})
		}
	}
	// What a lost client listened to, and nobody does since, is what needs attention.
	for _, u := range unheard {
		rows = append(rows, listedSubscription{
			api.Subscription{Name: u.Name, Filter: u.Filter, Mode: "-", State: "lost", Critical: true},
			api.Client{ID: u.Client, Host: u.Host, Seen: u.Since},
		})
	}
	return rows
}

// fetchClients reads all pages, and the critical subscriptions without a listener.
func fetchClients(ctx context.Context, sh *shell.Shell) (all []api.Client, unheard []api.Unheard, err error) {
	query := url.Values{"limit": {strconv.Itoa(1000)}}
	for {
		// A page ends with the name after which the next one starts; the last page has none.
		var page api.ClientPage
		if err := sh.Call(ctx, http.MethodGet, "/v1/clients", query, nil, &page); err != nil {
			return nil, nil, err
		}
		all = append(all, page.Clients...)
		if page.Next == "" {
			return all, page.Unheard, nil
		}
		query.Set("after", page.Next)
	}
}

// listensTo prints the filter and the condition of a subscription.
func listensTo(s api.Subscription) string {
	var parts []string
	// A subscription with neither gets all events, which filterText says.
	if !s.Filter.Empty() || s.Where == "" {
		parts = append(parts, filterText(s.Filter))
	}
	if s.Where != "" {
		parts = append(parts, "where "+s.Where)
	}
	return strings.Join(parts, " ")
}

// timeoutText prints a time limit in seconds, - if there is none.
func timeoutText(seconds float64) string {
	// A subscription without a time limit reports none.
	if seconds == 0 {
		return "-"
	}
	return shell.Seconds(seconds)
}

// removeClient removes the registration of a client after asking.
func removeClient(ctx context.Context, sh *shell.Shell, id string, leave shell.Consent) error {
	// A dry run does not ask the cluster, so it does not know whether the client is registered.
	if leave.DryRun {
		sh.Say("%s would be removed, if it is registered", id)
		return nil
	}
	// Only the registration goes: the process itself is not touched.
	if err := sh.Confirm(leave, "Remove the registration of client %q?", id); err != nil {
		return err
	}
	// The answer is the client as it was, so a wrong id is noticed.
	var was api.Client
	if err := sh.Call(ctx, http.MethodDelete, "/v1/clients/"+url.PathEscape(id), nil, nil, &was); err != nil {
		return err
	}
	sh.Say("removed %s, which had %s", id, shell.Count(len(was.Subscriptions), "subscription"))
	return nil
}

// unheardText counts critical subscriptions without a listener.
func unheardText(n int) string {
	return shell.Count(n, "critical subscription") + " without a listener"
}

// clientsText counts the clients and their subscriptions.
func clientsText(s api.ClientStats) string {
	return fmt.Sprintf("%d, with %s", s.Clients, shell.Count(s.Subscriptions, "subscription"))
}

// timeoutsText prints how many handlers there are, their least and greatest time limit, and which of them ran out of
// time.
func timeoutsText(t api.HandlerTimeouts) string {
	n := len(t.Handlers) + t.LeftOut
	if n == 0 {
		return "none registered"
	}
	parts := []string{shell.Count(n, "handler")}
	// Of handlers that are not listed the limits are not known here.
	if limits := limitsText(t.Handlers); limits != "" && t.LeftOut == 0 {
		parts = append(parts, limits)
	}
	if t.TimedOut == 0 {
		return strings.Join(append(parts, "no attempt timed out"), ", ")
	}

	// The worst come first, and a few fit into the line.
	const most = 3
	var worst []string
	for _, h := range t.Handlers[:min(most, len(t.Handlers))] {
		if h.TimedOut > 0 {
			worst = append(worst, fmt.Sprintf("%s of %s: %d", h.Subscription, h.Client, h.TimedOut))
		}
	}
	return fmt.Sprintf("%s; timed out attempts: %d (%s)", strings.Join(parts, ", "), t.TimedOut,
		strings.Join(worst, ", "))
}

// limitsText prints the least and the greatest time limit of handlers, "" if none has one.
func limitsText(handlers []api.HandlerTimeout) string {
	low, high := 0.0, 0.0
	// 0 is no limit, and is neither the least nor the greatest.
	for _, h := range handlers {
		if h.TimeoutSeconds > 0 && (low == 0 || h.TimeoutSeconds < low) {
			low = h.TimeoutSeconds
		}
		high = max(high, h.TimeoutSeconds)
	}
	// One limit for all handlers is printed once.
	switch {
	case high == 0:
		return ""
	case low == high:
		return shell.Seconds(low)
	default:
		return fmt.Sprintf("%s to %s", shell.Seconds(low), shell.Seconds(high))
	}
}

// healthRow returns how often a handler timed out and failed, its breaker and its last error; - is not reported.
func healthRow(h *api.HandlerHealth) []any {
	// A client that does not report its handlers' health has nothing to show.
	if h == nil {
		return []any{"-", "-", "-", "-"}
	}
	failure := "-"
	if h.LastError != "" {
		failure = h.LastError
	}
	if !h.LastErrorAt.IsZero() {
		failure += ", " + shell.Short(time.Since(h.LastErrorAt)) + " ago"
	}
	return []any{h.TimedOut, h.FailedAttempts, cmp.Or(h.Breaker, "-"), failure}
}
