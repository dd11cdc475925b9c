package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// members lists the members as this node sees them and as the log records them.
func (s *Server) members(status []raftnode.MemberStatus) []api.Member {
	list := []api.Member{}
	for _, m := range status {
		v := api.Member{ID: m.ID, Raft: m.Raft, HTTP: m.HTTP, Voter: m.Voter, Healthy: m.Healthy, Unreachable: m.Unreachable,
			LastContactMs: m.LastContactMs, TrailingEntries: m.TrailingEntries, StalledMs: m.StalledMs, OtherFolder: m.OtherFolder, Disk: (*api.Disk)(m.Disk)}
		// Identity and version are as the log records them.
		if known, ok := s.ops.Machine().Member(m.ID); ok {
			v.Incarnation, v.Version, v.FeatureLevel = known.Incarnation, known.Version, known.FeatureLevel
		}
		list = append(list, v)
	}
	return list
}

func (s *Server) getMembers(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := s.cfg.Node.Status()
	return writeJSON(w, http.StatusOK, api.Membership{Members: s.members(st.Members), Quorum: api.Quorum(st.Quorum),
		LeaderID: st.LeaderID, LeaderHTTP: raftnode.URL(st.LeaderHTTP)})
}

// postMember answers POST /v1/members: it adds a node, which is asked for what the body leaves out.
func (s *Server) postMember(w http.ResponseWriter, r *http.Request) error {
	var body api.NewMember
	if err := s.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	m, cluster, err := s.newcomer(r.Context(), body)
	if err != nil {
		return err
	}
	// A new member is a voter unless the caller says otherwise.
	voter := body.Voter == nil || *body.Voter
	warning, err := s.cfg.Node.AddMember(r.Context(), m, raftnode.MemberOptions{Voter: voter, Force: body.Force, ClusterID: cluster})
	return s.answerChange(w, m.ID, warning, err)
}

// answerChange answers a change of members with the members as they are afterwards.
func (s *Server) answerChange(w http.ResponseWriter, id, warning string, err error) error {
	if err != nil {
		return err
	}
	st := s.cfg.Node.Status()
	return writeJSON(w, http.StatusOK, api.MemberChange{ID: id, Members: s.members(st.Members), Quorum: api.Quorum(st.Quorum), Warning: warning})
}

// newcomer completes what the caller says of a node to be admitted. It asks the node for the rest, and returns the
// cluster of the node's data folder; that is "" where the node was not asked.
func (s *Server) newcomer(ctx context.Context, b api.NewMember) (m frame.Member, cluster string, err error) {
	m = frame.Member{ID: b.ID, RaftAddr: b.Raft, HTTPAddr: b.HTTP, Incarnation: b.Incarnation, FeatureLevel: b.FeatureLevel, Version: b.Version}
	if m.ID != "" && m.RaftAddr != "" && m.Incarnation != "" {
		return m, "", nil
	}
	if m.HTTPAddr == "" {
		return m, "", api.Missing("http", "the node's HTTP address; the rest is asked of it")
	}
	if s.cfg.Peers == nil {
		return m, "", &api.Error{Code: api.NotImplemented, Field: "http", Message: "this node runs alone and asks no other", Remedy: "send id, raft and incarnation as well"}
	}
	report, err := s.cfg.Peers.Identify(ctx, raftnode.URL(m.HTTPAddr), raftnode.Question{})
	if err != nil {
		// what answers there is not shown: a caller could have this node look at ports for it
		silent := &api.Error{Code: api.InvalidArgument, Field: "http", Message: fmt.Sprintf("no node of this cluster's token answers at %s", m.HTTPAddr),
			Remedy: "start the node first, with the same token, and name the address at which the others reach it"}
		if dialled(err) && !errors.Is(err, errUnproved) {
			silent.Reason, silent.Message = api.ReasonUnreachable, "nobody answers at "+m.HTTPAddr
		}
		return m, "", silent
	}
	if m.ID != "" && m.ID != report.ID {
		return m, "", &api.Error{Code: api.Conflict, Field: "id", Message: fmt.Sprintf("%s answers at %s, not %s", report.ID, m.HTTPAddr, m.ID), Remedy: "name that node, or another address"}
	}
	// What the caller names wins for the raft address, what the node reports for all else.
	m = frame.Member{ID: report.ID, RaftAddr: cmp.Or(m.RaftAddr, report.RaftAddr), HTTPAddr: cmp.Or(report.HTTPAddr, m.HTTPAddr),
		Incarnation: report.Incarnation, FeatureLevel: report.FeatureLevel, Version: report.Version}
	return m, report.ClusterID, nil
}

// deleteMember answers DELETE /v1/members/{id}. A leader that is to remove itself hands over instead.
func (s *Server) deleteMember(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	warning, err := s.cfg.Node.Remove(r.Context(), r.PathValue("id"))
	return s.answerChange(w, r.PathValue("id"), warning, err)
}

// postPromote answers POST /v1/members/{id}/promote: it gives a member its vote once it has caught up.
func (s *Server) postPromote(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Force bool `json:"force"`
	}
	if err := s.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	warning, err := s.cfg.Node.Promote(r.Context(), r.PathValue("id"), body.Force)
	return s.answerChange(w, r.PathValue("id"), warning, err)
}

// postDemote answers POST /v1/members/{id}/demote: it takes a member's vote. A leader that is to demote itself
// hands over instead.
func (s *Server) postDemote(w http.ResponseWriter, r *http.Request) error {
	if err := s.readJSON(r, &struct{}{}, optionalBody); err != nil {
		return err
	}
	warning, err := s.cfg.Node.Demote(r.Context(), r.PathValue("id"))
	return s.answerChange(w, r.PathValue("id"), warning, err)
}

// postStepDown answers POST /v1/cluster/step-down once this node no longer leads. Who leads then may not be known
// yet.
func (s *Server) postStepDown(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To string `json:"to"`
	}
	if err := s.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	if err := s.cfg.Node.StepDown(r.Context(), body.To); err != nil {
		return err
	}
	st := s.cfg.Node.Status()
	return writeJSON(w, http.StatusOK, api.Handover{From: st.NodeID, LeaderID: st.LeaderID, LeaderHTTP: raftnode.URL(st.LeaderHTTP), Term: st.Term})
}

// onLeader passes a call on to the leader where this node does not lead. It refuses a call that was passed on
// before: two nodes that disagree on the leader would pass it on without end.
func (s *Server) onLeader(handle handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		// Who leads may change until the call arrives; the other node then refuses it.
		st := s.cfg.Node.Status()
		switch {
		case st.Role == raftnode.RoleLeader:
			return handle(w, r)
		case r.Header.Get(headerForwarded) != "":
			return fmt.Errorf("server: %s %s: %w", r.Method, r.URL.Path, raftnode.ErrNotLeader)
		case st.LeaderID == "" || st.LeaderHTTP == "":
			return fmt.Errorf("server: %s %s: %w", r.Method, r.URL.Path, raftnode.ErrNoLeader)
		}
		return s.proxy(w, r, raftnode.URL(st.LeaderHTTP))
	}
}

// proxy passes a call on to the leader, with the caller's own token, and answers with the leader's answer.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, leader string) error {
	if r.ContentLength > maxExchangeBody {
		return api.RequestTooLarge(maxExchangeBody)
	}
	text, err := readAll(r.Body, nil, maxExchangeBody, int(r.ContentLength))
	if err != nil {
		return err
	}
	target, err := url.Parse(leader)
	if err != nil {
		return fmt.Errorf("server: leader's address: %w: %w", raftnode.ErrNoLeader, err)
	}
	target = target.JoinPath(r.URL.EscapedPath())
	target.RawQuery = r.URL.RawQuery
	ctx := r.Context()
	if _, bounded := ctx.Deadline(); !bounded { // an exchange, which a leader that is cut off would never answer
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.within)
		defer cancel()
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("server: pass on to %s: %w", leader, err)
	}
	for _, name := range []string{"Authorization", "Content-Type", "Accept"} {
		if value := r.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	out.Header.Set(headerForwarded, "1")
	out.Header.Set(api.ClusterHeader, s.clusterID())
	// An error says whether the call may have reached the leader.
	answer, err := s.forward.Do(out)
	if err != nil {
		return fmt.Errorf("server: pass on to %s: %w", leader, unreached(err))
	}
	defer answer.Body.Close()
	// The caller is not to be blamed for an address that now belongs to another cluster.
	if answer.StatusCode == api.OtherCluster.Status() {
		return fmt.Errorf("%w: %s is a node of another cluster by now", raftnode.ErrNoLeader, leader)
	}
	return copyAnswer(w, answer)
}

// copyAnswer answers with the leader's answer. One that breaks off leaves the outcome of the call unknown.
func copyAnswer(w http.ResponseWriter, answer *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("server: the leader's answer: %w: %w", raftnode.ErrOutcomeUnknown, err)
	}
	// Headers about the connection between the nodes are not the caller's.
	for _, name := range []string{"Retry-After", headerLeader} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	return writeBytes(w, answer.StatusCode, answer.Header.Get("Content-Type"), body)
}

// newTransport returns the transport by which nodes call each other. It keeps few connections, each to a node that
// has proved to have the token; calls are bounded by their contexts.
func newTransport(token string) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:         proving((&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext, token),
		Protocols:           &protocols,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 3 * time.Second,
	}
}
