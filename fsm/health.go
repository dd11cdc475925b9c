package fsm

import (
	"encoding/json"
	"slices"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// desiredVote is whether a member should have a vote, and the reason that was given when this was decided. The
// leader changes Raft's configuration accordingly.
type desiredVote struct {
	Wanted bool   `json:"wanted"`
	Reason string `json:"reason"`
}

// loadDesiredVote reads the value under a member's id.
func (s *state) loadDesiredVote(id string, value []byte) error {
	var w desiredVote
	err := json.Unmarshal(value, &w)
	s.desiredVotes[id] = w
	return err
}

// knowsHealth reports whether all members know the events of the voters' health.
func (a *applying) knowsHealth() bool { return a.s.meta.FeatureLevel >= frame.LevelHealth }

// saveHealth stores the health of the voters, which the next publish copies.
func (a *memberApplier) saveHealth() {
	a.s.rosterPublished = false
	a.tx.setJSON([]byte{prefixHealth}, a.s.health)
}

// newTerm returns the events of a new leadership.
func (a *memberApplier) newTerm(before election.Span) []event.Event {
	if !a.knowsHealth() {
		return nil
	}
	l := a.s.meta.Leadership
	return append(a.s.health.NewTerm(l.Term, l.Leader, a.time(), before), a.configureVoters()...)
}

// configureVoters applies the newest configuration to the health of the voters. What a recovery
// changed, which no entry records, is applied with the next term start.
func (a *memberApplier) configureVoters() []event.Event {
	voters := voterIDs(a.s.membership.Members)

	// Why a vote changed: as somebody asked for, because the member is gone, or not known.
	// A member may be in the configuration without a vote.
	present := map[string]bool{}
	for _, m := range a.s.membership.Members {
		present[m.ID] = true
	}
	events := a.s.health.Configure(a.time(), voters, func(id string) string {
		switch w, known := a.s.desiredVotes[id]; {
		case known && w.Wanted == slices.Contains(voters, id):
			return w.Reason
		case !present[id]:
			return "removed"
		default:
			return ""
		}
	})
	// The health is stored also without an event: it has the newest configuration.
	a.saveHealth()
	return events
}

// voterIDs returns the ids of the voters, in the order of the configuration.
func voterIDs(members []ConfigMember) (ids []string) {
	for _, m := range members {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// reportConfiguration appends the events of what a Raft configuration has changed.
func (a *memberApplier) reportConfiguration() error {
	if !a.knowsHealth() {
		return nil
	}
	return a.appendEvents(a.configureVoters())
}

// voterHealth takes in that a voter is reachable, or no longer is. The next event of that voter waits
// for the hold-down.
func (a *memberApplier) voterHealth(c frame.VoterHealth) Result {
	return a.healthEvents(a.s.health.Report(a.time(), election.VoterReport(c), a.s.settings.HealthHoldDown))
}

// outageViews takes in what the voters' journals have of outages. A view whose end precedes its
// beginning counts as one without duration.
func (a *memberApplier) outageViews(c frame.OutageViews) Result {
	for i := range c.Views {
		if v := &c.Views[i]; v.Ended.Before(v.Began) {
			v.Ended = v.Began
		}
	}
	return a.healthEvents(a.s.health.Reconcile(election.Evidence(c)))
}

// splitBrain takes in which members claim to lead; without any, that the leader is the only one again.
func (a *memberApplier) splitBrain(c frame.SplitBrain) Result {
	watched := a.knowsDelivery()
	if l := a.s.meta.Leadership; watched && len(c.Leaders) == 0 {
		return a.healthEvents(a.s.health.Unsplit(a.time(), l.Term, l.Leader))
	}
	return a.healthEvents(a.s.health.Claimed(a.time(), c.Term, c.Leaders, watched))
}

// catchUp takes in how far a member lags, and whether the log may soon lack what it needs.
func (a *memberApplier) catchUp(c frame.CatchUp) Result {
	return a.healthEvents(a.s.health.Trails(election.Trail{
		Member:      c.Member,
		AtRisk:      c.AtRisk,
		Trailing:    c.Trailing,
		Left:        c.Left,
		Rate:        c.Rate,
		LogRate:     c.LogRate,
		TruncatedIn: c.TruncatedIn,
	}))
}

// healthEvents appends the events of a report, which has changed the health, and answers it.
func (a *memberApplier) healthEvents(events []event.Event) Result {
	a.late = append(a.late, events...)
	a.saveHealth()
	return Result{}
}

// memberVote records whether a member should have a vote. It does not change the Raft configuration.
func (a *memberApplier) memberVote(c frame.MemberVote) Result {
	a.s.desiredVotes[c.ID] = desiredVote{c.Wanted, c.Reason}
	a.tx.setJSON(key(prefixDesiredVote, c.ID), a.s.desiredVotes[c.ID])
	return Result{}
}

// forgetHealth removes what is known of a member that is gone.
func (a *memberApplier) forgetHealth(id string) {
	if _, known := a.s.desiredVotes[id]; known {
		delete(a.s.desiredVotes, id)
		a.tx.Delete(key(prefixDesiredVote, id))
	}
	if a.knowsHealth() {
		a.s.health.Forget(id)
		a.saveHealth()
	}
}
