package raftnode

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
)

const (
	journalsWait = 5 * time.Second // how long reportOutages waits for other voters' journals
	viewsAtOnce  = 64              // most in one entry
)

// reportHealth is a leader's duty to report to the log how the voters are, until ctx ends.
func (n *Node) reportHealth(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.Ping / urgentPingFactor)
	defer tick.Stop()
	c := &healthReporter{n: n, paces: map[string]*election.Pace{}, since: time.Now()}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// A member that runs an older program could not apply the reports.
		if !n.reached(frame.KindVoterHealth) {
			continue
		}
		if err := c.round(ctx, time.Now()); err != nil && ctx.Err() == nil {
			n.logger.Warn("reporting the health of the voters", "error", err)
		}
	}
}

// healthReporter is what one leadership remembers of the members.
type healthReporter struct {
	n       *Node
	since   time.Time // when the leadership began
	paces   map[string]*election.Pace
	sampled time.Time // when the paces were last sampled
	waiting time.Time // since when there are views to propose; zero: there are none
	rivals  election.Rivals
}

// round makes each kind of report that is due. The first error ends it.
func (c *healthReporter) round(ctx context.Context, now time.Time) error {
	reports := []func(context.Context, time.Time) error{c.reportVoters, c.reportOutages, c.reportRivals, c.reportLag}
	for _, report := range reports {
		if err := report(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// reportVoters reports who is out of reach, and who is back.
func (c *healthReporter) reportVoters(ctx context.Context, now time.Time) error {
	n := c.n
	reach := n.cfg.Timing.Ping * time.Duration(n.cfg.Timing.Misses)
	health, hold := n.machine.Health(), n.machine.Settings().HealthHoldDown
	for _, v := range health.Voters {
		// A leader that has not pinged for long enough cannot know that a voter is away, and one that answers after a
		// silence is online only once it has answered steadily.
		reason, silent := n.watch.absence(v.ID)
		online, sure := reason == "", now.Sub(c.since) >= reach
		if online {
			sure = v.ID == n.cfg.ID || n.watch.steady(v.ID)
		}
		if !sure || !health.Due(n.clock.Now(), v.ID, online, hold) {
			continue
		}
		report := frame.VoterHealth{Voter: v.ID, Online: online, LastContactMs: -1, Reason: reason}
		if silent >= 0 {
			report.LastContactMs = silent.Milliseconds()
		}
		if err := n.decide(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

// reportOutages proposes what the voters' journals hold of outages. It waits up to journalsWait for a majority, which
// has seen every outage, and for voters in reach that still see one, so that their views are in one entry.
func (c *healthReporter) reportOutages(ctx context.Context, now time.Time) error {
	n := c.n
	health := n.machine.Health()
	own := Report{ID: n.cfg.ID, ClusterID: n.machine.ClusterID(), Started: n.outages.started, RanBefore: n.outages.before}
	own.Views, own.InOutage = n.outages.views()
	reports := append(n.watch.reports(), own)
	slices.SortFunc(reports, func(a, b Report) int { return strings.Compare(a.ID, b.ID) })
	out := frame.OutageViews{Led: n.terms.spans(time.Now().UTC())}
	lasts, voters, heard := false, votersOf(n.servers()), 0
	for _, r := range reports {
		if r.ClusterID != n.machine.ClusterID() {
			continue
		}
		if slices.Contains(voters, r.ID) {
			heard++
		}
		var offset time.Duration
		if r.ID != n.cfg.ID {
			s, _ := n.watch.last(r.ID)
			offset = s.clock.Offset(n.clock.Read())
		}
		here := func(t time.Time) time.Time { // by this machine's clock
			if t.IsZero() {
				return t
			}
			return t.Add(-offset).UTC()
		}
		lasts = lasts || r.InOutage
		out.Up = append(out.Up, election.Up{Voter: r.ID, Since: here(r.Started), Before: here(r.RanBefore)})
		for _, v := range r.Views {
			if v.Seq > health.TakenOf(v.Journal) && len(out.Views) < viewsAtOnce {
				v.Voter, v.Began, v.Regained, v.Ended = r.ID, here(v.Began), here(v.Regained), here(v.Ended)
				out.Views = append(out.Views, v)
			}
		}
	}
	if len(out.Views) == 0 {
		c.waiting = time.Time{}
		return nil
	}
	if c.waiting.IsZero() {
		c.waiting = now
	}
	if waited := now.Sub(c.waiting); waited < n.cfg.Timing.Ping*2 || (lasts || heard <= len(voters)/2) && waited < journalsWait {
		return nil
	}
	c.waiting = time.Time{}
	return n.decide(ctx, out)
}

// reportRivals reports the members that lead at the same time as this node, once, and when all have stopped,
// once.
func (c *healthReporter) reportRivals(ctx context.Context, now time.Time) error {
	n := c.n
	term := n.proposer.OpenTerm()
	if term == 0 {
		return nil
	}
	// The comparison needs the latest time at which a majority confirmed this term, so that it is made again with
	// reports that have been seen before.
	for _, s := range n.watch.freshReports() {
		c.rivals.See(term, n.confirmed(term, now), now, s.claim(n.machine.ClusterID()))
	}
	split := n.machine.Health().Split
	if split != nil && split.Watched {
		if slices.ContainsFunc(split.Leaders, func(id string) bool { return !c.yielded(id) }) {
			return nil
		}
		n.logger.Info("no other member leads any more", "term", term, "split", split.Leaders)
		return n.decide(ctx, frame.SplitBrain{Term: term})
	}
	// A split is reported once in a term.
	rivals := slices.DeleteFunc(c.rivals.Proved(), func(id string) bool { return c.yielded(id) })
	if len(rivals) == 0 || split != nil && split.Term >= term {
		return nil
	}
	n.logger.Error("other members lead beside this one, in clusters of one id: two data folders are copies of one, or one was recovered by an older version",
		"term", term, "others", rivals)
	return n.decide(ctx, frame.SplitBrain{Term: term, Leaders: append(rivals, n.cfg.ID)})
}

// yielded reports whether a member that led in a split certainly does not lead any more.
func (c *healthReporter) yielded(id string) bool {
	_, member := c.n.server(id)
	return !member || id == c.n.cfg.ID || c.rivals.Yielded(id)
}

// reportLag reports which members are about to lag by more than the raft log keeps.
func (c *healthReporter) reportLag(ctx context.Context, now time.Time) error {
	n := c.n
	if now.Sub(c.sampled) < n.cfg.Timing.Ping {
		return nil
	}
	// The reports come with the pings: sampling more often shows nothing new.
	c.sampled = now
	last, health := n.raft.Load().LastIndex(), n.machine.Health()
	keeps, err := n.raft.LogRoom()
	if err != nil {
		return err
	}
	for _, s := range n.servers() {
		id := string(s.ID)
		seen, _ := n.watch.last(id)
		// A member that has not answered this node has no applied index to compare.
		if id == n.cfg.ID || seen.at.IsZero() {
			continue
		}
		pace := c.paces[id]
		if pace == nil {
			pace = election.NewPace()
			c.paces[id] = pace
		}
		// Whether it is at risk is in the log already; only a change is proposed.
		t, changed := pace.See(now, seen.report.Applied, last, keeps, slices.Contains(health.Trailing, id))
		if !changed {
			continue
		}
		report := frame.CatchUp{Member: id, AtRisk: t.AtRisk, Trailing: t.Trailing, Left: t.Left, Rate: t.Rate, LogRate: t.LogRate, TruncatedIn: t.TruncatedIn}
		if err := n.decide(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

// quorumAtRisk reports whether the loss of one more voter would stop the cluster, or the
// loss of one already has: then those out of reach are asked for more often.
func (n *Node) quorumAtRisk() bool {
	q := n.quorum()
	return q.Voters > 1 && q.Margin <= 0 && q.Healthy < q.Voters
}
