package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/human"
)

// dedupCommand is dedup and its verbs: what was suppressed as a duplicate, and which events of a type are duplicates.
func dedupCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "dedup", Usage: "show suppressed duplicates; say which events are duplicates",
		UsageText: shell.Examples("ringlog dedup explain 7", "ringlog dedup policy ls"),
		Subcommands: []*cli.Command{
			{
				Name: "explain", Usage: "show how often an event was published again, when and by whom",
				ArgsUsage: "HASH|OFFSET",
				UsageText: shell.Examples("ringlog dedup explain 7"),
				Action:    shell.Named(sh, "a content hash or an offset", explainDedup),
			},
			dedupPolicyCommand(sh),
		},
	}
}

// dedupPolicyCommand is dedup policy and its verbs. Policies are replicated.
func dedupPolicyCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "policy", Usage: "show and change which events of a type are duplicates",
		UsageText: shell.Examples(
			"ringlog dedup policy ls",
			"ringlog dedup policy set TASK_HEARTBEAT off",
			"ringlog dedup policy set MODEL_PROMOTED fields --field new_model --window 1h",
		),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list the types that have a policy", Action: shell.Bare(sh, listDedupPolicies),
				UsageText: shell.Examples("ringlog dedup policy ls")},
			{Name: "show", Usage: "show the policy in force for a type", ArgsUsage: "TYPE",
				UsageText: shell.Examples("ringlog dedup policy show TRAINING_COMPLETED"),
				Action:    shell.Named(sh, aType, showDedupPolicy)},
			{Name: "set", Usage: "change the policy of a type", ArgsUsage: "TYPE off|content|fields",
				UsageText: shell.Examples(
					"ringlog dedup policy set TASK_HEARTBEAT off",
					"ringlog dedup policy set EVALUATION_COMPLETED content --window 5m",
					"ringlog dedup policy set MODEL_PROMOTED fields --field new_model --window 1h",
				),
				Description: "off appends every event. content suppresses an event whose payload is that of one in the " +
					"window. fields compares the payload fields that --field names alone, so that a timestamp beside them " +
					"does not count; an event that has none of them is compared by its payload. An event with a dedup_id, " +
					"or published with --no-dedup, goes by that.",
				Flags: []cli.Flag{
					&cli.StringSliceFlag{Name: "field", Usage: "with fields: compare this payload `FIELD` (repeatable)"},
					&cli.StringFlag{Name: "window",
						Usage: "suppress for this `DURATION` after the first, such as 90s or 24h (default: dedup.window)"},
				},
				Action: shell.Args(2, "a type and a mode", func(c *cli.Context) error {
					p := api.NewDedupPolicy{
						Mode:   c.Args().Get(1),
						Fields: c.StringSlice("field"),
						Window: c.String("window"),
					}
					return setDedupPolicy(c.Context, sh, c.Args().First(), p)
				})},
			{Name: "rm", Usage: "remove the policy that was set for a type", ArgsUsage: "TYPE",
				UsageText: shell.Examples("ringlog dedup policy rm TASK_HEARTBEAT"),
				Action:    shell.Named(sh, aType, removeDedupPolicy)},
		},
	}
}

// dedupPolicyPath is the route of a type's policy.
func dedupPolicyPath(name string) string { return "/v1/dedup/policies/" + url.PathEscape(name) }

// listDedupPolicies prints the policies that differ from the default.
func listDedupPolicies(ctx context.Context, sh *shell.Shell) error {
	var answer struct {
		Policies []api.DedupPolicy `json:"policies"`
	}
	if err := sh.Fetch(ctx, "/v1/dedup/policies", &answer); err != nil {
		return err
	}
	header := table.Row{"type", "duplicates by", "window", "keys", "from"}
	return shell.EmitEach(sh, "policy", answer.Policies, header, func(p api.DedupPolicy) table.Row {
		from := p.Origin
		// A policy of the catalogue says why it is there.
		if p.Reason != "" {
			from += ": " + p.Reason
		}
		return table.Row{p.Type, comparedBy(p), cmp.Or(human.ExactText(p.Window), "-"), p.Keys, from}
	})
}

// comparedBy says by what a policy compares events.
func comparedBy(p api.DedupPolicy) string {
	// Only the mode fields has any.
	if len(p.Fields) == 0 {
		return p.Mode
	}
	return p.Mode + " " + strings.Join(p.Fields, ", ")
}

// dedupPolicyText describes a policy in one line.
func dedupPolicyText(p api.DedupPolicy) string {
	text := comparedBy(p)
	if p.Window != "" {
		text += " within " + human.ExactText(p.Window)
	}
	// Where it comes from: set for the type, of the catalogue, or neither.
	switch p.Origin {
	case api.PolicySet:
		return text + ", set for this type"
	case api.PolicyCatalogue:
		return text + ", by the catalogue: " + p.Reason
	default:
		return text + ", the default"
	}
}

// showDedupPolicy prints the policy in force for a type.
func showDedupPolicy(ctx context.Context, sh *shell.Shell, name string) error {
	var p api.DedupPolicy
	if err := sh.Fetch(ctx, dedupPolicyPath(name), &p); err != nil {
		return err
	}
	return printDedupPolicy(sh, p)
}

// setDedupPolicy sets a policy and prints what is in force. The node checks the mode, the fields and the window.
func setDedupPolicy(ctx context.Context, sh *shell.Shell, name string, p api.NewDedupPolicy) error {
	var set api.DedupPolicy
	if err := sh.Call(ctx, http.MethodPut, dedupPolicyPath(name), nil, p, &set); err != nil {
		return err
	}
	// Warnings are in the JSON of the answer already.
	if !sh.JSON {
		for _, w := range set.Warnings {
			sh.Say("warning: %s", w.Message)
		}
	}
	return printDedupPolicy(sh, set)
}

// removeDedupPolicy removes a policy and prints what is in force without it.
func removeDedupPolicy(ctx context.Context, sh *shell.Shell, name string) error {
	var left api.DedupPolicy
	if err := sh.Call(ctx, http.MethodDelete, dedupPolicyPath(name), nil, nil, &left); err != nil {
		return err
	}
	return printDedupPolicy(sh, left)
}

// printDedupPolicy prints a policy.
func printDedupPolicy(sh *shell.Shell, p api.DedupPolicy) error {
	return sh.Emit(p, func() error { return sh.Print(string(p.Type) + ": " + dedupPolicyText(p) + "\n") })
}

// explainDedup prints what was suppressed as a duplicate of one event.
func explainDedup(ctx context.Context, sh *shell.Shell, subject string) error {
	// Checked here, so a typing error is reported as wrong usage.
	// A hash has 64 digits, more than any offset.
	if _, err := event.ParseHash(strings.ToLower(subject)); err != nil {
		if _, err := shell.ParseOffset(subject); err != nil {
			return shell.Usagef("%q is neither an offset nor a content hash of 64 hex digits", subject)
		}
	}
	var x api.Explanation
	if err := sh.Fetch(ctx, "/v1/dedup/"+url.PathEscape(strings.ToLower(subject)), &x); err != nil {
		return err
	}
	return sh.Emit(x, func() error { return sh.Facts(explanationFacts(x)...) })
}

// explanationFacts lists an explanation line by line.
func explanationFacts(x api.Explanation) []any {
	// The event that was kept, then what was suppressed in its favor.
	kind := x.Kind
	if x.DecidedBy == "policy" {
		kind += " (the policy of its type)"
	}
	facts := []any{"offset", x.Offset, "type", x.Type, "source", cmp.Or(x.Source, "-"), "hash", x.Hash, "dedup by",
		kind, "appended", shell.Time(x.AppendedAt), "suppressed", x.Suppressed}
	if x.DedupID != "" {
		facts = append(facts, "dedup id", x.DedupID)
	}
	// Times and sources are known only if something was suppressed.
	if x.Suppressed > 0 {
		var sources []string
		for _, s := range x.Sources {
			sources = append(sources, fmt.Sprintf("%s (%d)", cmp.Or(s.Source, "no source"), s.Count))
		}
		facts = append(facts, "first", shell.Time(x.First), "last", shell.Time(x.Last), "from",
			strings.Join(sources, ", "))
	}
	// What the type has now may not be what decided about this event.
	if x.Policy.Origin != api.PolicyDefault {
		facts = append(facts, "policy now", dedupPolicyText(x.Policy))
	}
	// Whether the next duplicate would be suppressed, too.
	window := "over: a duplicate would be appended"
	// Until counts by the time of the log.
	if x.InWindow {
		window = "duplicates are suppressed until " + shell.Time(x.Until)
	}
	facts = append(facts, "window", window)
	// The same content may be in the log again, from outside the window.
	if len(x.Others) > 0 {
		facts = append(facts, "also at", strings.Trim(fmt.Sprint(x.Others), "[]"))
	}
	return facts
}
