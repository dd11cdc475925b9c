package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// These three make a status an answer that a sweep can take.
func (s nodeStatus) name() string { return s.NodeID }

func (s nodeStatus) cluster() string { return s.ClusterID }

func (s nodeStatus) knows() []api.Member { return s.Members }

// orUnknown returns an id, or ? for one that nobody knows.
func orUnknown(id string) string { return cmp.Or(id, "?") }

// printHealth prints what each leader says of its followers.
func printHealth(sh *shell.Shell, rows []clusterRow, now time.Time) error {
	for _, r := range rows {
		// Only a leader reports on its followers.
		if r.Autopilot == nil {
			continue
		}
		if err := printFollowers(sh, r, now); err != nil {
			return err
		}
	}
	return nil
}

// printVerdict prints what an operator acts on: how many voters may fail, as each leader says, and which nodes see no
// quorum.
func printVerdict(sh *shell.Shell, rows []clusterRow, now time.Time) error {
	var lines []string
	outside := 0
	for _, r := range rows {
		if why := notAdmittedText(r.ID, r.Cluster, r.NotFormed, r.JoinRefused); why != "" && r.Error == "" {
			lines = append(lines, sh.Paint(shell.Bad, why))
			outside++
		}
	}
	// It may be on a node that does not answer, so this says no more than what was seen.
	led := slices.ContainsFunc(rows, func(r clusterRow) bool { return r.Role == api.RoleLeader })
	if !led && outside < len(rows) {
		lines = append(lines, sh.Paint(shell.Bad, "no leader among the nodes that answer"))
	}
	lines = append(lines, fullText(sh, rows)...)
	for _, r := range rows {
		if r.Autopilot != nil {
			tone := shell.Good
			// A cluster of one voter has no tolerance by design, and needs no warning.
			if r.Autopilot.FailureTolerance == 0 && len(r.Autopilot.Servers) > 1 {
				tone = shell.Warn
			}
			lines = append(lines, sh.Paint(tone, toleranceText(r.Autopilot)))
		}
		// Only a leader knows which followers are about to need a snapshot.
		if h := r.Health; r.Autopilot != nil && h != nil && len(h.CatchupAtRisk) > 0 {
			lines = append(lines, sh.Paint(shell.Warn, "about to lag too far for the raft log, and to need a snapshot: "+
				strings.Join(h.CatchupAtRisk, ", ")))
		}
		// Any node may see an outage, with a leader or without.
		if o := r.Outage; o != nil {
			lines = append(lines, sh.Paint(shell.Bad, fmt.Sprintf(
				"%s sees no quorum: %s, for %s; %s refused (see ringlog cluster outage)",
				r.ID, o.Cause, shell.Short(max(0, now.Sub(o.Since))), shell.Count(o.Refused, "write"))))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return sh.Print(strings.Join(lines, "\n"))
}

// fullText says whose disk is nearly full, and whether events are refused for it.
func fullText(sh *shell.Shell, rows []clusterRow) (lines []string) {
	// A majority is counted among the nodes that have a vote, whether they answer or not.
	voters, full := 0, 0
	for _, r := range rows {
		voter := r.Role != api.RoleNonVoter
		// A node that does not answer has another role here, and counts as a voter.
		if voter {
			voters++
		}
		// A disk that nobody has reported on counts as not full.
		if r.Disk == nil || !r.Disk.Full {
			continue
		}
		if voter {
			full++
		}
		lines = append(lines, sh.Paint(shell.Bad, fmt.Sprintf("the disk of %s is nearly full: %s free, %s needed",
			r.ID, shell.Size(r.Disk.FreeBytes), shell.Size(r.Disk.MinFreeBytes))))
	}
	// As refusesAppends counts it, but by what the nodes say themselves.
	if full > 0 && voters-full <= voters/2 {
		lines = append(lines, sh.Paint(shell.Bad, "events are refused: too few voters have room"))
	}
	return lines
}

// printFollowers prints what the leader says of its followers.
func printFollowers(sh *shell.Shell, leader clusterRow, now time.Time) error {
	// The list may have the leader itself, which is no follower.
	var followers []table.Row
	for _, v := range leader.Autopilot.Servers {
		if v.ID != leader.ID {
			followers = append(followers, serverRow(sh, v, now))
		}
	}
	// A cluster of one node has none.
	if len(followers) == 0 {
		return nil
	}
	fmt.Fprintln(sh.Out)
	// By id, so the order is the same each time.
	slices.SortFunc(followers, func(a, b table.Row) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	return sh.Table(table.Row{"follower", "is", "healthy", "lag", "last contact", "why"}, followers)
}

// toleranceText says how many voters may fail.
func toleranceText(v *api.Autopilot) string {
	// The number is of healthy voters: one that has failed already does not count.
	text := "no voter may fail"
	switch n := v.FailureTolerance; {
	case n == 1:
		text = "1 healthy voter may fail"
	case n > 1:
		text = fmt.Sprintf("%d healthy voters may fail", n)
	}
	// Limiting names the voters that lower the tolerance, each with the reason.
	if len(v.Limiting) > 0 {
		text += "; limited by " + strings.Join(v.Limiting, ", ")
	}
	return text
}

// serverRow returns the table row of a follower, as the leader sees it.
func serverRow(sh *shell.Shell, v api.ServerHealth, now time.Time) table.Row {
	// What it is, and what the autopilot makes of it.
	is := "voter"
	switch {
	case !v.Voter && v.DesiredSuffrage == api.DesiredVote:
		is = "joining" // gets its vote once it has been healthy for a while
	case !v.Voter:
		is = "non-voter"
	case v.DesiredSuffrage == api.DesiredNoVote:
		is = "leaving"
	}
	// Since when, if the leader has seen a change in its term.
	healthy := healthText(sh, v.Healthy)
	if !v.Since.IsZero() {
		healthy += ", " + shell.Short(max(0, now.Sub(v.Since)).Round(time.Second))
	}
	// A follower that has everything lags by no time.
	lag := shell.Count(v.TrailingEntries, "entry", "entries")
	if v.TrailingEntries > 0 {
		lag += ", " + shell.Seconds(v.TrailingSeconds)
	}
	return table.Row{v.ID, is, healthy,
		lag,
		contactText(v.LastContactMs), v.Why}
}
