package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// digestView is a state digest and the index it stands for.
type digestView struct {
	Index uint64  `json:"index"`
	Hex   fsm.Sum `json:"hex"`
}

// clusterView is what a node knows of the cluster.
type clusterView struct {
	NodeID       string                     `json:"node_id"`
	ClusterID    string                     `json:"cluster_id"`
	Role         string                     `json:"role"`
	LeaderID     string                     `json:"leader_id"`
	LeaderHTTP   string                     `json:"leader_http"`
	Term         uint64                     `json:"term"`
	FirstOffset  uint64                     `json:"first_offset"`
	LastOffset   uint64                     `json:"last_offset"`
	AppliedIndex uint64                     `json:"applied_index"`
	CommitIndex  uint64                     `json:"commit_index"`
	Digest       digestView                 `json:"digest"`
	Members      []memberView               `json:"members"`
	Quorum       raftnode.Quorum            `json:"quorum"`
	Outage       *raftnode.Outage           `json:"outage,omitempty"` // as this node sees it now
	Health       healthView                 `json:"health"`
	Autopilot    *raftnode.AutopilotVerdict `json:"autopilot,omitempty"` // on the leader
	FeatureLevel uint32                     `json:"feature_level"`
	Time         time.Time                  `json:"time"` // replicated
	ClockStep    *fsm.ClockStep             `json:"last_clock_step,omitempty"`
	Diverged     bool                       `json:"diverged"`
	DiskFull     bool                       `json:"disk_full"`
	Warnings     []string                   `json:"warnings,omitempty"`
}

func (s *Server) cluster(st raftnode.Status) clusterView {
	m := s.ops.Machine()
	first, last := m.Log().Bounds()
	index, sum := m.Digest()
	view := clusterView{NodeID: st.NodeID, ClusterID: st.ClusterID, Role: st.Role, LeaderID: st.LeaderID, LeaderHTTP: raftnode.URL(st.LeaderHTTP),
		Term: st.Term, FirstOffset: first, LastOffset: last, AppliedIndex: st.AppliedIndex, CommitIndex: st.CommitIndex,
		Digest: digestView{index, sum}, Members: s.members(st.Members), Quorum: st.Quorum, FeatureLevel: m.FeatureLevel(),
		Time: m.Time(), ClockStep: m.LastClockStep(), Diverged: st.Diverged, DiskFull: st.Disk.Full, Warnings: warnings(st),
		Outage: st.Outage, Health: healthOf(st)}
	if verdict, leads := s.cfg.Node.Autopilot(); leads {
		view.Autopilot = &verdict
	}
	return view
}

// healthView is what the log tells of the voters.
type healthView struct {
	Voters        []voterView  `json:"voters"`
	AtRisk        bool         `json:"quorum_at_risk"`
	Outages       []outageView `json:"outages"` // the newest last
	CatchupAtRisk []string     `json:"catchup_at_risk"`
	OutagesEver   uint64       `json:"outages_total"`
}

type voterView struct {
	ID     string    `json:"id"`
	Online bool      `json:"online"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitzero"`
}

type outageView struct {
	Incident uint64    `json:"incident"`
	Began    time.Time `json:"began_at"`
	Ended    time.Time `json:"ended_at"`
	Seconds  float64   `json:"seconds"`
	SeenBy   []string  `json:"seen_by"`
}

func healthOf(st raftnode.Status) healthView {
	h := st.Voters
	view := healthView{Voters: []voterView{}, AtRisk: h.AtRisk, Outages: []outageView{}, CatchupAtRisk: append([]string{}, h.Trailing...), OutagesEver: h.Incidents}
	for _, v := range h.Voters {
		view.Voters = append(view.Voters, voterView(v))
	}
	for _, o := range h.Outages {
		view.Outages = append(view.Outages, outageView{Incident: o.ID, Began: o.Began, Ended: o.Ended, Seconds: o.Ended.Sub(o.Began).Seconds(), SeenBy: o.SeenBy})
	}
	return view
}

// warnings says what works and should be looked at.
func warnings(st raftnode.Status) (list []string) {
	if n := st.Quorum.Voters; n > 0 && n%2 == 0 {
		list = append(list, fmt.Sprintf("%d voters survive no more failures than %d: use an odd number", n, n-1))
	}
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

// statusView is all that /status says.
type statusView struct {
	clusterView
	Version       string               `json:"version"`
	UptimeSeconds float64              `json:"uptime_seconds"`
	Waiting       int                  `json:"waiting_requests"`
	WaitingBytes  int                  `json:"waiting_bytes"`
	Queue         raftnode.QueueStatus `json:"queue"`        // of this node; a leader's alone is used
	Backpressure  fsm.Pressure         `json:"backpressure"` // as the log tells of the leader's
	Overdue       *service.OverdueView `json:"overdue_chains"`
	Cursors       []service.CursorView `json:"cursors"` // the ones that stand still or lag most
	CursorsTotal  int                  `json:"cursors_total"`
	CursorsLeft   int                  `json:"cursors_left_out"`
	Dedup         dedupView            `json:"dedup"`
	DeadLetters   fsm.LetterStats      `json:"dead_letters"`
	Log           fsm.Stats            `json:"log"`
	Refusals      any                  `json:"refusals,omitempty"` // nodes that raft's door turned away
	JoinRefused   string               `json:"join_refused,omitempty"`
	// What clients report of themselves, of the first of them.
	Subscriptions service.SubscriptionStatus    `json:"event_subscription_status"`
	Timeouts      map[string]map[string]float64 `json:"handler_timeouts"`
}

type dedupView struct {
	Window     string `json:"window"`
	Keys       int    `json:"keys"`
	Bytes      int    `json:"bytes"` // of memory
	Suppressed uint64 `json:"suppressed"`
}

func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := s.cfg.Node.Status()
	stats := s.ops.Machine().Stats()
	view := statusView{clusterView: s.cluster(st), Version: s.cfg.Version, UptimeSeconds: time.Since(s.started).Seconds(),
		Waiting: st.Waiting, WaitingBytes: st.WaitingBytes, Log: stats, JoinRefused: st.JoinRefused,
		Queue: st.Queue, Backpressure: s.ops.Machine().Pressure(), Overdue: s.ops.Overdue(),
		Dedup: dedupView{Window: s.ops.Machine().Settings().DedupWindow.String(), Keys: stats.DedupKeys,
			Bytes: stats.DedupBytes, Suppressed: stats.Suppressed},
		DeadLetters: stats.Letters}
	cursors := s.ops.Machine().Cursors()
	shown := notable(cursors, notableCursors)
	view.Cursors, view.CursorsTotal, view.CursorsLeft = s.ops.Views(shown), len(cursors), len(cursors)-len(shown)
	view.Subscriptions, view.Timeouts = s.ops.SubscriptionStatus()
	view.Log.Letters = fsm.LetterStats{} // they stand beside it
	if len(st.Refusals) > 0 {
		view.Refusals = st.Refusals
	}
	return writeJSON(w, http.StatusOK, view)
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "cluster_id": s.clusterID()})
}

// readyWait bounds how long /readyz waits for the leader's word.
const readyWait = 2 * time.Second

// getReady says whether this node serves well: it agrees with the majority, knows a
// leader, has caught up with it, and has room on its disk.
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
