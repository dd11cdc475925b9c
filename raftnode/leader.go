package raftnode

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	tickEvery   = 100 * time.Millisecond // how late a deadline may be kept
	tickBackoff = time.Minute            // most between ticks that change nothing
	askFor      = 500 * time.Millisecond // bound of asking voters for their clocks, or who could lead
)

// leadership begins and ends this node's terms as the leader. The intake of proposer is open only between the
// application of a term start and the end of that term.
type leadership struct {
	id       string        // of this node
	lease    time.Duration // of raft
	raft     *upstream.Raft
	roster   *roster.Roster
	machine  *fsm.Machine
	dir      *datadir.Dir     // its marker has the members of a cluster that is about to be formed
	watch    *health.Watch    // knows whether this node leads; has the others' clocks and levels
	terms    *health.Terms    // who led before, for the term start
	clock    *clock.Clock     // replicated time
	proposer *batcher.Batcher // only leadership opens and closes its intake, apart from pauses
	own      *termLog         // of the term start
	logger   hclog.Logger

	duties []func(context.Context) // what runs in each term, until its context ends; set before run
}

// run opens and closes the intake, and starts and ends the duties of a leader, as raft gains and loses leadership,
// until ctx ends.
func (l *leadership) run(ctx context.Context) {
	runner := &dutyRunner{}
	defer runner.end()
	for {
		if moved, leading := l.raft.Leadership(); moved {
			// The duties end even if this node leads again already: they belong to one term.
			runner.end()
			l.proposer.Shift(batcher.IntakeClosed, 0)
			// Until the term start is applied, no member is judged by its contacts with raft.
			l.watch.SetLeading(false)
			if l.startTerm(ctx, leading) {
				l.watch.SetLeading(true)
				runner.begin(ctx, l.duties...)
			}
		}
		select {
		case <-l.raft.LeadershipChanged():
		case <-ctx.Done():
			return
		}
	}
}

// dutyRunner runs the duties of one term at a time.
type dutyRunner struct {
	cancel context.CancelFunc // nil while none run
	done   sync.WaitGroup     // one for each that runs
}

// begin starts the duties. It must not be called again before end.
func (r *dutyRunner) begin(ctx context.Context, run ...func(context.Context)) {
	ctx, r.cancel = context.WithCancel(ctx)
	for _, f := range run {
		r.done.Go(func() { f(ctx) })
	}
}

// end ends the duties, if there are any, and waits for them.
func (r *dutyRunner) end() {
	if r.cancel != nil {
		r.cancel()
		r.done.Wait()
		r.cancel = nil
	}
}

// startTerm proposes the first entry of a new term and opens the intake once it is applied. It blocks until then, or
// until the term is over or ctx ends, and reports whether this node leads.
func (l *leadership) startTerm(ctx context.Context, leading bool) bool {
	// Raft may have lost this leadership again before its gain was noted.
	term := l.raft.Load().CurrentTerm()
	if !leading || !l.own.leads(term) {
		return false
	}
	// From here on requests wait for the term start, and are no longer refused.
	l.proposer.Shift(batcher.IntakeWaiting, term)
	l.askFounders(ctx)
	commands := []frame.Command{l.termStart(term)}
	// In the same entry, so the time without a leader is measured with the corrected clock.
	_ = l.stepClock(ctx, func(c frame.ClockStep) error {
		commands = append(commands, c)
		return nil
	})
	// Proposed past the intake, which admits nobody else yet: no other command of this term comes before the term start.
	if err := l.own.proposeUntilApplied(ctx, term, commands...); err != nil {
		// A node that closes may have been elected while it did. One whose voters stop after they have elected it
		// loses its leadership by that alone.
		level := hclog.Warn
		if errors.Is(err, ErrNoLeader) || errors.Is(err, ErrOutcomeUnknown) {
			level = hclog.Info
		}
		if ctx.Err() == nil {
			l.logger.Log(level, "leadership ended before its term start was applied", "term", term, "error", err)
		}
		return false
	}
	// The state now has all that was committed before this term, so requests may be decided and reads answered.
	l.proposer.Shift(batcher.IntakeOpen, term)
	l.logger.Info("leading", "term", term)
	return true
}

// askFounders asks the other members of a cluster that is about to be formed for the reports it does
// not have yet: the cluster starts at the lowest feature level among them.
func (l *leadership) askFounders(ctx context.Context) {
	if l.machine.ClusterID() != "" {
		return
	}
	// Pings may have asked already; only the other members are asked, and waited for.
	unheard := slices.DeleteFunc(l.dir.Marker().Peers, func(p datadir.Peer) bool {
		s, answers := l.watch.Last(p.ID)
		return p.ID == l.id || (answers && s.Report.Incarnation == p.Incarnation)
	})
	ctx, cancel := context.WithTimeout(ctx, identifyFor)
	defer cancel()
	l.watch.AskAll(ctx, unheard)
}

// termStart is the first command of a term that this node leads. While no cluster is formed it
// forms one, of the members that the marker lists.
func (l *leadership) termStart(term uint64) frame.TermStart {
	h := frame.TermStart{Seen: l.terms.Between(l.machine.Term(), term), Cause: l.cause(), Silence: l.silence()}
	if l.machine.ClusterID() != "" {
		return h
	}
	// If this entry is lost with its leader, the next one forms the cluster under another id.
	h.ClusterID = uuid.NewString()
	for _, p := range l.dir.Marker().Peers {
		// The marker has no feature level: one that did not answer counts as the oldest.
		m := frame.Member{
			ID:           p.ID,
			RaftAddr:     p.Raft,
			HTTPAddr:     p.HTTP,
			Incarnation:  p.Incarnation,
			FeatureLevel: frame.LevelBase,
		}
		if s, answers := l.watch.Last(p.ID); answers && s.Report.Incarnation == p.Incarnation {
			m.FeatureLevel, m.Version = s.Report.FeatureLevel, s.Report.Version
		}
		if p.ID == l.id {
			m = l.roster.Self()
		}
		h.Members = append(h.Members, m)
	}
	return h
}

// cause is why there was an election, as far as this node knows. An intent of the old leader in the log takes
// precedence. The state that this reads may lag the log.
func (l *leadership) cause() string {
	last := l.machine.Leadership()
	switch {
	case l.terms.Between(last.Term-1, last.Term+1) == nil:
		return election.CauseRestart // this process never saw the old leader lead
	case last.Leader == l.id:
		return election.CauseReelected
	default:
		return election.CauseHeartbeat
	}
}

// silence is how long ago this node last heard from the leader before it or, if it was that leader itself, lost
// leadership; 0 if it did not follow that leader.
func (l *leadership) silence() time.Duration {
	// When raft last heard of the old leader, and when this node abandoned it.
	heard, missed := l.raft.Load().LastContact(), l.terms.Missed(l.machine.Leadership().Term)
	switch cause := l.cause(); {
	// A member that does not know the field could not decode the entry.
	case !l.proposer.Reached(frame.KindTermStartWithSilence):
		return 0
	case cause == election.CauseReelected && !missed.IsZero():
		return time.Since(missed)
	case cause != election.CauseHeartbeat || heard.IsZero():
		return 0
	}
	// A vote that was given counts as a contact too; by then the leader had been missed.
	if !missed.IsZero() && missed.Add(-l.lease).Before(heard) {
		heard = missed.Add(-l.lease)
	}
	return time.Since(heard)
}

// proposeTicks proposes a tick when something is due by time and no other entry has dealt with it, until ctx ends.
func (l *leadership) proposeTicks(ctx context.Context) {
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
		// Deadlines are in replicated time, and so is now.
		deadline, now := l.machine.NextDeadline(), l.clock.Now()
		if deadline.IsZero() || deadline.After(now) || (deadline.Equal(last) && now.Before(next)) {
			continue
		}
		// A deadline that a tick did not remove is tried again, ever more rarely; a new one at once.
		if !deadline.Equal(last) {
			wait = tickEvery
		}
		// Any other entry does the same with its time: a tick that is refused is tried again if it is still needed.
		if _, err := l.proposer.Propose(ctx, frame.Request{Command: frame.Tick{}}); err != nil {
			continue
		}
		last, wait = deadline, min(2*wait, tickBackoff)
		next = now.Add(wait)
	}
}

// stepClock passes a step of replicated time to propose if it lags by far and a majority of the voters' clocks agree
// with this node's. If their last reports do not suffice, it asks them and waits up to askFor.
func (l *leadership) stepClock(ctx context.Context, propose func(frame.ClockStep) error) error {
	if !l.clock.Lags() {
		return nil
	}
	// The reports of the pings come first; they cost nothing.
	voters := l.roster.Voters()
	samples := map[string]clock.Sample{}
	others := slices.DeleteFunc(slices.Clone(voters), func(id string) bool { return id == l.id })
	for _, id := range others {
		if s, healthy := l.watch.Last(id); healthy {
			samples[id] = s.Clock
		}
	}
	now := l.clock.Read()
	agreed, ok := clock.StepAgreed(now, l.id, samples, len(voters))
	// Those reports may be missing, or older than a step of a clock.
	if !ok {
		asking, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		for id, s := range l.watch.AskAll(asking, l.roster.PeersAmong(others)) {
			samples[id] = s.Clock
		}
		now = l.clock.Read()
		agreed, ok = clock.StepAgreed(now, l.id, samples, len(voters))
	}
	if !ok {
		l.logger.Warn("replicated time lags and no majority of the voters' clocks agrees on a step",
			"agreed", agreed, "voters", len(voters))
		return nil
	}
	// The wall clock that the others were compared with, not a later one.
	to := now.Wall.UTC()
	l.logger.Info("moving replicated time", "from", l.clock.Now(), "to", to, "agreed", agreed)
	return propose(frame.ClockStep{To: to, Agreed: agreed})
}
