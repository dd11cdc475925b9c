package raftnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/lifetime"
	"github.com/ringrift/ringlog/raftnode/membership"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	causeOperator = "operator"
	causeShutdown = "shutdown"
	causeDiskFull = "disk_full"
)

// handover gives this node's leadership to another voter. It is made within life.Exclusively, as changes of members
// are, so no change is under way while the leader is another.
type handover struct {
	id       string        // of this node
	election time.Duration // raft's timeout
	raft     *upstream.Raft
	roster   *roster.Roster
	machine  *fsm.Machine
	watch    *health.Watch       // who is present, and how far each has applied
	changes  *membership.Changes // waits for the target to catch up
	life     *lifetime.Lifetime  // excludes changes of members
	proposer *batcher.Batcher    // admits nothing while leadership moves
	own      *termLog            // of the intent
	logger   hclog.Logger
}

// stepDown is Node.StepDown with the cause that the log records.
func (h *handover) stepDown(ctx context.Context, target, cause string) error {
	// No member is added or removed while the successor is chosen and takes over.
	release, err := h.life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := h.handOver(ctx, target, cause); err != nil {
		return err
	}
	// Leadership has ended already. The wait is for those that ask this node next who leads.
	following, cancel := context.WithTimeout(ctx, 2*h.election)
	defer cancel()
	_ = h.life.Poll(following, func() bool {
		id, _ := h.roster.Leader()
		return id != "" && id != h.id
	})
	return nil
}

// handOver does StepDown without waiting for the next leader. It is called within life.Exclusively.
func (h *handover) handOver(ctx context.Context, target, cause string) error {
	term := h.proposer.OpenTerm()
	if term == 0 {
		return fmt.Errorf("step down: %w", ErrNotLeader)
	}
	// The successor is chosen, and has nearly caught up, before requests are held up.
	to, err := h.successor(ctx, target)
	if err != nil {
		return fmt.Errorf("step down: %w", err)
	}
	// A target that does not catch up soon is down, or stopping too. Requests are admitted meanwhile: raft itself
	// brings the target up to date with what follows, and quickly.
	waiting, cancel := context.WithTimeout(ctx, 2*h.election)
	defer cancel()
	if err := h.changes.CaughtUp(waiting, to.ID, h.machine.Applied()); err != nil {
		return fmt.Errorf("step down: %w", err)
	}
	// From here until Resume all requests are refused with ErrNoLeader. Resume does nothing if the term is over.
	if !h.proposer.Pause(term) {
		return nil // the term ended meanwhile
	}
	defer h.proposer.Resume(term)
	// The intent has to be the last entry of this leader.
	if err := h.proposer.Drain(ctx); err != nil {
		return fmt.Errorf("step down: drain: %w", err)
	}
	if err := h.own.proposeUntilApplied(ctx, term, frame.Intent{Target: to.ID, Cause: cause}); err != nil {
		return fmt.Errorf("step down: intent: %w", err)
	}
	if err := h.transfer(ctx, term, to); err != nil {
		return err
	}
	h.logger.Info("leadership handed over", "to", to.ID, "term", term, "cause", cause)
	return nil
}

// transfer makes raft hand leadership of term over to a member, and withdraws the intent if this node still leads
// after that.
func (h *handover) transfer(ctx context.Context, term uint64, to datadir.Peer) error {
	// Raft brings the target up to date and has it campaign at once.
	err := h.raft.Load().LeadershipTransferToServer(raft.ServerID(to.ID), raft.ServerAddress(to.Raft)).Error()
	if err == nil {
		settled, cancel := context.WithTimeout(ctx, h.election)
		defer cancel()
		err = h.life.Poll(settled, func() bool { return !h.own.leads(term) })
	}
	// If another leads, whoever it is, there is no leadership left to withdraw the intent in.
	if err == nil || !h.own.leads(term) {
		return nil
	}
	err = fmt.Errorf("step down: %w: %s: %w", ErrNoTarget, to.ID, err)
	// Even if ctx has ended: otherwise the log would announce an end of this leadership that did not happen.
	aborting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*h.own.patience)
	defer cancel()
	if abort := h.own.proposeUntilApplied(aborting, term, frame.IntentAbort{}); abort != nil {
		return fmt.Errorf("%w; taking the intent back: %w", err, abort)
	}
	return err
}

// successor returns the voter to hand over to: the one named, or of those that are reachable and answer now the one
// that has applied most. Voters with room on their disks come first. It waits up to askFor for the answers.
func (h *handover) successor(ctx context.Context, named string) (datadir.Peer, error) {
	if s, listed := h.roster.Server(named); named != "" && !listed {
		return datadir.Peer{}, fmt.Errorf("%w: %s", ErrUnknownMember, named)
	} else if named != "" && s.Suffrage != raft.Voter {
		return datadir.Peer{}, fmt.Errorf("%w: %s", ErrNotVoter, named)
	} else if named == h.id {
		return datadir.Peer{}, fmt.Errorf("%w: %s leads already", ErrNoTarget, named)
	}
	// Those out of reach are not asked: their silence would only use up the time.
	var there []string
	for _, id := range h.roster.Voters() {
		if id == h.id || (named != "" && id != named) {
			continue
		}
		reason, silent := h.watch.Absence(id)
		// One that was not pinged yet is asked below.
		if reason == "" || (reason == election.ReasonHTTP && silent < 0) {
			there = append(there, id)
		} else if named != "" {
			return datadir.Peer{}, fmt.Errorf("%w: %s: %s", ErrNoTarget, named, health.AbsenceText(reason))
		}
	}
	// All at once: the slowest bounds the wait, not their number.
	candidates := h.roster.PeersAmong(there)
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	answers := h.watch.AskAll(asking, candidates)
	// The first of the best in the order of raft's configuration.
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
// records its intent, so the log reports a LEADER_STEPDOWN and not a lost leader.
func (h *handover) retire(ctx context.Context) error {
	// A node that does not lead has nothing to hand over or to record.
	if h.proposer.OpenTerm() == 0 {
		return nil
	}
	release, err := h.life.Exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	// Beside other voters the usual hand-over comes first.
	if len(h.roster.Voters()) > 1 {
		err = h.handOver(ctx, "", causeShutdown)
		if err == nil {
			return nil
		}
	}
	// Alone, or nobody took over: the intent is recorded without a target.
	term := h.proposer.OpenTerm()
	if term == 0 || !h.proposer.Pause(term) {
		return err
	}
	// The intent is the last entry of this leader here, too.
	if drained := h.proposer.Drain(ctx); drained != nil {
		return errors.Join(err, drained)
	}
	return errors.Join(err, h.proposer.ProposeNow(term, frame.Intent{Cause: causeShutdown}))
}
