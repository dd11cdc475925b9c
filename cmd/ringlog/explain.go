package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// explainCommand is explain, for the question why a handler was not called. The node answers from what the log records
// of the cursor and the event.
func explainCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "explain what happened to an event for a cursor",
		UsageText: shell.Examples(
			"ringlog explain --cursor trainer --offset 7",
		),
		Description: "Prints one of: pending, committed, before-cursor (the cursor was created after it), " +
			"skipped (by a seek), filtered (and by which part of the filter), dead, redriven, trimmed. What " +
			"a cursor committed is recorded; what was delivered to its reader is not.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "cursor", Usage: "the cursor's `NAME`"},
			&cli.StringFlag{Name: "offset", Usage: "the event's `OFFSET`"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			// Both are needed: an event has a fate of its own for each cursor.
			if !c.IsSet("offset") || !c.IsSet("cursor") {
				return shell.Usagef("--cursor NAME and --offset N are required")
			}
			offset, err := shell.ParseOffset(c.String("offset"))
			if err != nil {
				return err
			}
			return explainDelivery(c.Context, sh,
				// The node checks the name of the cursor.
				url.Values{"cursor": {c.String("cursor")}, "offset": {strconv.FormatUint(offset, 10)}})
		}),
	}
}

// explainDelivery asks for the fate of an event and prints it.
func explainDelivery(ctx context.Context, sh *shell.Shell, query url.Values) error {
	// Kept as it came, so JSON has fields that this program does not know.
	var raw json.RawMessage
	if err := sh.Call(ctx, http.MethodGet, "/v1/explain", query, nil, &raw); err != nil {
		return err
	}
	// JSON is printed as the node sent it.
	return sh.Emit(raw, func() error {
		var d api.DeliveryFate
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("read the explanation: %w", err)
		}
		return sh.Facts(deliveryFacts(sh, d)...)
	})
}

// fateTone is good for what was handled and bad for what will not be without somebody's help.
func fateTone(fate string) shell.Tone {
	switch fate {
	case api.FateCommitted:
		return shell.Good
	case api.FateDead, api.FateTrimmed:
		return shell.Bad
	}
	return shell.Warn
}

// deliveryFacts lists an explanation line by line.
func deliveryFacts(sh *shell.Shell, d api.DeliveryFate) []any {
	// The fate of the event and its reason come first.
	facts := []any{"cursor", d.Cursor, "offset", d.Offset, "fate", sh.Paint(fateTone(d.Fate), d.Fate), "because", d.Reason}
	// Each part of the filter that the event does not pass has a line.
	for _, f := range d.FilteredBy {
		facts = append(facts, "filter",
			// An event without a key, say, has "none".
			fmt.Sprintf("%s: %s does not match %s", strings.ReplaceAll(f.Part, "_", " "), cmp.Or(f.Has, "none"),
				strings.Join(f.Wants, ", ")))
	}
	// Why it is dead, or gone.
	if l := d.Letter; l != nil {
		facts = append(facts, "letter",
			fmt.Sprintf("%d after %s of %s: %s", l.ID, shell.Count(l.Attempts, "attempt"),
				cmp.Or(l.Handler, "an unnamed handler"), l.Error))
	}
	if g := d.Gap; g != nil {
		facts = append(facts, "gap", fmt.Sprintf("%d-%d %s", g.From, g.To, g.Reason))
	}
	// Where the cursor is.
	facts = append(facts, "committed", d.Committed, "generation", d.Generation)
	// InFront is known of pending events alone.
	if d.InFront > 0 {
		facts = append(facts, "before it", shell.Count(d.InFront, "uncommitted offset"))
	}
	// What the event is, as far as the log still has it.
	if e := d.Event; e != nil {
		facts = append(facts, "type", e.Type, "source", cmp.Or(e.Source, "-"), "appended",
			shell.Time(e.AppendedAt))
	}
	// A handler may miss an event that was published again and suppressed.
	if again := d.Duplicates; again != nil {
		var sources []string
		for _, s := range again.Sources {
			sources = append(sources, fmt.Sprintf("%s (%d)", cmp.Or(s.Source, "no source"), s.Count))
		}
		facts = append(facts, "duplicates",
			fmt.Sprintf("%d suppressed, answered with this offset; the last %s; from %s", again.Suppressed,
				shell.Time(again.Last), strings.Join(sources, ", ")))
	}
	return facts
}
