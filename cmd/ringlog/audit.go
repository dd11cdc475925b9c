package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// auditCommand is audit: the platform's declarations against what the log and the cursors show. The node that is asked
// runs the audit, unless --builtin has this program run it on its own catalogue.
func auditCommand(sh *shell.Shell) *cli.Command {
	lists := strings.Join(audit.Lists(), ", ")
	return &cli.Command{
		Name: "audit", Usage: "find orphan events, dead subscriptions and mismatched names",
		UsageText: shell.Examples(
			"ringlog audit --only unknown,drift",
			"ringlog audit --coordinator data_pipeline_orchestrator",
			"ringlog audit --live --only orphans,dead",
			"ringlog audit --builtin --format dot",
		),
		Description: "Compares what the platform's documents declare with what the log and the cursors show, and " +
			"judges each\n" +
			"finding of the platform's own audit by the declarations alone. LIST is one or more of these, " +
			"comma-separated:\n" + lists + ".\n" +
			"Exits 1 if a list of --fail-on is not empty.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: text, json, dot (Graphviz) or mermaid", Value: "text"},
			// What of the report is printed.
			&cli.BoolFlag{Name: "all", Usage: "print all lists, not the totals alone"},
			&cli.StringFlag{Name: "only", Usage: "print only these `LIST`s"},
			&cli.StringFlag{Name: "coordinator",
				Usage: "print only what involves `NAME`: a coordinator, a module or a class"},
			// What of it makes the command fail.
			&cli.StringFlag{Name: "fail-on", Usage: "exit 1 if one of these `LIST`s is not empty"},
			// What it is computed from.
			&cli.StringFlag{Name: "from", Usage: "count events in the log from `WHERE`: " + api.PositionForms +
				" (default: the newest 1000000 events)"},
			&cli.BoolFlag{Name: "live", Usage: "use what is registered and seen alone, without the documents' claims; " +
				"with --builtin --scan what the sources show alone"},
			&cli.StringFlag{Name: "scan",
				Usage: "also use what the Python and Go sources in `DIR` emit and subscribe to"},
			&cli.BoolFlag{Name: "builtin", Usage: "use the catalogue of this program, without asking a cluster"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			o, err := auditOptionsOf(sh, c)
			if err != nil {
				return err
			}
			return showAudit(c.Context, sh, o)
		}),
		Subcommands: []*cli.Command{auditCoordinatorCommand(sh), auditScanCommand(sh)},
	}
}

// auditOptions say what to audit and what of it to print.
type auditOptions struct {
	// how the report is printed; JSON if the global --json is set
	format audit.Format
	// print the lists too, not the totals alone
	all bool
	// lists of findings, by name: those to print, and those that must be empty
	only, failOn []string
	// a coordinator, a module or a class; "" is all of them
	coordinator string
	// what the node is asked for: the place to begin at, and whether declarations are left out
	query url.Values
	// audit the catalogue of this program alone; no node is asked
	builtin bool
	// leave the documents' claims out
	live bool
	// a folder of sources whose emitters and subscribers count; "" is none
	scan string
}

// auditOptionsOf reads the flags.
func auditOptionsOf(sh *shell.Shell, c *cli.Context) (o auditOptions, err error) {
	// Every flag is checked before a node is asked.
	o = auditOptions{
		coordinator: c.String("coordinator"), builtin: c.Bool("builtin"), all: c.Bool("all"), query: url.Values{},
		scan: c.String("scan"), live: c.Bool("live"),
	}
	o.format, err = audit.ParseFormat(c.String("format"))
	if err != nil {
		return o, shell.Usagef("--format: %w", err)
	}
	// The global --json means the format json, and contradicts any other.
	switch {
	case sh.JSON && c.IsSet("format") && o.format != audit.JSON:
		return o, shell.Usagef("--format %s and JSON output exclude each other", o.format)
	case sh.JSON:
		o.format = audit.JSON
	}
	o.only, err = audit.ParseLists(c.String("only"))
	if err != nil {
		return o, shell.Usagef("--only: %w", err)
	}
	o.failOn, err = audit.ParseLists(c.String("fail-on"))
	if err != nil {
		return o, shell.Usagef("--fail-on: %w", err)
	}
	if o.live {
		// Without a cluster the sources are all the evidence that there is.
		if o.builtin && o.scan == "" {
			return o, shell.Usagef("--live with --builtin shows nothing without --scan: --builtin asks no cluster")
		}
		o.query.Set("live", "true")
	}
	// Without --from the node counts its newest events; --builtin asks no node.
	if !c.IsSet("from") {
		return o, nil
	}
	if o.builtin {
		return o, shell.Usagef("--from and --builtin exclude each other: --builtin reads no log")
	}
	from, err := shell.ParsePosition("from", c.String("from"))
	o.query.Set("from", from.String())
	return o, err
}

// showAudit prints the findings, and fails if a list of --fail-on holds any.
func showAudit(ctx context.Context, sh *shell.Shell, o auditOptions) error {
	report, err := auditReport(ctx, sh, o)
	if err != nil {
		return err
	}
	// The component first, then the lists: --fail-on counts all lists of what is about that component.
	if o.coordinator != "" {
		report, err = report.About(o.coordinator)
		if errors.Is(err, audit.ErrNoComponent) {
			return shell.NotFoundf("%w; list them: ringlog audit --only components", err)
		} else if err != nil {
			return err
		}
	}
	// --fail-on counts the same, whatever is printed.
	if err := printAudit(sh, report, o); err != nil {
		return err
	}
	return failOn(sh, report, o.failOn)
}

// auditReport returns the report of this program, or of a node.
func auditReport(ctx context.Context, sh *shell.Shell, o auditOptions) (*audit.Report, error) {
	// The sources are read here in any case: a node does not have them.
	sources, err := sourcesOf(sh, o.scan)
	if err != nil {
		return nil, err
	}
	report := &audit.Report{}
	// With sources the request has a body, so it is a POST. It changes nothing.
	switch {
	case o.builtin && o.live:
		return audit.Live(event.Builtin(), audit.Evidence{Sources: sources}), nil
	case o.builtin:
		return audit.Run(event.Builtin(), audit.Evidence{Sources: sources}), nil
	case o.scan != "":
		return report, sh.Call(ctx, http.MethodPost, "/v1/audit", o.query, sources, report)
	}
	return report, sh.Call(ctx, http.MethodGet, "/v1/audit", o.query, nil, report)
}

// printAudit prints what the flags ask for: without one of them, the totals alone.
func printAudit(sh *shell.Shell, report *audit.Report, o auditOptions) error {
	// The other formats are for programs, and have all that was asked for.
	if o.format != audit.Text {
		return report.Only(o.only).Write(sh.Out, o.format)
	}
	sections := report.Only(o.only).Sections()
	// The totals alone, with the way to the lists. The notice comes after them.
	if !o.all && len(o.only) == 0 && o.coordinator == "" {
		sections = []audit.Section{report.ClassTotals()}
		defer sh.Say("for the lists: ringlog audit --all, or --only LIST (%s)", strings.Join(audit.Lists(), ", "))
	}
	if err := sh.Print(report.ScopeText()); err != nil {
		return err
	}
	for _, s := range sections {
		if err := printSection(sh, s); err != nil {
			return err
		}
	}
	return nil
}

// printSection prints a section of the report.
func printSection(sh *shell.Shell, s audit.Section) error {
	// An empty line and the title. A section without rows has its header alone.
	if err := sh.Print("\n" + sh.Paint(shell.Strong, s.Title)); err != nil {
		return err
	}
	var header table.Row
	for _, name := range s.Header {
		header = append(header, name)
	}
	rows := make([]table.Row, len(s.Rows))
	for i, row := range s.Rows {
		rows[i] = row
	}
	return sh.Table(header, rows)
}

// failOn ends with code 1 if a list that must be empty is not.
func failOn(sh *shell.Shell, report *audit.Report, lists []string) error {
	var found []string
	// Empty lists are as wanted.
	for _, list := range lists {
		if n := report.Count(list); n > 0 {
			found = append(found, fmt.Sprintf("%s %d", list, n))
		}
	}
	if len(found) == 0 {
		return nil
	}
	// Each list is named with its count, also if --only does not print it.
	sh.Say("the audit found: %s", strings.Join(found, ", "))
	return shell.CodeError(shell.ExitFailed)
}
