package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/lifetime"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	maxVoters     = 5                // more slow every write, and are added by force alone
	changeTimeout = 10 * time.Second // until raft takes a change up; one is under way at a time
)

// Reasons for which a vote is given or taken. The log has the reason before raft makes the change.
const (
	reasonJoin     = "join"
	reasonOperator = "operator"
	reasonRemoved  = "removed"
	reasonDead     = "dead_server"
)

// AddOptions say how a node is admitted.
type AddOptions struct {
	Voter bool // promote it once it has caught up
	Force bool // also as a sixth voter and beyond
	// ClusterID is the cluster of the node's data folder; "" if it is of none, or that is not known.
	ClusterID string
}

// Options are what changes of members need of a node.
type Options struct {
	Timing    health.Timing
	Raft      *upstream.Raft
	Roster    *roster.Roster
	Machine   *fsm.Machine
	Watch     *health.Watch
	Contacts  *health.Contacts
	Proposals health.Proposals
	Life      *lifetime.Lifetime
	Logger    hclog.Logger

	// HandOver hands leadership to any other voter, for a leader that is to lose its own vote. It is called within
	// Life.Exclusively, and must not ask for that itself.
	HandOver func(context.Context) error
	// Left is called when a member was removed: from then on it may not connect.
	Left func(id string)
	// StepClock steps replicated time forward by propose, if a step is due.
	StepClock func(ctx context.Context, propose func(frame.ClockStep) error) error
}

// Changes makes the changes of members, one at a time: each is made within Life.Exclusively, as is a hand-over of
// leadership. Waits that may be long, as for a member that catches up, come before that.
type Changes struct{ o Options }

// NewChanges returns the changes of one node. It makes none by itself.
func NewChanges(o Options) *Changes { return &Changes{o} }

// VoterWarning is what to say about a number of voters; "" if nothing.
func VoterWarning(voters int) string {
	if voters > 0 && voters%2 == 0 {
		return fmt.Sprintf("%d voters survive no more failures than %d would: use an odd number", voters, voters-1)
	}
	return ""
}

// withdrawalWarning is what to say about the voters that are left after one has lost its vote; "" if nothing. A
// cluster that was made with one voter needs no warning.
func withdrawalWarning(left int) string {
	if left == 1 {
		return "1 voter is left: while it is down nothing is accepted, and what its disk loses is lost"
	}
	return VoterWarning(left)
}

// Add admits a node, or gives a member its new address: it records the node, adds it to raft's
// configuration without a vote and, if opts ask for a vote, promotes it once it has caught up. If that is
// interrupted, the next leader finishes it. Add may be repeated, which does not restore a vote that was
// taken on purpose. The warning, if any, is for people. A node that does not lead returns ErrNotLeader.
func (c *Changes) Add(ctx context.Context, m frame.Member, opts AddOptions) (warning string, err error) {
	warning, promote, err := c.addWithoutVote(ctx, m, opts)
	if err != nil || !promote {
		return warning, err
	}
	return c.promoteIf(ctx, m.ID, opts.Force, reasonJoin, func() error {
		// Another change may have taken it while the member caught up.
		if wanted, known := c.o.Machine.VoteWanted(m.ID); known && !wanted {
			return errVoteNotWanted
		}
		return nil
	})
}

// addWithoutVote is Add up to the promotion, which is still to be made if promote is true.
func (c *Changes) addWithoutVote(
	ctx context.Context, m frame.Member, opts AddOptions,
) (warning string, promote bool, err error) {
	if err := c.replicationEnded(ctx, m.ID); err != nil {
		return "", false, fmt.Errorf("add %s: %w", m.ID, err)
	}
	// Everything up to here waits without holding up other changes of members.
	ctx, release, err := c.beginChange(ctx, m.ID)
	if err != nil {
		return "", false, err
	}
	defer release()
	present, listed := c.o.Roster.Server(m.ID)
	isVoter := listed && present.Suffrage == raft.Voter
	// From here until release, no other change of members can make untrue what is read.
	if err := c.Admissible(m, opts, isVoter); err != nil {
		return "", false, fmt.Errorf("add %s: %w", m.ID, err)
	}
	// The record comes first: a node of no cluster yet is refused connections until it is recorded.
	if known, ok := c.o.Machine.Member(m.ID); !ok || known != m {
		if err := c.o.Proposals.Decide(ctx, frame.MemberPut{Member: m}); err != nil {
			return "", false, fmt.Errorf("add %s: %w", m.ID, err)
		}
	}
	// Joining again must not restore a vote that an operator has taken: only Promote does.
	voter := opts.Voter && !isVoter
	if wanted, known := c.o.Machine.VoteWanted(m.ID); voter && listed && known && !wanted {
		voter, warning = false, fmt.Sprintf("its vote was taken from %s: promote it to restore it", m.ID)
	}
	if err := c.recordVoteOnJoin(ctx, m.ID, listed, voter); err != nil {
		return "", false, fmt.Errorf("add %s: %w", m.ID, err)
	}
	// A member keeps the suffrage it has, a new one follows without a vote until it has caught up.
	if !listed || string(present.Address) != m.RaftAddr {
		if err := c.configure(m.ID, m.RaftAddr, isVoter); err != nil {
			return "", false, fmt.Errorf("add %s: %w", m.ID, err)
		}
	}
	return warning, voter, nil
}

// replicationEnded waits until raft has stopped replicating to a member that was removed.
// Raft stops such a replication after one more attempt, for which it may wait 20 s, and knows
// its peer by id and address alone: it would reach the folder that is added under the same id
// now, and send it the state for a log that is another's. Its heartbeats, which are never
// further apart than Timing.Heartbeat, end with it.
func (c *Changes) replicationEnded(ctx context.Context, id string) error {
	return c.o.Life.Poll(ctx, func() bool {
		_, listed := c.o.Roster.Server(id)
		return listed || c.o.Contacts.Quiet(raft.ServerID(id), c.o.Timing.Heartbeat)
	})
}

// recordVoteOnJoin records whether a new member is to have a vote. One that joins again without asking for a vote
// keeps what was recorded before.
func (c *Changes) recordVoteOnJoin(ctx context.Context, id string, listed, voter bool) error {
	wanted, known := c.o.Machine.VoteWanted(id)
	// Nothing is recorded twice, or for a new member that asks for no vote.
	recorded := known && voter == wanted
	keeps := !voter && (listed || !known)
	if recorded || keeps {
		return nil
	}
	return c.recordVote(ctx, id, voter, reasonJoin)
}

// recordVote records whether a member is to have a vote. While a member runs a program that does not know the
// command, it records nothing.
func (c *Changes) recordVote(ctx context.Context, id string, wanted bool, reason string) error {
	if !c.o.Proposals.Reached(frame.KindMemberVote) {
		return nil
	}
	return c.o.Proposals.Decide(ctx, frame.MemberVote{ID: id, Wanted: wanted, Reason: reason})
}

// Admissible returns why m must not be recorded: it belongs to another cluster or is too old, shares an id or address
// with another member, or would be one voter too many.
func (c *Changes) Admissible(m frame.Member, opts AddOptions, isVoter bool) error {
	if m.ID == "" || m.RaftAddr == "" || m.Incarnation == "" {
		return fmt.Errorf("%w: id, raft address and incarnation are required", ErrUnknownMember)
	}
	// A folder of another cluster has entries that this one would contradict.
	if own := c.o.Machine.ClusterID(); opts.ClusterID != "" && own != "" && opts.ClusterID != own {
		if slices.Contains(c.o.Machine.Predecessors(), opts.ClusterID) {
			return fmt.Errorf("%w: it is of %s, from which this cluster was recovered without it",
				ErrForeignFolder, opts.ClusterID)
		}
		return fmt.Errorf("%w: it is of %s, this cluster is %s", ErrForeignFolder, opts.ClusterID, own)
	}
	// It would stop at the first command that it does not know.
	if level := c.o.Machine.FeatureLevel(); m.FeatureLevel < level {
		return fmt.Errorf("%w: it knows feature level %d, the cluster is at %d: use a newer program",
			ErrTooOld, m.FeatureLevel, level)
	}
	// An id belongs to one data folder and an address to one member.
	for _, other := range c.o.Machine.Members() {
		if other.ID == m.ID {
			if other.Incarnation != m.Incarnation {
				return ErrOtherIncarnation
			}
			continue
		}
		if other.RaftAddr == m.RaftAddr || (m.HTTPAddr != "" && other.HTTPAddr == m.HTTPAddr) {
			return fmt.Errorf("%w: %s", ErrDuplicateAddress, other.ID)
		}
	}
	// Votes count when they are given; this spares a member the wait for one that it will not get.
	if opts.Voter && !isVoter && !opts.Force && len(c.o.Roster.Voters()) >= maxVoters {
		return ErrTooManyVoters
	}
	return nil
}

// configure puts a server into raft's configuration, or changes its address.
func (c *Changes) configure(id, addr string, voter bool) error {
	// AddNonvoter of a voter changes its address alone, and takes no vote.
	add := c.o.Raft.Load().AddNonvoter
	if voter {
		add = c.o.Raft.Load().AddVoter
	}
	return changeError(add(raft.ServerID(id), raft.ServerAddress(addr), 0, changeTimeout).Error())
}

// promote gives a member its vote, and returns a warning about the new number of voters. It is called within a change.
func (c *Changes) promote(ctx context.Context, id, addr, reason string) (warning string, err error) {
	// The member had caught up before the change began, so it lacks little: one that needs longer
	// is most likely down.
	near, cancel := context.WithTimeout(ctx, 2*c.o.Timing.Election)
	defer cancel()
	if err := c.CaughtUp(near, id, c.o.Machine.Applied()); err != nil {
		return "", fmt.Errorf("promote %s: %w", id, err)
	}
	// Asked again at the last moment: its vote counts from then on, present or not.
	if reason, _ := c.o.Watch.Absence(id); reason != "" {
		return "", fmt.Errorf("promote %s: %w: %s", id, ErrNotCaughtUp, health.AbsenceText(reason))
	}
	// Recorded before it is given, so a leader elected in between finishes the change.
	if wanted, _ := c.o.Machine.VoteWanted(id); !wanted {
		if err := c.recordVote(ctx, id, true, reason); err != nil {
			return "", fmt.Errorf("promote %s: %w", id, err)
		}
	}
	if err := c.configure(id, addr, true); err != nil {
		return "", fmt.Errorf("promote %s: %w", id, err)
	}
	return VoterWarning(len(c.o.Roster.Voters())), nil
}

// Promote gives a non-voter its vote once it has caught up.
func (c *Changes) Promote(ctx context.Context, id string, force bool) (warning string, err error) {
	return c.promoteIf(ctx, id, force, reasonOperator, func() error { return nil })
}

// promoteIf promotes a member once it has caught up, unless ask returns an error. It waits for the member
// without holding up other changes, and calls ask when none is under way.
func (c *Changes) promoteIf(
	ctx context.Context, id string, force bool, reason string, ask func() error,
) (warning string, err error) {
	ctx, cancel := c.o.Life.UntilClosing(ctx)
	defer cancel()
	// Before the wait, so what cannot succeed fails at once.
	if _, voter, err := c.promotable(id, force); voter || err != nil {
		return "", err
	}
	if err := c.CaughtUp(ctx, id, c.o.Machine.Applied()); err != nil {
		return "", fmt.Errorf("promote %s: %w", id, err)
	}
	ctx, release, err := c.beginChange(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	// Other changes may have been made during the wait.
	s, voter, err := c.promotable(id, force)
	if voter || err != nil {
		return "", err
	}
	if err := ask(); err != nil {
		return "", fmt.Errorf("promote %s: %w", id, err)
	}
	return c.promote(ctx, id, string(s.Address), reason)
}

// promotable returns the member to promote; voter is true if it has its vote already. The error says why this
// node cannot promote it now.
func (c *Changes) promotable(id string, force bool) (s raft.Server, voter bool, err error) {
	s, listed := c.o.Roster.Server(id)
	// The zero Server has the suffrage of a voter.
	voter = s.Suffrage == raft.Voter && listed
	switch {
	case c.o.Proposals.OpenTerm() == 0:
		err = ErrNotLeader
	case !listed:
		err = ErrUnknownMember
	case !voter && !force && len(c.o.Roster.Voters()) >= maxVoters:
		err = ErrTooManyVoters
	default:
		return s, voter, nil
	}
	return s, voter, fmt.Errorf("promote %s: %w", id, err)
}

// Demote takes a member's vote. A leader asked to demote itself hands over first
// and returns ErrNotLeader: ask the next one.
func (c *Changes) Demote(ctx context.Context, id string) (warning string, err error) {
	ctx, release, err := c.beginChange(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	s, listed := c.o.Roster.Server(id)
	switch {
	case !listed:
		return "", fmt.Errorf("demote %s: %w", id, ErrUnknownMember)
	case s.Suffrage != raft.Voter:
		return "", nil
	}
	// A leader that is to lose its own vote hands over here, and returns.
	if err := c.withdrawVoter(ctx, id); err != nil {
		return "", fmt.Errorf("demote %s: %w", id, err)
	}
	// Recorded first: autopilot promotes each member that has a vote on record.
	if err := c.recordVote(ctx, id, false, reasonOperator); err != nil {
		return "", fmt.Errorf("demote %s: %w", id, err)
	}
	if err := changeError(c.o.Raft.Load().DemoteVoter(s.ID, 0, changeTimeout).Error()); err != nil {
		return "", fmt.Errorf("demote %s: %w", id, err)
	}
	return withdrawalWarning(len(c.o.Roster.Voters())), nil
}

// withdrawVoter returns an error if the cluster cannot do without a voter. A leader that is to lose its own vote
// hands over first, and the error is ErrNotLeader. It is called within a change.
func (c *Changes) withdrawVoter(ctx context.Context, id string) error {
	if len(c.o.Roster.Voters()) == 1 {
		return ErrLastVoter
	}
	// Without a quorum among those left nothing could be decided any more, nor could this be undone.
	if left, healthy := c.countWithout(id); healthy < left/2+1 {
		return fmt.Errorf("%w: %d of the %d that would be left", ErrBreaksQuorum, healthy, left)
	}
	if id != c.o.Roster.ID() {
		return nil
	}
	if err := c.o.HandOver(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w any more: it has handed over, ask the next leader", ErrNotLeader)
}

// countWithout counts the voters that would be left without one, and those of them that are
// present.
func (c *Changes) countWithout(id string) (left, healthy int) {
	for _, voter := range c.o.Roster.Voters() {
		if voter == id {
			continue
		}
		left++
		if c.o.Watch.Present(voter) {
			healthy++
		}
	}
	return left, healthy
}

// Remove takes a member out of raft's configuration, forgets it, and cuts its
// connections. As with Demote, a leader hands over instead of removing itself.
func (c *Changes) Remove(ctx context.Context, id string) (warning string, err error) {
	return c.remove(ctx, id, reasonRemoved, func() error { return nil })
}

// remove is Remove, unless ask returns an error. It calls ask when no other change is under way.
func (c *Changes) remove(ctx context.Context, id, reason string, ask func() error) (warning string, err error) {
	ctx, release, err := c.beginChange(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	s, listed := c.o.Roster.Server(id)
	_, known := c.o.Machine.Member(id)
	if !listed && !known {
		return "", fmt.Errorf("remove %s: %w", id, ErrUnknownMember)
	}
	if err := ask(); err != nil {
		return "", fmt.Errorf("remove %s: %w", id, err)
	}
	// Raft's configuration first: if this is interrupted after it, the next leader drops the record.
	if listed {
		if err := c.removeServer(ctx, s, reason); err != nil {
			return "", fmt.Errorf("remove %s: %w", id, err)
		}
	}
	if known {
		if err := c.o.Proposals.Decide(ctx, frame.MemberRemove{ID: id}); err != nil {
			return "", fmt.Errorf("remove %s: %w", id, err)
		}
	}
	// From here on it is not admitted any more, but its open connections stay until they are closed.
	c.o.Left(id)
	if s.Suffrage != raft.Voter {
		return "", nil
	}
	return withdrawalWarning(len(c.o.Roster.Voters())), nil
}

// removeServer takes a server out of raft's configuration, and records before that that a voter is to have no vote.
func (c *Changes) removeServer(ctx context.Context, s raft.Server, reason string) error {
	if s.Suffrage == raft.Voter {
		if err := c.withdrawVoter(ctx, string(s.ID)); err != nil {
			return err
		}
		// Recorded before, as in Demote: the next leader must not give the vote back if this one ends in between.
		if err := c.recordVote(ctx, string(s.ID), false, reason); err != nil {
			return err
		}
	}
	return changeError(c.o.Raft.Load().RemoveServer(s.ID, 0, changeTimeout).Error())
}

// CaughtUp polls a member until it has applied index. It returns ErrNotCaughtUp when ctx ends before that, and
// another error once this node does not lead or the member no longer is one.
func (c *Changes) CaughtUp(ctx context.Context, id string, index uint64) error {
	const every = 20 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		p, known := c.o.Roster.Peer(id)
		if !known {
			return fmt.Errorf("%w: %s", ErrUnknownMember, id)
		}
		if c.o.Proposals.OpenTerm() == 0 {
			return fmt.Errorf("%w any more", ErrNotLeader)
		}
		// Asked directly: the report of the last ping may be an interval of pings old.
		s, err := c.o.Watch.Ask(ctx, p)
		if err == nil && s.Report.Applied >= index {
			return nil
		}
		// Reported if ctx ends: it says why the member never answered.
		if err != nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s to %d: %w", ErrNotCaughtUp, id, index, errors.Join(ctx.Err(), last))
		}
	}
}

// beginChange begins a change of members: it waits until no other one is under way and returns ErrNotLeader on a node
// that does not lead. The context returned also ends when the node begins to close, which must not wait for a member
// that catches up. The caller has to call release.
func (c *Changes) beginChange(ctx context.Context, id string) (_ context.Context, release func(), err error) {
	// The wait itself ends with ctx or the node, and not with its closing: that hands over in turn.
	free, err := c.o.Life.Exclusively(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Leadership may have been lost while this waited for the change before.
	if c.o.Proposals.OpenTerm() == 0 {
		free()
		return nil, nil, fmt.Errorf("change %s: %w", id, ErrNotLeader)
	}
	ctx, cancel := c.o.Life.UntilClosing(ctx)
	return ctx, func() {
		cancel()
		free()
	}, nil
}

// changeError maps raft's error of a change of members to this package's: whether it certainly was not made, or
// may have been.
func changeError(err error) error {
	switch {
	case err == nil:
		return nil
	// Raft did not append the change.
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", batcher.ErrNoLeader, err)
	// Raft may have appended it, and a later leader may commit it.
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", batcher.ErrOutcomeUnknown, err)
	default:
		return err
	}
}
