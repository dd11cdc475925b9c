package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/election"
)

// Three verbs judge a status by the functions of this file: status prints problems beside the facts, check makes a
// state of them, and cluster status shows some of the texts for each node.

// statusCommand is status: one node's own view. For all nodes side by side there is cluster status, for a monitor
// check.
func statusCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "show one node's view of itself and the cluster",
		UsageText: shell.Examples("ringlog status", "ringlog status --watch"),
		Flags:     watchFlags(),
		Action: shell.NoArgs(func(c *cli.Context) error {
			// Changes are seen best with all nodes side by side.
			if c.Bool("watch") {
				return watch(c, sh)
			}
			return showStatus(c.Context, sh)
		}),
	}
}

// showStatus prints the status of the first endpoint that knows a leader.
func showStatus(ctx context.Context, sh *shell.Shell) error {
	// A node that hangs does not hold the command up for longer.
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	s, raw, err := anyStatus(ctx, sh)
	if err != nil {
		return err
	}
	return sh.Emit(raw, func() error {
		// The role says at once whether this is the leader.
		role := s.Role
		if role == api.RoleLeader {
			role = sh.Paint(shell.Good, role)
		}
		// The answers that people need first: which node, who leads, how far the log is.
		facts := []any{"node", fmt.Sprintf("%s (%s)", s.NodeID, role), "cluster", cmp.Or(s.ClusterID, "none yet"),
			"leader", leaderText(s), "offsets", offsetsText(s), "index",
			indexText(s),
			"digest", fmt.Sprintf("%.16s at %d", s.Digest.Hex, s.Digest.Index),
			"quorum", sh.Paint(quorumTone(s.Quorum), quorumText(s.Quorum)),
			"members", membersText(sh, s.Members),
			"feature level", s.FeatureLevel, "cursors", cursorsText(s.Cursors),
			"clients", clientsText(s.Subscriptions.ClientStats), "handler timeouts", timeoutsText(s.Timeouts),
			"dead letters", fmt.Sprintf("%d (%d being redriven)", s.DeadLetters.Count, s.DeadLetters.Redriven)}
		// One line for each problem, the worst first.
		for _, bad := range problems(s) {
			facts = append(facts, "problem", sh.Paint(shell.Bad, bad.String()))
		}
		return sh.Facts(facts...)
	})
}

// leaderText says who leads, and where.
func leaderText(s nodeStatus) string {
	// The term grows while candidates fail, which is worth seeing.
	if s.LeaderID == "" {
		return fmt.Sprintf("none (term %d)", s.Term)
	}
	return fmt.Sprintf("%s at %s (term %d)", s.LeaderID, s.LeaderHTTP, s.Term)
}

// offsetsText prints the range of the log.
func offsetsText(s nodeStatus) string {
	// The first offset of an empty log is the next one to be appended.
	if s.FirstOffset > s.LastOffset {
		return "none: the log is empty"
	}
	return fmt.Sprintf("%d to %d", s.FirstOffset, s.LastOffset)
}

// indexText says how far the state is, and how far the log is committed. A node that has heard of no leader since it
// started does not know the latter.
func indexText(s nodeStatus) string {
	if s.CommitIndex < s.AppliedIndex {
		return fmt.Sprintf("%d applied, no commit index heard of yet", s.AppliedIndex)
	}
	return fmt.Sprintf("%d applied, %d committed", s.AppliedIndex, s.CommitIndex)
}

// quorumText says how many voters may still fail.
func quorumText(q api.Quorum) string {
	// A node that is in no cluster yet knows of no voter.
	if q.Voters == 0 {
		return "not known"
	}
	spare := fmt.Sprintf("%d to spare", q.Margin)
	if q.Margin < 0 {
		spare = fmt.Sprintf("%d missing", -q.Margin)
	}
	return fmt.Sprintf("%d of %d voters healthy, %d needed, %s", q.Healthy, q.Voters, q.Needed, spare)
}

// quorumTone is good while a voter may fail, or if there is only one.
func quorumTone(q api.Quorum) shell.Tone {
	switch {
	case q.Margin < 0 || q.Voters == 0:
		return shell.Bad
	case q.Margin == 0 && q.Voters > 1:
		return shell.Warn
	}
	return shell.Good
}

// membersText lists the members.
func membersText(sh *shell.Shell, members []api.Member) string {
	var parts []string
	// The leader has them in the order in which they joined.
	members = slices.SortedFunc(slices.Values(members), func(a, b api.Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range members {
		// Only what is out of the ordinary is said: a voter that is healthy has its id alone.
		state := ""
		if !m.Voter {
			state = " non-voter"
		}
		if !m.Healthy {
			state += " " + sh.Paint(shell.Bad, "unhealthy")
		}
		parts = append(parts, m.ID+state)
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// cursorsText lists the cursors with their lag.
func cursorsText(cursors []api.Cursor) string {
	var parts []string
	// Few are expected here: cursor ls has the table.
	for _, c := range cursors {
		parts = append(parts, fmt.Sprintf("%s at %d (lag %s)", c.Name, c.Committed, lagText(c)))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// stalledAfter is how long a member may store none of the entries that it lacks: raft
// confirms what a member has ten times a second and more.
const stalledAfter = time.Second

// refusesAppends reports whether the cluster refuses events for lack of space: the voters that
// are not full are no majority. If the leader alone is full, it hands over.
func refusesAppends(s nodeStatus) bool {
	voters, full := 0, 0
	for _, m := range s.Members {
		if m.Voter {
			voters++
		}
		// A disk that nobody has reported on counts as not full.
		if m.Voter && m.Disk != nil && m.Disk.Full {
			full++
		}
	}
	return full > 0 && voters-full <= voters/2
}

// notAdmittedText says why a node is in no cluster, or no longer in its own; "" if there is no reason.
func notAdmittedText(id, cluster, notFormed, refused string) string {
	switch {
	case refused != "":
		return fmt.Sprintf("%s is not admitted to the cluster: %s", id, refused)
	case cluster == "":
		return fmt.Sprintf("%s is not in a cluster: %s", id, cmp.Or(notFormed, "see its log"))
	}
	return ""
}

// problem is something that an operator should act on.
type problem struct {
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// String is the problem with its remedy, on one line.
func (p problem) String() string {
	if p.Remedy == "" {
		return p.Found
	}
	return p.Found + ": " + p.Remedy
}

// seeOutage is the remedy where too few voters answer.
const seeOutage = "see ringlog cluster outage, and bring voters back; if a majority never returns, " +
	"ringlog cluster recover"

// problems lists what an operator should act on, the worst first.
func problems(s nodeStatus) (list []problem) {
	// add appends a problem if there is one.
	add := func(bad bool, remedy, format string, args ...any) {
		if bad {
			list = append(list, problem{fmt.Sprintf(format, args...), remedy})
		}
	}
	// Problems that stop the cluster, or one of its nodes.
	add(s.Diverged, "remove the node, empty its data folder, and let it join again",
		"the state of %s differs from the majority's", s.NodeID)
	bad := tlsProblem(s)
	add(bad != "", "", "%s %s", s.NodeID, bad)
	// What a node outside of the cluster says of the others is as old as its folder.
	if why := notAdmittedText(s.NodeID, s.ClusterID, s.NotFormed, s.JoinRefused); why != "" {
		add(true, "", "%s", why)
		return list
	}
	add(s.LeaderID == "", "see ringlog cluster outage", "no leader")
	add(s.Quorum.Margin < 0, seeOutage, "no quorum: %s", quorumText(s.Quorum))
	if s.Outage != nil {
		add(true, "see ringlog cluster outage", "no quorum since %s (%s)", shell.Time(s.Outage.Since), s.Outage.Cause)
	}
	// A full disk is a problem before the cluster as a whole refuses appends.
	for _, m := range s.Members {
		if d := m.Disk; d != nil && d.Full {
			add(true, "make room, or ringlog compact", "the disk of %s is nearly full: %s free, %s needed", m.ID,
				shell.Size(d.FreeBytes), shell.Size(d.MinFreeBytes))
		}
	}
	// Problems that stop it with the next failure.
	add(s.Quorum.Margin == 0 && s.Quorum.Voters > 1, "bring the missing voters back, or replace them",
		"no voter to spare: %s", quorumText(s.Quorum))
	add(len(s.Health.CatchupAtRisk) > 0, "see ringlog cluster members",
		"about to lag too far for the raft log, and to need a snapshot: %s", strings.Join(s.Health.CatchupAtRisk, ", "))
	// Problems of those who use it.
	add(s.Subscriptions.CriticalDetached > 0, "see ringlog clients", "%s not attached",
		shell.Count(s.Subscriptions.CriticalDetached, "critical subscription"))
	add(s.Subscriptions.CriticalUnheard > 0, "the client was lost; see ringlog clients", "%s",
		unheardText(s.Subscriptions.CriticalUnheard))
	add(s.Backpressure.Active, "publishers are refused with 429", "the queue of %s has been full since %s",
		s.Backpressure.Leader, shell.Time(s.Backpressure.Since))
	if o := s.Overdue; o != nil && len(o.List) > 0 {
		add(true, "see ringlog chain "+o.List[0].CorrelationID, "%s", shell.Count(o.Count, "overdue edge"))
	}
	list = append(list, letterProblems(s.DeadLetters)...)
	for _, c := range s.Cursors {
		add(c.Stalled != nil, "see ringlog cursor lag", "cursor %s is stalled, lagging by %s", c.Name, lagEvents(c))
		add(c.Throttled(), "see ringlog cursor lag", "backpressure of %s %s is active, lagging by %s", cursorKind(c),
			c.Name, lagEvents(c))
	}
	for _, m := range s.Members {
		list = append(list, memberProblems(s, m)...)
	}
	return list
}

// memberProblems lists why a member is missed, or what it lacks, each for one reason. A member can be removed only
// while there is a quorum.
func memberProblems(s nodeStatus, m api.Member) (list []problem) {
	// The remedy of a member that is gone depends on whether the cluster can change its members at all.
	remove := func(then string) string {
		if s.Quorum.Margin < 0 {
			return "see ringlog cluster outage: nobody can be removed without a quorum"
		}
		return "ringlog cluster remove " + m.ID + then
	}
	add := func(remedy, format string, args ...any) {
		list = append(list, problem{fmt.Sprintf(format, args...), remedy})
	}
	// One reason for each member, the most certain one first: whoever answers in its place explains that it does
	// not.
	switch {
	case m.OtherFolder:
		add("if that is a second node, give it another --id; else "+remove(", then it can join"),
			"another data folder answers as %s", m.ID)
	case m.OtherCluster:
		add(fmt.Sprintf("stop it, and start %s with its own data folder; or %s", m.ID,
			remove(", and start it with an empty one")), "a node of another cluster answers as %s", m.ID)
	case m.OtherToken:
		add("start both with the same --token-file", "%s and %s have different cluster tokens", m.ID, s.NodeID)
	case m.Unreachable == election.ReasonRaft:
		add("check its raft address, "+m.Raft, "member %s answers over HTTP but not over raft", m.ID)
	case !m.Healthy:
		add("see whether it runs, and its log; if it never returns, "+remove(""),
			"member %s does not answer", m.ID)
	}
	// A member that does not answer stores nothing, either: only of a healthy one that is a problem of its own.
	stalled := time.Duration(m.StalledMs) * time.Millisecond
	if m.Healthy && stalled >= stalledAfter {
		add("see its log", "member %s lacks entries of the raft log and has stored none for %s", m.ID,
			shell.Short(stalled))
	}
	return list
}

// renewWithin is how long before its end a certificate is to be renewed.
const renewWithin = 30 * 24 * time.Hour

// tlsProblem returns what is wrong with the certificate of the node that answered, "" if nothing is.
func tlsProblem(s nodeStatus) string {
	if s.TLS == nil {
		return ""
	}
	left := time.Until(s.TLS.Expires)
	// Files that cannot be used come first: with them the certificate will not be renewed in time.
	switch {
	case s.TLS.Problem != "":
		return "keeps an older certificate, as it cannot use the files that it has: " + s.TLS.Problem
	case left <= 0:
		return "has a certificate, or a CA, that has expired: make a new one with ringlog cert"
	case left < renewWithin:
		return fmt.Sprintf("has a certificate, or a CA, that expires in %s: make a new one with ringlog cert",
			shell.Short(left))
	}
	return ""
}
