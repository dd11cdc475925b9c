package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
)

const (
	tickEvery    = 100 * time.Millisecond // how late a deadline may be kept
	tickBackoff  = time.Minute            // most between ticks that change nothing
	proposeEvery = 20 * time.Millisecond  // between attempts of proposeUntilApplied
	askFor       = 500 * time.Millisecond // bound of asking voters for their clocks, or who could lead
)

// lead opens and closes the gate, and starts and ends the duties of a leader, as raft gains and loses leadership,
// until ctx ends.
func (n *Node) lead(ctx context.Context) {
	acting := &duties{}
	defer acting.end()
	for {
		if moved, leading := n.raft.Leadership(); moved {
			// Also if this node leads again already: the duties belong to one term.
			acting.end()
			n.proposer.Shift(batcher.GateClosed, 0)
			// Until the term start is applied, no member is judged by its contacts with raft.
			n.watch.SetLeading(false)
			if n.startTerm(ctx, leading) {
				n.watch.SetLeading(true)
				acting.begin(ctx,
					n.ticks,
					n.members.Tend,
					n.reportVoters,
					n.autopilot.Run,
					n.reportPressure,
					n.yieldFullDisk,
					n.leaveHungDisk)
			}
		}
		select {
		case <-n.raft.LeadershipChanged():
		case <-ctx.Done():
			return
		}
	}
}

// duties are what runs while this node leads.
type duties struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// begin starts the duties. It must not be called again before end.
func (d *duties) begin(ctx context.Context, run ...func(context.Context)) {
	ctx, d.cancel = context.WithCancel(ctx)
	for _, f := range run {
		d.done.Go(func() { f(ctx) })
	}
}

// end ends the duties, if there are any, and waits for them.
func (d *duties) end() {
	if d.cancel != nil {
		d.cancel()
		d.done.Wait()
		d.cancel = nil
	}
}

// reportVoters reports to the log how the voters are, until ctx ends.
func (n *Node) reportVoters(ctx context.Context) {
	health.ReportVoters(ctx, health.ReporterOptions{
		Timing:    n.cfg.Timing.health(),
		Clock:     n.clock,
		Raft:      &n.raft,
		Roster:    n.roster,
		Machine:   n.machine,
		Watch:     n.watch,
		Contacts:  &n.contacts,
		Terms:     n.terms,
		Outages:   n.outages,
		Proposals: n.proposer,
		Logger:    n.logger,
	})
}

// leaveHungDisk leaves this node's leadership to others when its disk hangs, until ctx ends.
func (n *Node) leaveHungDisk(ctx context.Context) {
	n.raft.LeaveHungDisk(ctx, n.cfg.Timing.health().Urgent(), func(term uint64) { n.proposer.Pause(term) })
}

// startTerm has the first entry of a new term applied and then opens the gate. It blocks until then, or until
// the term is over or ctx ends, and reports whether this node leads.
func (n *Node) startTerm(ctx context.Context, leading bool) bool {
	term := n.raft.Load().CurrentTerm()
	if !leading || !n.leads(term) {
		return false
	}
	// From here on requests wait for the term start, and are no longer refused.
	n.proposer.Shift(batcher.GateWaiting, term)
	n.askFounders(ctx)
	commands := []frame.Command{n.termStart(term)}
	// In the same entry, so that the time without a leader is measured with the corrected clock.
	_ = n.stepClock(ctx, func(c frame.ClockStep) error {
		commands = append(commands, c)
		return nil
	})
	if err := n.proposeUntilApplied(ctx, term, commands...); err != nil {
		n.logger.Warn("leadership ended before its term start was applied", "term", term, "error", err)
		return false
	}
	n.proposer.Shift(batcher.GateOpen, term)
	n.logger.Info("leading", "term", term)
	return true
}

// askFounders asks the other members of a cluster that is about to be formed for their reports, where
// it has none: the cluster starts at the lowest feature level among them.
func (n *Node) askFounders(ctx context.Context) {
	if n.machine.ClusterID() != "" {
		return
	}
	// Pings have asked already where they had the time; only the rest is asked, and waited for.
	unheard := slices.DeleteFunc(n.dir.Marker().Peers, func(p datadir.Peer) bool {
		s, answers := n.watch.Last(p.ID)
		return p.ID == n.cfg.ID || answers && s.Report.Incarnation == p.Incarnation
	})
	ctx, cancel := context.WithTimeout(ctx, identifyFor)
	defer cancel()
	n.watch.AskAll(ctx, unheard)
}

// leads reports whether raft leads in term now. Its gate need not be open; see LeadingTerm.
func (n *Node) leads(term uint64) bool {
	r := n.raft.Load()
	return r.State() == raft.Leader && r.CurrentTerm() == term
}

// termStart is the first command of a term that this node leads. While no cluster is formed it
// forms one, of the members that the marker lists.
func (n *Node) termStart(term uint64) frame.Hello {
	h := frame.Hello{Seen: n.terms.Between(n.machine.Term(), term), Cause: n.cause(), Silence: n.silence()}
	if n.machine.ClusterID() != "" {
		return h
	}
	h.ClusterID = uuid.NewString()
	for _, p := range n.dir.Marker().Peers {
		// The marker has no feature level: one that did not answer counts as the oldest.
		m := frame.Member{ID: p.ID, RaftAddr: p.Raft, HTTPAddr: p.HTTP, Incarnation: p.Incarnation, FeatureLevel: frame.LevelBase}
		if s, answers := n.watch.Last(p.ID); answers && s.Report.Incarnation == p.Incarnation {
			m.FeatureLevel, m.Version = s.Report.FeatureLevel, s.Report.Version
		}
		if p.ID == n.cfg.ID {
			m = n.roster.Self()
		}
		h.Members = append(h.Members, m)
	}
	return h
}

// cause is why there was an election, as far as this node knows. An intent of the old leader in the log takes
// precedence. The state that this reads may lag the log.
func (n *Node) cause() string {
	l := n.machine.Leadership()
	switch {
	case n.terms.Between(l.Term-1, l.Term+1) == nil:
		return election.CauseRestart // this process never saw the old leader lead
	case l.Leader == n.cfg.ID:
		return election.CauseReelected
	default:
		return election.CauseHeartbeat
	}
}

// silence is how long ago this node last heard from the leader before it or, if it was that leader itself, lost
// leadership; 0 if it did not follow that leader.
func (n *Node) silence() time.Duration {
	heard, missed := n.raft.Load().LastContact(), n.terms.Missed(n.machine.Leadership().Term)
	switch cause := n.cause(); {
	case !n.proposer.Reached(frame.KindLongHello):
		return 0
	case cause == election.CauseReelected && !missed.IsZero():
		return time.Since(missed)
	case cause != election.CauseHeartbeat || heard.IsZero():
		return 0
	}
	// A vote that was given counts as a contact too; by then the leader had been missed.
	if !missed.IsZero() && missed.Add(-n.cfg.Timing.Lease).Before(heard) {
		heard = missed.Add(-n.cfg.Timing.Lease)
	}
	return time.Since(heard)
}

// proposeUntilApplied proposes commands in one entry, past the gate, until it is applied, the term is over or ctx
// ends. Raft can be left with a transfer that never ends (hashicorp/raft#696): it leads and takes no entries. Only
// a restart helps, so that Fatal is called.
func (n *Node) proposeUntilApplied(ctx context.Context, term uint64, commands ...frame.Command) error {
	patience := time.Now().Add(n.cfg.Timing.transferPatience())
	for {
		err := n.proposer.ProposeNow(term, commands...)
		// With ErrNoLeader nothing was appended; while raft leads all the same, it is worth another attempt.
		if err == nil || !errors.Is(err, ErrNoLeader) || !n.leads(term) {
			return err
		}
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Now().After(patience) {
			n.cfg.Fatal(fmt.Errorf("raftnode: lead term %d: %w: restart the node", term, ErrTransferStuck))
			return err
		}
		select {
		case <-time.After(proposeEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ticks proposes a tick when something is due by time and no other entry has dealt with it, until ctx ends.
func (n *Node) ticks(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	var last time.Time // the deadline of the last tick
	var next time.Time // not before that, while ticks move nothing
	wait := tickEvery
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		deadline, now := n.machine.NextDeadline(), n.clock.Now()
		if deadline.IsZero() || deadline.After(now) || deadline.Equal(last) && now.Before(next) {
			continue
		}
		// A deadline that a tick did not remove is tried again, ever more rarely; a new one at once.
		if !deadline.Equal(last) {
			wait = tickEvery
		}
		if _, err := n.proposer.Propose(ctx, frame.Request{Command: frame.Tick{}}); err != nil {
			continue
		}
		last, wait = deadline, min(2*wait, tickBackoff)
		next = now.Add(wait)
	}
}

// stepClock passes a step of replicated time to propose if it lags by far and a majority of the voters' clocks agree
// with this node's. If their last reports do not suffice, it asks them and waits up to askFor.
func (n *Node) stepClock(ctx context.Context, propose func(frame.ClockStep) error) error {
	if !n.clock.Lags() {
		return nil
	}
	voters := n.roster.Voters()
	samples := map[string]clock.Sample{}
	others := slices.DeleteFunc(slices.Clone(voters), func(id string) bool { return id == n.cfg.ID })
	for _, id := range others {
		if s, healthy := n.watch.Last(id); healthy {
			samples[id] = s.Clock
		}
	}
	now := n.clock.Read()
	agreed, ok := clock.StepAgreed(now, n.cfg.ID, samples, len(voters))
	if !ok { // their answers may be older than a step, or none
		asking, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		for id, s := range n.watch.AskAll(asking, n.roster.PeersAmong(others)) {
			samples[id] = s.Clock
		}
		now = n.clock.Read()
		agreed, ok = clock.StepAgreed(now, n.cfg.ID, samples, len(voters))
	}
	if !ok {
		n.logger.Warn("replicated time lags and no majority of the voters' clocks agrees on a step", "agreed", agreed, "voters", len(voters))
		return nil
	}
	to := now.Wall.UTC()
	n.logger.Info("moving replicated time", "from", n.clock.Now(), "to", to, "agreed", agreed)
	return propose(frame.ClockStep{To: to, Agreed: agreed})
}
