package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/raftnode"
)

func clusterStatusCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "every node as it sees itself, and what the leader makes of its followers",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print it anew until Ctrl-C, when a role, a member, its health or the quorum changes"},
			&cli.DurationFlag{Name: "interval", Usage: "how often --watch looks", Value: time.Second},
		},
		Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			if !c.Bool("watch") {
				rows, err := lookAtCluster(c.Context, sh)
				if err != nil {
					return err
				}
				return printCluster(sh, rows)
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
	URL       string            `json:"url"`
	ID        string            `json:"id,omitempty"`
	Role      string            `json:"role,omitempty"`
	Leader    string            `json:"leader_id,omitempty"`
	Term      uint64            `json:"term,omitempty"`
	First     uint64            `json:"first_offset,omitempty"`
	Last      uint64            `json:"last_offset,omitempty"`
	Applied   uint64            `json:"applied_index,omitempty"`
	Margin    int               `json:"quorum_margin"`
	Outage    *raftnode.Outage  `json:"outage,omitempty"`
	Health    *voterHealth      `json:"health,omitempty"`
	Autopilot *autopilotVerdict `json:"autopilot,omitempty"`
	Error     string            `json:"error,omitempty"`
}

// lookAtCluster asks every member, and every endpoint that answers.
func lookAtCluster(ctx context.Context, sh *shell) ([]clusterRow, error) {
	found, err := askEverybody(ctx, sh, sh.status)
	if err != nil {
		return nil, err
	}
	var rows []clusterRow
	for _, a := range found.answers {
		if _, member := found.members[a.url]; a.err != nil && !member && len(found.members) > 0 {
			continue // an endpoint of a node that has gone, or another name of a member
		}
		rows = append(rows, rowOf(a, found.members[a.url]))
	}
	return rows, nil
}

func rowOf(a answer[nodeStatus], id string) clusterRow {
	if a.err != nil {
		return clusterRow{URL: a.url, ID: id, Role: "unreachable", Error: a.err.Error()}
	}
	s := a.value
	return clusterRow{URL: a.url, ID: s.NodeID, Role: s.Role, Leader: s.LeaderID, Term: s.Term, First: s.FirstOffset,
		Last: s.LastOffset, Applied: s.AppliedIndex, Margin: s.Quorum.Margin, Outage: s.Outage, Health: &s.Health, Autopilot: s.Autopilot}
}

func printCluster(sh *shell, rows []clusterRow) error {
	err := emitEach(sh, rows, table.Row{"id", "url", "role", "leader", "term", "offsets", "applied", "spare voters"}, func(r clusterRow) table.Row {
		if r.Error != "" {
			return table.Row{orUnknown(r.ID), r.URL, r.Role}
		}
		return table.Row{r.ID, r.URL, r.Role, r.Leader, r.Term, fmt.Sprintf("%d-%d", r.First, r.Last), r.Applied, r.Margin}
	})
	if err != nil || sh.json {
		return err
	}
	return printHealth(sh, rows, time.Now())
}

// watchCluster prints the nodes whenever something changes, until ctx ends.
func watchCluster(ctx context.Context, sh *shell, every time.Duration) error {
	ctx, stop := sh.whileRead(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	printed := ""
	for {
		rows, err := lookAtCluster(ctx, sh)
		now := "nobody answers"
		if err == nil {
			now, err = shapeOf(rows)
		} else if ctx.Err() == nil && exitCode(err) == exitUnreachable {
			err = nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && now != printed {
			err = printChange(sh, rows)
		}
		if err != nil {
			return err
		}
		printed = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func printChange(sh *shell, rows []clusterRow) error {
	if rows == nil {
		sh.say("%s nobody answers", time.Now().Format(time.TimeOnly))
		return nil
	}
	if !sh.json {
		fmt.Fprintln(sh.out, time.Now().Format(time.TimeOnly))
	}
	return printCluster(sh, rows)
}

// rowShape is what counts as a change of a row. Figures that go on as the cluster works
// do not: offsets, ages and how far somebody trails. That somebody trails too far is in
// the verdict on its health.
type rowShape struct {
	ID, URL, Role, Leader string
	Term                  uint64
	Spare                 int
	OutageSince           time.Time
	OutOfReach            []string // peers, in an outage
	Health                voterHealth
	Tolerance             int
	Servers               []serverShape
}

type serverShape struct {
	ID, Wish       string
	Voter, Healthy bool
}

// shapeOf is text that is equal as long as nothing has changed.
func shapeOf(rows []clusterRow) (string, error) {
	var shapes []rowShape
	for _, r := range rows {
		s := rowShape{ID: r.ID, URL: r.URL, Role: r.Role, Leader: r.Leader, Spare: r.Margin}
		if r.Role == raftnode.RoleCandidate {
			s.Role = raftnode.RoleFollower // without a leader everybody is one again and again
		}
		if r.Leader != "" {
			s.Term = r.Term
		}
		if r.Health != nil {
			s.Health = *r.Health
		}
		if o := r.Outage; o != nil {
			s.OutageSince = o.Since
			for _, p := range o.Peers {
				if !p.Reachable {
					s.OutOfReach = append(s.OutOfReach, p.ID)
				}
			}
		}
		if a := r.Autopilot; a != nil {
			s.Tolerance = a.FailureTolerance
			for _, v := range a.Servers {
				s.Servers = append(s.Servers, serverShape{ID: v.ID, Wish: v.Wish, Voter: v.Voter, Healthy: v.Healthy})
			}
		}
		shapes = append(shapes, s)
	}
	text, err := json.Marshal(shapes)
	return string(text), err
}
