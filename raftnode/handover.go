package raftnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
)

const (
	causeOperator = "operator"
	causeShutdown = "shutdown"
	causeDiskFull = "disk_full"
)

// StepDown hands leadership to target or, if that is "", to the voter that has applied most. It returns once this
// node no longer leads; the voters may still elect another than the target. Requests are refused with ErrNoLeader
// meanwhile.
func (n *Node) StepDown(ctx context.Context, target string) error {
	return n.stepDown(ctx, target, causeOperator)
}

// stepDownIfLeading is StepDown, and does nothing on a node that does not lead.
func (n *Node) stepDownIfLeading(ctx context.Context) error {
	if err := n.StepDown(ctx, ""); !errors.Is(err, ErrNotLeader) {
		return err
	}
	return nil
}

// stepDown is StepDown with the cause that the log records.
func (n *Node) stepDown(ctx context.Context, target, cause string) error {
	release, err := n.life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := n.handOver(ctx, target, cause); err != nil {
		return err
	}
	// Leadership has ended already. The wait is for those that ask this node next who leads.
	following, cancel := context.WithTimeout(ctx, 2*n.cfg.Timing.Election)
	defer cancel()
	_ = n.life.Poll(following, func() bool { id, _ := n.roster.Leader(); return id != "" && id != n.cfg.ID })
	return nil
}

// handOver does StepDown without waiting for the next leader. The caller holds changing.
func (n *Node) handOver(ctx context.Context, target, cause string) error {
	term := n.proposer.OpenTerm()
	if term == 0 {
		return fmt.Errorf("raftnode: step down: %w", ErrNotLeader)
	}
	to, err := n.successor(ctx, target)
	if err != nil {
		return fmt.Errorf("raftnode: step down: %w", err)
	}
	// A target that does not catch up soon is down, or stopping too. Requests are admitted meanwhile: raft itself
	// brings the target up to date with what follows, and quickly.
	waiting, cancel := context.WithTimeout(ctx, 2*n.cfg.Timing.Election)
	defer cancel()
	if err := n.members.CaughtUp(waiting, to.ID, n.machine.Applied()); err != nil {
		return fmt.Errorf("raftnode: step down: %w", err)
	}
	if !n.proposer.Pause(term) {
		return nil // the term ended meanwhile
	}
	defer n.proposer.Resume(term)
	// The intent has to be the last entry of this leader.
	if err := n.proposer.Drain(ctx); err != nil {
		return fmt.Errorf("raftnode: step down: drain: %w", err)
	}
	if err := n.proposeUntilApplied(ctx, term, frame.Intent{Target: to.ID, Cause: cause}); err != nil {
		return fmt.Errorf("raftnode: step down: intent: %w", err)
	}
	return n.transfer(ctx, term, to)
}

// transfer has raft hand leadership of term over to a member, and withdraws the intent if this node still leads
// after that.
func (n *Node) transfer(ctx context.Context, term uint64, to datadir.Peer) error {
	err := n.raft.Load().LeadershipTransferToServer(raft.ServerID(to.ID), raft.ServerAddress(to.Raft)).Error()
	if err == nil {
		settled, cancel := context.WithTimeout(ctx, n.cfg.Timing.Election)
		defer cancel()
		err = n.life.Poll(settled, func() bool { return !n.leads(term) })
	}
	if err == nil || !n.leads(term) {
		return nil
	}
	n.logger.Warn("handing leadership over failed", "target", to.ID, "error", err)
	// Even if ctx has ended: otherwise the log would announce an end of this leadership that did not happen.
	aborting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.cfg.Timing.transferPatience())
	defer cancel()
	if abort := n.proposeUntilApplied(aborting, term, frame.IntentAbort{}); abort != nil {
		return fmt.Errorf("raftnode: step down: %w; taking the intent back: %w", err, abort)
	}
	return fmt.Errorf("raftnode: step down: %w", err)
}

// successor returns the voter to hand over to: the one named, or of those that are reachable and answer now the one
// that has applied most. Voters with room on their disks come first. It waits up to askFor for the answers.
func (n *Node) successor(ctx context.Context, named string) (datadir.Peer, error) {
	if s, listed := n.roster.Server(named); named != "" && !listed {
		return datadir.Peer{}, fmt.Errorf("%w: %s", ErrUnknownMember, named)
	} else if named != "" && s.Suffrage != raft.Voter {
		return datadir.Peer{}, fmt.Errorf("%w: %s", ErrNotVoter, named)
	} else if named == n.cfg.ID {
		return datadir.Peer{}, fmt.Errorf("%w: %s leads already", ErrNoTarget, named)
	}
	// Those out of reach are not asked: their silence would only use up the time.
	var there []string
	for _, id := range n.roster.Voters() {
		if id == n.cfg.ID || (named != "" && id != named) {
			continue
		}
		reason, silent := n.watch.Absence(id)
		if reason == "" || (reason == election.ReasonHTTP && silent < 0) { // not pinged yet: it is asked below
			there = append(there, id)
		} else if named != "" {
			return datadir.Peer{}, fmt.Errorf("%w: %s: %s", ErrNoTarget, named, health.AbsenceText(reason))
		}
	}
	candidates := n.roster.PeersAmong(there)
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	answers := n.watch.AskAll(asking, candidates)
	var best datadir.Peer
	var chosen Report
	for _, p := range candidates {
		s, answered := answers[p.ID]
		if !answered || s.Report.Diverged {
			continue
		}
		// A full disk outweighs how far a voter has applied: it would have to hand over in turn.
		roomier := chosen.Disk.Full && !s.Report.Disk.Full
		further := chosen.Disk.Full == s.Report.Disk.Full && s.Report.Applied > chosen.Applied
		if best.ID == "" || roomier || further {
			best, chosen = p, s.Report
		}
	}
	switch {
	case best.ID != "":
		return best, nil
	case named != "":
		return best, fmt.Errorf("%w: %s does not answer, or its state differs", ErrNoTarget, named)
	default:
		return best, ErrNoTarget
	}
}

// retire is a graceful end: a leader hands over if there is another voter. If there is none, or that fails, it still
// records its intent, so that the log reports a LEADER_STEPDOWN and not a lost leader.
func (n *Node) retire(ctx context.Context) error {
	if n.proposer == nil || n.proposer.OpenTerm() == 0 {
		return nil
	}
	release, err := n.life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	if len(n.roster.Voters()) > 1 {
		if err = n.handOver(ctx, "", causeShutdown); err == nil {
			return nil
		}
	}
	// Alone, or nobody took over: the intent is recorded without a target.
	term := n.proposer.OpenTerm()
	if term == 0 || !n.proposer.Pause(term) {
		return err
	}
	if drained := n.proposer.Drain(ctx); drained != nil {
		return errors.Join(err, drained)
	}
	return errors.Join(err, n.proposer.ProposeNow(term, frame.Intent{Cause: causeShutdown}))
}
