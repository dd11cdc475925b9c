package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// flowCommand is flow and its verbs. Flows that are registered are replicated; chain, stage subscriptions and
// chain.deadlines take them as they do the built-in ones.
func flowCommand(sh *shell.Shell) *cli.Command {
	const aFlow = "the name of a flow"
	return &cli.Command{
		Name: "flow", Aliases: []string{"flows"}, Usage: "list, register and remove the flows that runs are followed through",
		UsageText: shell.Examples("ringlog flow ls", "ringlog flow show training_pipeline",
			"ringlog flow register flows.json"),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list the flows, built in and registered", Action: shell.Bare(sh, listFlows),
				UsageText: shell.Examples("ringlog flow ls")},
			{Name: "show", Usage: "show the edges of a flow", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog flow show training_pipeline"),
				Action:    shell.Named(sh, aFlow, showFlow)},
			{Name: "register", Usage: "register flows on all nodes, or replace them", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog flow register flows.json --dry-run", "ringlog flow register flows.json"),
				Description: "FILE holds a flow in the form that flow show -o json prints, or an array of them:\n" +
					"{\"name\": \"labelling\", \"edges\": [[\"LABELS_REQUESTED\", \"LABELS_READY\"]],\n" +
					" \"run_by\": [\"batch\"]}\n" +
					"run_by has the payload fields that together name the run of an event, in place of its correlation id.\n" +
					"With the name of a built-in flow, and run_by alone, it says so of that flow.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check the flows, and register none"}},
				Action: shell.Args(1, "a file of flows, or -", func(c *cli.Context) error {
					return registerFlows(c.Context, sh, c.Args().First(), c.Bool("dry-run"))
				})},
			{Name: "rm", Usage: "remove a registered flow", ArgsUsage: "NAME",
				UsageText:   shell.Examples("ringlog flow rm labelling --dry-run", "ringlog flow rm labelling --yes"),
				Description: "A built-in flow stays; it gets back how its runs are found.",
				Flags:       shell.ConsentFlags(),
				Action: shell.Args(1, aFlow, func(c *cli.Context) error {
					return removeFlow(c.Context, sh, c.Args().First(), shell.ConsentOf(c))
				})},
		},
	}
}

// clusterFlows returns this program's catalogue with the flows that are registered.
// Only flows are asked for: types that are registered are of no use here.
func clusterFlows(ctx context.Context, c *client.Client) (*event.Catalogue, error) {
	var all api.Flows
	err := c.Admin().Do(ctx, http.MethodGet, "/v1/flows", nil, nil, &all)
	// An older node has no such route, and no flows but the built-in ones.
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		return event.Builtin(), nil
	}
	if err != nil {
		return nil, err
	}
	for i, f := range all.Flows {
		if f.Status != event.StatusRegistered {
			all.Flows[i].Edges, all.Flows[i].EdgeNotes = nil, nil // a built-in one has its own
		}
	}
	// A built-in flow that nobody has changed has nothing left, and is left out.
	changed := slices.DeleteFunc(all.Flows, func(f event.Flow) bool { return len(f.Edges)+len(f.RunBy) == 0 })
	return event.Builtin().WithFlows(changed...)
}

// flowPath is the route of a flow.
func flowPath(name string) string { return "/v1/flows/" + url.PathEscape(name) }

// listFlows prints all flows.
func listFlows(ctx context.Context, sh *shell.Shell) error {
	var answer api.Flows
	if err := sh.Fetch(ctx, "/v1/flows", &answer); err != nil {
		return err
	}
	header := table.Row{"flow", "status", "edges", "runs by"}
	return shell.EmitEach(sh, "flow", answer.Flows, header, func(f event.Flow) table.Row {
		return table.Row{f.Name, f.Status, len(f.Edges), runsBy(f)}
	})
}

// runsBy says how runs through a flow are found.
func runsBy(f event.Flow) string {
	if len(f.RunBy) == 0 {
		return "correlation id"
	}
	return "correlation id, or " + strings.Join(f.RunBy, ",")
}

// showFlow prints one flow, an edge a line.
func showFlow(ctx context.Context, sh *shell.Shell, name string) error {
	var f event.Flow
	if err := sh.Fetch(ctx, flowPath(name), &f); err != nil {
		return err
	}
	// Notes are listed apart from the edges, each with the index of its own.
	return sh.Emit(f, func() error {
		facts := []any{"flow", f.Name, "status", f.Status, "runs by", runsBy(f)}
		for i, e := range f.Edges {
			text := fmt.Sprintf("%s -> %s", e[0], e[1])
			for _, n := range f.EdgeNotes {
				if n.Edge == i {
					// A note without a state leaves no blank at the end.
					text += strings.TrimRight("  "+n.Condition+" "+n.ToState, " ")
				}
			}
			facts = append(facts, "edge", text)
		}
		return sh.Facts(facts...)
	})
}

// registerFlows registers flows on all nodes, or with a dry run checks them.
func registerFlows(ctx context.Context, sh *shell.Shell, file string, dryRun bool) error {
	raw, err := readInput(sh, file)
	if err != nil {
		return err
	}
	// With a dry run the node checks the flows and proposes nothing.
	query := url.Values{}
	if dryRun {
		query.Set("dry_run", "true")
	}
	// The body goes out as it is: the node knows best what is wrong with a flow.
	var done api.FlowsRegistered
	if err := sh.Call(ctx, http.MethodPost, "/v1/flows", query, raw, &done); err != nil {
		return err
	}
	// Warnings are about types that the catalogue lacks: such a flow is registered all the same.
	for _, w := range done.Warnings {
		sh.Say("warning: %s: %s", w.Field, w.Message)
	}
	return sh.Emit(done, func() error {
		verb := "registered"
		if dryRun {
			verb = "could be registered:"
		}
		_, err := fmt.Fprintln(sh.Out, verb, strings.Join(done.Registered, ", "))
		return err
	})
}

// removeFlow removes a registered flow.
func removeFlow(ctx context.Context, sh *shell.Shell, name string, leave shell.Consent) error {
	// A flow that does not exist is reported before the question.
	var f event.Flow
	if err := sh.Fetch(ctx, flowPath(name), &f); err != nil {
		return err
	}
	if leave.DryRun {
		sh.Say("%s would be removed (%d edges, %s)", f.Name, len(f.Edges), f.Status)
		return nil
	}
	if err := sh.Confirm(leave, "Remove the flow %q (%d edges)?", f.Name, len(f.Edges)); err != nil {
		return err
	}
	if err := sh.Call(ctx, http.MethodDelete, flowPath(name), nil, nil, nil); err != nil {
		return err
	}
	sh.Say("removed %s (%d edges)", f.Name, len(f.Edges))
	return nil
}
