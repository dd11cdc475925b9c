package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode"
)

// clusterView shows the cluster as this node sees it and as the log records it. It keeps nothing: each answer is made
// of the node's status and state at that moment.
type clusterView struct{ node Node }

// cluster returns the cluster as this node sees it. Without a leader it is what this node knew last.
func (cv *clusterView) cluster(st raftnode.Status) api.Cluster {
	m := cv.node.Machine()
	first, last := m.Log().Bounds()
	// Nodes with the same index have the same digest, unless one has diverged.
	index, sum := m.Digest()
	view := api.Cluster{
		NodeID:    st.NodeID,
		ClusterID: st.ClusterID,
		Role:      st.Role,
		LeaderID:  st.LeaderID,
		// As URLs, which callers can use as they are.
		LeaderHTTP:   raftnode.URL(st.LeaderHTTP),
		Term:         st.Term,
		FirstOffset:  first,
		LastOffset:   last,
		AppliedIndex: st.AppliedIndex,
		CommitIndex:  st.CommitIndex,
		Digest:       api.Digest{Index: index, Hex: sum.String()},
		Members:      cv.members(st.Members),
		Quorum:       api.Quorum(st.Quorum),
		FeatureLevel: m.FeatureLevel(),
		Time:         m.Time(),
		ClockStep:    (*api.ClockStep)(m.LastClockStep()),
		Diverged:     st.Diverged,
		DiskFull:     st.Disk.Full,
		// Made here, so every client shows the same.
		Warnings: warnings(st),
		Outage:   outageOf(st),
		Health:   healthOf(st),
	}
	// Only a leader judges the other servers.
	if verdict, leads := cv.node.Autopilot(); leads {
		view.Autopilot = autopilotOf(verdict)
	}
	return view
}

// healthOf returns what the log records of the voters. Its lists are never nil, so JSON shows [] for none.
func healthOf(st raftnode.Status) api.Health {
	// The same on all nodes that have applied as much.
	h := st.Voters
	view := api.Health{
		Voters:        []api.VoterHealth{},
		AtRisk:        h.AtRisk,
		Outages:       []api.PastOutage{},
		CatchupAtRisk: append([]string{}, h.Trailing...),
		OutagesEver:   h.Incidents,
	}
	for _, v := range h.Voters {
		view.Voters = append(view.Voters, api.VoterHealth(v))
	}
	// Those that have ended; the one that lasts is in outageOf.
	for _, o := range h.Outages {
		view.Outages = append(view.Outages, api.PastOutage{
			Incident: o.ID,
			Began:    o.Began,
			Ended:    o.Ended,
			Seconds:  o.Ended.Sub(o.Began).Seconds(),
			SeenBy:   o.SeenBy,
		})
	}
	return view
}

// outageOf returns the current outage, nil if there is none. It is what this node sees itself, which the log may not
// have yet.
func outageOf(st raftnode.Status) *api.Outage {
	if st.Outage == nil {
		return nil
	}
	o := st.Outage
	out := &api.Outage{Since: o.Since, Cause: o.Cause, Term: o.Term, Leader: o.Leader, Refused: o.Refused}
	// A list that is there stays a list in JSON, even where it is empty.
	if o.Peers != nil {
		out.Peers = []api.OutagePeer{}
	}
	for _, p := range o.Peers {
		out.Peers = append(out.Peers, api.OutagePeer(p))
	}
	return out
}

// autopilotOf returns the leader's verdict on the servers.
func autopilotOf(v raftnode.AutopilotVerdict) *api.Autopilot {
	out := &api.Autopilot{Healthy: v.Healthy, FailureTolerance: v.FailureTolerance, Limiting: v.Limiting}
	if v.Servers != nil {
		out.Servers = []api.ServerHealth{}
	}
	for _, one := range v.Servers {
		out.Servers = append(out.Servers, api.ServerHealth(one))
	}
	return out
}

// logStats returns the figures about the log.
func logStats(s fsm.Stats) api.LogStats {
	// Figures of other subjects that fsm.Stats has are shown elsewhere in the status.
	return api.LogStats{
		Accepted:   s.Accepted,
		Suppressed: s.Suppressed,
		Refused:    s.Refused,
		Replayed:   s.Replayed,
		Emitted:    s.Emitted,
		First:      s.First,
		Last:       s.Last,
		Bytes:      s.Bytes,
		Receipts:   s.Receipts,
		DedupKeys:  s.DedupKeys,
		DedupBytes: s.DedupBytes,
		Producers:  s.Producers,
		Results:    s.Results,
		Cursors:    s.Cursors,
	}
}

// warnings lists, as sentences for people, what works but needs attention, and what does not work.
func warnings(st raftnode.Status) (list []string) {
	// An even number of voters tolerates no more failures than one voter less does.
	if n := st.Quorum.Voters; n > 0 && n%2 == 0 {
		list = append(list, fmt.Sprintf("%d voters survive no more failures than %d would: use an odd number", n, n-1))
	}
	// A margin of zero still decides; below zero nothing is decided.
	if q := st.Quorum; q.Voters > 1 && q.Margin == 0 {
		list = append(list, "one more lost voter and nothing can be decided")
	}
	// Below the quorum the node may still answer reads.
	if st.Quorum.Margin < 0 {
		list = append(list, "too few voters answer: nothing can be decided")
	}
	// What is already lost, or may be lost soon.
	if o := st.Outage; o != nil {
		since := o.Since.Format(time.RFC3339)
		list = append(list, fmt.Sprintf(
			"no quorum since %s (%s): see GET /v1/cluster/outage, or ringlog cluster outage", since, o.Cause))
	}
	if len(st.Voters.Trailing) > 0 {
		list = append(list, "about to lag by more than the raft log keeps: "+strings.Join(st.Voters.Trailing, ", "))
	}
	if st.Diverged {
		list = append(list, "this node's state differs from the majority's: it serves nobody")
	}
	if st.Disk.Full {
		list = append(list, "this node's disk is nearly full: it leads only if no voter with room can")
	}
	return list
}

// members lists the members as this node sees them and as the log records them.
func (cv *clusterView) members(status []raftnode.MemberStatus) []api.Member {
	list := []api.Member{}
	for _, m := range status {
		// What this node sees of the member now.
		v := api.Member{
			ID:              m.ID,
			Raft:            m.Raft,
			HTTP:            m.HTTP,
			Voter:           m.Voter,
			Healthy:         m.Healthy,
			Unreachable:     m.Unreachable,
			LastContactMs:   m.LastContactMs,
			TrailingEntries: m.TrailingEntries,
			StalledMs:       m.StalledMs,
			OtherToken:      m.OtherToken,
			OtherFolder:     m.OtherFolder,
			OtherCluster:    m.OtherCluster,
			Disk:            (*api.Disk)(m.Disk),
		}
		// Identity and version are as the log records them.
		if known, ok := cv.node.Machine().Member(m.ID); ok {
			v.Incarnation, v.Version, v.FeatureLevel = known.Incarnation, known.Version, known.FeatureLevel
		}
		list = append(list, v)
	}
	return list
}
