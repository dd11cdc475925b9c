package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// doctorCommand is doctor. check says whether the cluster works, for a monitor; doctor looks for what will keep it from
// working, on this machine and in the cluster, for a person.
func doctorCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "check a node's machine and its cluster, with a remedy for each problem",
		Description: "With --config, or flags of serve, it checks this machine for that node: configuration, ports, data " +
			"folder, disk, certificates, token and limits. Then it checks the cluster, at --endpoints or at that " +
			"node: versions, clocks, members, backups. Exits 1 if it finds a problem.",
		UsageText: shell.Examples(
			"ringlog doctor || test $? = 1",
			"ringlog doctor --offline --config ringlog.toml || test $? = 1",
		),
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "offline", Usage: "check this machine alone, as before the first start of a node"},
			&cli.DurationFlag{Name: "max-sync", Value: 25 * time.Millisecond,
				Usage: "report a disk on which a synced write takes longer than this `DURATION`"},
			&cli.DurationFlag{Name: "max-clock-skew", Value: time.Second,
				Usage: "report a node whose clock differs from this machine's by more than this `DURATION`"},
			&cli.DurationFlag{Name: "max-backup-age", Value: 26 * time.Hour,
				Usage: "report a cluster whose newest backup is older than this `DURATION`, or that is older and has none"},
		}, serve.Flags()...),
		Action: shell.NoArgs(func(c *cli.Context) error {
			var findings []shell.Finding
			// A node is described by its file or its folder.
			if c.IsSet("config") || c.IsSet("data-dir") || c.Bool("offline") {
				var endpoint string
				findings, endpoint = serve.Diagnose(c, sh, serve.Bounds{Sync: c.Duration("max-sync")})
				// The cluster is then the one of the node that is described.
				if endpoint != "" && !c.IsSet("endpoints") {
					sh.Endpoints = []string{endpoint}
				}
			}
			// Problems of this machine and of the cluster are one list.
			if !c.Bool("offline") {
				findings = append(findings, diagnoseCluster(c.Context, sh, c.Duration("max-clock-skew"),
					c.Duration("max-backup-age"))...)
			}
			return sh.PrintFindings(findings)
		}),
	}
}

// timedStatus is a node's status, and how far its clock is from this machine's.
type timedStatus struct {
	nodeStatus
	skew  time.Duration // the node's clock minus this one's
	error time.Duration // by which skew may be wrong: the time for which the answer was under way
}

// timedStatusOf asks one node for its status and compares its clock.
func timedStatusOf(ctx context.Context, sh *shell.Shell, url string) (s timedStatus, err error) {
	asked := time.Now()
	s.nodeStatus, err = statusOf(ctx, sh, url)
	// The node has read its clock at some moment while the answer was under way: half of it is the best guess.
	way := time.Since(asked) / 2
	s.skew, s.error = s.Clock.Sub(asked.Add(way)), way
	return s, err
}

// diagnoseCluster checks what the nodes say.
func diagnoseCluster(ctx context.Context, sh *shell.Shell, maxSkew, maxAge time.Duration) []shell.Finding {
	found, err := askEverybody(ctx, sh, timedStatusOf)
	// Without any answer nothing else can be found, so this is the only finding.
	if err != nil {
		// Each endpoint may have another reason, such as a certificate: the error has one.
		return []shell.Finding{{Check: "cluster", Found: shell.Brief(err), Remedy: noStatus(err, sh.Endpoints).Remedy}}
	}
	findings := slices.Concat(clusterFindings(found, sh.Endpoints), []shell.Finding{versionsFinding(found)},
		clockFindings(found, maxSkew))
	// A cluster that is not formed has nothing to back up.
	if len(found.clusters()) > 0 {
		findings = append(findings, backupFinding(found, maxAge, clusterAge(ctx, sh, found)))
	}
	return findings
}

// clusterAge returns for how long the cluster has existed, or at least a long time if that is not known: the log does
// not begin with the cluster any more, or its events may not be read.
func clusterAge(ctx context.Context, sh *shell.Shell, found sweep[timedStatus]) time.Duration {
	const unknown = math.MaxInt64
	for _, a := range found.answers {
		// Only a node whose log still has its first event knows when that was.
		if a.err != nil || a.value.FirstOffset != 1 {
			continue
		}
		var first event.Event
		if err := sh.Ask(ctx, a.url, "/v1/events/1", &first); err != nil || first.AppendedAt.IsZero() {
			continue
		}
		// By the clock of the node: this machine's may be wrong.
		return max(0, a.value.Clock.Sub(first.AppendedAt))
	}
	return unknown
}

// clusterFindings are what check reports, each for itself, and what works but is no good idea.
func clusterFindings(found sweep[timedStatus], endpoints []string) (findings []shell.Finding) {
	// judgeAll is that of check, for statuses without clocks.
	plain := sweep[nodeStatus]{members: found.members, homes: found.homes}
	for _, a := range found.answers {
		plain.answers = append(plain.answers, answer[nodeStatus]{url: a.url, value: a.value.nodeStatus, err: a.err})
	}
	_, list, view := judgeAll(plain, endpoints, checkOptions{})
	// Without limits of lag or letters, only what is wrong with the nodes themselves is in the list.
	for _, bad := range list {
		findings = append(findings, shell.Finding{Check: "cluster", Found: bad.Found,
			Remedy: cmp.Or(bad.Remedy, "ringlog cluster status shows each node")})
	}
	// An even number survives no more failures than the next lower one, and a single voter none.
	if n := view.Quorum.Voters; n > 0 && (n == 1 || n%2 == 0) {
		findings = append(findings, shell.Finding{Check: "voters",
			Found:  fmt.Sprintf("%s survive %s", shell.Count(n, "voter"), shell.Count((n-1)/2, "failure")),
			Remedy: "use three or five voters: ringlog serve --join URL"})
	}
	if len(findings) == 0 {
		findings = append(findings, shell.Finding{Check: "cluster", OK: true,
			Found: fmt.Sprintf("%s leads, %s", view.LeaderID, quorumText(view.Quorum))})
	}
	return findings
}

// versionsFinding compares the versions of the nodes that answer.
func versionsFinding[T interface {
	sighted
	version() string
}](found sweep[T]) shell.Finding {
	var parts, versions []string
	for _, a := range found.answers {
		if a.err == nil {
			parts = append(parts, a.value.name()+" "+a.value.version())
			versions = append(versions, a.value.version())
		}
	}
	// One version that is left is that of all nodes. Otherwise each node is named with its own.
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) == 1 {
		return shell.Finding{Check: "versions", OK: true, Found: versions[0]}
	}
	return shell.Finding{Check: "versions", Found: "the nodes differ: " + strings.Join(parts, ", "),
		Remedy: "finish the upgrade, one node after the other; see docs/operations.md"}
}

// version is the node's own.
func (s nodeStatus) version() string { return s.Version }

// clockFindings compares each node's clock with this machine's. Where nobody can say which one is wrong, each is named.
func clockFindings(found sweep[timedStatus], most time.Duration) (findings []shell.Finding) {
	for _, a := range found.answers {
		// A node of an older version does not report its clock.
		if a.err != nil || a.value.Clock.IsZero() || a.value.skew.Abs() <= most+a.value.error {
			continue
		}
		findings = append(findings, shell.Finding{Check: "clock",
			Found: fmt.Sprintf("the clocks of %s and of this machine differ by %s", a.value.NodeID,
				shell.Short(a.value.skew.Abs())),
			Remedy: "synchronize all machines with NTP, such as chrony"})
	}
	if len(findings) == 0 {
		findings = append(findings, shell.Finding{Check: "clock", OK: true,
			Found: "the nodes agree with this machine to " + shell.Short(most)})
	}
	return findings
}

// backupFinding looks for the newest backup that a node has sent. A cluster that is younger than a backup may be needs
// none yet. Members that do not answer may have sent a newer one, so they are named with what is found without them.
func backupFinding(found sweep[timedStatus], most, clusterAge time.Duration) shell.Finding {
	// Any node may have sent the newest backup, and each remembers its own.
	var newest time.Time
	by := ""
	var silent []string
	for _, a := range found.nodes() {
		switch {
		case a.err != nil:
			silent = append(silent, found.id(a))
		case a.value.LastBackup.After(newest):
			newest, by = a.value.LastBackup, a.value.NodeID
		}
	}
	none, unknown := "none yet", ""
	if len(silent) > 0 {
		none, unknown = "no node that answers has made one", "; silent: "+strings.Join(silent, ", ")
	}
	f := shell.Finding{Check: "backup", Remedy: "run ringlog snapshot save each day, and keep the files elsewhere"}
	// The time of a backup is by the clock of the node that has sent it.
	age := time.Since(newest)
	// A cluster that is younger than a backup may be old is no problem yet.
	switch {
	case newest.IsZero() && clusterAge <= most:
		f.OK, f.Remedy = true, ""
		f.Found = fmt.Sprintf("%s, of a cluster that is %s old%s", none, shell.Short(clusterAge), unknown)
	case newest.IsZero():
		f.Found = "no node that answers has ever made one" + unknown
	case age > most:
		f.Found = fmt.Sprintf("the newest is %s old (of %s)%s", shell.Short(age), by, unknown)
	default:
		f.OK, f.Remedy = true, ""
		f.Found = fmt.Sprintf("%s made one %s ago", by, shell.Short(age))
	}
	return f
}
