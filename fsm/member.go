package fsm

import (
	"fmt"
	"math"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// memberApplier decides who the members are, who leads and how the voters are.
type memberApplier struct{ *applying }

// termStart records the cluster id and the members that formed the cluster, in a log that has none yet.
// observeLeader has read the rest of it.
func (a *memberApplier) termStart(c frame.TermStart) Result {
	if a.s.meta.ClusterID == "" && c.ClusterID != "" {
		a.s.meta.ClusterID = c.ClusterID
		for _, m := range c.Members {
			a.recordMember(m)
		}
		// Once all of them are recorded: the first one alone may know more than the others.
		a.raiseFeatureLevel()
	}
	return Result{}
}

// putMember records a node, or what has changed of it.
func (a *memberApplier) putMember(c frame.MemberPut) Result {
	if c.Member.ID == "" {
		return refuse(Invalid, "id", "a member without an id", "give it one: id in the request, or --id")
	}
	a.recordMember(c.Member)
	a.raiseFeatureLevel()
	return Result{}
}

// recordMember stores a member.
func (a *memberApplier) recordMember(m frame.Member) {
	if m.ID == "" {
		return
	}
	// Readers see it once the entry is stored: publish copies the members then.
	a.s.members[m.ID], a.s.rosterPublished = m, false
	a.tx.setJSON(key(prefixMember, m.ID), m)
}

// removeMember forgets a node. That may raise the cluster's feature level.
func (a *memberApplier) removeMember(c frame.MemberRemove) Result {
	if _, known := a.s.members[c.ID]; !known {
		return refuse(NotFound, "id", fmt.Sprintf("there is no member %q", c.ID),
			"list them: GET /v1/members, or ringlog cluster members")
	}
	delete(a.s.members, c.ID)
	a.s.rosterPublished = false
	a.tx.Delete(key(prefixMember, c.ID))
	// It may have been the one with the lowest level.
	a.raiseFeatureLevel()
	a.forgetHealth(c.ID)
	return Result{}
}

// raiseFeatureLevel follows the lowest level that any member reports; it never
// falls, because the log may already have what a level allowed.
func (a *memberApplier) raiseFeatureLevel() {
	if len(a.s.members) == 0 {
		return
	}
	lowest := uint32(math.MaxUint32)
	for _, m := range a.s.members {
		lowest = min(lowest, m.FeatureLevel)
	}
	if lowest > a.s.meta.FeatureLevel {
		// Clients that registered by the older rule get their end by the newer one.
		if a.s.meta.FeatureLevel < frame.LevelFences && lowest >= frame.LevelFences {
			a.rankClients()
		}
		a.s.meta.FeatureLevel = lowest
		a.s.stale.policies = true
	}

	// At the first level with voters' health, it begins with the present configuration.
	if a.knowsHealth() && !a.s.health.Known {
		a.configureVoters()
	}
}

// stepClock moves replicated time forward, never back.
func (a *memberApplier) stepClock(c frame.ClockStep) Result {
	// A step that comes late would move the time back.
	if to := c.To.UnixNano(); to > a.now {
		a.s.meta.LastStep = &ClockStep{Index: a.index, From: a.time(), To: c.To.UTC(), Agreed: c.Agreed}
		if a.knowsHealth() && a.s.meta.Leadership.Term == a.term {
			a.s.meta.Leadership.Stepped(time.Duration(to - a.now))
		}
		a.s.meta.Stepped += to - a.now
		a.now, a.s.meta.Time = to, to
	}
	return Result{}
}

// stepBeforeTermStart applies a clock step that follows a term start in its entry before that, so that
// the time without a leader is measured with the corrected clock.
func (a *memberApplier) stepBeforeTermStart() {
	started := false
	for _, c := range a.frame.Commands {
		if _, starts := c.(frame.TermStart); starts {
			started = a.knowsHealth() // members of an older level keep the order
		} else if step, ok := c.(frame.ClockStep); ok && started {
			a.stepClock(step)
		}
	}
}
