package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// dedupCommand is dedup and its verbs, which show what the window of duplicates holds.
func dedupCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "dedup", Usage: "show suppressed duplicates",
		UsageText: shell.Examples("ringlog dedup explain 7"),
		Subcommands: []*cli.Command{{
			Name: "explain", Usage: "show how often an event was published again, when and by whom",
			ArgsUsage: "HASH|OFFSET",
			UsageText: shell.Examples("ringlog dedup explain 7"),
			Action:    shell.Named(sh, "a content hash or an offset", explainDedup),
		}},
	}
}

// explainDedup prints what was suppressed as a duplicate of one event.
func explainDedup(ctx context.Context, sh *shell.Shell, subject string) error {
	// Checked here, so a typing error is reported as wrong usage.
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
	facts := []any{"offset", x.Offset, "type", x.Type, "source", cmp.Or(x.Source, "-"), "hash", x.Hash, "dedup by",
		x.Kind,
		"appended", shell.Time(x.AppendedAt), "suppressed", x.Suppressed}
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
	// Whether the next duplicate would be suppressed, too.
	window := "over: a duplicate would be appended"
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
