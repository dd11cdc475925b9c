package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode/blackbox"
)

// clusterOutageCommand is cluster outage: who sees a quorum, and since when not. It needs no leader, since each node
// answers from its own journal, and with --data-dir not even a running node.
func clusterOutageCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "outage", Usage: "show each node's view of the quorum, with or without a leader",
		UsageText: shell.Examples(
			"ringlog cluster outage",
			"ringlog cluster outage -n 0 -o json",
		),
		Description: "Asks every endpoint and every member that one of them knows: the ongoing outage, the " +
			"newest records\n" +
			"of its journal, and the outages recorded in the log. Exits 0 if all nodes that answer see a quorum, " +
			"1 if one\n" +
			"does not, 3 if none answers. With --data-dir it reads the journal of a stopped node.\n" +
			"A record says that the node no longer reached a majority (lost), how the others looked then (view), that it " +
			"reached\n" +
			"one again (restored), that it could no longer prove that it leads (lease expired), or that its process was " +
			"paused\n" +
			"(stalled) or did not run (down), each with the time since when. The column \"in the log\" says whether\n" +
			"the cluster has recorded it.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data-dir", Usage: "data `DIR` of a stopped node, instead of running nodes"},
			&cli.IntFlag{Name: "n", Usage: "print the newest `COUNT` records of each journal; 0 means all", Value: 10},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			// 0 is all records, so only a negative number makes no sense.
			n := c.Int("n")
			if n < 0 {
				return shell.Usagef("-n %d must not be negative", n)
			}
			// An empty DIR, for example from an unset variable, is an error; the cluster is not asked.
			if dir := c.String("data-dir"); c.IsSet("data-dir") {
				return showJournalOf(sh, dir, n)
			}
			return showOutage(c.Context, sh, n)
		}),
	}
}

// nodeOutage is one node's view of the quorum.
// It is GET /v1/cluster/outage of one node, or the same read from the folder of a stopped one.
type nodeOutage struct {
	URL       string           `json:"url,omitempty"`
	DataDir   string           `json:"data_dir,omitempty"`
	NodeID    string           `json:"node_id"`
	ClusterID string           `json:"cluster_id,omitempty"`
	Outage    *api.Outage      `json:"outage"` // nil: it sees none
	Quorum    *api.Quorum      `json:"quorum,omitempty"`
	Members   []api.Member     `json:"members,omitempty"`
	Journal   string           `json:"journal"` // its id; "" is no journal
	Records   []localRecord    `json:"records"`
	Outages   []api.PastOutage `json:"outages,omitempty"` // that the log has recorded
}

// localRecord is a record of a node's journal, as an event that has no offset.
type localRecord struct {
	// Always true: it distinguishes a record of a journal from an event of the log.
	Local  bool   `json:"local"`
	NodeID string `json:"node_id"`
	// in the journal, from 1
	Seq     uint64     `json:"seq"`
	Settled *bool      `json:"settled,omitempty"` // the log has recorded it; nil: not known
	Time    time.Time  `json:"time"`
	Type    event.Type `json:"type"`
	// as the journal has it
	Payload blackbox.Record `json:"payload"`
}

func (o nodeOutage) name() string { return o.NodeID }

func (o nodeOutage) cluster() string { return o.ClusterID }

func (o nodeOutage) knows() []api.Member { return o.Members }

// seesQuorum reports whether enough voters answer the node, and have all along.
func (o nodeOutage) seesQuorum() bool { return o.Outage == nil && o.Quorum.Margin >= 0 }

// fetchOutage asks one node for its view of the quorum.
func fetchOutage(ctx context.Context, sh *shell.Shell, base string) (o nodeOutage, err error) {
	// An answer without a quorum leaves all of its numbers 0.
	o.Quorum = &api.Quorum{}
	err = sh.Ask(ctx, base, outagePath, &o)
	// A node does not know at which of its addresses it was asked.
	o.URL = base
	return o, err
}

// outagePath is where each node answers for itself, leader or not.
const outagePath = "/v1/cluster/outage"

// showOutage asks every node and fails if one sees no quorum.
func showOutage(ctx context.Context, sh *shell.Shell, newest int) error {
	found, err := askEverybody(ctx, sh, fetchOutage)
	if err != nil {
		return err
	}
	// All that answer are printed; one without a quorum makes the command fail.
	var nodes []nodeOutage
	// A node that does not answer does not count: whether it sees a quorum is not known.
	well := true
	for i := range found.answers {
		a := &found.answers[i]
		if a.err != nil {
			continue
		}
		well = well && a.value.seesQuorum()
		// Only the newest records are printed, in JSON, too.
		a.value.Records = last(a.value.Records, newest)
		nodes = append(nodes, a.value)
	}
	// Programs get silent nodes as objects, people get them as lines among the others.
	if sh.JSON {
		err = outageLines(sh, found)
	} else {
		err = outageText(sh, found, nodes)
	}
	if err == nil && !well {
		err = shell.CodeError(shell.ExitFailed)
	}
	return err
}

// last returns the last n elements of a list, all of them for 0.
func last[T any](list []T, n int) []T {
	// The list is in the order of time, so its end is the newest.
	if n == 0 || n >= len(list) {
		return list
	}
	return list[len(list)-n:]
}

// outageLines prints an object for each node, silent ones with their error.
func outageLines(sh *shell.Shell, found sweep[nodeOutage]) error {
	for _, a := range found.answers {
		// One object a line, for programs.
		var line any = a.value
		// A silent node has a line, too, with the id under which another node knows it.
		if a.err != nil {
			line = map[string]string{"url": a.url, "node_id": found.members[a.url], "error": a.err.Error()}
		}
		if err := sh.PrintLine(line); err != nil {
			return err
		}
	}
	return nil
}

// outageText prints the nodes' views, then their journals, then the outages of the log.
func outageText(sh *shell.Shell, found sweep[nodeOutage], nodes []nodeOutage) error {
	var b strings.Builder
	for _, a := range found.answers {
		// A node that does not answer is listed, too, with the reason.
		if a.err != nil {
			fmt.Fprintf(&b, "%s at %s does not answer: %s\n", found.id(a), a.url, whySilent(a.err))
			continue
		}
		b.WriteString(a.value.text(time.Now()))
	}
	// The views come first: they are what is asked for during an outage.
	if err := sh.Print(strings.TrimSuffix(b.String(), "\n")); err != nil {
		return err
	}
	if err := journalTable(sh, nodes); err != nil {
		return err
	}
	return outagesTable(sh, nodes)
}

// whySilent prints why a node did not answer, without the method and URL of the request.
func whySilent(err error) string {
	// The URL is on the line already.
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error()
	}
	return shell.Brief(err)
}

// text prints what a node sees now.
func (o nodeOutage) text(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s ", o.NodeID, o.URL)
	// From the worst to the best: an ongoing outage, one that is about to begin, and none.
	switch {
	case o.Outage != nil:
		b.WriteString("sees no quorum: " + outageFacts(o.Outage, now))
	case o.Quorum.Voters == 0:
		b.WriteString("is in no cluster\n")
	case o.Quorum.Margin < 0:
		fmt.Fprintf(&b, "is about to lose the quorum: %s\n", quorumText(*o.Quorum))
	default:
		fmt.Fprintf(&b, "sees a quorum: %s\n", quorumText(*o.Quorum))
	}
	return b.String()
}

// outageFacts describes an ongoing outage.
func outageFacts(o *api.Outage, now time.Time) string {
	var b strings.Builder
	// Clocks may differ: an outage that seems to begin in the future lasts 0 seconds.
	fmt.Fprintf(&b, "%s, for %s\n", o.Cause, shell.Short(max(0, now.Sub(o.Since))))
	fmt.Fprintf(&b, "  since         %s\n", shell.Moment(o.Since))
	fmt.Fprintf(&b, "  last leader   %s (term %d)\n", cmp.Or(o.Leader, "not known"), o.Term)
	fmt.Fprintf(&b, "  writes        %d refused here\n", o.Refused)
	// Peers that answer and peers that do not are listed: together they show who could form a quorum.
	for _, p := range o.Peers {
		state := "unreachable"
		if p.Reachable {
			state = "answers"
		}
		// A negative number means that the node has not heard from it since it started.
		contact := "no contact yet"
		if p.LastContactMs >= 0 {
			contact = "last contact " + shell.Short(time.Duration(p.LastContactMs)*time.Millisecond) + " ago"
		}
		fmt.Fprintf(&b, "  %-12s  %s, %s\n", p.ID, state, contact)
	}
	return b.String()
}

// journalTable prints the records of all nodes in the order of their clocks.
func journalTable(sh *shell.Shell, nodes []nodeOutage) error {
	var records []localRecord
	for _, o := range nodes {
		records = append(records, o.Records...)
	}
	// Without records the heading would stand alone.
	if len(records) == 0 {
		return nil
	}
	slices.SortFunc(records, compareRecords)
	rows := make([]table.Row, len(records))
	for i, r := range records {
		rows[i] = r.row()
	}
	fmt.Fprintln(sh.Out, "\njournals")
	return sh.Table(table.Row{"time", "node", shell.Extra("seq"), "what", shell.Extra("since"), "cause",
		shell.Extra("term"), "refused", "unreachable", "in the log"}, rows)
}

// compareRecords orders records by time. A record may be written before one that has happened earlier in the same
// millisecond, which is what is printed: those of one node are then in the order of their numbers.
func compareRecords(a, b localRecord) int {
	return cmp.Or(a.Time.Truncate(time.Millisecond).Compare(b.Time.Truncate(time.Millisecond)),
		cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Seq, b.Seq))
}

// row returns the table row of a record.
func (r localRecord) row() table.Row {
	var away []string
	// Only the peers that were away are of interest.
	for _, p := range r.Payload.Peers {
		if !p.Reachable {
			away = append(away, p.ID)
		}
	}
	// Whether the log has recorded it is known of running nodes only.
	inLog := ""
	if r.Settled != nil {
		inLog = yesNo(*r.Settled)
	}
	// Not every record has the time of a beginning.
	since := ""
	if at := r.Payload.Since; !at.IsZero() {
		since = shell.Clock(at)
	}
	return table.Row{shell.Moment(r.Time), r.NodeID, r.Seq,
		strings.ReplaceAll(string(r.Payload.Kind), "_", " "), since, r.Payload.Cause, r.Payload.Term,
		r.Payload.Refused, strings.Join(away, " "), inLog}
}

// outagesTable prints the outages that the log has recorded. All nodes have the same, as far
// as they have applied the log.
func outagesTable(sh *shell.Shell, nodes []nodeOutage) error {
	var all []api.PastOutage
	for _, o := range nodes {
		// A node that lags may not have all reports of an incident yet: the entry with the most counts.
		for _, logged := range o.Outages {
			if i := slices.IndexFunc(all, func(t api.PastOutage) bool { return t.Incident == logged.Incident }); i < 0 {
				all = append(all, logged)
			} else if len(logged.SeenBy) > len(all[i].SeenBy) {
				all[i] = logged
			}
		}
	}
	// A cluster that never lost its quorum has no such table.
	if len(all) == 0 {
		return nil
	}
	// Incidents are numbered in the order in which they were recorded.
	slices.SortFunc(all, func(a, b api.PastOutage) int { return cmp.Compare(a.Incident, b.Incident) })
	rows := make([]table.Row, len(all))
	for i, o := range all {
		rows[i] = table.Row{o.Incident, shell.Moment(o.Began), shell.Moment(o.Ended),
			shell.Seconds(o.Seconds), strings.Join(o.SeenBy, " ")}
	}
	fmt.Fprintln(sh.Out, "\noutages in the log")
	return sh.Table(table.Row{"incident", "began", "ended", "lasted", "seen by"}, rows)
}
