package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode"
)

// cluster returns the cluster as this node sees it.
func (s *Server) cluster(st raftnode.Status) api.Cluster {
	m := s.ops.Machine()
	first, last := m.Log().Bounds()
	// Nodes with the same index have the same digest, unless one has diverged.
	index, sum := m.Digest()
	view := api.Cluster{NodeID: st.NodeID, ClusterID: st.ClusterID, Role: st.Role, LeaderID: st.LeaderID, LeaderHTTP: raftnode.URL(st.LeaderHTTP),
		Term: st.Term, FirstOffset: first, LastOffset: last, AppliedIndex: st.AppliedIndex, CommitIndex: st.CommitIndex,
		Digest: api.Digest{Index: index, Hex: sum.String()}, Members: s.members(st.Members), Quorum: api.Quorum(st.Quorum), FeatureLevel: m.FeatureLevel(),
		Time: m.Time(), ClockStep: (*api.ClockStep)(m.LastClockStep()), Diverged: st.Diverged, DiskFull: st.Disk.Full, Warnings: warnings(st),
		Outage: outageOf(st), Health: healthOf(st)}
	if verdict, leads := s.cfg.Node.Autopilot(); leads {
		view.Autopilot = autopilotOf(verdict)
	}
	return view
}

// healthOf returns what the log records of the voters. Its lists are never nil, so that JSON shows [] for none.
func healthOf(st raftnode.Status) api.Health {
	h := st.Voters
	view := api.Health{Voters: []api.VoterHealth{}, AtRisk: h.AtRisk, Outages: []api.PastOutage{}, CatchupAtRisk: append([]string{}, h.Trailing...), OutagesEver: h.Incidents}
	for _, v := range h.Voters {
		view.Voters = append(view.Voters, api.VoterHealth(v))
	}
	for _, o := range h.Outages {
		view.Outages = append(view.Outages, api.PastOutage{Incident: o.ID, Began: o.Began, Ended: o.Ended, Seconds: o.Ended.Sub(o.Began).Seconds(), SeenBy: o.SeenBy})
	}
	return view
}

// outageOf returns the current outage, nil if there is none.
func outageOf(st raftnode.Status) *api.Outage {
	if st.Outage == nil {
		return nil
	}
	o := st.Outage
	out := &api.Outage{Since: o.Since, Cause: o.Cause, Term: o.Term, Leader: o.Leader, Refused: o.Refused}
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
	return api.LogStats{Accepted: s.Accepted, Suppressed: s.Suppressed, Refused: s.Refused, Replayed: s.Replayed, Emitted: s.Emitted,
		First: s.First, Last: s.Last, Bytes: s.Bytes, Receipts: s.Receipts, DedupKeys: s.DedupKeys, DedupBytes: s.DedupBytes,
		Producers: s.Producers, Results: s.Results, Cursors: s.Cursors}
}

// warnings lists, as sentences for people, what works but needs attention, and what does not work.
func warnings(st raftnode.Status) (list []string) {
	if n := st.Quorum.Voters; n > 0 && n%2 == 0 {
		list = append(list, fmt.Sprintf("%d voters survive no more failures than %d: use an odd number", n, n-1))
	}
	// A margin of zero still decides; below zero nothing is decided.
	if q := st.Quorum; q.Voters > 1 && q.Margin == 0 {
		list = append(list, "one more lost voter and nothing can be decided")
	}
	if st.Quorum.Margin < 0 {
		list = append(list, "too few voters answer: nothing can be decided")
	}
	if o := st.Outage; o != nil {
		list = append(list, fmt.Sprintf("no quorum since %s (%s): see ringlog cluster outage", o.Since.Format(time.RFC3339), o.Cause))
	}
	if len(st.Voters.Trailing) > 0 {
		list = append(list, fmt.Sprintf("about to fall behind what the raft log keeps: %s", strings.Join(st.Voters.Trailing, ", ")))
	}
	if st.Diverged {
		list = append(list, "this node's state differs from the majority's: it serves nobody")
	}
	if st.Disk.Full {
		list = append(list, "this node's disk is nearly full: it leads only if no voter with room can")
	}
	return list
}

func (s *Server) getCluster(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.cluster(s.cfg.Node.Status()))
}

// getStatus answers GET /status. It names at most notableCursors cursors; /v1/cursors has all.
func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := s.cfg.Node.Status()
	stats := s.ops.Machine().Stats()
	view := api.Status{Cluster: s.cluster(st), Version: s.cfg.Version, UptimeSeconds: time.Since(s.started).Seconds(),
		Waiting: st.Waiting, WaitingBytes: st.WaitingBytes, Log: logStats(stats), JoinRefused: st.JoinRefused,
		Queue: api.Queue(st.Queue), Backpressure: api.Pressure(s.ops.Machine().Pressure()), Overdue: s.ops.Reports.Overdue(),
		Dedup: api.DedupStatus{Window: s.ops.Machine().Settings().DedupWindow.String(), Keys: stats.DedupKeys,
			Bytes: stats.DedupBytes, Suppressed: stats.Suppressed},
		DeadLetters: api.LetterStats(stats.Letters)}
	// Cursors that are not shown are counted.
	cursors := s.ops.Machine().Cursors()
	shown := notable(cursors, notableCursors)
	view.Cursors, view.CursorsTotal, view.CursorsLeft = s.ops.Cursors.Views(shown), len(cursors), len(cursors)-len(shown)
	view.Subscriptions, view.Timeouts = s.ops.Clients.Subscriptions()
	for _, refusal := range st.Refusals {
		view.Refusals = append(view.Refusals, api.Refusal(refusal))
	}
	return writeJSON(w, http.StatusOK, view)
}

// getHealth answers GET /healthz: the process runs and answers, whatever the state of the cluster.
func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "cluster_id": s.clusterID()})
}

// readyWait bounds how long /readyz waits for the leader to confirm what is committed, and for this node to apply
// it.
const readyWait = 2 * time.Second

// getReady answers GET /readyz: whether this node agrees with the majority, knows a leader, has caught up with it,
// and has room on its disk.
func (s *Server) getReady(w http.ResponseWriter, r *http.Request) error {
	st := s.cfg.Node.Status()
	switch {
	case st.Diverged:
		return raftnode.ErrDiverged
	case st.LeaderID == "" && st.JoinRefused != "":
		return &api.Error{Code: api.NoLeader, Field: "join_refused", Message: "the cluster does not let this node in: " + st.JoinRefused,
			Remedy: "see that, and the warnings of this node's own log"}
	case st.LeaderID == "":
		return raftnode.ErrNoLeader
	case st.Disk.Full:
		return raftnode.ErrDiskFull
	}
	// A barrier passes only once this node has applied all that was acknowledged before.
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	if err := s.cfg.Node.ReadBarrier(ctx); err != nil {
		return &api.Error{Code: api.Unavailable, Field: "applied_index", Message: fmt.Sprintf("this node has not caught up with its leader: %v", err),
			Remedy: "wait, or ask another node"}
	}
	answer := map[string]string{"status": "ready", "cluster_id": st.ClusterID, "role": st.Role, "leader_id": st.LeaderID}
	if st.JoinRefused != "" {
		answer["join_refused"] = st.JoinRefused
	}
	return writeJSON(w, http.StatusOK, answer)
}
