package fsm

import (
	"encoding/json"
	"slices"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// wish is whether a member is to have a vote, and why its vote changed last.
type wish struct {
	Wanted bool   `json:"wanted"`
	Reason string `json:"reason"`
}

func (s *state) loadWish(id string, value []byte) error {
	var w wish
	err := json.Unmarshal(value, &w)
	s.wishes[id] = w
	return err
}

// tellsHealth reports whether all members know the events of the voters' health.
func (a *applier) tellsHealth() bool { return a.s.meta.FeatureLevel >= frame.LevelHealth }

func (a *applier) saveHealth() {
	a.s.rosterPublished = false
	a.tx.setJSON([]byte{prefixHealth}, a.s.health)
}

// newTerm tells what comes with a new leadership.
func (a *applier) newTerm(before election.Span) []event.Event {
	if !a.tellsHealth() {
		return nil
	}
	l := a.s.meta.Leadership
	return append(a.s.health.NewTerm(l.Term, l.Leader, a.time(), before), a.configureVoters()...)
}

// configureVoters takes the newest configuration in. Where it was changed while no
// log could tell, by a recovery, the next hello does.
func (a *applier) configureVoters() []event.Event {
	voters := voterIDs(a.s.membership.Members)
	present := map[string]bool{}
	for _, m := range a.s.membership.Members {
		present[m.ID] = true
	}
	events := a.s.health.Configure(a.time(), voters, func(id string) string {
		switch w, known := a.s.wishes[id]; {
		case known && w.Wanted == slices.Contains(voters, id):
			return w.Reason
		case !present[id]:
			return "removed"
		default:
			return ""
		}
	})
	a.saveHealth()
	return events
}

func voterIDs(members []ConfigMember) (ids []string) {
	for _, m := range members {
		if m.Voter {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// reportConfiguration appends the events of what a Raft configuration has changed.
func (a *applier) reportConfiguration() error {
	if !a.tellsHealth() {
		return nil
	}
	return a.emit(a.configureVoters())
}

func (a *applier) voterHealth(c frame.VoterHealth) Result {
	return a.healthEvents(a.s.health.Report(a.time(), election.VoterReport(c), a.s.settings.HealthHoldDown))
}

func (a *applier) outageViews(c frame.OutageViews) Result {
	for i := range c.Views {
		if v := &c.Views[i]; v.Ended.Before(v.Began) {
			v.Ended = v.Began
		}
	}
	return a.healthEvents(a.s.health.Reconcile(election.Evidence(c)))
}

func (a *applier) splitBrain(c frame.SplitBrain) Result {
	watched := a.s.meta.FeatureLevel >= frame.LevelDelivery
	if l := a.s.meta.Leadership; watched && len(c.Leaders) == 0 {
		return a.healthEvents(a.s.health.Unsplit(a.time(), l.Term, l.Leader))
	}
	return a.healthEvents(a.s.health.Claimed(a.time(), c.Term, c.Leaders, watched))
}

func (a *applier) catchUp(c frame.CatchUp) Result {
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
func (a *applier) healthEvents(events []event.Event) Result {
	a.late = append(a.late, events...)
	a.saveHealth()
	return Result{}
}

func (a *applier) memberVote(c frame.MemberVote) Result {
	a.s.wishes[c.ID] = wish{c.Wanted, c.Reason}
	a.tx.setJSON(key(prefixWish, c.ID), a.s.wishes[c.ID])
	return Result{}
}

// forgetHealth drops what is known of a member that is gone.
func (a *applier) forgetHealth(id string) {
	if _, known := a.s.wishes[id]; known {
		delete(a.s.wishes, id)
		a.tx.Delete(key(prefixWish, id))
	}
	if a.tellsHealth() {
		a.s.health.Forget(id)
		a.saveHealth()
	}
}
