package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// memberHandlers answers what is asked of members: who they are, and changes, which only the leader can do.
type memberHandlers struct {
	node   Node
	peers  raftnode.Peers // nil for a node that runs alone
	bodies *bodyReader
	view   *clusterView
	begin  beginAct
}

// beginAct reports an act that no entry of the log does, see service.Service.Begin.
type beginAct func(ctx context.Context, target, detail string) (ended func(error), err error)

// getMembers answers GET /v1/members with the members as this node sees them.
func (h *memberHandlers) getMembers(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := h.node.Status()
	return writeJSON(w, http.StatusOK, api.Membership{Members: h.view.members(st.Members), Quorum: api.Quorum(st.Quorum),
		LeaderID: st.LeaderID, LeaderHTTP: raftnode.URL(st.LeaderHTTP)})
}

// postMember answers POST /v1/members: it adds a node, which is asked for what the body leaves out.
func (h *memberHandlers) postMember(w http.ResponseWriter, r *http.Request) error {
	var body api.NewMember
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	// Who the node is, as far as the caller does not say.
	m, cluster, err := h.completeNewcomer(r.Context(), body)
	if err != nil {
		return err
	}
	// A new member is a voter unless the caller says otherwise.
	voter := body.Voter == nil || *body.Voter
	return h.change(w, r, m.ID, func(ctx context.Context) (string, error) {
		return h.node.AddMember(ctx, m, raftnode.MemberOptions{
			Voter:     voter,
			Force:     body.Force,
			ClusterID: cluster,
		})
	})
}

// change changes the members, and answers with them as they are afterwards. It is recorded before it is done: this node
// may not lead any more when it is.
func (h *memberHandlers) change(
	w http.ResponseWriter, r *http.Request, id string, do func(context.Context) (warning string, err error),
) error {
	ended, err := h.begin(r.Context(), id, "")
	if err != nil {
		return err
	}
	warning, err := do(r.Context())
	ended(err)
	if err != nil {
		return err
	}
	// The members are those after the change.
	st := h.node.Status()
	return writeJSON(w, http.StatusOK, api.MemberChange{
		ID:      id,
		Members: h.view.members(st.Members),
		Quorum:  api.Quorum(st.Quorum),
		Warning: warning,
	})
}

// completeNewcomer completes what the caller says of a node to be admitted. It asks the node for the rest, and returns
// the cluster of the node's data folder; that is "" if the node was not asked.
func (h *memberHandlers) completeNewcomer(
	ctx context.Context, b api.NewMember,
) (m frame.Member, cluster string, err error) {
	m = frame.Member{
		ID:           b.ID,
		RaftAddr:     b.Raft,
		HTTPAddr:     b.HTTP,
		Incarnation:  b.Incarnation,
		FeatureLevel: b.FeatureLevel,
		Version:      b.Version,
	}
	// A caller that knows everything needs no answer of the node, which may not run yet.
	if m.ID != "" && m.RaftAddr != "" && m.Incarnation != "" {
		return m, "", nil
	}
	// The rest can only come from the node itself.
	if m.HTTPAddr == "" {
		return m, "", api.Missing("http", "the node's HTTP address; the rest is asked of it")
	}
	if h.peers == nil {
		return m, "", api.Refuse(api.NotImplemented, "http",
			"this node runs alone and asks no other",
			"send id, raft and incarnation as well")
	}
	// The node is asked without naming a cluster: it may belong to none yet.
	report, err := h.peers.Identify(ctx, raftnode.URL(m.HTTPAddr), raftnode.Question{})
	if err != nil {
		// what answers there is not shown: a caller could have this node look at ports for it
		silent := api.Refuse(api.InvalidArgument, "http",
			fmt.Sprintf("no node of this cluster's token answers at %s", m.HTTPAddr),
			"start the node first, with the same token, and name the address at which the others reach it")
		if failedToDial(err) && !errors.Is(err, errUnproved) {
			silent.Reason, silent.Message = api.ReasonUnreachable, "nobody answers at "+m.HTTPAddr
		}
		return m, "", silent
	}
	// The address leads to another node than the caller means.
	if m.ID != "" && m.ID != report.ID {
		return m, "", api.Refuse(api.Conflict, "id",
			fmt.Sprintf("%s answers at %s, not %s", report.ID, m.HTTPAddr, m.ID),
			"name that node, or another address")
	}
	// What the caller names wins for the raft address, what the node reports for all else.
	m = frame.Member{
		ID:           report.ID,
		RaftAddr:     cmp.Or(m.RaftAddr, report.RaftAddr),
		HTTPAddr:     cmp.Or(report.HTTPAddr, m.HTTPAddr),
		Incarnation:  report.Incarnation,
		FeatureLevel: report.FeatureLevel,
		Version:      report.Version,
	}
	return m, report.ClusterID, nil
}

// deleteMember answers DELETE /v1/members/{id}. A leader that is to remove itself hands over instead.
func (h *memberHandlers) deleteMember(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	// A warning says what should be looked at now.
	id := r.PathValue("id")
	return h.change(w, r, id, func(ctx context.Context) (string, error) { return h.node.Remove(ctx, id) })
}

// postPromote answers POST /v1/members/{id}/promote: it gives a member its vote once it has caught up.
func (h *memberHandlers) postPromote(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Force bool `json:"force"`
	}
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	id := r.PathValue("id")
	return h.change(w, r, id, func(ctx context.Context) (string, error) {
		return h.node.Promote(ctx, id, body.Force)
	})
}

// postDemote answers POST /v1/members/{id}/demote: it takes a member's vote. A leader that is to demote itself
// hands over instead.
func (h *memberHandlers) postDemote(w http.ResponseWriter, r *http.Request) error {
	if err := h.bodies.readJSON(r, &struct{}{}, optionalBody); err != nil {
		return err
	}
	id := r.PathValue("id")
	return h.change(w, r, id, func(ctx context.Context) (string, error) { return h.node.Demote(ctx, id) })
}

// postStepDown answers POST /v1/cluster/step-down once this node no longer leads. Who leads then may not be known
// yet.
func (h *memberHandlers) postStepDown(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To string `json:"to"`
	}
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	ended, err := h.begin(r.Context(), body.To, "")
	if err != nil {
		return err
	}
	// Without a name the leader chooses a voter.
	err = h.node.StepDown(r.Context(), body.To)
	ended(err)
	if err != nil {
		return err
	}
	// The new leader, as far as this node has heard of it.
	st := h.node.Status()
	return writeJSON(w, http.StatusOK, api.StepDownResult{
		From:       st.NodeID,
		LeaderID:   st.LeaderID,
		LeaderHTTP: raftnode.URL(st.LeaderHTTP),
		Term:       st.Term,
	})
}
