package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// clusterStatusCommand is cluster status: every node's own view side by side, so a partition shows, and below it
// what the leader says of its followers.
func clusterStatusCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show every node's own view, and the leader's view of its followers",
		UsageText: shell.Examples("ringlog cluster status", "ringlog cluster status --watch",
			"ringlog cluster status --exit-when-healthy --timeout 1m"),
		Flags: append(watchFlags(), &cli.BoolFlag{Name: "exit-when-healthy",
			Usage: "watch until all nodes answer, follow one leader and are healthy; wait for at most --timeout, if it " +
				"is given"}),
		Action: shell.NoArgs(func(c *cli.Context) error {
			// It watches, too, so --watch beside it changes nothing.
			if c.Bool("exit-when-healthy") {
				return watchUntilHealthy(c, sh)
			}
			if c.Bool("watch") {
				return watch(c, sh)
			}
			view, err := lookAtCluster(c.Context, sh)
			if err != nil {
				return err
			}
			return printCluster(sh, view)
		}),
	}
}

// watchFlags are those of cluster status, and of status.
func watchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "watch", Aliases: []string{"w"},
			Usage: "print again when a role, a member, its health or the quorum changes, until Ctrl-C"},
		&cli.DurationFlag{Name: "interval", Usage: "how often --watch polls", Value: time.Second},
	}
}

// watch prints the cluster until Ctrl-C, each time something has changed.
func watch(c *cli.Context, sh *shell.Shell) error {
	// --interval is checked only if it is used.
	if c.Duration("interval") < 100*time.Millisecond {
		return shell.Usagef("--interval %s: use 100ms or more", c.Duration("interval"))
	}
	return watchCluster(c.Context, sh, c.Duration("interval"), func(clusterView) bool { return false })
}

// watchUntilHealthy prints the cluster each time something has changed, until nothing is wrong with its nodes.
func watchUntilHealthy(c *cli.Context, sh *shell.Shell) error {
	if c.Duration("interval") < 100*time.Millisecond {
		return shell.Usagef("--interval %s: use 100ms or more", c.Duration("interval"))
	}
	ctx := c.Context
	// The default of --timeout is for a request. How long a cluster may take to get well, only the caller knows.
	if c.IsSet("timeout") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sh.Timeout)
		defer cancel()
	}
	well := false
	// watchCluster returns nil also if ctx has ended, so well says whether the last view was.
	err := watchCluster(ctx, sh, c.Duration("interval"), func(v clusterView) bool {
		well = healthyCluster(v)
		return well
	})
	if err != nil || well {
		return err
	}
	// The time is over, or the caller has asked for the end.
	return fmt.Errorf("the cluster is not healthy: %w", ctx.Err())
}

// healthyCluster reports whether every node answers and follows one leader, to whose autopilot all are healthy.
func healthyCluster(v clusterView) bool {
	if v.mixed != "" || len(v.rows) == 0 {
		return false
	}
	led := false
	// Each node for itself, as it sees the cluster: one that is cut off follows nobody.
	for _, r := range v.rows {
		if r.Error != "" || r.Cluster == "" || r.JoinRefused != "" || r.Outage != nil || r.Leader == "" ||
			r.Leader != v.rows[0].Leader || *r.Margin < 0 {
			return false
		}
		// A row of the leader itself is needed: only its autopilot judges the followers.
		led = led || (r.Role == api.RoleLeader && r.Autopilot != nil && r.Autopilot.Healthy)
	}
	return led
}

// clusterRow is one node's status, or why there is none.
// It is a row of the table, and a line with -o json.
type clusterRow struct {
	URL       string         `json:"url"`
	ID        string         `json:"id,omitempty"` // as the node says, or as others know it
	Cluster   string         `json:"cluster_id,omitempty"`
	Role      string         `json:"role,omitempty"` // also unreachable, or other token
	Leader    string         `json:"leader_id,omitempty"`
	Term      uint64         `json:"term,omitempty"`
	First     uint64         `json:"first_offset,omitempty"`
	Last      uint64         `json:"last_offset,omitempty"`
	Applied   uint64         `json:"applied_index,omitempty"`
	Margin    *int           `json:"quorum_margin,omitempty"` // voters to spare; nil if the node does not answer
	Disk      *api.Disk      `json:"disk,omitempty"`
	Outage    *api.Outage    `json:"outage,omitempty"`
	Health    *api.Health    `json:"health,omitempty"`
	Autopilot *api.Autopilot `json:"autopilot,omitempty"` // of the leader alone
	Error     string         `json:"error,omitempty"`     // why it did not answer
	// why it is in no cluster, or no longer in its own
	NotFormed   string `json:"not_formed,omitempty"`
	JoinRefused string `json:"join_refused,omitempty"`
}

// clusterView is the statuses of all nodes.
type clusterView struct {
	// by cluster and id
	rows  []clusterRow
	mixed string // why they are not one cluster, "" if they are
}

// lookAtCluster asks every member, and every endpoint that answers.
func lookAtCluster(ctx context.Context, sh *shell.Shell) (clusterView, error) {
	// Members are asked at the addresses that other nodes know.
	found, err := askEverybody(ctx, sh, statusOf)
	if err != nil {
		return clusterView{}, err
	}
	var rows []clusterRow
	for _, a := range found.nodes() {
		rows = append(rows, rowOf(a, found.members[a.url]))
	}
	return clusterView{rows, found.mixed()}, nil
}

// rowOf returns the row of a node; id is the one under which others know a node that does not answer.
func rowOf(a answer[nodeStatus], id string) clusterRow {
	// Why a node does not answer takes the place of its role: a wrong token is another mistake than silence.
	if a.err != nil {
		role := unreachable
		if refusesToken(a.err) {
			role = otherToken
		}
		return clusterRow{URL: a.url, ID: id, Role: role, Error: a.err.Error()}
	}
	s := a.value
	// Each node reports its own disk among the members.
	var disk *api.Disk
	for _, m := range s.Members {
		if m.ID == s.NodeID {
			disk = m.Disk
		}
	}
	return clusterRow{URL: a.url, ID: s.NodeID, Cluster: s.ClusterID, Role: s.Role, Leader: s.LeaderID,
		Term: s.Term, First: s.FirstOffset,
		Last: s.LastOffset, Applied: s.AppliedIndex, Margin: &s.Quorum.Margin, Disk: disk, Outage: s.Outage,
		Health: &s.Health, Autopilot: s.Autopilot, NotFormed: s.NotFormed, JoinRefused: s.JoinRefused}
}

// The roles of nodes that do not answer, or not with this command's token.
const (
	unreachable = "unreachable"
	otherToken  = "other token"
)

// refusesToken reports whether a node answered that the token is wrong.
func refusesToken(err error) bool {
	answer, ok := errors.AsType[*api.Error](err)
	return ok && answer.Code == api.Unauthenticated
}

// printCluster fails if the nodes are of more than one cluster. It prints a verdict, the table of the nodes, and
// what the leader says of its followers.
func printCluster(sh *shell.Shell, v clusterView) error {
	// The verdict is what people ask for; programs get all of it in the rows.
	if !sh.JSON {
		if err := printVerdict(sh, v.rows, time.Now()); err != nil {
			return err
		}
		// One cluster id for all rows; of several clusters the rows say it.
		for _, r := range v.rows {
			if v.mixed == "" && r.Cluster != "" {
				fmt.Fprintf(sh.Out, "cluster %s\n", r.Cluster)
				break
			}
		}
	}
	err := shell.EmitEach(sh, "node", v.rows,
		table.Row{
			"id", "http", "role", "leader", shell.Extra("term"), "offsets", shell.Extra("applied"), "spare", "disk free",
		},
		func(r clusterRow) table.Row {
			// A node that does not answer has only an id, if another one knows it, and a URL.
			if r.Error != "" {
				return table.Row{orUnknown(r.ID), addressText(r.URL), roleText(sh, r.Role)}
			}
			// One that is in no cluster has neither events nor a quorum.
			if r.Cluster == "" {
				return table.Row{r.ID, addressText(r.URL), roleText(sh, r.Role), "-", r.Term, "-", "-", "-",
					freeText(sh, r.Disk)}
			}
			return table.Row{r.ID, addressText(r.URL), roleText(sh, r.Role), r.Leader, r.Term,
				fmt.Sprintf("%d-%d", r.First, r.Last), r.Applied, *r.Margin, freeText(sh, r.Disk)}
		})
	if err == nil && !sh.JSON {
		err = printHealth(sh, v.rows, time.Now())
	}
	if err == nil && v.mixed != "" {
		sh.Say("%s\n%s", v.mixed, mixedRemedy)
		err = shell.CodeError(shell.ExitFailed)
	}
	return err
}

// addressText leaves out the scheme that addresses have when none is given.
func addressText(url string) string { return strings.TrimPrefix(url, "http://") }

// freeText prints how much space a node has.
func freeText(sh *shell.Shell, d *api.Disk) string {
	switch {
	case d == nil:
		return "-"
	// status and check report the need among the problems.
	case d.Full:
		return sh.Paint(shell.Bad, shell.Size(d.FreeBytes))
	}
	return shell.Size(d.FreeBytes)
}

// mixedRemedy is what to do about nodes of more than one cluster.
const mixedRemedy = "stop the misplaced nodes, or name endpoints of one cluster"

// watchCluster prints the nodes whenever something changes, until ctx ends or done returns true.
func watchCluster(ctx context.Context, sh *shell.Shell, every time.Duration, done func(clusterView) bool) error {
	// The end of the reader ends it, also while nothing changes.
	ctx, stop := sh.WhileRead(ctx)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	// printed is the shape that is on the screen.
	printed := ""
	for {
		// A cluster that does not answer is a state like others, and ends nothing.
		view, err := lookAtCluster(ctx, sh)
		// A text that no shape can be, as shapes are JSON.
		now := "no node answers"
		if err == nil {
			now, err = shapeOf(view.rows)
		} else if ctx.Err() == nil && shell.ExitCode(err) == shell.ExitUnreachable {
			// A node that answers may refuse for want of a leader.
			if !errors.Is(err, shell.ErrUnreachable) {
				now = shell.Brief(err)
			}
			err = nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && now != printed {
			err = printChange(sh, view, now)
		}
		if err != nil || done(view) {
			return err
		}
		// Of a cluster that does not answer as well, so its return is a change.
		printed = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printChange prints the view with the time at which it changed; without rows, why there is none.
func printChange(sh *shell.Shell, v clusterView, why string) error {
	// On stderr, since it is no view.
	if v.rows == nil {
		sh.Say("%s %s", shell.Clock(time.Now()), why)
		return nil
	}
	if !sh.JSON {
		fmt.Fprintln(sh.Out, shell.Clock(time.Now()))
	}
	err := printCluster(sh, v)
	if v.mixed != "" && errors.Is(err, shell.CodeError(shell.ExitFailed)) {
		err = nil // the next poll may find one cluster
	}
	return err
}

// rowShape is what counts as a change of a row. Figures that grow as the cluster works
// do not count: offsets, ages and how far a follower lags. That a follower lags too far is in
// the verdict on its health.
type rowShape struct {
	ID, Cluster, URL, Role, Leader string
	Term                           uint64 // 0 without a leader
	// voters that may fail; below 0 there is no quorum
	Spare       *int
	OutageSince time.Time // the zero time without an outage
	OutOfReach  []string  // peers, in an outage
	Health      api.Health
	// as the leader's autopilot has it
	Tolerance int
	Servers   []serverShape // followers, in the leader's order
}

// serverShape is what counts as a change of a follower.
// Its lag and last contact change all the time, and do not count.
type serverShape struct {
	ID, DesiredSuffrage string
	Voter, Healthy      bool
}

// shapeOf returns a text that is the same as long as nothing has changed that counts.
func shapeOf(rows []clusterRow) (string, error) {
	var shapes []rowShape
	for _, r := range rows {
		s := rowShape{ID: r.ID, Cluster: r.Cluster, URL: r.URL, Role: r.Role, Leader: r.Leader, Spare: r.Margin}
		if r.Role == api.RoleCandidate {
			s.Role = api.RoleFollower // without a leader everybody is one again and again
		}
		// Without a leader the term grows with each candidacy.
		if r.Leader != "" {
			s.Term = r.Term
		}
		// Of health, outage and autopilot only what does not change by itself is taken.
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
				s.Servers = append(s.Servers,
					serverShape{ID: v.ID, DesiredSuffrage: v.DesiredSuffrage, Voter: v.Voter, Healthy: v.Healthy})
			}
		}
		shapes = append(shapes, s)
	}
	// JSON compares everything at once, and has no addresses in it.
	text, err := json.Marshal(shapes)
	return string(text), err
}
