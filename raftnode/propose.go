package raftnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// Propose proposes a request and returns its result once it is committed and applied, here if this node leads
// and otherwise at the leader. A refusal of the state machine is returned as the error, a *fsm.Refusal, with the
// result.
//
// Other errors wrap ErrNoLeader, ErrNoQuorum, ErrOverloaded, ErrDiskFull,
// ErrTooLarge, ErrFeatureLevel, ErrDiverged, ErrClosed or ctx's: nothing was appended; or
// ErrOutcomeUnknown.
func (n *Node) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	r, err := n.prepare(r)
	if err != nil {
		return fsm.Result{}, err
	}
	// This node first: it knows best whether it leads.
	result, err := n.proposeHere(ctx, r)
	// A node that leads and takes nothing is about to lead or to hand over: there is nobody to forward to.
	if errors.Is(err, ErrNoLeader) && r.Command.Kind().Forwardable() && n.raft.Load().State() != raft.Leader {
		result, err = n.forward(ctx, r)
	}
	// Counted for the outage that this may be part of.
	if errors.Is(err, ErrNoLeader) {
		n.outages.CountRefused(r)
	}
	if err == nil && result.Refusal != nil {
		return result, result.Refusal
	}
	return result, err
}

// prepare returns a request with its command encoded, or why this node takes no requests, or not this one.
func (n *Node) prepare(r frame.Request) (frame.Request, error) {
	if n.life.Retired() {
		return r, ErrClosed
	}
	if n.divergence.Found() {
		return r, ErrDiverged
	}

	// The command is encoded once, for the bound, the log and a leader elsewhere.
	r, err := r.Prepare()
	switch {
	case err != nil:
		return r, fmt.Errorf("propose: %w: %w", ErrTooLarge, err)
	case r.Bytes() > n.cfg.Limits.RequestBytes:
		return r, fmt.Errorf("propose: %w: %d bytes, at most %d", ErrTooLarge, r.Bytes(), n.cfg.Limits.RequestBytes)
	case r.Batch != nil && r.Batch.Len() > frame.MaxRows:
		return r, fmt.Errorf("propose: %w: %d events, at most %d", ErrTooLarge, r.Batch.Len(), frame.MaxRows)
	}
	return r, nil
}

// proposeHere proposes a prepared request on this node. It returns ErrNoLeader if this node does not lead.
func (n *Node) proposeHere(ctx context.Context, r frame.Request) (fsm.Result, error) {
	if !r.Command.Kind().FitsFullDisk() && n.proposer.OpenTerm() != 0 {
		// Trims, purges and commits are admitted: they make room.
		if err := n.disk.admitsAppends(); err != nil {
			return fsm.Result{}, err
		}
	}
	return n.proposer.Propose(ctx, r)
}

// otherLeader returns the URL of a leader other than this node. The errors wrap ErrNoLeader.
func (n *Node) otherLeader() (url string, err error) {
	id, url := n.roster.Leader()
	switch {
	// A removed node gets no entries: the leader that it knows may have been replaced since.
	case id == "" || n.joiner.removed.Load():
		return "", n.NoLeaderError()
	// Raft has elected this node, and its intake is not open.
	case id == n.cfg.ID:
		return "", fmt.Errorf("%w: this node is about to lead or to hand over", ErrNoLeader)
	// The state lists a member's HTTP address once it has applied the entry that adds it.
	case url == "" || n.cfg.Peers == nil:
		return "", fmt.Errorf("%w reachable: %s leads, its HTTP address is not known here", ErrNoLeader, id)
	}
	return url, nil
}

// NoLeaderError returns ErrNoLeader, or a NotFormedError, and with it ErrNoQuorum or ErrRemovedNode if no leader can
// be expected.
func (n *Node) NoLeaderError() error {
	if n.joiner.removed.Load() {
		return fmt.Errorf("%w: %w", ErrNoLeader, ErrRemovedNode)
	}
	if len(n.roster.Servers()) == 0 {
		return n.joiner.notFormed()
	}
	// ErrNoQuorum only if the pings confirm it: otherwise an election is under way, or about to be.
	if q := n.watch.Quorum(n.roster.Voters()); q.Voters > 0 && q.Margin < 0 {
		return fmt.Errorf("%w: %w: %d of %d voters answer, %d are needed",
			ErrNoLeader, ErrNoQuorum, q.Healthy, q.Voters, q.Needed)
	}
	return ErrNoLeader
}

// forward passes a request to the leader and returns its result. If this node no longer follows that leader, it waits
// Timing.Heartbeat more for the answer and then returns ErrOutcomeUnknown.
func (n *Node) forward(ctx context.Context, r frame.Request) (fsm.Result, error) {
	// First: a leader that is lost after it was determined ends the wait too.
	waiting, done := n.terms.While(ctx, n.cfg.Timing.Heartbeat)
	defer done()
	url, err := n.otherLeader()
	if err != nil {
		return fsm.Result{}, err
	}
	encoded, err := n.cfg.Peers.Forward(waiting, url, r.Encode())
	// The cause says why the wait was cut short, not just that the call was canceled.
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	if err != nil {
		return fsm.Result{}, fmt.Errorf("forward to %s: %w", url, forwardError(err))
	}
	// The leader has answered, so it may have appended the request.
	result, err := fsm.DecodeResult(encoded)
	if err != nil {
		return fsm.Result{}, fmt.Errorf("forward to %s: %w: %w", url, ErrOutcomeUnknown, err)
	}
	return result, nil
}

// forwardError keeps the errors of this package, of which all but ErrOutcomeUnknown mean that nothing was appended,
// and wraps ErrOutcomeUnknown around any other.
func forwardError(err error) error {
	// Whoever has returned one of these knew what it did: all but the last say that nothing was appended.
	for _, certain := range []error{
		ErrNoLeader,
		ErrNoQuorum,
		ErrOverloaded,
		ErrDiskFull,
		ErrTooLarge,
		ErrFeatureLevel,
		ErrDiverged,
		ErrClosed,
		ErrOutcomeUnknown,
	} {
		if errors.Is(err, certain) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}
