package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
)

func clusterStatusCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "every node as it sees itself",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print it anew until Ctrl-C, when it changes"},
			&cli.DurationFlag{Name: "interval", Usage: "how often --watch looks", Value: time.Second},
		},
		Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			if !c.Bool("watch") {
				_, err := showCluster(c.Context, sh, nil)
				return err
			}
			if c.Duration("interval") < 100*time.Millisecond {
				return usagef("--interval %s: use 100ms or more", c.Duration("interval"))
			}
			return watchCluster(c.Context, sh, c.Duration("interval"))
		},
	}
}

// clusterRow is one node's word on itself, or why there is none.
type clusterRow struct {
	URL     string `json:"url"`
	ID      string `json:"id,omitempty"`
	Role    string `json:"role,omitempty"`
	Leader  string `json:"leader_id,omitempty"`
	Term    uint64 `json:"term,omitempty"`
	First   uint64 `json:"first_offset,omitempty"`
	Last    uint64 `json:"last_offset,omitempty"`
	Applied uint64 `json:"applied_index,omitempty"`
	Margin  int    `json:"quorum_margin"`
	Error   string `json:"error,omitempty"`
}

// showCluster prints all nodes, unless nothing differs from what was printed before.
func showCluster(ctx context.Context, sh *shell, before []clusterRow) ([]clusterRow, error) {
	ctx, cancel := context.WithTimeout(ctx, sh.timeout)
	defer cancel()
	urls, err := sh.everyNode(ctx)
	if err != nil {
		return nil, err
	}
	perNode, cancelNodes := context.WithTimeout(ctx, min(sh.timeout, 3*time.Second))
	defer cancelNodes()
	var rows []clusterRow
	for _, a := range askAll(perNode, urls, sh.status) {
		row := clusterRow{URL: a.url, ID: a.value.NodeID, Role: a.value.Role, Leader: a.value.LeaderID, Term: a.value.Term, First: a.value.FirstOffset,
			Last: a.value.LastOffset, Applied: a.value.AppliedIndex, Margin: a.value.Quorum.Margin}
		if a.err != nil {
			row.Role, row.Error = "unreachable", a.err.Error()
		}
		rows = append(rows, row)
	}
	if slices.Equal(rows, before) {
		return rows, nil
	}
	if before != nil && !sh.json {
		fmt.Fprintln(sh.out, time.Now().Format(time.TimeOnly))
	}
	return rows, emitEach(sh, rows, table.Row{"id", "url", "role", "leader", "term", "offsets", "applied", "spare voters"}, func(r clusterRow) table.Row {
		if r.Error != "" {
			return table.Row{"?", r.URL, r.Role}
		}
		return table.Row{r.ID, r.URL, r.Role, r.Leader, r.Term, fmt.Sprintf("%d-%d", r.First, r.Last), r.Applied, r.Margin}
	})
}

// watchCluster prints the nodes whenever something changes, until ctx ends.
func watchCluster(ctx context.Context, sh *shell, every time.Duration) error {
	ctx, stop := sh.whileRead(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	rows := []clusterRow{}
	for {
		next, err := showCluster(ctx, sh, rows)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && exitCode(err) != exitUnreachable:
			return err
		case err != nil:
			sh.say("%s nobody answers", time.Now().Format(time.TimeOnly))
		default:
			rows = next
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
