package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// aLetter names the argument in errors.
const aLetter = "the id of a dead letter"

// dlqCommand is dlq and its verbs. A dead letter stays until it is redriven and handled, or purged.
func dlqCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "dlq", Usage: "manage dead letters, the events that handlers failed on", ArgsUsage: "[VERB]",
		Description: "Without a verb it prints a summary.",
		UsageText: shell.Examples(
			"ringlog dlq",
			"ringlog dlq errors",
			"ringlog dlq redrive --all --dry-run",
		),
		Action: shell.Bare(sh, summariseLetters),
		Subcommands: []*cli.Command{
			listLettersCommand(sh),
			{Name: "show", Usage: "show one dead letter and its event", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog dlq show 1", "ringlog dlq show 1 -o json"),
				Action:    shell.Named(sh, aLetter, showLetter)},
			{Name: "errors", Usage: "list the errors of dead letters, the most frequent first", Flags: letterFlags(),
				UsageText: shell.Examples("ringlog dlq errors", "ringlog dlq errors --type 'training.*'"),
				Action: shell.NoArgs(func(c *cli.Context) error {
					return letterErrors(c.Context, sh, letterFilterOf(c))
				})},
			{Name: "count", Usage: "count the dead letters", Action: shell.Bare(sh, countLetters),
				UsageText: shell.Examples("ringlog dlq count")},
			redriveCommand(sh), redriveAllCommand(sh), purgeCommand(sh), watchLettersCommand(sh),
			importLettersCommand(sh),
		},
	}
}

// letterFlags choose letters.
func letterFlags() []cli.Flag {
	return []cli.Flag{
		// The conditions are those of redrive and purge, so a list shows what they would take.
		&cli.StringFlag{Name: "type", Aliases: []string{"t"},
			Usage: "only dead letters of this `TYPE`: a name or a pattern such as training.*"},
		&cli.StringFlag{Name: "cursor", Usage: "only dead letters of this `CURSOR`"},
		&cli.StringFlag{Name: "error", Usage: "only dead letters whose error contains `TEXT`"},
	}
}

// letterFilterOf makes the flags a query.
func letterFilterOf(c *cli.Context) client.LetterFilter {
	return client.LetterFilter{Type: c.String("type"), Cursor: c.String("cursor"), Error: c.String("error"),
		State: c.String("state")}
}

// listLettersCommand is dlq ls. It prints the oldest letters first, as they were added.
func listLettersCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list dead letters, the oldest first",
		UsageText: shell.Examples(
			"ringlog dlq ls --limit 20",
			"ringlog dlq ls --cursor evaluators --error 'no space'",
		),
		Flags: append(letterFlags(),
			// A redriven letter is kept until its event is handled.
			&cli.StringFlag{Name: "state", Usage: "only dead letters in this `STATE`: dead or redriven"},
			&cli.Uint64Flag{Name: "limit", Usage: "print at most `N`; 0 means all", Value: 100},
		),
		Action: shell.NoArgs(func(c *cli.Context) error {
			return listLetters(c.Context, sh, letterFilterOf(c), c.Uint64("limit"))
		}),
	}
}

// fetchTotals asks for the summary.
// All numbers are of one moment: the answering node counts them at once.
func fetchTotals(ctx context.Context, sh *shell.Shell) (t api.LetterSummary, err error) {
	return t, sh.Fetch(ctx, "/v1/dlq", &t)
}

// summariseLetters prints the summary.
func summariseLetters(ctx context.Context, sh *shell.Shell) error {
	t, err := fetchTotals(ctx, sh)
	if err != nil {
		return err
	}
	// dlq watch prints the same.
	return sh.Emit(t, func() error { return printTotals(sh, t) })
}

// printTotals prints the summary, and how many letters each cursor and type has.
func printTotals(sh *shell.Shell, t api.LetterSummary) error {
	// No problem is said, too: whoever asks wants a verdict.
	health := sh.Paint(shell.Good, "ok")
	if bad := letterProblems(t.LetterStats); len(bad) > 0 {
		health = sh.Paint(shell.Warn, problemsText(bad))
	}
	err := sh.Facts("health", health, "letters", t.Count, "dead", t.Dead, "redriven",
		fmt.Sprintf("%d, on their way to their cursors", t.Redriven),
		"size", fmt.Sprintf("%s of %s", shell.Size(t.Bytes), shell.Size(t.MaxBytes)), "oldest", oldestText(t), "ever", t.Ever)
	// Without letters there is nothing to count by cursor and type.
	if err != nil || t.Count == 0 {
		return err
	}
	return sh.Table(table.Row{"of", "", "letters"},
		append(countRows("cursor", t.ByCursor), countRows("type", t.ByType)...))
}

// letterProblems lists what is wrong with the dead letters as a whole.
func letterProblems(t api.LetterStats) (list []problem) {
	if t.Stale {
		list = append(list, problem{fmt.Sprintf("a dead letter of %s has waited longer than dlq.stale_after",
			shell.Time(t.Oldest)), "see ringlog dlq errors"})
	}
	// What does not fit any more is refused: its cursor or group stays at the event.
	// From nine tenths on there is still time to act.
	if t.Bytes > t.MaxBytes-t.MaxBytes/10 {
		list = append(list, problem{fmt.Sprintf("dead letters take %s of %s, and no more than dlq.max_bytes is accepted",
			shell.Size(t.Bytes), shell.Size(t.MaxBytes)), "ringlog dlq redrive or purge them"})
	}
	return list
}

// oldestText prints when the oldest letter died, and its age.
func oldestText(t api.LetterSummary) string {
	// There is no letter.
	if t.Oldest.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s, %s ago", shell.Time(t.Oldest),
		shell.Seconds(t.OldestAge))
}

// countRows are counts by name, the largest first.
func countRows(what string, counts map[string]int) (rows []table.Row) {
	// The largest first.
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	// Imported letters have no cursor.
	for _, name := range names {
		rows = append(rows, table.Row{what, cmp.Or(name, "(none)"), counts[name]})
	}
	return rows
}

// countLetters prints how many letters there are.
func countLetters(ctx context.Context, sh *shell.Shell) error {
	t, err := fetchTotals(ctx, sh)
	if err != nil {
		return err
	}
	// A number alone on its line, for scripts.
	return sh.Emit(map[string]uint64{"count": t.Count}, func() error {
		_, err := fmt.Fprintln(sh.Out, t.Count)
		return err
	})
}

// listLetters prints letters page by page, up to a limit. A limit of 0 prints all of them.
func listLetters(ctx context.Context, sh *shell.Shell, f client.LetterFilter, limit uint64) error {
	var list []client.Letter
	// Pages are read one after the other, and reading ends with the limit.
	more := false
	f.Consistency = sh.Consistency()
	err := sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		for l, err := range c.Admin().DeadLetters(ctx, f) {
			if err != nil {
				return err
			}
			// One letter more than the limit says that there are more.
			more = limit > 0 && uint64(len(list)) == limit
			if more {
				break
			}
			list = append(list, l)
		}
		return nil
	})
	// Nothing is printed of a list that was not read to its end.
	if err != nil {
		return err
	}
	// The table has the first line of each error; dlq show prints all of it.
	err = shell.EmitEach(sh, "dead letter", list,
		table.Row{"id", "state", "cursor", "offset", "type", shell.Extra("died"),
			shell.Extra("attempts"), shell.Extra("redrives"), "error"},
		func(l client.Letter) table.Row {
			return table.Row{l.ID, l.State, cmp.Or(l.Cursor, "-"), l.Offset, l.Type, shell.Time(l.Dead),
				l.Attempts, l.Redrives, firstLine(l.Error, 60)}
		})
	if more {
		sh.Say("there are more: --limit 0 prints all")
	}
	return err
}

// firstLine returns the first line of a text, cut to n characters, or - if it is empty.
func firstLine(text string, n int) string {
	// Characters, not bytes, are counted: columns are for people.
	line, _, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > n {
		line = string(runes[:n]) + "…"
	}
	return cmp.Or(line, "-")
}

// letterWithEvent is GET /v1/dlq/{id}.
type letterWithEvent struct {
	client.Letter
	Event event.Event `json:"event"`
}

// parseLetter reads the id of a letter.
func parseLetter(text string) (uint64, error) {
	// Ids begin at 1, so 0 is never one.
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, shell.Usagef("%q is not the id of a dead letter, which is a number from 1", text)
	}
	return id, nil
}

// showLetter prints a letter, its event, and its copies in the log.
func showLetter(ctx context.Context, sh *shell.Shell, text string) error {
	id, err := parseLetter(text)
	if err != nil {
		return err
	}
	// The letter keeps its event, so it is shown also where the log has trimmed it.
	var l letterWithEvent
	if err := sh.Fetch(ctx, "/v1/dlq/"+strconv.FormatUint(id, 10), &l); err != nil {
		return err
	}
	return sh.Emit(l, func() error {
		// A letter that was redriven has a copy of its event in the log.
		state := l.State
		if l.Copy != 0 {
			state += fmt.Sprintf(", its event was appended again at %d", l.Copy)
		}
		return sh.Facts("letter", l.ID, "state", state, "cursor", cmp.Or(l.Cursor, "-"), "offset", l.Offset,
			"type", l.Type, "key", cmp.Or(l.Key, "-"),
			"source", cmp.Or(l.Source, "-"), "correlation", cmp.Or(l.CorrelationID, "-"), "handler",
			cmp.Or(l.Handler, "-"), "attempts", l.Attempts,
			"first failed", shell.Time(l.FirstFailed), "last failed", shell.Time(l.LastFailed), "died",
			shell.Time(l.Dead), "redrives", l.Redrives,
			"lineage", lineageText(l.Lineage), "origin", cmp.Or(l.Origin, "-"), "payload", string(l.Event.Payload),
			"error", cmp.Or(l.Error, "-"))
	})
}

// lineageText prints the event's offset followed by those of its copies.
func lineageText(offsets []uint64) string {
	var parts []string
	// In the order in which they were appended: the first is the event itself.
	for _, o := range offsets {
		parts = append(parts, strconv.FormatUint(o, 10))
	}
	return cmp.Or(strings.Join(parts, " → "), "-")
}

// letterErrors prints the errors that letters have in common.
// The node groups them: by the first line of the error, with # for numbers.
func letterErrors(ctx context.Context, sh *shell.Shell, f client.LetterFilter) error {
	var answer struct {
		Errors []api.LetterErrors `json:"errors"`
	}
	query := url.Values{}
	// Empty conditions stay out of the query.
	// Letters of both states are grouped.
	for name, value := range map[string]string{"type": f.Type, "cursor": f.Cursor, "error": f.Error} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if err := sh.Call(ctx, "GET", "/v1/dlq/errors", query, nil, &answer); err != nil {
		return err
	}
	return shell.EmitEach(sh, "dead letter", answer.Errors, table.Row{
		"letters", "error", "cursors", "types", shell.Extra("last failed"), "example id",
	},
		func(g api.LetterErrors) table.Row {
			// The error is cut to one line, and one letter is shown of its group.
			return table.Row{g.Count, firstLine(g.Error, 60), namesText(g.Cursors), namesText(g.Types),
				shell.Time(g.Last), lineageText(g.Letters[:1])}
		})
}

// namesText lists the names of counts in alphabetical order, or prints - if there are none.
func namesText(counts map[string]int) string {
	names := slices.Sorted(maps.Keys(counts))
	return cmp.Or(strings.Join(names, ", "), "-")
}
