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

func (a *applier) decideHealth(c frame.Command) (Result, error) {
	h, at := &a.s.health, a.time()
	switch c := c.(type) {
	case frame.VoterHealth:
		a.late = append(a.late, h.Report(at, election.VoterReport(c), a.s.settings.HealthHoldDown)...)
	case frame.OutageViews:
		a.late = append(a.late, h.Reconcile(evidence(c))...)
	case frame.SplitBrain:
		watched := a.s.meta.FeatureLevel >= frame.LevelDelivery
		if l := a.s.meta.Leadership; watched && len(c.Leaders) == 0 {
			a.late = append(a.late, h.Unsplit(at, l.Term, l.Leader)...)
		} else {
			a.late = append(a.late, h.Claimed(at, c.Term, c.Leaders, watched)...)
		}
	case frame.CatchUp:
		a.late = append(a.late, h.Trails(election.Trail{Member: c.Member, AtRisk: c.AtRisk, Trailing: c.Trailing, Left: c.Left,
			Rate: c.Rate, LogRate: c.LogRate, TruncatedIn: c.TruncatedIn})...)
	case frame.MemberVote:
		a.s.wishes[c.ID] = wish{c.Wanted, c.Reason}
		a.tx.setJSON(key(prefixWish, c.ID), a.s.wishes[c.ID])
		return Result{}, nil
	default:
		return a.decideDelivery(c)
	}
	a.saveHealth()
	return Result{}, nil
}

func evidence(c frame.OutageViews) (e election.Evidence) {
	for _, v := range c.Views {
		if v.Ended.Before(v.Began) {
			v.Ended = v.Began
		}
		e.Views = append(e.Views, election.View(v))
	}
	for _, u := range c.Up {
		e.Up = append(e.Up, election.Up(u))
	}
	for _, s := range c.Led {
		e.Led = append(e.Led, election.Span{Term: s.Term, Leader: s.Leader, From: s.From, To: s.To})
	}
	return e
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
