package health

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	journalsWait = 5 * time.Second // how long reportOutages waits for other voters' journals
	viewsAtOnce  = 64              // most in one entry
	// absenceWait is how long the absence of a voter waits for another one that is back, at most: the hold-down by
	// default. With a longer one, a voter that is away counts more than an event that counts one too many.
	absenceWait = 5 * time.Second
)

// Proposals is how a reporter proposes what the log is to record.
type Proposals interface {
	Reached(frame.Kind) bool // every member knows that kind of command
	// Decide blocks until the command is applied. A refusal of the state machine is its error.
	Decide(context.Context, frame.Command) error
	OpenTerm() uint64 // in which this node leads and takes requests; 0: it does not
}

// ReporterOptions are the parts of a node that a reporter reads, and where it proposes.
type ReporterOptions struct {
	Timing    Timing
	Clock     *clock.Clock
	Raft      *upstream.Raft
	Roster    *roster.Roster
	Machine   *fsm.Machine
	Watch     *Watch
	Contacts  *Contacts
	Terms     *Terms
	Outages   *OutageMonitor
	Proposals Proposals
	Logger    hclog.Logger
}

// ReportVoters is a leader's duty to report to the log how the voters are, until ctx ends with its leadership.
func ReportVoters(ctx context.Context, o ReporterOptions) {
	tick := time.NewTicker(o.Timing.Urgent())
	defer tick.Stop()
	// A new leadership remembers nothing: what an earlier one reported is in the log.
	c := &reporter{ReporterOptions: o, paces: map[string]*election.Pace{}, since: time.Now()}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// A member that runs an older program could not apply the reports.
		if !c.Proposals.Reached(frame.KindVoterHealth) {
			continue
		}
		// With ErrNoLeader this leadership is about to end: the next one reports it.
		if err := c.round(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, batcher.ErrNoLeader) {
			c.Logger.Warn("reporting the health of the voters", "error", err)
		}
	}
}

// reporter is what one leadership remembers of the members. It belongs to one goroutine.
type reporter struct {
	ReporterOptions

	since   time.Time                 // when the leadership began
	paces   map[string]*election.Pace // by member
	sampled time.Time                 // when the paces were last sampled
	waiting time.Time                 // since when there are views to propose; zero: there are none
	rivals  election.Rivals           // members that may lead at the same time as this node
}

// round makes each kind of report that is due. The first error ends it.
func (c *reporter) round(ctx context.Context, now time.Time) error {
	reports := []func(context.Context, time.Time) error{c.reportVoters, c.reportOutages, c.reportRivals, c.reportLag}
	for _, report := range reports {
		if err := report(ctx, now); err != nil {
			return err
		}
	}
	return nil
}

// reportVoters reports who is out of reach, and who is back.
func (c *reporter) reportVoters(ctx context.Context, now time.Time) error {
	reach := c.Timing.reach()
	// What the log has of a voter, and how long a change has to last until it is reported.
	health, hold := c.Machine.Health(), c.Machine.Settings().HealthHoldDown
	var changes []frame.VoterHealth
	for _, v := range health.Voters {
		// A leader that has not pinged for long enough cannot know that a voter is away, and one that answers after a
		// silence is online only once it has answered steadily.
		reason, silent := c.Watch.Absence(v.ID)
		online, sure := reason == "", now.Sub(c.since) >= reach
		if online {
			sure = v.ID == c.Roster.ID() || c.Watch.steady(v.ID)
		}
		if !sure || online == v.Online {
			continue
		}
		// LastContactMs stays negative for a voter that was never heard.
		report := frame.VoterHealth{Voter: v.ID, Online: online, LastContactMs: -1, Reason: reason}
		if silent >= 0 {
			report.LastContactMs = silent.Milliseconds()
		}
		changes = append(changes, report)
	}
	// In replicated time, in which the log has the last change of each voter.
	for _, report := range dueReports(&health, c.Clock.Now(), changes, hold) {
		if err := c.Proposals.Decide(ctx, report); err != nil {
			return err
		}
	}
	return nil
}

// dueReports returns those of the changes that the log takes now, voters that are back before those that are away.
// The absence of a voter waits for one that is back and is held down for no longer than absenceWait: each event counts
// the voters that are online, and would count that one as absent.
func dueReports(h *election.Health, at time.Time, changes []frame.VoterHealth, hold time.Duration) []frame.VoterHealth {
	var back, away []frame.VoterHealth
	heldDown := false
	for _, r := range changes {
		switch due := h.Due(at, r.Voter, r.Online, hold); {
		case !due:
			heldDown = heldDown || (r.Online && h.Due(at.Add(absenceWait), r.Voter, true, hold))
		case r.Online:
			back = append(back, r)
		default:
			away = append(away, r)
		}
	}
	if heldDown {
		return back
	}
	return append(back, away...)
}

// reportOutages proposes what the voters' journals hold of outages. It waits up to journalsWait for a majority, which
// has seen every outage, and for voters in reach that still see one, so their views are in one entry.
func (c *reporter) reportOutages(ctx context.Context, now time.Time) error {
	health := c.Machine.Health()
	// This node is asked like the others, without a request.
	own := Report{
		ID:        c.Roster.ID(),
		ClusterID: c.Machine.ClusterID(),
		Started:   c.Outages.Started(),
		RanBefore: c.Outages.RanBefore(),
	}
	own.Views, own.InOutage = c.Outages.Views()
	reports := append(c.Watch.Reports(), own)
	slices.SortFunc(reports, func(a, b Report) int { return strings.Compare(a.ID, b.ID) })
	// The terms that this node saw show which outages a leader interrupted.
	out := frame.OutageViews{Led: c.Terms.spans(time.Now().UTC())}
	lasts, voters, heard := false, c.Roster.Voters(), 0
	for _, r := range reports {
		// A node of another cluster may answer at a member's address.
		if r.ClusterID != c.Machine.ClusterID() {
			continue
		}
		if slices.Contains(voters, r.ID) {
			heard++
		}
		// Times in a report are by its node's wall clock; the log has them by the leader's.
		var offset time.Duration
		if r.ID != c.Roster.ID() {
			s, _ := c.Watch.Last(r.ID)
			offset = s.Clock.Offset(c.Clock.Read())
		}
		here := func(t time.Time) time.Time { // by this machine's clock
			if t.IsZero() {
				return t
			}
			return t.Add(-offset).UTC()
		}
		// That a voter was up says something about an outage that it does not mention.
		lasts = lasts || r.InOutage
		out.Up = append(out.Up, election.Up{Voter: r.ID, Since: here(r.Started), Before: here(r.RanBefore)})
		for _, v := range r.Views {
			if v.Seq > health.TakenOf(v.Journal) && len(out.Views) < viewsAtOnce {
				v.Voter, v.Began, v.Regained, v.Ended = r.ID, here(v.Began), here(v.Regained), here(v.Ended)
				out.Views = append(out.Views, v)
			}
		}
	}
	// When the voters were up is of interest only beside an outage.
	if len(out.Views) == 0 {
		c.waiting = time.Time{}
		return nil
	}
	if c.waiting.IsZero() {
		c.waiting = now
	}
	// The views of one outage arrive within two pings of each other; a voter that is missing, or that still sees the
	// outage, is worth a longer wait.
	waited, incomplete := now.Sub(c.waiting), lasts || heard <= len(voters)/2
	if waited < c.Timing.Ping*2 || (incomplete && waited < journalsWait) {
		return nil
	}
	c.waiting = time.Time{}
	return c.Proposals.Decide(ctx, out)
}

// reportRivals reports the members that lead at the same time as this node, once, and when all have stopped,
// once.
func (c *reporter) reportRivals(ctx context.Context, now time.Time) error {
	term := c.Proposals.OpenTerm()
	if term == 0 {
		return nil
	}
	// The comparison needs the latest time at which a majority confirmed this term, so it is made again with
	// reports that have been seen before.
	answers := c.Watch.answers()
	confirmed := c.Contacts.Majority(raft.ServerID(c.Roster.ID()), c.Roster.Servers(), term, now)
	for _, s := range answers {
		c.rivals.See(term, confirmed, now, s.claim(c.Machine.ClusterID()))
	}
	split := c.Machine.Health().Split
	// A split that the log has: it ends once none of its leaders leads any more.
	if split != nil && split.Watched {
		if slices.ContainsFunc(split.Leaders, func(id string) bool { return !c.yielded(id) }) {
			return nil
		}
		c.Logger.Info("no other member leads any more", "term", term, "split", split.Leaders)
		return c.Proposals.Decide(ctx, frame.SplitBrain{Term: term})
	}
	// Members that are proved to have led at the same moment as this node, and may lead still. A split is reported once
	// in a term.
	rivals := slices.DeleteFunc(c.rivals.Proved(), func(id string) bool { return c.yielded(id) })
	if len(rivals) == 0 || (split != nil && split.Term >= term) {
		return nil
	}
	c.Logger.Error("other members lead beside this one, in clusters of one id: "+
		"two data folders are copies of one, or one was recovered by an older version", "term", term, "others", rivals)
	return c.Proposals.Decide(ctx, frame.SplitBrain{Term: term, Leaders: append(rivals, c.Roster.ID())})
}

// yielded reports whether a member that led in a split certainly does not lead any more.
func (c *reporter) yielded(id string) bool {
	_, member := c.Roster.Server(id)
	return !member || id == c.Roster.ID() || c.rivals.Yielded(id)
}

// reportLag reports which members are about to lag by more than the raft log keeps.
func (c *reporter) reportLag(ctx context.Context, now time.Time) error {
	if now.Sub(c.sampled) < c.Timing.Ping {
		return nil
	}
	// The reports come with the pings: sampling more often shows nothing new.
	c.sampled = now
	// How far the log reaches, and how many entries of it stay for members that lag.
	last, health := c.Raft.Load().LastIndex(), c.Machine.Health()
	keeps, err := c.Raft.LogRoom()
	if err != nil {
		return err
	}
	// Non-voters too: one that lags further than the log needs a snapshot like any other.
	for _, s := range c.Roster.Servers() {
		id := string(s.ID)
		// What a member has applied is as of its report; the log has grown since, by little.
		seen, _ := c.Watch.Last(id)
		// A member that has not answered this node has no applied index to compare.
		if id == c.Roster.ID() || seen.At.IsZero() {
			continue
		}
		// Whether a member is at risk depends on its rate beside that of the log.
		pace := c.paces[id]
		if pace == nil {
			pace = election.NewPace()
			c.paces[id] = pace
		}
		// Whether it is at risk is in the log already; only a change is proposed.
		t, changed := pace.See(now, seen.Report.Applied, last, keeps, slices.Contains(health.Trailing, id))
		if !changed {
			continue
		}
		report := frame.CatchUp{
			Member:      id,
			AtRisk:      t.AtRisk,
			Trailing:    t.Trailing,
			Left:        t.Left,
			Rate:        t.Rate,
			LogRate:     t.LogRate,
			TruncatedIn: t.TruncatedIn,
		}
		if err := c.Proposals.Decide(ctx, report); err != nil {
			return err
		}
	}
	return nil
}
