package raftnode

import (
	"context"
	"errors"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/membership"
)

// How members are added and judged; see membership.
type (
	MemberOptions    = membership.AddOptions
	AutopilotVerdict = membership.AutopilotVerdict
	ServerVerdict    = membership.ServerVerdict
)

// AddMember admits a node, or gives a member its new address: it records the node, adds it to raft's
// configuration without a vote and, if opts ask for a vote, promotes it once it has caught up. If that is
// interrupted, the next leader finishes it. AddMember may be repeated, which does not restore a vote that was
// taken on purpose. The warning, if any, is for people. A node that does not lead returns ErrNotLeader.
func (n *Node) AddMember(ctx context.Context, m frame.Member, opts MemberOptions) (warning string, err error) {
	return n.changes.Add(ctx, m, opts)
}

// Promote gives a non-voter its vote once it has caught up.
func (n *Node) Promote(ctx context.Context, id string, force bool) (warning string, err error) {
	return n.changes.Promote(ctx, id, force)
}

// Demote takes a member's vote. A leader asked to demote itself hands over first
// and returns ErrNotLeader: ask the next one.
func (n *Node) Demote(ctx context.Context, id string) (warning string, err error) {
	return n.changes.Demote(ctx, id)
}

// Remove takes a member out of raft's configuration, forgets it, and cuts its
// connections. As with Demote, a leader hands over instead of removing itself.
func (n *Node) Remove(ctx context.Context, id string) (warning string, err error) {
	return n.changes.Remove(ctx, id)
}

// Autopilot is the newest verdict; false where this node does not lead.
func (n *Node) Autopilot() (AutopilotVerdict, bool) { return n.autopilot.Verdict() }

// StepDown hands leadership to target or, if that is "", to the voter that has applied most. It returns once this
// node no longer leads; the voters may still elect another than the target. Requests are refused with ErrNoLeader
// meanwhile.
func (n *Node) StepDown(ctx context.Context, target string) error {
	return n.handover.stepDown(ctx, target, causeOperator)
}

// stepDownIfLeading is StepDown, and does nothing on a node that does not lead.
func (n *Node) stepDownIfLeading(ctx context.Context) error {
	if err := n.StepDown(ctx, ""); !errors.Is(err, ErrNotLeader) {
		return err
	}
	return nil
}
