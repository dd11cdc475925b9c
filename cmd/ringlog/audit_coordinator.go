package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// auditCoordinatorCommand is audit coordinator: what the registry declares of one coordinator against what is live.
func auditCoordinatorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "coordinator", Usage: "compare what is declared of a coordinator with what is live", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog audit coordinator health_manager",
			"ringlog audit coordinator SelfplayScheduler --from -1000",
		),
		Description: "NAME is a coordinator of the platform's registry, by name, class or module file. Live is what " +
			"its clients\n" +
			"registered, and which events have it as source. A client registers as a coordinator with the field\n" +
			"coordinator (PUT /v1/clients/ID, router.Subscription.Coordinator). DRIFT is one of:\n" +
			"missing (declared, and not subscribed to), undeclared (subscribed to, and not declared),\n" +
			"silent (declared as an emission, and no event in the log), unlisted (emitted, and not declared).\n" +
			"Exits 1 if there is drift of a kind in --fail-on.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "fail-on", Usage: "exit 1 if there is drift of one of these `KIND`s"},
			&cli.StringFlag{Name: "from", Usage: "count events in the log from `WHERE`: " + api.PositionForms +
				" (default: the newest 1000000 events)"},
		},
		Action: shell.Args(1, "the name of a coordinator", func(c *cli.Context) error {
			// A wrong --fail-on is found before the node reads the log for the report.
			kinds, err := parseDrifts(c.String("fail-on"))
			if err != nil {
				return err
			}
			query := url.Values{}
			// Without --from the node chooses where to begin. It resolves the position, too.
			if c.IsSet("from") {
				from, err := shell.ParsePosition("from", c.String("from"))
				if err != nil {
					return err
				}
				query.Set("from", from.String())
			}
			return auditCoordinator(c.Context, sh, c.Args().First(), query, kinds)
		}),
	}
}

// parseDrifts reads a comma separated list of kinds of drift. Case and spaces around a name do not count. An empty
// text is none.
func parseDrifts(text string) (kinds []audit.CoordinatorDrift, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.ToLower(strings.TrimSpace(part))
		if part == "" {
			continue
		}
		kind := audit.CoordinatorDrift(part)
		if !slices.Contains(audit.CoordinatorDrifts(), kind) {
			return nil, shell.Usagef("--fail-on: there is no drift %q; use missing, undeclared, silent, unlisted", part)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// auditCoordinator prints the report of one coordinator, and fails if there is drift of one of the kinds.
func auditCoordinator(
	ctx context.Context, sh *shell.Shell, name string, query url.Values, kinds []audit.CoordinatorDrift,
) error {
	var report audit.CoordinatorReport
	path := "/v1/audit/coordinators/" + url.PathEscape(name)
	// The node has the registry and the clients, and counts what the log has.
	if err := sh.Call(ctx, http.MethodGet, path, query, nil, &report); err != nil {
		return err
	}
	// Programs get the whole report, people its title and the sections that have something in them.
	err := sh.Emit(&report, func() error {
		if err := sh.Print(report.Title()); err != nil {
			return err
		}
		for _, s := range report.Sections() {
			if err := printSection(sh, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	// --fail-on counts the same, whatever is printed.
	var found []string
	for _, kind := range kinds {
		if n := report.Drift[kind]; n > 0 {
			found = append(found, fmt.Sprintf("%s %d", kind, n))
		}
	}
	if len(found) == 0 {
		return nil
	}
	sh.Say("the audit found: %s", strings.Join(found, ", "))
	return shell.CodeError(shell.ExitFailed)
}
