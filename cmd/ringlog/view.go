package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"github.com/ringrift/ringlog/internal/view"
)

// Rows are shown in two forms. As JSON they are printed as the node has sent them, whatever fields they have. For
// people they are decoded into viewRow, whose fields are printed in the order of their names.

// aView is what the argument of most verbs of view is.
const aView = "the name of a view (to list them: ringlog view ls)"

// viewCommand is view and its verbs: what the cluster folds of the log.
func viewCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "view", Aliases: []string{"views"}, Usage: "define, show and remove views, which fold the log into rows",
		UsageText: shell.Examples("ringlog view define view.json", "ringlog view show progress",
			"ringlog view ls"),
		Description: "A view has a row for each key: counts, means, trends and other values of the events with that key.\n" +
			"Every node folds the log for itself, and has the same rows at the same offset. Rules of a view publish events\n" +
			"when a condition on a row becomes true, once.",
		Subcommands: []*cli.Command{
			// Reading and defining ask for no consent: a definition that is replaced can be defined again.
			{Name: "ls", Usage: "list the views, and how far the node that answers has folded them",
				UsageText: shell.Examples("ringlog view ls", "ringlog view ls -o json"), Action: shell.Bare(sh, listViews)},
			{Name: "define", Usage: "define a view on all nodes, or define it otherwise", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog view define view.json"),
				Description: "FILE holds a declaration in JSON or TOML, such as\n" +
					"{\"name\": \"progress\", \"types\": [\"TRAINING_STARTED\"], \"fields\": {\"runs\": {\"kind\": \"count\"}}}\n" +
					"A view that is defined otherwise is folded again, from the beginning of the log. The same declaration again\n" +
					"changes nothing.",
				Action: shell.Args(1, "a file with a declaration, or -", func(c *cli.Context) error {
					return defineView(c.Context, sh, c.Args().First())
				})},
			{Name: "show", Usage: "show the rows of a view, or one of them", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog view show progress", "ringlog view show progress --key k7",
					"ringlog view show progress --declaration"),
				Description: "With --at the rows are as of that offset, exactly. One that has changed since is folded\n" +
					"again from the events that it was folded from, as far as the log still has them.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "key", Usage: "show the row of this `KEY` alone"},
					&cli.Uint64Flag{Name: "at", Usage: "as of this `OFFSET`"},
					&cli.BoolFlag{Name: "declaration", Usage: "print the declaration, as view define takes it"},
				},
				Action: shell.Args(1, aView, func(c *cli.Context) error {
					name := c.Args().First()
					if c.Bool("declaration") {
						return showDeclaration(c.Context, sh, name)
					}
					// An explicit 0 or an empty key is most likely an unset variable of a script.
					if c.IsSet("at") && c.Uint64("at") == 0 {
						return shell.Usagef("--at: offsets begin at 1")
					}
					if c.IsSet("key") && c.String("key") == "" {
						return shell.Usagef("--key is empty")
					}
					return showRows(c.Context, sh, name, c.String("key"), c.Uint64("at"))
				})},
			{Name: "watch", Usage: "print the rows of a view, and those that change, until Ctrl-C", ArgsUsage: "NAME",
				UsageText: shell.Examples("ringlog view watch progress -n 1", "ringlog view watch progress --key k7 -n 1"),
				Flags: []cli.Flag{
					&cli.StringSliceFlag{Name: "key", Usage: "the row of this `KEY` alone; may be repeated"},
					&cli.Uint64Flag{Name: "n", Usage: "stop after `COUNT` rows"},
				},
				Action: shell.Args(1, aView, func(c *cli.Context) error {
					return watchView(c.Context, sh, c.Args().First(), c.StringSlice("key"), c.Uint64("n"))
				})},
			{Name: "rm", Usage: "remove a view", ArgsUsage: "NAME",
				UsageText:   shell.Examples("ringlog view rm progress --dry-run", "ringlog view rm progress --yes"),
				Description: "What its rules have published stays.",
				Flags:       shell.ConsentFlags(),
				Action: shell.Args(1, aView, func(c *cli.Context) error {
					return removeView(c.Context, sh, c.Args().First(), shell.ConsentOf(c))
				})},
		},
	}
}

// viewPath is the route of a view.
func viewPath(name string) string { return "/v1/views/" + url.PathEscape(name) }

// listViews prints all views.
func listViews(ctx context.Context, sh *shell.Shell) error {
	var all api.Views
	if err := sh.Fetch(ctx, "/v1/views", &all); err != nil {
		return err
	}
	header := table.Row{"view", "generation", "at", "of", "rows", "skipped", "waiting", "state"}
	return shell.EmitEach(sh, "view", all.Views, header, func(v api.View) table.Row {
		return table.Row{v.Name, v.Generation, v.At, v.Of, v.Rows, v.Skipped, v.Waiting, viewState(&v)}
	})
}

// viewState says in a few words how a view is. The first of several problems counts: a view that has failed is not
// folded any more, and what is incomplete stays so.
func viewState(v *api.View) string {
	switch {
	case v.Failed != "":
		return "failed: " + v.Failed
	case v.Incomplete != "":
		return "incomplete: " + v.Incomplete
	case v.BeyondKeys > 0:
		return fmt.Sprintf("full: without %s of other keys", shell.Count(v.BeyondKeys, "event"))
	case v.Lag > 0:
		return "folding"
	}
	return "current"
}

// defineView defines a view as a file says.
func defineView(ctx context.Context, sh *shell.Shell, file string) error {
	raw, err := readInput(sh, file)
	if err != nil {
		return err
	}
	// TOML becomes JSON here. The node compiles it: its build is to fold it.
	declared, err := view.Parse(raw)
	if err != nil {
		return shell.Usagef("%s: %w", file, err)
	}
	if declared.Name == "" {
		return shell.Usagef("%s: the declaration has no name", file)
	}
	// The answer has the view as it is from here on, and whether it was that already.
	var v api.View
	if err := sh.Call(ctx, http.MethodPut, viewPath(declared.Name), nil, declared, &v); err != nil {
		return err
	}
	return sh.Emit(v, func() error {
		verb := "defined"
		if v.Existing {
			verb = "unchanged:"
		}
		sh.Say("it folds the log from offset %d on", v.Since)
		_, err := fmt.Fprintln(sh.Out, verb, v.Name)
		return err
	})
}

// showDeclaration prints how a view is defined.
func showDeclaration(ctx context.Context, sh *shell.Shell, name string) error {
	var v api.View
	if err := sh.Fetch(ctx, viewPath(name), &v); err != nil {
		return err
	}
	if sh.JSON {
		return sh.PrintLine(v.Declaration)
	}
	// For people it is indented. view define takes both forms.
	text, err := json.MarshalIndent(v.Declaration, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(sh.Out, string(text))
	return err
}

// viewRow is a row as nodes show it.
type viewRow struct {
	Key    string              `json:"key"`
	Offset uint64              `json:"offset"` // of the newest event in it
	At     time.Time           `json:"at"`     // the time of that event
	Fields map[string]any      `json:"fields"` // by name
	Rules  map[string]struct { // by name
		Holds bool       `json:"holds"`
		Since *time.Time `json:"since"`
	} `json:"rules"`
}

// holding names the rules whose conditions hold. It is "" if none does.
func (r *viewRow) holding() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.Rules)) {
		if r.Rules[name].Holds {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// fieldText is a value of a row for people. Numbers have six digits: -o json has all of them.
func fieldText(v any) string {
	// What has no short form, such as a list, is JSON.
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}

// showRows prints the rows of a view, or that of a key.
func showRows(ctx context.Context, sh *shell.Shell, name, key string, at uint64) error {
	query := url.Values{}
	if key != "" {
		query.Set("key", key)
	}
	if at != 0 {
		query.Set("at", strconv.FormatUint(at, 10))
	}
	query.Set("limit", "1000")
	// Rows are kept as they came, so that JSON prints them with the fields in the node's order.
	var all []json.RawMessage
	var page api.ViewRows
	for {
		page = api.ViewRows{}
		if err := sh.Call(ctx, http.MethodGet, viewPath(name)+"/rows", query, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Rows...)
		if page.Next == "" {
			break
		}
		// All pages are of the first one's offset.
		query.Set("after", page.Next)
		query.Set("at", strconv.FormatUint(page.At, 10))
	}
	// Incomplete is of the node that has answered last.
	if page.Incomplete != "" {
		sh.Say("warning: this node's rows are incomplete: %s", page.Incomplete)
	}
	if sh.JSON {
		return shell.EmitEach(sh, "", all, nil, func(json.RawMessage) table.Row { return nil })
	}
	// People get a table, for which the rows are decoded.
	rows := make([]viewRow, len(all))
	for i := range all {
		if err := json.Unmarshal(all[i], &rows[i]); err != nil {
			return err
		}
	}
	sh.Say("at offset %d", page.At)
	// A key without a row is an error of the node, so there is one row here.
	if key != "" {
		return printViewRow(sh, &rows[0])
	}
	return printViewRows(sh, rows)
}

// printViewRow prints one row.
func printViewRow(sh *shell.Shell, r *viewRow) error {
	facts := []any{"key", r.Key, "offset", r.Offset, "time", shell.Moment(r.At)}
	// Fields and rules are sorted, so that a row prints alike each time.
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		facts = append(facts, name, fieldText(r.Fields[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Rules)) {
		// Since when a rule holds is known only while it holds.
		state := "-"
		if since := r.Rules[name].Since; r.Rules[name].Holds && since != nil {
			state = "since " + shell.Moment(*since)
		}
		facts = append(facts, "rule "+name, state)
	}
	return sh.Facts(facts...)
}

// printViewRows prints rows as a table whose columns are the fields.
func printViewRows(sh *shell.Shell, rows []viewRow) error {
	// A row need not have all fields, so the columns are those of all rows together.
	names := map[string]bool{}
	for _, r := range rows {
		for name := range r.Fields {
			names[name] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	header := table.Row{"key"}
	for _, name := range columns {
		header = append(header, name)
	}
	header = append(header, "holds", "offset")
	// A field that a row does not have is printed as one without a value.
	var lines []table.Row
	for _, r := range rows {
		line := table.Row{r.Key}
		for _, name := range columns {
			line = append(line, fieldText(r.Fields[name]))
		}
		lines = append(lines, append(line, cmp.Or(r.holding(), "-"), r.Offset))
	}
	return sh.Table(header, lines)
}

// watchView prints rows as they change, until most of them are printed; 0 is no bound.
func watchView(ctx context.Context, sh *shell.Shell, name string, keys []string, most uint64) (err error) {
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// The end of whoever reads the output ends the watch, also while no row changes.
	ctx, stop := sh.WhileRead(ctx)
	defer stop()
	printed := uint64(0)
	for change, err := range c.Admin().WatchView(ctx, name, keys...) {
		// Ctrl-C, or nobody reads any more.
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := printViewChange(sh, &change); err != nil {
			return err
		}
		// printed is at least 1 here, so a bound of 0 is never reached.
		if printed++; printed == most {
			return nil
		}
	}
	return nil
}

// printViewChange prints a row that has changed, as one line.
func printViewChange(sh *shell.Shell, change *api.ViewChange) error {
	if sh.JSON {
		return sh.PrintLine(change)
	}
	// For people: the offset, the key, then name=value of each field in the order of the names.
	var r viewRow
	if err := json.Unmarshal(change.Row, &r); err != nil {
		return err
	}
	line := fmt.Sprintf("%d %s", change.At, r.Key)
	// A row has all of its fields, and not only those that have changed.
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		line += " " + name + "=" + fieldText(r.Fields[name])
	}
	if holds := r.holding(); holds != "" {
		line += " holds " + holds
	}
	_, err := fmt.Fprintln(sh.Out, line)
	return err
}

// removeView removes a view.
func removeView(ctx context.Context, sh *shell.Shell, name string, leave shell.Consent) error {
	// A view that does not exist is reported before the question.
	var v api.View
	if err := sh.Fetch(ctx, viewPath(name), &v); err != nil {
		return err
	}
	if leave.DryRun {
		sh.Say("%s would be removed (%d rows)", v.Name, v.Rows)
		return nil
	}
	// A view that is defined again is folded from the events that the log still has: other rows are lost.
	if err := sh.Confirm(leave, "Remove the view %q (%d rows)?", v.Name, v.Rows); err != nil {
		return err
	}
	if err := sh.Call(ctx, http.MethodDelete, viewPath(name), nil, nil, nil); err != nil {
		return err
	}
	sh.Say("removed %s (%d rows)", v.Name, v.Rows)
	return nil
}
