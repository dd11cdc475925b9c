package raftnode

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

const (
	leaderlessFor = 5 * time.Second  // without a leader for so long the quorum counts as lost, whoever answers
	outageHold    = time.Second      // a majority and a leader for so long end an outage
	viewEvery     = 30 * time.Second // while an outage lasts, at least so often its state is written down
	reportedViews = 16               // of a journal, in one report
)

// Outage is an outage as one voter sees it now.
type Outage struct {
	Since   time.Time       `json:"since"` // the last moment with a majority, or a leader
	Cause   string          `json:"cause"`
	Term    uint64          `json:"term"`
	Leader  string          `json:"last_leader"`
	Refused uint64          `json:"refused"` // writes refused here since then
	Peers   []blackbox.Peer `json:"peers"`
}

// BlackBox is what a voter's journal holds.
type BlackBox struct {
	Journal string            `json:"journal"`
	Settled uint64            `json:"settled"` // records up to here stand in the log
	Records []blackbox.Record `json:"records"`
}

// vigil is a voter's watch over the quorum, which needs no leader. What it sees of an
// outage goes into the journal before anything else, and from there into the log once
// there is a leader again.
//
// One goroutine looks, another writes: a disk that hangs stops neither the first nor who
// asks, raft's own goroutine among them. mu guards what others ask for and is never held
// over a write.
type vigil struct {
	n       *Node
	journal *blackbox.Journal
	path    string    // of the journal; its modification time says until when this node ran
	started time.Time // wall clock
	before  time.Time // when this node ran last before that; zero: never
	outlook *election.Outlook
	written time.Time // the last record of this outage
	looked  []blackbox.Peer

	refused refusals // writes refused since there was a leader last

	mu       sync.Mutex
	now      *Outage
	pending  []blackbox.Record // not yet in the journal
	wake     chan struct{}     // holds one: there is something to write
	changed  chan struct{}     // closed when the journal grows
	reported reported
}

func openVigil(n *Node) (*vigil, error) {
	path := n.dir.Path(datadir.BlackBoxFile)
	var before time.Time
	if info, err := os.Stat(path); err == nil {
		before = info.ModTime().UTC()
	}
	j, err := blackbox.Open(path, blackbox.Options{FS: n.cfg.journalFS})
	if err != nil {
		return nil, fmt.Errorf("raftnode: open %s: %w", path, err)
	}
	if dropped := j.Dropped(); dropped != "" {
		n.logger.Warn("the journal of outages was damaged", "path", path, "dropped", dropped)
	}
	v := &vigil{n: n, journal: j, path: path, started: time.Now().UTC(), before: before, changed: make(chan struct{}), wake: make(chan struct{}, 1)}
	if !before.IsZero() && before.Before(v.started) {
		v.write(blackbox.Record{Kind: blackbox.Down, Since: before, At: v.started}) // the next start would hide it
		v.flush()
	}
	return v, nil
}

// observe registers with raft, to hear at once of a lease that ran out: the leader
// steps down, and had no word from a majority for as long as the lease.
func (v *vigil) observe(r *raft.Raft) {
	var leading atomic.Bool
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		state, ok := o.Data.(raft.RaftState)
		if !ok {
			return false
		}
		if leading.Swap(state == raft.Leader) && state == raft.Follower {
			v.steppedDown(r.CurrentTerm())
		}
		return false
	}))
}

func (v *vigil) steppedDown(term uint64) {
	n, now := v.n, time.Now()
	contact := n.contacts.majority(raft.ServerID(n.cfg.ID), n.servers(), term, now)
	if contact.IsZero() || now.Sub(contact) < n.cfg.Timing.Lease {
		return
	}
	v.write(blackbox.Record{Kind: blackbox.LeaseExpired, At: now.UTC(), Since: contact.UTC(), Term: term, Leader: n.cfg.ID})
}

// run looks until ctx ends.
func (v *vigil) run(ctx context.Context) {
	tick := time.NewTicker(v.n.cfg.Timing.Ping / hurry)
	defer tick.Stop()
	for {
		v.look(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (v *vigil) look(now time.Time) {
	others, peers, voter := v.sight(now)
	if !voter {
		v.outlook = nil
		v.show(nil)
		return
	}
	if v.outlook == nil {
		v.begin(now)
	}
	led := v.led()
	if _, lost := v.outlook.Lost(); led && !lost {
		v.refused.reset(0)
	}
	for _, turn := range v.outlook.See(now, election.Sight{Others: others, Leader: led, Heard: v.heard(now)}) {
		v.turn(turn, peers)
	}
	v.keep(now, peers)
}

// alive notes that this node runs. The note needs no sync: it is lost only with the
// machine, and then an older one stands.
func (v *vigil) alive(now time.Time) {
	if err := os.Chtimes(v.path, now, now); err != nil {
		v.n.logger.Debug("noting that this node runs", "error", err)
	}
}

// sight is how the other voters look, where this node is one of a formed cluster.
func (v *vigil) sight(now time.Time) (others []time.Time, peers []blackbox.Peer, voter bool) {
	for _, id := range votersOf(v.n.servers()) {
		if id == v.n.cfg.ID {
			voter = v.n.machine.ClusterID() != ""
			continue
		}
		s, healthy := v.n.watch.last(id)
		p := blackbox.Peer{ID: id, Reachable: healthy, LastContactMs: -1}
		if !s.at.IsZero() {
			p.LastContactMs = now.Sub(s.at).Milliseconds()
		}
		var answered time.Time
		if silent := v.n.watch.silence(id, now); silent >= 0 {
			answered = now.Add(-silent)
		}
		others, peers = append(others, answered), append(peers, p)
	}
	return others, peers, voter
}

// led reports whether this node follows a leader it has contact with, or is it.
func (v *vigil) led() bool {
	r := v.n.raft.Load()
	if r.State() == raft.Leader {
		return v.n.proposer.OpenTerm() != 0
	}
	_, id := r.LeaderWithID()
	return id != "" && v.n.machine.Term() == r.CurrentTerm()
}

// heard is when raft was last in contact with a leader, or as the leader with a majority.
func (v *vigil) heard(now time.Time) time.Time {
	r := v.n.raft.Load()
	if r.State() != raft.Leader {
		return r.LastContact()
	}
	return v.n.contacts.majority(raft.ServerID(v.n.cfg.ID), v.n.servers(), r.CurrentTerm(), now)
}

func (v *vigil) begin(now time.Time) {
	t := v.n.cfg.Timing
	v.outlook = election.NewOutlook(now, election.OutlookConfig{Reach: t.Ping * time.Duration(t.Misses),
		Leaderless: max(leaderlessFor, 5*t.Election), Grace: max(leaderlessFor, 5*t.Election), Hold: min(outageHold, 2*t.Ping)})
	if open, regained, ok := openOutage(v.journal.Records()); ok {
		v.outlook.Resume(open.Since, regained)
		v.refused.reset(open.Refused)
		v.show(&Outage{Since: open.Since, Cause: open.Cause, Term: open.Term, Leader: open.Leader, Refused: open.Refused})
	}
}

// openOutage finds the outage that the journal tells no end of, and when a majority was in reach again.
func openOutage(records []blackbox.Record) (open blackbox.Record, regained time.Time, ok bool) {
	var view election.View
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			open, ok, view = r, true, election.View{}
		case blackbox.View:
			open.Refused = max(open.Refused, r.Refused)
			note(&view, r)
		case blackbox.Restored:
			ok = false
		}
	}
	return open, view.Regained, ok
}

// Causes of a blackbox.View.
const (
	viewRegained = "majority in reach"
	viewSlipped  = "majority out of reach"
	viewPeers    = "peers changed"
	viewGoesOn   = "goes on"
)

func (v *vigil) turn(t election.Turn, peers []blackbox.Peer) {
	r := blackbox.Record{Since: t.Since.UTC(), Peers: peers}
	switch t.Kind {
	case election.TurnStalled:
		v.write(blackbox.Record{Kind: blackbox.Stalled, Since: t.Since.UTC(), At: t.Until.UTC()})
		return
	case election.TurnLost:
		v.show(&Outage{Since: t.Since.UTC(), Cause: t.Cause, Term: v.n.raft.Load().CurrentTerm(), Leader: v.n.machine.Leadership().Leader})
		r.Kind, r.Cause = blackbox.Lost, t.Cause
		v.n.logger.Error("quorum lost", "cause", t.Cause, "since", stampOf(t.Since), "unreachable", strings.Join(unreachable(peers), " "))
	case election.TurnRegained:
		r.Kind, r.Cause = blackbox.View, viewRegained
	case election.TurnSlipped:
		r.Kind, r.Cause = blackbox.View, viewSlipped
	case election.TurnRestored:
		r.Kind, r.At = blackbox.Restored, t.Until.UTC()
		v.n.logger.Warn("quorum restored", "since", stampOf(t.Since), "refused", v.refused.load())
	}
	v.record(r)
	if t.Kind == election.TurnRestored {
		v.show(nil)
	}
}

// stampOf is a time for a diagnostic.
func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// record writes what belongs to the outage that lasts.
func (v *vigil) record(r blackbox.Record) {
	v.mu.Lock()
	if o := v.now; o != nil {
		r.Term, r.Leader = o.Term, o.Leader
	}
	v.mu.Unlock()
	r.Refused = v.refused.load()
	v.written, v.looked = time.Now(), r.Peers
	v.write(r)
}

// keep writes down how an outage goes on: when a peer came or went, and now and then.
func (v *vigil) keep(now time.Time, peers []blackbox.Peer) {
	v.mu.Lock()
	if v.now != nil {
		v.now.Peers, v.now.Refused = peers, v.refused.load()
	}
	lasts := v.now != nil
	v.mu.Unlock()
	switch {
	case !lasts:
	case !slices.EqualFunc(peers, v.looked, func(a, b blackbox.Peer) bool { return a.ID == b.ID && a.Reachable == b.Reachable }):
		v.record(blackbox.Record{Kind: blackbox.View, Cause: viewPeers, Peers: peers})
	case now.Sub(v.written) >= viewEvery:
		v.record(blackbox.Record{Kind: blackbox.View, Cause: viewGoesOn, Peers: peers})
	}
}

// maxPending bounds what waits for the disk.
const maxPending = 256

// write queues a record for the journal. It does not wait for the disk.
func (v *vigil) write(r blackbox.Record) {
	if r.At.IsZero() {
		r.At = time.Now().UTC()
	}
	v.mu.Lock()
	v.pending = append(v.pending, r)
	v.pending = v.pending[max(0, len(v.pending)-maxPending):]
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// keepJournal writes what is queued, and notes now and then that this node runs and what
// of the journal the log has, until ctx ends. No other goroutine touches the journal's file.
func (v *vigil) keepJournal(ctx context.Context) {
	tick := time.NewTicker(v.n.cfg.Timing.Ping)
	defer tick.Stop()
	for {
		v.flush()
		select {
		case <-v.wake:
		case <-tick.C:
			v.alive(time.Now())
			v.settle()
		case <-ctx.Done():
			v.flush()
			return
		}
	}
}

// flush writes what is queued. What the disk does not take waits for the next time.
func (v *vigil) flush() {
	for {
		v.mu.Lock()
		if len(v.pending) == 0 {
			v.mu.Unlock()
			return
		}
		next := v.pending[0]
		v.pending = v.pending[1:]
		v.mu.Unlock()

		_, err := v.journal.Append(next)
		v.report("writing the journal of outages", err)

		v.mu.Lock()
		if err != nil {
			v.pending = append([]blackbox.Record{next}, v.pending...)
			v.mu.Unlock()
			return
		}
		close(v.changed)
		v.changed = make(chan struct{})
		v.mu.Unlock()
		v.alive(time.Now())
	}
}

// report logs what keeps the journal from being written.
func (v *vigil) report(what string, err error) {
	if err != nil {
		v.n.logger.Warn(what, "error", err)
	}
}

func (v *vigil) show(o *Outage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = o
}

// outage is the one that lasts, nil if none does.
func (v *vigil) outage() *Outage {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now == nil {
		return nil
	}
	o := *v.now
	o.Refused = v.refused.load()
	return &o
}

// settle tells the journal what stands in the log.
func (v *vigil) settle() {
	health := v.n.machine.Health()
	if seq := health.TakenOf(v.journal.ID()); seq > v.journal.Settled() {
		v.report("settling the journal of outages", v.journal.Settle(seq))
	}
}

// views are what the journal holds that is over and not settled, the oldest first, by
// this machine's wall clock. They are not to be changed.
func (v *vigil) views() (list []election.View, lasts bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if settled := v.journal.Settled(); v.reported.grown != v.changed || v.reported.settled != settled {
		list = viewsOf(v.n.cfg.ID, v.journal.ID(), settled, v.journal.Records())
		v.reported = reported{v.changed, settled, list[:min(len(list), reportedViews)]}
	}
	return v.reported.list, v.now != nil
}

// reported are the views of a journal as it was until it grew, and was settled.
type reported struct {
	grown   chan struct{}
	settled uint64
	list    []election.View
}

// viewsOf puts the records of a journal together: from the loss of a quorum to its
// return, and single ones.
func viewsOf(voter, journal string, settled uint64, records []blackbox.Record) (list []election.View) {
	var open *election.View
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			open = &election.View{Voter: voter, Journal: journal, Kind: election.ViewLost, Began: r.Since, Term: r.Term,
				Leader: r.Leader, Cause: r.Cause, Refused: r.Refused, Unreachable: unreachable(r.Peers)}
		case blackbox.View:
			note(open, r)
		case blackbox.Restored:
			if open != nil && r.Seq > settled {
				open.Seq, open.Ended, open.Refused = r.Seq, r.At, max(open.Refused, r.Refused)
				list = append(list, *open)
			}
			open = nil
		case blackbox.Stalled, blackbox.Down, blackbox.LeaseExpired:
			if r.Seq > settled {
				list = append(list, election.View{Voter: voter, Journal: journal, Seq: r.Seq, Kind: string(r.Kind), Began: r.Since, Ended: r.At, Term: r.Term, Leader: r.Leader})
			}
		}
	}
	return list
}

// note takes into a view what was seen while it lasted.
func note(open *election.View, r blackbox.Record) {
	if open == nil {
		return
	}
	open.Refused = max(open.Refused, r.Refused)
	for _, id := range unreachable(r.Peers) {
		if !slices.Contains(open.Unreachable, id) {
			open.Unreachable = append(open.Unreachable, id)
		}
	}
	switch r.Cause {
	case viewRegained:
		open.Regained = r.At
	case viewSlipped:
		open.Regained = time.Time{}
	}
}

func unreachable(peers []blackbox.Peer) (ids []string) {
	for _, p := range peers {
		if !p.Reachable {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// BlackBox returns what this node's journal holds, and a channel that is closed when
// it grows.
func (n *Node) BlackBox() (b BlackBox, grown <-chan struct{}) {
	n.vigil.mu.Lock()
	defer n.vigil.mu.Unlock()
	return BlackBox{Journal: n.vigil.journal.ID(), Settled: n.vigil.journal.Settled(), Records: n.vigil.journal.Records()}, n.vigil.changed
}

// JournalType is the event type under which a journal's record is shown.
func JournalType(k blackbox.Kind) event.Type {
	switch k {
	case blackbox.Lost:
		return event.QuorumLost
	case blackbox.Restored:
		return event.QuorumRestored
	case blackbox.LeaseExpired:
		return event.LeaderLeaseExpired
	default:
		return event.QuorumOutageView
	}
}
