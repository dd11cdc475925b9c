package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/top"
)

// Package top has the view. This file is what it needs from the cluster: askTop makes a sample of the answers of
// all nodes, with the judgement of check, and readStory reads what the cluster has emitted about itself since the
// last time.

// topCommand is top, for an operator who has a terminal and no browser. What is wrong is judged as check judges it.
func topCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "top", Usage: "show the cluster live on a terminal: nodes, cursors, events, and what is wrong now",
		UsageText: shell.Examples("ringlog top", "ringlog top --interval 5s"),
		Description: "Shows who leads since when, the quorum, rates, each node, the cursors and groups that lag most, what " +
			"the\n" +
			"cluster emits about itself, and what ringlog check finds. Tab chooses a table, j and k scroll it, s sorts\n" +
			"cursors, p pauses, ? explains, q quits. A cluster that does not answer or has no leader is shown as well.",
		Flags: []cli.Flag{&cli.DurationFlag{Name: "interval", Usage: "how long to wait before the nodes are asked again",
			Value: time.Second}},
		Action: shell.NoArgs(func(c *cli.Context) error {
			const instead = "for programs there are ringlog status -o json, and ringlog check"
			// A view that moves the cursor needs a terminal on both sides. Anything else is told what to use
			// instead.
			switch {
			case sh.JSON:
				return shell.Usagef("top has no JSON\n%s", instead)
			case !sh.InTerminal || !sh.OutTerminal:
				return shell.Usagef("top needs a terminal, for its input and for its output\n%s", instead)
			case sh.Getenv("TERM") == "dumb":
				return shell.Usagef("top needs a terminal that moves its cursor, and TERM is dumb\n%s", instead)
			case c.Duration("interval") < 100*time.Millisecond:
				return shell.Usagef("--interval %s: use 100ms or more", c.Duration("interval"))
			}
			// Questions that are under way when the view ends are abandoned.
			ctx, cancel := context.WithCancel(c.Context)
			defer cancel()
			return top.Run(ctx, sh, top.Options{
				Interval: c.Duration("interval"),
				Ask:      func() top.Sample { return askTop(ctx, sh) },
				Read:     func(s top.Story, of top.Sample) top.Story { return readStory(ctx, sh, s, of) },
			})
		}),
	}
}

// askTop asks all nodes for what top shows.
func askTop(ctx context.Context, sh *shell.Shell) top.Sample {
	found, err := askEverybody(ctx, sh, statusOf)
	s := sampleOf(found, err, sh.Endpoints, time.Now())
	// Without an answer there is nobody whose metrics could be asked for.
	if err != nil {
		return s
	}
	// The counters of readers are in the metrics alone.
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	var urls []string
	ids := map[string]string{}
	for _, a := range found.answers {
		if a.err == nil {
			urls, ids[a.url] = append(urls, a.url), a.value.NodeID
		}
	}
	s.Delivered = map[string]uint64{}
	for _, a := range askAll(ctx, sh, urls, deliveredOf) {
		if a.err == nil {
			s.Delivered[ids[a.url]] = a.value
		}
	}
	return s
}

// sampleOf makes the answers of all nodes, or that there are none, what top shows.
func sampleOf(found sweep[nodeStatus], err error, endpoints []string, at time.Time) top.Sample {
	state, bad, view := judgeSweep(found, err, endpoints, checkOptions{})
	// The verdict and the findings are those of ringlog check without limits.
	s := top.Sample{At: at, Failed: err != nil, View: view.Status}
	s.Verdict, s.Tone = verdictName(state)
	for _, p := range bad {
		s.Findings = append(s.Findings, top.Finding{Found: p.Found, Remedy: p.Remedy})
	}
	if err != nil {
		return s
	}
	for _, a := range found.nodes() {
		row := rowOf(a, found.members[a.url])
		n := top.Node{ID: orUnknown(row.ID), URL: a.url, Role: row.Role, Answers: a.err == nil, Offset: row.Last,
			Version: a.value.Version}
		// A node may be known to itself alone, such as one that is not admitted: then nothing is found here.
		for i := range view.Members {
			if m := &view.Members[i]; m.ID == n.ID {
				n.Member = m
			}
		}
		if p := view.Autopilot; p != nil {
			for i := range p.Servers {
				if p.Servers[i].ID == n.ID {
					n.Health = &p.Servers[i]
				}
			}
		}
		s.Nodes = append(s.Nodes, n)
		// Histories are read from the node whose status is shown: its log has what the status counts.
		if a.err == nil && a.value.NodeID == view.NodeID && a.value.ClusterID == view.ClusterID {
			s.URL = a.url
		}
	}
	for _, c := range view.Cursors {
		s.Cursors = append(s.Cursors, top.Cursor{Cursor: c, Kind: cursorKind(c), Lag: lagText(c), Waits: lagTime(c)})
	}
	return s
}

// deliveredOf returns how many events a node has sent to readers since it started. A node of a version without that
// metric is an error, so it is left out of the rates.
func deliveredOf(ctx context.Context, sh *shell.Shell, url string) (uint64, error) {
	body, err := sh.Open(ctx, url, "/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	// A node has less than 200 kB of them.
	for lines := bufio.NewScanner(io.LimitReader(body, 1<<20)); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "ringlog_delivered_events_total "); found {
			n, err := strconv.ParseFloat(value, 64)
			return uint64(n), err
		}
	}
	return 0, errors.New("the metrics have no ringlog_delivered_events_total")
}

// readStory reads what the cluster has emitted since, from the node whose status the sample has: its log has it.
func readStory(ctx context.Context, sh *shell.Shell, s top.Story, of top.Sample) top.Story {
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	query := url.Values{"limit": {"200"}, "from": {"start"}}
	// Only what follows. A story that was not read yet, or is another cluster's, begins again.
	if s.Cluster == of.View.ClusterID && s.Next > 0 {
		query.Set("from", strconv.FormatUint(s.Next, 10))
	}
	var h history
	// An error leaves the story as it was, with the reason: the next sample tries again.
	err := sh.Ask(ctx, of.URL, "/v1/cluster/history?"+query.Encode(), &h)
	events, failed := storyEvents(h)
	if err = errors.Join(err, failed); err != nil {
		s.Failed = fmt.Sprintf("the history cannot be read: %s", shell.Brief(err))
		return s
	}
	return s.With(events, of.View)
}

// storyEvents returns the chapters of a history as top shows them.
func storyEvents(h history) (events []top.Event, err error) {
	chapters, err := h.read()
	for _, c := range chapters {
		events = append(events, top.Event{At: c.At, Offset: c.Offset, Type: string(c.Type), Term: c.Term,
			Subject: c.Subject, Details: c.text()})
	}
	return events, err
}
