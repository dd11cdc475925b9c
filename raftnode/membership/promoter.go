package membership

import (
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// promoter decides for the library who gets a vote and who is removed. The library's own promoter gives every
// non-voter a vote, and at the beginning of a leadership does not wait until it is stable.
type promoter struct{ *autopilotDriver }

var _ autopilot.Promoter = promoter{}

// CalculatePromotionsAndDemotions implements autopilot.Promoter.
func (p promoter) CalculatePromotionsAndDemotions(
	c *autopilot.Config, s *autopilot.State,
) (changes autopilot.RaftChanges) {
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(s.Servers)) {
		server := s.Servers[id]
		// The record decides, not the library: most non-voters are not to have a vote.
		wanted, _ := p.Machine.VoteWanted(string(id))
		// Promotions of one round add up: together they must not exceed maxVoters.
		if wanted && server.State == autopilot.RaftNonVoter && server.Health.IsStable(now, c.ServerStabilizationTime) &&
			len(s.Voters)+len(changes.Promotions) < maxVoters {
			changes.Promotions = append(changes.Promotions, id)
		}
	}
	return changes
}

// FilterFailedServerRemovals implements autopilot.Promoter. It keeps at most one server, non-voters first, that is
// dead, not only unhealthy, and that the cluster can do without.
func (p promoter) FilterFailedServerRemovals(
	_ *autopilot.Config, _ *autopilot.State, failed *autopilot.FailedServers,
) *autopilot.FailedServers {
	// Non-voters first: without one of them the quorum is what it was.
	mayGo := func(s *autopilot.Server) bool { return p.dead(string(s.ID)) && p.removable(string(s.ID)) }
	if i := slices.IndexFunc(failed.FailedNonVoters, mayGo); i >= 0 {
		return &autopilot.FailedServers{FailedNonVoters: failed.FailedNonVoters[i : i+1]}
	}
	if i := slices.IndexFunc(failed.FailedVoters, mayGo); i >= 0 {
		return &autopilot.FailedServers{FailedVoters: failed.FailedVoters[i : i+1]}
	}
	return &autopilot.FailedServers{}
}

// GetServerExt implements autopilot.Promoter.
func (promoter) GetServerExt(*autopilot.Config, *autopilot.ServerState) any { return nil }

// GetStateExt implements autopilot.Promoter.
func (promoter) GetStateExt(*autopilot.Config, *autopilot.State) any { return nil }

// GetNodeTypes implements autopilot.Promoter; KnownServers has named them.
func (promoter) GetNodeTypes(*autopilot.Config, *autopilot.State) map[raft.ServerID]autopilot.NodeType {
	return nil
}

// IsPotentialVoter implements autopilot.Promoter.
func (promoter) IsPotentialVoter(t autopilot.NodeType) bool { return t == autopilot.NodeVoter }
