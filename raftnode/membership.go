package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/frame"
)

const (
	maxVoters     = 5
	changeTimeout = 10 * time.Second // until raft takes a change up; one is under way at a time
)

// voterWarning is what to say about a number of voters; "" if nothing.
func voterWarning(voters int) string {
	if voters > 0 && voters%2 == 0 {
		return fmt.Sprintf("%d voters survive no more failures than %d: use an odd number", voters, voters-1)
	}
	return ""
}

// AddMember admits a node, or gives a member its new address: it records the node, adds it to raft's
// configuration without a vote and, if opts ask for a vote, promotes it once it has caught up. If that is
// interrupted, the next leader finishes it. AddMember may be repeated, which does not restore a vote that was
// taken on purpose. The warning, if any, is for people. A node that does not lead returns ErrNotLeader.
func (n *Node) AddMember(ctx context.Context, m frame.Member, opts MemberOptions) (warning string, err error) {
	warning, promote, err := n.enlist(ctx, m, opts)
	if err != nil || !promote {
		return warning, err
	}
	return n.promoteIf(ctx, m.ID, opts.Force, reasonJoin, func() error {
		if wanted, known := n.machine.VoteWanted(m.ID); known && !wanted {
			return errNotWished
		}
		return nil
	})
}

// enlist is AddMember up to the promotion, which is still to be made if promote is true.
func (n *Node) enlist(ctx context.Context, m frame.Member, opts MemberOptions) (warning string, promote bool, err error) {
	if err := n.replicationEnded(ctx, m.ID); err != nil {
		return "", false, fmt.Errorf("raftnode: add %s: %w", m.ID, err)
	}
	// Everything up to here waits without holding up other changes of members.
	ctx, release, err := n.changeOf(ctx, m.ID)
	if err != nil {
		return "", false, err
	}
	defer release()
	present, listed := n.roster.Server(m.ID)
	isVoter := listed && present.Suffrage == raft.Voter
	if err := n.admissible(m, opts, isVoter); err != nil {
		return "", false, fmt.Errorf("raftnode: add %s: %w", m.ID, err)
	}
	// The record comes first: a node of no cluster yet is refused connections until it is recorded.
	if known, ok := n.machine.Member(m.ID); !ok || known != m {
		if err := n.proposer.Decide(ctx, frame.MemberPut{Member: m}); err != nil {
			return "", false, fmt.Errorf("raftnode: add %s: %w", m.ID, err)
		}
	}
	// Joining again must not restore a vote that an operator has taken: only Promote does.
	voter := opts.Voter && !isVoter
	if wanted, known := n.machine.VoteWanted(m.ID); voter && listed && known && !wanted {
		voter, warning = false, fmt.Sprintf("its vote was taken from %s: promote it to give it back", m.ID)
	}
	if err := n.wishOnJoin(ctx, m.ID, listed, voter); err != nil {
		return "", false, fmt.Errorf("raftnode: add %s: %w", m.ID, err)
	}
	// A member keeps the suffrage it has, a new one follows without a vote until it has caught up.
	if !listed || string(present.Address) != m.RaftAddr {
		if err := n.place(m.ID, m.RaftAddr, isVoter); err != nil {
			return "", false, fmt.Errorf("raftnode: add %s: %w", m.ID, err)
		}
	}
	return warning, voter, nil
}

// replicationEnded waits until nothing of raft's speaks any more to a member that was removed.
// Raft stops such a replication after one more attempt, for which it may wait 20 s, and knows
// its peer by id and address alone: it would reach the folder that is added under the same id
// now, and send it the state for a log that is another's. Its heartbeats, which are never
// further apart than Timing.Heartbeat, end with it.
func (n *Node) replicationEnded(ctx context.Context, id string) error {
	return n.life.Poll(ctx, func() bool {
		_, listed := n.roster.Server(id)
		return listed || n.contacts.Quiet(raft.ServerID(id), n.cfg.Timing.Heartbeat)
	})
}

// wishOnJoin records whether a new member is to have a vote. One that joins again without asking for a vote
// keeps what was recorded before.
func (n *Node) wishOnJoin(ctx context.Context, id string, listed, voter bool) error {
	wanted, known := n.machine.VoteWanted(id)
	if voter == wanted && known || !voter && (listed || !known) {
		return nil
	}
	return n.wish(ctx, id, voter, reasonJoin)
}

// wish records whether a member is to have a vote. While a member runs a program that does not know the
// command, it records nothing.
func (n *Node) wish(ctx context.Context, id string, wanted bool, reason string) error {
	if !n.proposer.Reached(frame.KindMemberVote) {
		return nil
	}
	return n.proposer.Decide(ctx, frame.MemberVote{ID: id, Wanted: wanted, Reason: reason})
}

// admissible returns why m must not be recorded: it is of another cluster or too old, shares an id or address with
// another member, or would be one voter too many.
func (n *Node) admissible(m frame.Member, opts MemberOptions, isVoter bool) error {
	if m.ID == "" || m.RaftAddr == "" || m.Incarnation == "" {
		return fmt.Errorf("%w: id, raft address and incarnation are required", ErrUnknownMember)
	}
	if own := n.machine.ClusterID(); opts.ClusterID != "" && own != "" && opts.ClusterID != own {
		if slices.Contains(n.machine.Predecessors(), opts.ClusterID) {
			return fmt.Errorf("%w: it is of %s, from which this cluster was recovered without it", ErrForeignFolder, opts.ClusterID)
		}
		return fmt.Errorf("%w: it is of %s, this cluster is %s", ErrForeignFolder, opts.ClusterID, own)
	}
	if level := n.machine.FeatureLevel(); m.FeatureLevel < level {
		return fmt.Errorf("%w: it knows feature level %d, the cluster is at %d: use a newer program", ErrTooOld, m.FeatureLevel, level)
	}
	// An id belongs to one data folder and an address to one member.
	for _, other := range n.machine.Members() {
		if other.ID == m.ID {
			if other.Incarnation != m.Incarnation {
				return ErrOtherIncarnation
			}
			continue
		}
		if other.RaftAddr == m.RaftAddr || m.HTTPAddr != "" && other.HTTPAddr == m.HTTPAddr {
			return fmt.Errorf("%w: %s", ErrDuplicateAddress, other.ID)
		}
	}
	if opts.Voter && !isVoter && !opts.Force && len(n.roster.Voters()) >= maxVoters {
		return ErrTooManyVoters
	}
	return nil
}

// place puts a server into raft's configuration, or changes its address.
func (n *Node) place(id, addr string, voter bool) error {
	add := n.raft.Load().AddNonvoter
	if voter {
		add = n.raft.Load().AddVoter
	}
	return changeError(add(raft.ServerID(id), raft.ServerAddress(addr), 0, changeTimeout).Error())
}

// promote gives a member its vote, and returns a warning about the new number of voters. The caller holds changing.
func (n *Node) promote(ctx context.Context, id, addr, reason string) (warning string, err error) {
	// The member had caught up before the change began, so that it lacks little: one that needs longer
	// is most likely down.
	near, cancel := context.WithTimeout(ctx, 2*n.cfg.Timing.Election)
	defer cancel()
	if err := n.caughtUp(near, id, n.machine.Applied()); err != nil {
		return "", fmt.Errorf("raftnode: promote %s: %w", id, err)
	}
	if reason, _ := n.watch.Absence(id); reason != "" {
		return "", fmt.Errorf("raftnode: promote %s: %w: %s", id, ErrNotCaughtUp, absenceText(reason))
	}
	// Recorded before it is given, so that a leader elected in between finishes the change.
	if wanted, _ := n.machine.VoteWanted(id); !wanted {
		if err := n.wish(ctx, id, true, reason); err != nil {
			return "", fmt.Errorf("raftnode: promote %s: %w", id, err)
		}
	}
	if err := n.place(id, addr, true); err != nil {
		return "", fmt.Errorf("raftnode: promote %s: %w", id, err)
	}
	return voterWarning(len(n.roster.Voters())), nil
}

// Promote gives a non-voter its vote once it has caught up.
func (n *Node) Promote(ctx context.Context, id string, force bool) (warning string, err error) {
	return n.promoteIf(ctx, id, force, causeOperator, func() error { return nil })
}

// promoteIf promotes a member once it has caught up, unless ask returns an error. It waits for the member
// without holding up other changes, and calls ask when none is under way.
func (n *Node) promoteIf(ctx context.Context, id string, force bool, reason string, ask func() error) (warning string, err error) {
	ctx, cancel := n.life.UntilClosing(ctx)
	defer cancel()
	if _, voter, err := n.promotable(id, force); voter || err != nil {
		return "", err
	}
	if err := n.caughtUp(ctx, id, n.machine.Applied()); err != nil {
		return "", fmt.Errorf("raftnode: promote %s: %w", id, err)
	}
	ctx, release, err := n.changeOf(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	// Other changes may have been made during the wait.
	s, voter, err := n.promotable(id, force)
	if voter || err != nil {
		return "", err
	}
	if err := ask(); err != nil {
		return "", fmt.Errorf("raftnode: promote %s: %w", id, err)
	}
	return n.promote(ctx, id, string(s.Address), reason)
}

// promotable returns the member to promote; voter is true if it has its vote already. The error says why this
// node cannot promote it now.
func (n *Node) promotable(id string, force bool) (s raft.Server, voter bool, err error) {
	s, listed := n.roster.Server(id)
	// The zero Server has the suffrage of a voter.
	voter = s.Suffrage == raft.Voter && listed
	switch {
	case n.proposer.OpenTerm() == 0:
		err = ErrNotLeader
	case !listed:
		err = ErrUnknownMember
	case !voter && !force && len(n.roster.Voters()) >= maxVoters:
		err = ErrTooManyVoters
	default:
		return s, voter, nil
	}
	return s, voter, fmt.Errorf("raftnode: promote %s: %w", id, err)
}

// Demote takes a member's vote. A leader asked to demote itself hands over first
// and returns ErrNotLeader: ask the next one.
func (n *Node) Demote(ctx context.Context, id string) (warning string, err error) {
	ctx, release, err := n.changeOf(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	s, listed := n.roster.Server(id)
	switch {
	case !listed:
		return "", fmt.Errorf("raftnode: demote %s: %w", id, ErrUnknownMember)
	case s.Suffrage != raft.Voter:
		return "", nil
	}
	if err := n.withdraw(ctx, id); err != nil {
		return "", fmt.Errorf("raftnode: demote %s: %w", id, err)
	}
	// Recorded first: autopilot promotes whoever has a vote on record.
	if err := n.wish(ctx, id, false, causeOperator); err != nil {
		return "", fmt.Errorf("raftnode: demote %s: %w", id, err)
	}
	if err := changeError(n.raft.Load().DemoteVoter(s.ID, 0, changeTimeout).Error()); err != nil {
		return "", fmt.Errorf("raftnode: demote %s: %w", id, err)
	}
	return voterWarning(len(n.roster.Voters())), nil
}

// withdraw returns an error if the cluster cannot do without a voter. A leader that is to lose its own vote
// hands over first, and the error is ErrNotLeader. The caller holds changing.
func (n *Node) withdraw(ctx context.Context, id string) error {
	if len(n.roster.Voters()) == 1 {
		return ErrLastVoter
	}
	if left, healthy := n.without(id); healthy < left/2+1 {
		return fmt.Errorf("%w: %d of the %d that would be left", ErrBreaksQuorum, healthy, left)
	}
	if id != n.cfg.ID {
		return nil
	}
	if err := n.handOver(ctx, "", causeOperator); err != nil {
		return err
	}
	return fmt.Errorf("%w any more: it has handed over, ask the next leader", ErrNotLeader)
}

// without counts the voters that would be left without one, and those of them that
// are there.
func (n *Node) without(id string) (left, healthy int) {
	for _, voter := range n.roster.Voters() {
		if voter == id {
			continue
		}
		left++
		if n.watch.Present(voter) {
			healthy++
		}
	}
	return left, healthy
}

// Remove takes a member out of raft's configuration, forgets it, and cuts its
// connections. As with Demote, a leader hands over instead of removing itself.
func (n *Node) Remove(ctx context.Context, id string) (warning string, err error) {
	return n.remove(ctx, id, reasonRemoved, func() error { return nil })
}

// remove is Remove, unless ask returns an error. It calls ask when no other change is under way.
func (n *Node) remove(ctx context.Context, id, reason string, ask func() error) (warning string, err error) {
	ctx, release, err := n.changeOf(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	s, listed := n.roster.Server(id)
	_, known := n.machine.Member(id)
	if !listed && !known {
		return "", fmt.Errorf("raftnode: remove %s: %w", id, ErrUnknownMember)
	}
	if err := ask(); err != nil {
		return "", fmt.Errorf("raftnode: remove %s: %w", id, err)
	}
	// Raft's configuration first: if this is interrupted after it, the next leader drops the record.
	if listed {
		if err := n.dismiss(ctx, s, reason); err != nil {
			return "", fmt.Errorf("raftnode: remove %s: %w", id, err)
		}
	}
	if known {
		if err := n.proposer.Decide(ctx, frame.MemberRemove{ID: id}); err != nil {
			return "", fmt.Errorf("raftnode: remove %s: %w", id, err)
		}
	}
	// From here on its connections are refused; those that are open have to be closed.
	n.removals.update(n.roster.Known())
	n.transport.Disconnect(id)
	return voterWarning(len(n.roster.Voters())), nil
}

// dismiss takes a server out of raft's configuration, and records before that that a voter is to have no vote.
func (n *Node) dismiss(ctx context.Context, s raft.Server, reason string) error {
	if s.Suffrage == raft.Voter {
		if err := n.withdraw(ctx, string(s.ID)); err != nil {
			return err
		}
		if err := n.wish(ctx, string(s.ID), false, reason); err != nil {
			return err
		}
	}
	return changeError(n.raft.Load().RemoveServer(s.ID, 0, changeTimeout).Error())
}

// changeOf begins a change of members: it waits until no other one is under way and returns ErrNotLeader on a node
// that does not lead. The context returned also ends when the node begins to close, which must not wait for a member
// that catches up. The caller has to call release.
func (n *Node) changeOf(ctx context.Context, id string) (_ context.Context, release func(), err error) {
	free, err := n.life.Exclusively(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Leadership may have been lost while this waited for the change before.
	if n.proposer.OpenTerm() == 0 {
		free()
		return nil, nil, fmt.Errorf("raftnode: change %s: %w", id, ErrNotLeader)
	}
	ctx, cancel := n.life.UntilClosing(ctx)
	return ctx, func() { cancel(); free() }, nil
}

// changeError maps raft's error of a change of members to this package's: whether it certainly was not made, or
// may have been.
func changeError(err error) error {
	switch {
	case err == nil:
		return nil
	// Raft did not append the change.
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	// Raft may have appended it, and a later leader may commit it.
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	default:
		return err
	}
}

// tend is a leader's duty to keep the record of the members true and replicated time near the wall clock, until
// ctx ends.
func (n *Node) tend(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.Ping)
	defer tick.Stop()
	for {
		if err := n.tendOnce(ctx); err != nil && ctx.Err() == nil {
			n.logger.Warn("keeping the record of the members", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tendOnce makes one round of tend. It waits for a change of members that is under way.
func (n *Node) tendOnce(ctx context.Context) error {
	// During a change the record and raft's configuration differ, and the new member would be forgotten.
	release, err := n.life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	propose := func(c frame.ClockStep) error { return n.proposer.Decide(ctx, c) }
	if err := n.stepClock(ctx, propose); err != nil {
		return err
	}
	// Other nodes ask the leader to record their new addresses and versions; nobody does it for the leader.
	if err := n.record(ctx, n.roster.Self()); err != nil {
		return err
	}
	if s, ok := n.roster.Server(n.cfg.ID); ok && string(s.Address) != n.roster.Address() {
		if err := n.place(n.cfg.ID, n.roster.Address(), s.Suffrage == raft.Voter); err != nil {
			return err
		}
	}
	if err := n.forgetStrangers(ctx); err != nil {
		return err
	}
	// A restart with a newer program shows in the reports alone; the feature level rises once all are recorded.
	for _, m := range n.machine.Members() {
		if s, healthy := n.watch.Last(m.ID); healthy && m.ID != n.cfg.ID && s.Report.Incarnation == m.Incarnation {
			m.FeatureLevel, m.Version = s.Report.FeatureLevel, s.Report.Version
			if err := n.record(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetStrangers drops the records of members that are not in raft's configuration: a change was interrupted,
// or the cluster was recovered without them. While they are recorded they cannot join with an emptied folder.
func (n *Node) forgetStrangers(ctx context.Context) error {
	for _, m := range n.machine.Members() {
		if _, listed := n.roster.Server(m.ID); listed || m.ID == n.cfg.ID {
			continue
		}
		if err := n.proposer.Decide(ctx, frame.MemberRemove{ID: m.ID}); err != nil {
			return fmt.Errorf("raftnode: forget %s: %w", m.ID, err)
		}
	}
	return nil
}

// record proposes a member's record if it differs from the one in the state.
func (n *Node) record(ctx context.Context, m frame.Member) error {
	if known, ok := n.machine.Member(m.ID); ok && known == m {
		return nil
	}
	return n.proposer.Decide(ctx, frame.MemberPut{Member: m})
}
