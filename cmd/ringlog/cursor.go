package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// What is printed of a cursor is made by the functions that end with Text or Fact. status, check and top use them,
// too, so that a figure has one form everywhere.

// cursorKind says whether members share a cursor.
func cursorKind(c api.Cursor) string {
	// A group is a cursor that several members read.
	if c.Group != nil {
		return "group"
	}
	return "cursor"
}

// leastLag returns by how many events a cursor lags at least, and for how long; 0 and 0 if that is not certain.
func leastLag(c api.Cursor) (uint64, time.Duration) {
	// A node that looked at a part of the log knows bounds only.
	age := time.Duration(c.LagSeconds * float64(time.Second))
	switch {
	case c.LagAtLeast == nil:
		return c.LagEvents, age
	// Everything that was not looked at may be filtered out.
	case *c.LagAtLeast == 0:
		return 0, 0
	}
	return *c.LagAtLeast, age
}

// lagText prints by how many events a cursor lags, or the bounds of that number. A node that has looked at a part
// of the log only knows that the number is between two others.
func lagText(c api.Cursor) string {
	if c.LagAtLeast == nil {
		return strconv.FormatUint(c.LagEvents, 10)
	}
	return fmt.Sprintf("%d to %d", *c.LagAtLeast, c.LagEvents)
}

// lagEvents prints by how many events a cursor lags, with the noun.
func lagEvents(c api.Cursor) string {
	if c.LagAtLeast == nil {
		return shell.Count(c.LagEvents, "event")
	}
	return lagText(c) + " events"
}

// lagFact prints how far a cursor lags, and for how long the oldest unread event has waited.
func lagFact(c api.Cursor) string {
	if c.LagEvents == 0 {
		return "0 events"
	}
	return lagEvents(c) + ", " + lagTime(c)
}

// lagTime prints how long the oldest unread event has waited.
func lagTime(c api.Cursor) string {
	// Nothing waits.
	if c.LagEvents == 0 {
		return "-"
	}
	return shell.Seconds(c.LagSeconds)
}

// aCursor names the argument in errors.
const aCursor = "the name of a cursor"

// checkingName has a verb check its first argument, the name of a cursor or a group as kind says, before it makes a
// request.
func checkingName(kind string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			// Without an argument, the action reports what is missing.
			if err := api.CheckCursorName(kind, c.Args().First(), api.NoLimit); err != nil {
				return err
			}
		}
		return action(c)
	}
}

// cursorCommand is cursor and its verbs. Groups are cursors, too: they are listed, moved and removed here as well.
func cursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "cursor", Usage: "manage durable cursors, which keep a reader's position",
		UsageText: shell.Examples(
			"ringlog cursor ls",
			"ringlog cursor create trainer --type 'training.*'",
			"ringlog cursor seek trainer --to start",
		),
		Subcommands: []*cli.Command{
			// The verbs that only read come first.
			{Name: "ls", Usage: "list cursors", Action: shell.Bare(sh, listCursors),
				UsageText: shell.Examples("ringlog cursor ls", "ringlog cursor ls -o json")},
			{Name: "lag", Usage: "list cursors by lag, the largest first", Action: shell.Bare(sh, cursorLag),
				UsageText: shell.Examples("ringlog cursor lag")},
			{Name: "info", Usage: "show one cursor", ArgsUsage: "NAME",
				Action:    checkingName("cursor", shell.Named(sh, aCursor, showCursor)),
				UsageText: shell.Examples("ringlog cursor info trainer")},
			// These change a cursor; only a removal cannot be undone.
			createCursorCommand(sh), filterCursorCommand(sh), seekCursorCommand(sh), removeCursorCommand(sh),
		},
	}
}

// cursorPath is a route of a cursor.
// rest is appended as it is, as in "/seek".
func cursorPath(name string, rest ...string) string {
	return "/v1/cursors/" + url.PathEscape(name) + strings.Join(rest, "")
}

// cursors reads all pages with ask. The first request has no parameters: an older node, which
// answers with all cursors, would refuse them.
func cursors(ask func(query url.Values, into any) error) (all []api.Cursor, err error) {
	// The key of a page is that of its last cursor, so cursors that come and go do not shift the others.
	for query := (url.Values{}); ; query.Set("limit", "1000") {
		var page api.CursorPage
		if err := ask(query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Cursors...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// fetchCursorsOf returns the cursors as one node knows them.
func fetchCursorsOf(ctx context.Context, sh *shell.Shell, node string) ([]api.Cursor, error) {
	// That node alone is asked, whatever it knows: it may lag, or have no leader.
	return cursors(func(query url.Values, into any) error {
		return sh.Ask(ctx, node, "/v1/cursors?"+query.Encode(), into)
	})
}

// fetchCursors reads all cursors of the cluster.
func fetchCursors(ctx context.Context, sh *shell.Shell) ([]api.Cursor, error) {
	return cursors(func(query url.Values, into any) error {
		return sh.Call(ctx, http.MethodGet, "/v1/cursors", query, nil, into)
	})
}

// listCursors prints all cursors.
func listCursors(ctx context.Context, sh *shell.Shell) error {
	// The table has what people look for first; cursor info has the rest.
	list, err := fetchCursors(ctx, sh)
	if err != nil {
		return err
	}
	return shell.EmitEach(sh, "cursor", list,
		table.Row{"name", "committed", "lag", "lag time", "kind", shell.Extra("generation"), shell.Extra("backpressure"),
			"filter", "gap"},
		func(c api.Cursor) table.Row {
			return table.Row{c.Name, c.Committed, lagText(c), lagTime(c), cursorKind(c), c.Generation,
				pressureText(sh, c), filterText(c.Filter), gapText(sh, c)}
		})
}

// cursorLag prints all cursors by their lag.
func cursorLag(ctx context.Context, sh *shell.Shell) error {
	list, err := fetchCursors(ctx, sh)
	if err != nil {
		return err
	}
	// If only bounds are known, the upper one decides.
	// Cursors that lag alike keep the order of their names.
	slices.SortStableFunc(list, func(a, b api.Cursor) int { return cmp.Compare(b.LagEvents, a.LagEvents) })
	header := table.Row{"name", "lag", "lag time", "stalled", "backpressure"}
	return shell.EmitEach(sh, "cursor", list, header, func(c api.Cursor) table.Row {
		return table.Row{c.Name, lagText(c), lagTime(c), stallText(sh, c), pressureText(sh, c)}
	})
}

// stallText says since when a cursor has been reported as stalled.
func stallText(sh *shell.Shell, c api.Cursor) string {
	// The cluster decides when a cursor counts as stalled, not this program. It notices a moment later that one which was
	// moved to the end has nothing left.
	if c.Stalled == nil || c.LagEvents == 0 {
		return "no"
	}
	return sh.Paint(shell.Warn, "since "+shell.Time(c.Stalled.Since))
}

// pressureText says since when backpressure of a cursor has been active, and at which lag that changes.
func pressureText(sh *shell.Shell, c api.Cursor) string {
	// A cursor to which no limit applies has no backpressure, not even one that is inactive.
	switch p := c.Backpressure; {
	case p == nil:
		return "-"
	case c.Throttled():
		until := shell.Count(p.ReleaseAt, "event")
		return sh.Paint(shell.Warn, fmt.Sprintf("since %s, until %s", shell.Time(p.Since), until))
	default:
		return "from " + shell.Count(p.ActivateAt, "event")
	}
}

// gapText prints the gap that a cursor will report next.
func gapText(sh *shell.Shell, c api.Cursor) string {
	// A cursor without a gap has read all that was trimmed.
	if c.Gap == nil {
		return "-"
	}
	return sh.Paint(shell.Warn, fmt.Sprintf("%d-%d %s", c.Gap.From, c.Gap.To, c.Gap.Reason))
}

// filterText prints a filter the way its flags are typed.
func filterText(f event.Filter) string {
	// An empty filter takes every event.
	if f.Empty() {
		return "all"
	}
	// In the order of the flags; a part without values is left out.
	var parts []string
	for _, l := range []struct {
		name string
		list []string
	}{{"type", f.Types}, {"category", f.Categories}, {"source", f.Sources}, {"key", f.Keys},
		{"correlation", f.CorrelationIDs}} {
		if len(l.list) > 0 {
			parts = append(parts, l.name+"="+strings.Join(l.list, ","))
		}
	}
	return strings.Join(parts, " ")
}

// showCursor prints one cursor.
func showCursor(ctx context.Context, sh *shell.Shell, name string) error {
	var c api.Cursor
	// Any node has it: cursors are a part of the replicated state.
	if err := sh.Fetch(ctx, cursorPath(name), &c); err != nil {
		return err
	}
	return printCursor(sh, c)
}

// printCursor prints what is known of a cursor.
func printCursor(sh *shell.Shell, c api.Cursor) error {
	return sh.Emit(c, func() error {
		pairs := []any{"name", c.Name, "kind", cursorKind(c), "committed", c.Committed, "lag",
			lagFact(c),
			"stalled", stallText(sh, c), "backpressure", pressureText(sh, c), "generation", c.Generation,
			"filter", filterText(c.Filter), "gap", gapText(sh, c),
			"created", shell.Time(c.Created), "last used", shell.Time(c.Touched), "retention hold",
			policyText(c.Policy)}
		// A group is a cursor with more to it.
		if c.Group != nil {
			pairs = append(pairs, groupFacts(c.Group)...)
		}
		return sh.Facts(pairs...)
	})
}

// policyText says how much a cursor may hold back from retention.
func policyText(p api.CursorPolicy) string {
	var parts []string
	// A bound of 0 is not set here: the cluster's setting applies.
	if p.HoldEvents > 0 {
		parts = append(parts, shell.Count(p.HoldEvents, "event"))
	}
	if p.HoldBytes > 0 {
		parts = append(parts, shell.Size(p.HoldBytes))
	}
	if p.HoldFor > 0 {
		parts = append(parts, shell.Short(p.HoldFor))
	}
	return cmp.Or(strings.Join(parts, ", "), "cluster default (cursor.hold_*)")
}

// createCursorOptions are the flags that cursors and groups are created with.
type createCursorOptions struct {
	name  string       // checked by checkingName
	from  api.Position // resolved by the node
	given api.CursorSettings
}

// createCursorCommand is cursor create. A cursor that exists is printed if it has what is given, and else refused.
func createCursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "create a cursor; one that exists is left as it is", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog cursor create trainer --type 'training.*'",
			"ringlog cursor create auditor --from end --hold-for 24h",
		),
		Flags: cursorFlags(),
		Action: checkingName("cursor", shell.Args(1, aCursor, func(c *cli.Context) error {
			// All flags are read before the cluster is asked.
			o, err := createCursorOptionsOf(c)
			if err != nil {
				return err
			}
			return createCursor(c.Context, sh, cursorPath(o.name), o)
		})),
	}
}

// cursorFlags say what a cursor, or a group, is made with.
// They are those of group create, too, which adds its own.
func cursorFlags() []cli.Flag {
	return append(filterFlags(),
		// A cursor is for all events, unless --from says otherwise.
		&cli.StringFlag{Name: "from", Usage: "start at `WHERE`: " + api.PositionForms, Value: "start"},
		// How much a consumer that is away may keep from being removed.
		&cli.Uint64Flag{Name: "hold-events",
			Usage: "hold back at most `N` events from retention; 0 means the cluster's setting"},
		&cli.StringFlag{Name: "hold-bytes",
			Usage: "hold back at most `SIZE` from retention, such as 2GiB; 0 means the cluster's setting"},
		&cli.StringFlag{Name: "hold-for", Usage: "hold back events up to this `AGE`, such as 24h"},
	)
}

// createCursorOptionsOf reads the flags.
func createCursorOptionsOf(c *cli.Context) (o createCursorOptions, err error) {
	// checkingName has checked the name.
	o.name = c.Args().First()
	o.given.Filter, err = filterOf(c)
	if err != nil {
		return o, err
	}
	o.from, err = shell.ParsePosition("from", c.String("from"))
	if err != nil {
		return o, err
	}
	policy := &o.given.Policy
	*policy = api.CursorPolicy{HoldEvents: c.Uint64("hold-events")}
	// An empty text is no size and no age, so flags are read only if they are set.
	if c.IsSet("hold-bytes") {
		policy.HoldBytes, err = shell.ParseSize("--hold-bytes", c.String("hold-bytes"))
		if err != nil {
			return o, err
		}
	}
	if c.IsSet("hold-for") {
		policy.HoldFor, err = shell.ParseAge("hold-for", c.String("hold-for"))
	}
	return o, err
}

// createCursor creates a cursor, or a group, and prints it. One that exists is printed if it has what is given.
func createCursor(ctx context.Context, sh *shell.Shell, path string, o createCursorOptions) error {
	in := map[string]any{"from": o.from.String(), "filter": o.given.Filter, "policy": o.given.Policy}
	if o.given.Group != nil {
		in["group"] = o.given.Group
	}
	// PUT makes it repeatable: a cursor of the same kind is left as it is.
	var made api.Cursor
	err := sh.Call(ctx, http.MethodPut, path, nil, in, &made)
	// A node compares what is left out as well.
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Code == api.Exists {
		var found api.Cursor
		if sh.Fetch(ctx, cursorPath(o.name), &found) == nil && o.given.FoundIn(&found, refused) {
			made, err = found, nil
		}
	}
	if err != nil {
		return err
	}
	return printCursor(sh, made)
}

// seekCursorCommand is cursor seek. It asks nothing, as another seek undoes it; --dry-run shows where the cursor is.
func seekCursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "seek", Usage: "move a cursor, forwards or backwards", ArgsUsage: "NAME",
		UsageText: shell.Examples(
			"ringlog cursor seek trainer --to start",
			"ringlog cursor seek trainer --to -10",
			"ringlog cursor seek trainer --to 1h",
		),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "move to `WHERE`: " + api.PositionForms},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be done, and do nothing"},
		},
		Action: checkingName("cursor", shell.Args(1, aCursor, func(c *cli.Context) error {
			// No default would be safe: a seek moves what a consumer reads next.
			if !c.IsSet("to") {
				return shell.Usagef("--to is required: %s", api.PositionForms)
			}
			to, err := shell.ParsePosition("to", c.String("to"))
			if err != nil {
				return err
			}
			return seekCursor(c.Context, sh, c.Args().First(), to, c.Bool("dry-run"))
		})),
	}
}

// seekCursor moves a cursor. It does not ask: another seek takes it back.
func seekCursor(ctx context.Context, sh *shell.Shell, name string, to api.Position, dryRun bool) error {
	var before, after api.Cursor
	// The position before is asked for first, so the seek can be undone.
	if err := sh.Fetch(ctx, cursorPath(name), &before); err != nil {
		return err
	}
	// The node resolves the position, so a dry run shows it as it was given.
	if dryRun {
		sh.Say("%s would move from committed %d to %s", name, before.Committed, to)
		return nil
	}
	// A node resolves the text, so an age counts back from its clock.
	in := map[string]any{"to": to.String()}
	if err := sh.Call(ctx, http.MethodPost, cursorPath(name, "/seek"), nil, in, &after); err != nil {
		return err
	}
	sh.Say("the committed offset was %d, is now %d", before.Committed, after.Committed)
	return printCursor(sh, after)
}

// removeCursorCommand is cursor rm, which asks: the position is lost for good.
func removeCursorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove a cursor and its position", ArgsUsage: "NAME", Flags: shell.ConsentFlags(),
		UsageText: shell.Examples(
			"ringlog cursor rm trainer --dry-run",
			"ringlog cursor rm trainer --yes",
		),
		Action: checkingName("cursor", shell.Args(1, aCursor, func(c *cli.Context) error {
			return removeAt(c.Context, sh, cursorPath(c.Args().First()), shell.ConsentOf(c))
		})),
	}
}

// removeAt removes the cursor or group at a path.
func removeAt(ctx context.Context, sh *shell.Shell, path string, leave shell.Consent) error {
	var c api.Cursor
	if err := sh.Fetch(ctx, path, &c); err != nil {
		// Who wants to remove it does not want to create it.
		if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
			answer.Remedy = fmt.Sprintf("nothing was removed; to list them: ringlog %s ls", answer.Field)
		}
		return err
	}
	// The members of a group stop, so it is removed as one.
	if c.Group != nil && path == cursorPath(c.Name) {
		return api.Refuse(api.Conflict, "name", fmt.Sprintf("%q is a group", c.Name),
			"to remove it: ringlog group rm "+c.Name)
	}
	// The position is printed each time: with it the cursor can be created again.
	if leave.DryRun {
		sh.Say("%s would be removed (committed offset %d, lag %s)", c.Name, c.Committed, lagEvents(c))
		return nil
	}
	// A group is named as one: its members stop.
	const question = "Remove the %s %q (committed offset %d)?"
	if err := sh.Confirm(leave, question, cursorKind(c), c.Name, c.Committed); err != nil {
		return err
	}
	// A reader that has it open is refused from then on.
	if err := sh.Call(ctx, http.MethodDelete, path, nil, nil, nil); err != nil {
		return err
	}
	sh.Say("removed %s (committed offset %d)", c.Name, c.Committed)
	return nil
}
