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
	"github.com/ringrift/ringlog/raftnode/datadir"
)

const (
	tickEvery   = 100 * time.Millisecond // how exactly deadlines are kept
	tickBackoff = time.Minute            // at most so long between ticks that move nothing
	insistEvery = 20 * time.Millisecond
	askFor      = 500 * time.Millisecond // bound of asking voters for their clocks, or who could lead
	keptTerms   = 16
)

// edges is the unbounded queue of gained (true) and lost (false) leadership.
// Raft blocks until an edge is taken, so taking never waits for anything.
type edges struct {
	mu   sync.Mutex
	list []bool
	wake chan struct{} // holds one
}

func newEdges() *edges { return &edges{wake: make(chan struct{}, 1)} }

func (e *edges) pump(from <-chan bool, stop <-chan struct{}) {
	for {
		select {
		case gained := <-from:
			e.push(gained)
		case <-stop:
			return
		}
	}
}

func (e *edges) push(gained bool) {
	e.mu.Lock()
	e.list = append(e.list, gained)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// take empties the queue: whether anything happened, and where it ended.
func (e *edges) take() (moved, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == 0 {
		return false, false
	}
	leading = e.list[len(e.list)-1]
	e.list = nil
	return true, leading
}

// termsSeen remembers who led which term as this node saw it, so that terms
// that committed nothing can be named later.
type termsSeen struct {
	mu    sync.Mutex
	grace time.Duration
	waits map[*time.Timer]bool // of those who wait for a leader's answer; see while
	list  []ledTerm            // terms never fall; one stands twice where its leader was heard of again
}

// ledTerm is a leadership as this node saw it, by its wall clock.
type ledTerm struct {
	election.TermSeen
	from, to time.Time // to is zero while it lasts
}

// newTermsSeen registers with raft. The filter runs on raft's goroutine and
// copies what it is shown, so nothing is dropped.
func newTermsSeen(r *raft.Raft) *termsSeen {
	t := &termsSeen{}
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if l, ok := o.Data.(raft.LeaderObservation); ok {
			t.add(election.TermSeen{Term: r.CurrentTerm(), Leader: string(l.LeaderID)}, seenAt(r, string(l.LeaderID)))
		}
		return false
	}))
	return t
}

// seenAt is when a change of leaders was: a follower that misses one heard of it last
// long before it gives it up.
func seenAt(r *raft.Raft, leader string) time.Time {
	if heard := r.LastContact(); leader == "" && r.State() != raft.Leader && !heard.IsZero() {
		return heard.UTC()
	}
	return time.Now().UTC()
}

// add takes in who leads now; without a leader the last one is gone.
func (t *termsSeen) add(s election.TermSeen, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.list)
	if n > 0 && t.list[n-1].to.IsZero() {
		t.list[n-1].to = now
	}
	switch {
	case n > 0 && t.list[n-1].TermSeen != s:
		t.lapse()
	}
	switch {
	case s.Leader == "":
		return
	case n > 0 && (t.list[n-1].Term > s.Term || t.list[n-1].Term == s.Term && t.list[n-1].Leader != s.Leader):
		return
	}
	t.list = append(t.list, ledTerm{TermSeen: s, from: now})
	if len(t.list) > keptTerms {
		t.list = t.list[1:]
	}
}

// between are the terms seen above low and below high.
func (t *termsSeen) between(low, high uint64) (list []election.TermSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term > low && s.Term < high && (len(list) == 0 || list[len(list)-1] != s.TermSeen) {
			list = append(list, s.TermSeen)
		}
	}
	return list
}

// while is ctx, ended a grace after the present leader is no longer followed.
func (t *termsSeen) while(ctx context.Context, grace time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(grace, func() { cancel(errLeaderGone) })
	timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == nil {
		t.waits = map[*time.Timer]bool{}
	}
	t.waits[timer], t.grace = true, grace
	return ctx, func() {
		t.mu.Lock()
		delete(t.waits, timer)
		t.mu.Unlock()
		timer.Stop()
		cancel(nil)
	}
}

// lapse lets the grace of those who wait begin.
func (t *termsSeen) lapse() {
	for timer := range t.waits {
		timer.Reset(t.grace)
	}
	clear(t.waits)
}

// missed is when this node gave up the leader of a term; zero if it did not.
func (t *termsSeen) missed(term uint64) (at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term == term {
			at = s.to
		}
	}
	return at
}

// spans are the leaderships that this node saw, the one that lasts up to now.
func (t *termsSeen) spans(now time.Time) (list []election.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		span := election.Span{Term: s.Term, Leader: s.Leader, From: s.from, To: s.to}
		if s.to.IsZero() {
			span.To = now
		}
		list = append(list, span)
	}
	return list
}

// lead follows raft's word on leadership until ctx ends.
func (n *Node) lead(ctx context.Context) {
	acting := &duties{}
	defer acting.end()
	for {
		if moved, leading := n.edges.take(); moved {
			acting.end()
			n.proposer.shift(gateClosed, 0)
			n.watch.lead(false)
			if n.gain(ctx, leading) {
				n.watch.lead(true)
				acting.begin(ctx, n.ticks, n.tend, n.tellHealth, n.pilot, n.tellPressure, n.yieldFullDisk, n.leaveHungDisk)
			}
		}
		select {
		case <-n.edges.wake:
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

func (d *duties) begin(ctx context.Context, run ...func(context.Context)) {
	ctx, d.cancel = context.WithCancel(ctx)
	for _, f := range run {
		d.done.Go(func() { f(ctx) })
	}
}

func (d *duties) end() {
	if d.cancel != nil {
		d.cancel()
		d.done.Wait()
		d.cancel = nil
	}
}

// gain lets the hello of a new term be applied and then opens the gate. It
// reports whether this node leads.
func (n *Node) gain(ctx context.Context, leading bool) bool {
	term := n.raft.Load().CurrentTerm()
	if !leading || !n.leads(term) {
		return false
	}
	n.proposer.shift(gateWaiting, term)
	n.askFounders(ctx)
	greeting := []frame.Command{n.hello(term)}
	_ = n.stepClock(ctx, func(c frame.ClockStep) error {
		greeting = append(greeting, c)
		return nil
	})
	if err := n.insist(ctx, term, greeting...); err != nil {
		n.logger.Warn("leadership ended before its hello", "term", term, "error", err)
		return false
	}
	n.proposer.shift(gateOpen, term)
	n.logger.Info("leading", "term", term)
	return true
}

// askFounders asks the other members of a cluster that is about to be formed for their reports, where
// it has none: the cluster starts at the lowest feature level among them.
func (n *Node) askFounders(ctx context.Context) {
	if n.machine.ClusterID() != "" {
		return
	}
	unheard := slices.DeleteFunc(n.dir.Marker().Peers, func(p datadir.Peer) bool {
		s, answers := n.watch.last(p.ID)
		return p.ID == n.cfg.ID || answers && s.report.Incarnation == p.Incarnation
	})
	ctx, cancel := context.WithTimeout(ctx, identifyFor)
	defer cancel()
	n.watch.askAll(ctx, unheard)
}

func (n *Node) leads(term uint64) bool {
	r := n.raft.Load()
	return r.State() == raft.Leader && r.CurrentTerm() == term
}

func (n *Node) hello(term uint64) frame.Hello {
	h := frame.Hello{Seen: n.terms.between(n.machine.Term(), term), Cause: n.cause(), Silence: n.silence()}
	if n.machine.ClusterID() != "" {
		return h
	}
	h.ClusterID = uuid.NewString()
	for _, p := range n.dir.Marker().Peers {
		m := frame.Member{ID: p.ID, RaftAddr: p.Raft, HTTPAddr: p.HTTP, Incarnation: p.Incarnation, FeatureLevel: frame.LevelBase}
		if s, answers := n.watch.last(p.ID); answers && s.report.Incarnation == p.Incarnation {
			m.FeatureLevel, m.Version = s.report.FeatureLevel, s.report.Version
		}
		if p.ID == n.cfg.ID {
			m = n.self()
		}
		h.Members = append(h.Members, m)
	}
	return h
}

// cause is why there was an election, as far as this node can tell; where the old leader
// had announced that it goes, the log knows better. The state may be behind the log.
func (n *Node) cause() string {
	l := n.machine.Leadership()
	switch {
	case n.terms.between(l.Term-1, l.Term+1) == nil:
		return election.CauseRestart // this process never saw the old leader lead
	case l.Leader == n.cfg.ID:
		return election.CauseReelected
	default:
		return election.CauseHeartbeat
	}
}

// silence is how long this node had not heard of the leader before it, or had not been
// that leader itself any more; 0 where it did not follow that one.
func (n *Node) silence() time.Duration {
	heard, missed := n.raft.Load().LastContact(), n.terms.missed(n.machine.Leadership().Term)
	switch cause := n.cause(); {
	case !n.reached(frame.KindLongHello):
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

// insist proposes past the gate until it is applied or the term is over. Raft
// can be left with a transfer that never ends (hashicorp/raft#696): it leads and
// lets nothing in. Only a restart helps.
func (n *Node) insist(ctx context.Context, term uint64, commands ...frame.Command) error {
	patience := time.Now().Add(n.cfg.Timing.transferPatience())
	for {
		err := n.proposer.direct(term, commands...)
		if err == nil || !errors.Is(err, ErrNoLeader) || !n.leads(term) {
			return err
		}
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Now().After(patience) {
			n.cfg.Fatal(fmt.Errorf("raftnode: lead term %d: %w: restart the node", term, ErrTransferStuck))
			return err
		}
		select {
		case <-time.After(insistEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ticks proposes a tick when something is due by time and nothing else is said.
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
		deadline, now := n.machine.NextDeadline(), n.clock.now()
		if deadline.IsZero() || deadline.After(now) || deadline.Equal(last) && now.Before(next) {
			continue
		}
		if !deadline.Equal(last) {
			wait = tickEvery
		}
		if _, err := n.proposer.propose(ctx, frame.Request{Command: frame.Tick{}}); err != nil {
			continue
		}
		last, wait = deadline, min(2*wait, tickBackoff)
		next = now.Add(wait)
	}
}

// stepClock moves replicated time when it is far behind and a majority of the
// voters' clocks agree with this one.
func (n *Node) stepClock(ctx context.Context, propose func(frame.ClockStep) error) error {
	if !n.clock.behind() {
		return nil
	}
	voters := votersOf(n.servers())
	samples := map[string]clockSample{}
	others := slices.DeleteFunc(slices.Clone(voters), func(id string) bool { return id == n.cfg.ID })
	for _, id := range others {
		if s, healthy := n.watch.last(id); healthy {
			samples[id] = s.clock
		}
	}
	now := n.clock.read()
	agreed, ok := stepAgreed(now, n.cfg.ID, samples, len(voters))
	if !ok { // their answers may be older than a step, or none
		asking, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		for id, s := range n.watch.askAll(asking, n.peersAmong(others)) {
			samples[id] = s.clock
		}
		now = n.clock.read()
		agreed, ok = stepAgreed(now, n.cfg.ID, samples, len(voters))
	}
	if !ok {
		n.logger.Warn("replicated time lags and no majority of the voters' clocks agrees on a step", "agreed", agreed, "voters", len(voters))
		return nil
	}
	to := now.wall.UTC()
	n.logger.Info("moving replicated time", "from", n.clock.now(), "to", to, "agreed", agreed)
	return propose(frame.ClockStep{To: to, Agreed: agreed})
}
