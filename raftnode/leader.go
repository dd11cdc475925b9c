package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/frame"
)

const (
	tickEvery    = 100 * time.Millisecond // how exactly deadlines are kept
	tickBackoff  = time.Minute            // at most so long between ticks that move nothing
	insistEvery  = 20 * time.Millisecond
	clockAsk     = 500 * time.Millisecond // bound of asking voters for their clocks
	keptTerms    = 16
	causeRestart = "restart"
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
	mu   sync.Mutex
	list []frame.TermSeen // rising terms
}

// newTermsSeen registers with raft. The filter runs on raft's goroutine and
// copies what it is shown, so nothing is dropped.
func newTermsSeen(r *raft.Raft) *termsSeen {
	t := &termsSeen{}
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if l, ok := o.Data.(raft.LeaderObservation); ok && l.LeaderID != "" {
			t.add(frame.TermSeen{Term: r.CurrentTerm(), Leader: string(l.LeaderID)})
		}
		return false
	}))
	return t
}

func (t *termsSeen) add(s frame.TermSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.list); n > 0 && t.list[n-1].Term >= s.Term {
		return
	}
	t.list = append(t.list, s)
	if len(t.list) > keptTerms {
		t.list = t.list[1:]
	}
}

// between are the terms seen above low and below high.
func (t *termsSeen) between(low, high uint64) (list []frame.TermSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term > low && s.Term < high {
			list = append(list, s)
		}
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
			if n.gain(ctx, leading) {
				acting.begin(ctx, n.ticks, n.tend)
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
	if err := n.insist(ctx, term, n.hello(term)); err != nil {
		n.logger.Warn("leadership ended before its hello", "term", term, "error", err)
		return false
	}
	if err := n.stepClock(ctx, func(c frame.ClockStep) error { return n.insist(ctx, term, c) }); err != nil {
		n.logger.Warn("leadership ended before its clock step", "term", term, "error", err)
		return false
	}
	n.proposer.shift(gateOpen, term)
	n.logger.Info("leading", "term", term)
	return true
}

func (n *Node) leads(term uint64) bool {
	r := n.raft.Load()
	return r.State() == raft.Leader && r.CurrentTerm() == term
}

func (n *Node) hello(term uint64) frame.Hello {
	h := frame.Hello{Seen: n.terms.between(n.machine.Term(), term), Cause: n.cause()}
	if n.machine.ClusterID() != "" {
		return h
	}
	h.ClusterID = uuid.NewString()
	for _, p := range n.dir.Marker().Peers {
		m := frame.Member{ID: p.ID, RaftAddr: p.Raft, HTTPAddr: p.HTTP, Incarnation: p.Incarnation, FeatureLevel: 1}
		if p.ID == n.cfg.ID {
			m = n.self()
		}
		h.Members = append(h.Members, m)
	}
	return h
}

// cause is why there was an election, as far as this node can tell.
func (n *Node) cause() string {
	l := n.machine.Leadership()
	switch {
	case l.Leader == "" || l.Intent != nil:
		return ""
	case l.Leader == n.cfg.ID && n.terms.between(0, l.Term+1) == nil:
		return causeRestart
	case l.Leader == n.cfg.ID:
		return election.CauseReelected
	default:
		return "no heartbeat from " + l.Leader
	}
}

// insist proposes past the gate until it is applied or the term is over. Raft
// can be left with a transfer that never ends (hashicorp/raft#696): it leads and
// lets nothing in. Only a restart helps.
func (n *Node) insist(ctx context.Context, term uint64, commands ...frame.Command) error {
	patience := time.Now().Add(5*n.cfg.Timing.Election + 2*time.Second)
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
	clocks, voters := n.voterClocks(ctx)
	agreed, ok := stepAgreed(clocks, voters)
	if !ok {
		n.logger.Warn("replicated time is behind and no majority of clocks agrees on a step", "agreed", agreed, "voters", voters)
		return nil
	}
	to := n.clock.read().wall.UTC()
	n.logger.Info("moving replicated time", "from", n.clock.now(), "to", to, "agreed", agreed)
	return propose(frame.ClockStep{To: to, Agreed: agreed})
}

// voterClocks asks the voters for their clocks now.
func (n *Node) voterClocks(ctx context.Context) (clocks []voterClock, voters int) {
	ctx, cancel := context.WithTimeout(ctx, clockAsk)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	ids := votersOf(n.servers())
	for _, id := range ids {
		if id == n.cfg.ID {
			mu.Lock()
			clocks = append(clocks, voterClock{id: id})
			mu.Unlock()
			continue
		}
		asking.Go(func() {
			if m, known := n.machine.Member(id); known {
				if s, err := n.watch.ask(ctx, peerOf(m)); err == nil {
					mu.Lock()
					clocks = append(clocks, voterClock{id: id, offset: s.offset})
					mu.Unlock()
				}
			}
		})
	}
	asking.Wait()
	return clocks, len(ids)
}
