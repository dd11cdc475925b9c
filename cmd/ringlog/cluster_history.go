package main

import (
	"context"
	"encoding/json"
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

// clusterHistoryCommand is cluster history: the events that the cluster emits about itself, elections and outages
// first of all. The answering node reads them from its log.
func clusterHistoryCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "history", Usage: "list elections, lost leaders and outages",
		UsageText: shell.Examples(
			"ringlog cluster history",
			"ringlog cluster history --from 1d -n 20",
		),
		Description: "Lists the events that the cluster emits about itself, by the time at which they happened, " +
			"with the gap that each ended.\n" +
			"An outage is appended once it is over, so its offset may be higher than those of later events. With " +
			"-o json events\n" +
			"come in the order of the log.",
		Flags: []cli.Flag{
			// The whole log by default: the cluster's own events are few.
			&cli.StringFlag{Name: "from", Usage: "start at `WHERE`: " + api.PositionForms, Value: "start"},
			&cli.Uint64Flag{Name: "n", Aliases: []string{"limit"}, Usage: "print only the newest `COUNT`",
				DefaultText: "1000"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			query, err := historyQuery(c)
			if err != nil {
				return err
			}
			return showHistory(c.Context, sh, query)
		}),
	}
}

// historyQuery makes the flags a query. The node resolves the position.
func historyQuery(c *cli.Context) (url.Values, error) {
	// The position is checked here, so a wrong one is wrong usage.
	from, err := shell.ParsePosition("from", c.String("from"))
	if err != nil {
		return nil, err
	}
	query := url.Values{"from": {from.String()}}
	// Without -n the node's own limit applies.
	switch n := c.Uint64("n"); {
	case c.IsSet("n") && n == 0:
		return nil, shell.Usagef("-n 0: there is nothing to do")
	case n != 0:
		query.Set("limit", strconv.FormatUint(n, 10))
	}
	return query, nil
}

// history is GET /v1/cluster/history.
type history struct {
	Chapters    []json.RawMessage `json:"history"`      // as the node sent them, in the order of the log
	FirstOffset uint64            `json:"first_offset"` // that the log keeps
	Outage      *api.Outage       `json:"outage"`       // ongoing; nil is none
}

// chapter is one event of the cluster's story.
type chapter struct {
	Offset uint64     `json:"offset"`
	At     time.Time  `json:"at"` // when it happened, which may be before it was appended
	Type   event.Type `json:"type"`
	Term   uint64     `json:"term"`
	// the leader or voter that the event is about
	Subject    string  `json:"subject"`
	GapSeconds float64 `json:"gap_seconds"` // 0 is none
	// by key, as details prints it
	Payload map[string]any `json:"payload"`
}

// read returns the chapters, in the order of the log.
func (h history) read() ([]chapter, error) {
	chapters := make([]chapter, len(h.Chapters))
	for i, raw := range h.Chapters {
		if err := json.Unmarshal(raw, &chapters[i]); err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
	}
	return chapters, nil
}

// showHistory prints the chapters in the order of their times; JSON keeps the order of the log.
func showHistory(ctx context.Context, sh *shell.Shell, query url.Values) error {
	// The whole list is read before anything is printed, since it is printed in another order.
	var h history
	if err := sh.Call(ctx, http.MethodGet, "/v1/cluster/history", query, nil, &h); err != nil {
		return err
	}
	// A reader must not take the oldest entry for the first one that there was.
	if h.FirstOffset > 1 {
		sh.Say("the log starts at offset %d: earlier history is trimmed", h.FirstOffset)
	}
	// The raw objects are printed as JSON, so fields that this program does not know are kept.
	chapters, err := h.read()
	if err != nil {
		return err
	}
	if h.Outage != nil {
		// Printed last: it is what matters now.
		defer sh.Say("no quorum since %s (%s): see ringlog cluster outage", shell.Moment(h.Outage.Since),
			h.Outage.Cause)
	}
	// A program sorts for itself, and gets all fields.
	if sh.JSON {
		return shell.EmitEach(sh, "", h.Chapters, nil, nil)
	}
	// Events of the same time keep the order of the log.
	slices.SortStableFunc(chapters, func(a, b chapter) int { return a.At.Compare(b.At) })
	const none = "event of the cluster"
	// Where there is no room for all columns, a time has no milliseconds, and the gap is the first of the details.
	if width := sh.Width(); width > 0 && width < roomyHistory {
		return shell.EmitEach(sh, none, chapters, table.Row{"time", "offset", "event", "term", "who", "details"},
			chapter.shortRow)
	}
	return shell.EmitEach(sh, none, chapters, table.Row{"time", "offset", "event", "term", "who", "gap", "details"},
		chapter.row)
}

// roomyHistory is from how many columns on a terminal shows each column of a history.
const roomyHistory = 120

// shortRow returns the row for a narrow terminal. The time may be broken after its date.
func (c chapter) shortRow() table.Row {
	return table.Row{c.At.UTC().Format("2006-01-02 15:04:05Z"), c.Offset, c.Type, c.Term, c.Subject, c.text()}
}

// text is the gap and the details.
func (c chapter) text() string {
	return strings.Join(slices.DeleteFunc([]string{c.gap(), c.details()}, func(s string) bool { return s == "" }), "; ")
}

// row returns the table row of a chapter.
// Times are in UTC, offsets are those of the log.
func (c chapter) row() table.Row {
	return table.Row{shell.Moment(c.At), c.Offset, c.Type, c.Term, c.Subject, c.gap(), c.details()}
}

// gap prints for how long the cluster was without a leader, a quorum or a spare voter; "" if it was not.
func (c chapter) gap() string {
	if c.GapSeconds == 0 {
		return ""
	}
	// The type says what was missing: a leader, the quorum, or a voter to spare.
	what := "without a leader"
	switch {
	case c.Type == event.QuorumRestored && c.Payload["after"] == "at_risk":
		what = "without a spare voter"
	case c.Type == event.QuorumOutageView && c.Payload["cluster_had_quorum"] == true:
		what = "cut off"
	case strings.HasPrefix(string(c.Type), "QUORUM_"):
		what = "without a quorum"
	}
	// The length first, so the column is easy to compare.
	return shell.Seconds(c.GapSeconds) + " " + what
}

// details prints the rest of the payload, in words. It returns "" if there is nothing more to say.
func (c chapter) details() string {
	var words []string
	// add appends a part of the sentence if the payload has the key.
	add := func(key, format string) {
		if text := valueText(c.Payload[key]); text != "" {
			words = append(words, fmt.Sprintf(format, text))
		}
	}
	// Keys are added in the order of the sentence; those that a payload does not have add nothing.
	add("cause", "%s")
	if c.Type == event.VoterOffline {
		add("reason", "no contact over %s")
	} else {
		add("reason", "%s")
	}
	add("target", "to %s")
	add("previous_leader", "after %s")
	add("skipped_terms", "no leader from %s")
	// voters is a number, except in QUORUM_PRIORITY_RECONNECT, where it is a list of ids.
	if all := valueText(c.Payload["voters"]); all != "" && c.Type != event.QuorumPriorityReconnect {
		add("active_voters", "%s of "+all+" voters online")
		add("healthy", "%s of "+all+" voters healthy")
	} else {
		add("voters", "%s")
	}
	add("limiting", "missing %s")
	add("leaders", "claimed by %s")
	add("incident", "incident %s")
	add("down", "%s did not run")
	add("unreachable", "%s unreachable")
	add("seen_by", "seen by %s")
	// Counts get their nouns.
	if n, ok := c.Payload["refused"].(float64); ok && n > 0 {
		words = append(words, shell.Count(uint64(n), "write")+" refused")
	}
	if n, ok := c.Payload["trailing_entries"].(float64); ok && n > 0 {
		words = append(words, "lagging by "+shell.Count(uint64(n), "entry", "entries"))
	}
	add("entries_left", "%s left")
	return strings.Join(words, ", ")
}

// valueText prints a value of a payload; it returns "" for 0, for booleans and for null.
func valueText(v any) string {
	switch v := v.(type) {
	// Numbers of JSON are float64, and lists are of any.
	case string:
		return v
	case float64:
		if v != 0 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	case []any:
		var words []string
		for _, e := range v {
			words = append(words, valueText(e))
		}
		return strings.Join(words, " ")
	case map[string]any: // a term seen
		return fmt.Sprintf("term %s (%s)", valueText(v["term"]), valueText(v["leader"]))
	}
	return ""
}
