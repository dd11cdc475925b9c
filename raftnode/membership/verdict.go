package membership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"

	"github.com/ringrift/ringlog/raftnode/health"
)

// serverStats is what is known of one server now.
type serverStats struct {
	self   bool          // it is this node, the leader
	heard  bool          // it has answered this process
	fresh  bool          // it still answers pings
	absent string        // the reason of Watch.Absence
	age    time.Duration // of the newest report; -1 if there is none
	since  time.Time     // when that arrived
	report health.Report // the newest; the zero value if there is none

	wrong   health.Mismatch // with the node that answers in its place
	entries uint64          // committed ones that it has not applied
	lag     time.Duration   // how long ago the first of these was committed
}

// serverStats returns what is known of a server now. It takes mu.
func (p *autopilotDriver) serverStats(id string) serverStats {
	now := time.Now()
	// A leader does not ask itself, and does not lag: the others are measured against it.
	if id == p.Roster.ID() {
		return serverStats{self: true, heard: true, fresh: true, since: now}
	}
	s, fresh := p.Watch.Last(id)
	absent, _ := p.Watch.Absence(id)
	l := serverStats{
		heard:  !s.At.IsZero(),
		fresh:  fresh,
		absent: absent,
		since:  s.At,
		age:    -1,
		report: s.Report,
		wrong:  p.Watch.Mismatch(id),
	}
	if l.heard {
		l.age = now.Sub(s.At)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	asOf := now
	if fresh {
		asOf = s.At // what was committed since, it may have applied since
	}
	// What it lacks is counted from the commit index of when its report came.
	if committed := p.commits.at(asOf); committed > s.Report.Applied {
		l.entries = committed - s.Report.Applied
		l.lag = now.Sub(p.commits.passed(s.Report.Applied))
	}
	return l
}

// trouble returns why a server counts as failed, however much it has applied; "" if it does not count as failed.
func (l serverStats) trouble(p *autopilotDriver) string {
	switch {
	case l.self:
		return ""
	// What answers in its place comes first: it explains why the member itself is silent.
	case l.wrong.Folder:
		return "another data folder answers under its id: remove it, then that one joins"
	case l.wrong.Cluster:
		return "a node of another cluster answers in its place"
	case l.wrong.Token:
		return "it has another cluster token"
	case !l.heard:
		return "it has never answered"
	case !l.fresh:
		return fmt.Sprintf("no answer for %.1f s", l.age.Seconds())
	case l.report.Diverged:
		return "its state differs from the majority's"
	// An older report may name the leader before this one.
	case l.report.LeaderID != p.Roster.ID() && l.since.After(p.began):
		return fmt.Sprintf("it does not follow this leader but %q", l.report.LeaderID)
	case l.absent != "":
		return health.AbsenceText(l.absent)
	}
	return ""
}

// NotifyState implements autopilot.ApplicationIntegration.
func (p *autopilotDriver) NotifyState(s *autopilot.State) {
	healthy := make(map[string]bool, len(s.Servers))
	for id, server := range s.Servers {
		healthy[string(id)] = server.Health.Healthy
	}
	// removable decides by the health that was published last.
	p.mu.Lock()
	p.healthy = healthy
	p.mu.Unlock()

	// Published for Verdict, with the reasons, which the library does not know.
	v := AutopilotVerdict{Healthy: s.Healthy, FailureTolerance: s.FailureTolerance, Limiting: []string{}}
	for _, id := range slices.Sorted(maps.Keys(s.Servers)) {
		server := p.verdict(s.Servers[id])
		v.Servers = append(v.Servers, server)
		if server.Voter && !server.Healthy {
			v.Limiting = append(v.Limiting, server.ID+": "+server.Why)
		}
	}
	p.a.verdict.Store(&v)
}

// verdict returns the judgement of one server, with the reasons for it.
func (p *autopilotDriver) verdict(s *autopilot.ServerState) ServerVerdict {
	id := string(s.Server.ID)
	l := p.serverStats(id)
	v := ServerVerdict{
		ID:              id,
		Voter:           s.HasVotingRights(),
		Healthy:         s.Health.Healthy,
		Since:           s.Health.StableSince.UTC(),
		TrailingEntries: l.entries,
		TrailingSeconds: l.lag.Seconds(),
		LastContactMs:   l.age.Milliseconds(),
	}
	if !l.heard {
		v.LastContactMs = -1
	}
	// A member that never asked for a vote and was given none has neither.
	if wanted, known := p.Machine.VoteWanted(id); wanted {
		v.DesiredSuffrage = DesiredVote
	} else if known {
		v.DesiredSuffrage = DesiredNoVote
	}
	v.Why = p.why(v, l)
	return v
}

// why returns what keeps a server from being healthy, from its desired vote, or, if it is dead, in the cluster; ""
// if nothing does.
func (p *autopilotDriver) why(v ServerVerdict, l serverStats) string {
	s := p.settings()
	var why []string
	if trouble := l.trouble(p); trouble != "" {
		why = append(why, trouble)
	} else if l.age > s.lastContact {
		why = append(why, fmt.Sprintf("no answer for %.1f s", l.age.Seconds()))
	}
	// It answers, and lags by more than the setting allows.
	if l.entries > s.maxTrailing {
		why = append(why, fmt.Sprintf("trails by %d entries", l.entries))
	}
	// The library judged by an earlier report than the newest.
	if !v.Healthy && len(why) == 0 {
		why = append(why, "it was unhealthy a moment ago")
	}
	// What promotion waits for; see promoter.
	if v.Healthy && !v.Voter && v.DesiredSuffrage == DesiredVote {
		if voters := len(p.Roster.Voters()); voters >= maxVoters {
			why = append(why, fmt.Sprintf("there are %d voters already", voters))
		} else if stable := time.Since(v.Since); stable < s.stabilization {
			why = append(why, fmt.Sprintf("stable for %.0f s of %.0f s", stable.Seconds(), s.stabilization.Seconds()))
		}
	}
	// An operator has to decide: autopilot would remove it if the others could do without it.
	if s.cleanup && p.dead(v.ID) && !p.removable(v.ID) {
		why = append(why, "dead, and kept: the cluster needs it for its quorum or its least number of voters")
	}
	return strings.Join(why, "; ")
}

// dead reports whether there was no sign of a server for deadAfter, so it may be removed. The time before this
// leadership counts too, once the leader itself has seen the server absent for the stabilization time.
func (p *autopilotDriver) dead(id string) bool {
	s := p.settings()
	// The newest sign of either kind, by this machine's clock.
	seen, _ := p.Watch.Last(id)
	sign := seen.At
	if contact := p.Contacts.Newest(raft.ServerID(id)); contact.After(sign) {
		sign = contact
	}
	// A server that this process never heard of is given the full time from the start of the leadership.
	if sign.IsZero() {
		sign = p.began
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Absence counts while this leader watched: one that has just been elected removes nobody at once.
	away := p.absent[id]
	return away > 0 && away >= min(s.deadAfter, s.stabilization) && time.Since(sign) > s.deadAfter
}

// removable reports whether the cluster can do without a server now.
func (p *autopilotDriver) removable(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// By the health of the newest verdict, which is what the library has decided by.
	return canRemove(id, p.Roster.Voters(), p.healthy, int(p.settings().minVoters))
}

// canRemove reports whether enough voters, and a quorum of healthy ones, are left
// without id. A non-voter can always be removed.
func canRemove(id string, voters []string, healthy map[string]bool, minVoters int) bool {
	if !slices.Contains(voters, id) {
		return true
	}
	// The server itself counts neither way: it is the one that leaves.
	rest, well := 0, 0
	for _, v := range voters {
		if v == id {
			continue
		}
		rest++
		if healthy[v] {
			well++
		}
	}
	return rest >= minVoters && well > rest/2
}

// RemoveFailedServer implements autopilot.ApplicationIntegration. Once no other change is under way, it checks again
// that the server is dead and can be removed.
func (p *autopilotDriver) RemoveFailedServer(s *autopilot.Server) {
	id := string(s.ID)
	// The check is made when no other change is under way: one may have made the server indispensable.
	_, err := p.a.changes.remove(p.ctx, id, reasonDead, func() error {
		if !p.dead(id) || !p.removable(id) {
			return errNotDead
		}
		return nil
	})
	if err == nil {
		p.Logger.Info("removed a dead server", "id", id)
	} else if p.ctx.Err() == nil {
		p.Logger.Warn("removing a dead server", "error", err)
	}
}

// finishJoin promotes a member, unless it is no longer recorded that it is to have a vote.
func (p *autopilotDriver) finishJoin(id string) error {
	// The library waits for the answer and calls again: a short wait holds up no other member.
	ctx, cancel := context.WithTimeout(p.ctx, 2*p.Timing.Election)
	defer cancel()
	// An operator may have taken the vote between the decision and this change.
	_, err := p.a.changes.promoteIf(ctx, id, false, reasonJoin, func() error {
		if wanted, _ := p.Machine.VoteWanted(id); !wanted {
			return errVoteNotWanted
		}
		return nil
	})
	return err
}
