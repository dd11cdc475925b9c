package health

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	leaderlessFor = 5 * time.Second  // how long without a leader until the quorum counts as lost, whoever answers
	outageHold    = time.Second      // how long a majority and a leader have to last to end an outage
	viewEvery     = 30 * time.Second // at most between two records of an outage that lasts
)

// Outage is an outage of the quorum as one voter observes it now.
type Outage struct {
	Since   time.Time       `json:"since"` // the last moment with a majority, or a leader
	Cause   string          `json:"cause"` // election.CauseUnreachable or CauseNoLeader
	Term    uint64          `json:"term"`  // raft's when the outage was found
	Leader  string          `json:"last_leader"`
	Refused uint64          `json:"refused"` // writes refused here since then
	Peers   []blackbox.Peer `json:"peers"`   // the other voters, as of the last observation
}

// OutageMonitor observes the quorum on one voter, without a leader. It records an outage in the journal first; a later
// leader proposes it to the log.
//
// One goroutine, that of Run, observes, and another writes the journal: a disk that hangs blocks neither the first nor
// those that ask, among them raft's own goroutine.
type OutageMonitor struct {
	o       MonitorOptions
	started time.Time // wall clock
	before  time.Time // when this node ran last before that; zero: never

	sources OutageSources // set by Attach

	refused refusals // writes refused since there was a leader last

	// What follows is used by the goroutine of Run alone.
	tracker  *election.QuorumTracker // nil while this node is not a voter of a formed cluster
	recorded time.Time               // when the last record of this outage was made
	peers    []blackbox.Peer         // of that record

	mu  sync.Mutex // guards now, which other goroutines read; never held during a write of the journal
	now *Outage    // nil while none lasts
}

// MonitorOptions are what a monitor has from the start.
type MonitorOptions struct {
	Self    string // id of this voter
	Timing  Timing
	Journal *Journal // open; the caller closes it
	Logger  hclog.Logger
}

// OutageSources are the parts of a node that its outage monitor reads. None of them waits
// for a disk.
type OutageSources struct {
	Raft     *upstream.Raft
	Roster   *roster.Roster
	Contacts *Contacts
	Pings    *Watch
	Machine  *fsm.Machine
	OpenTerm func() uint64 // the term this node takes proposals in; 0: it does not
}

// NewOutageMonitor records since when this node was down. The monitor observes nothing before Attach and Run. It
// writes to the journal's file itself and has to be made before KeepJournal runs.
func NewOutageMonitor(o MonitorOptions) *OutageMonitor {
	m := &OutageMonitor{o: o, started: time.Now().UTC(), before: o.Journal.lastRun}
	if !m.before.IsZero() && m.before.Before(m.started) {
		o.Journal.Write(blackbox.Record{Kind: blackbox.Down, Since: m.before, At: m.started})
		o.Journal.flush() // now: a later start would find only the end of this run
	}
	return m
}

// Started is when this process opened its node, by the wall clock.
func (m *OutageMonitor) Started() time.Time { return m.started }

// RanBefore is when this node ran last before Started; zero if it never did.
func (m *OutageMonitor) RanBefore() time.Time { return m.before }

// CountRefused counts a request that was refused since there was no leader. Its retries do not count.
func (m *OutageMonitor) CountRefused(r frame.Request) { m.refused.add(r) }

// Attach sets what the monitor reads; it has to be called before Run and KeepJournal. It also registers with raft,
// so a lease that expires is recorded at once: the leader steps down, and no majority has answered it for the
// duration of the lease.
func (m *OutageMonitor) Attach(sources OutageSources) {
	m.sources = sources
	r := sources.Raft.Load()
	// Observers may be called from several goroutines of raft.
	var leading atomic.Bool
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		state, ok := o.Data.(raft.RaftState)
		if !ok {
			return false
		}
		// A node that shuts down leaves leadership for another state: its lease has not expired.
		if leading.Swap(state == raft.Leader) && state == raft.Follower {
			m.recordStepDown(r.CurrentTerm())
		}
		return false
	}))
}

// recordStepDown records that this leader's lease expired, if that is why it stepped down. It
// runs on raft's goroutine and does not wait.
func (m *OutageMonitor) recordStepDown(term uint64) {
	now := time.Now()
	// A leader that a newer one has deposed had a majority until then.
	contact := m.majorityContact(term, now)
	if contact.IsZero() || now.Sub(contact) < m.o.Timing.Lease {
		return
	}
	m.o.Journal.Write(blackbox.Record{
		Kind:   blackbox.LeaseExpired,
		At:     now.UTC(),
		Since:  contact.UTC(),
		Term:   term,
		Leader: m.o.Self,
	})
}

// majorityContact is the last moment at which a majority of the voters was in term, by what this
// leader has heard of them; zero if it never was.
func (m *OutageMonitor) majorityContact(term uint64, now time.Time) time.Time {
	return m.sources.Contacts.Majority(raft.ServerID(m.o.Self), m.sources.Raft.Servers(), term, now)
}

// Run observes until ctx ends.
func (m *OutageMonitor) Run(ctx context.Context) {
	tick := time.NewTicker(m.o.Timing.Urgent())
	defer tick.Stop()
	for {
		m.observe(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// observe makes one observation and records the transitions that the tracker derives from it.
func (m *OutageMonitor) observe(now time.Time) {
	others, peers, voter := m.otherVoters(now)
	if !voter {
		// A node that gets its vote later begins without a past: what it saw as a non-voter concerns no quorum of its
		// own.
		m.tracker = nil
		m.setOutage(nil)
		return
	}
	if m.tracker == nil {
		m.startTracker(now)
	}
	// Without a leader that takes requests writes are refused, whoever answers pings.
	led := m.hasLeader()
	// Refusals count from the last moment with a leader, before the outage is found.
	if _, lost := m.tracker.Lost(); led && !lost {
		m.refused.reset(0)
	}
	seen := election.Observation{Others: others, Leader: led, Heard: m.leaderContact(now)}
	for _, transition := range m.tracker.Observe(now, seen) {
		m.recordTransition(transition, peers)
	}
	m.recordProgress(now, peers)
}

// otherVoters returns when each of the other voters answered last, and the same for the journal;
// voter is false if this node is not one itself, or no cluster is formed.
func (m *OutageMonitor) otherVoters(now time.Time) (others []time.Time, peers []blackbox.Peer, voter bool) {
	for _, id := range m.sources.Roster.Voters() {
		if id == m.o.Self {
			voter = m.sources.Machine.ClusterID() != ""
			continue
		}
		// Pings alone: without a leader raft says nothing about the others.
		s, healthy := m.sources.Pings.Last(id)
		p := blackbox.Peer{ID: id, Reachable: healthy, LastContactMs: -1}
		if !s.At.IsZero() {
			p.LastContactMs = now.Sub(s.At).Milliseconds()
		}
		// The journal has the wall clock's age; the tracker gets the time this process ran.
		var answered time.Time
		if silent := m.sources.Pings.silence(id, now); silent >= 0 {
			answered = now.Add(-silent)
		}
		others, peers = append(others, answered), append(peers, p)
	}
	return others, peers, voter
}

// hasLeader reports whether this node follows a leader whose term it has applied, or is one that
// takes proposals.
func (m *OutageMonitor) hasLeader() bool {
	r := m.sources.Raft.Load()
	// A leader whose intake is closed refuses writes like a node without a leader.
	if r.State() == raft.Leader {
		return m.sources.OpenTerm() != 0
	}
	_, id := r.LeaderWithID()
	return id != "" && m.sources.Machine.Term() == r.CurrentTerm()
}

// leaderContact is when raft was last in contact with a leader, or as the leader with a majority.
func (m *OutageMonitor) leaderContact(now time.Time) time.Time {
	r := m.sources.Raft.Load()
	if r.State() != raft.Leader {
		return r.LastContact()
	}
	return m.majorityContact(r.CurrentTerm(), now)
}

// startTracker begins to track the quorum. An outage whose end the journal lacks, since this
// process was restarted in it, is resumed.
func (m *OutageMonitor) startTracker(now time.Time) {
	t := m.o.Timing
	m.tracker = election.NewQuorumTracker(now, election.QuorumConfig{
		Reach:      t.reach(),
		Leaderless: max(leaderlessFor, 5*t.Election),
		Grace:      max(leaderlessFor, 5*t.Election),
		Hold:       min(outageHold, 2*t.Ping),
	})
	// A process that was restarted during an outage finds its beginning in the journal.
	open, regained, ok := openOutage(m.o.Journal.file.Records())
	if !ok {
		return
	}
	// The outage keeps its beginning and its count of refusals, as if this process had not been restarted.
	m.tracker.Resume(open.Since, regained)
	m.refused.reset(open.Refused)
	m.setOutage(&Outage{Since: open.Since, Cause: open.Cause, Term: open.Term, Leader: open.Leader, Refused: open.Refused})
}

// recordTransition records a transition, and logs the beginning and the end of an outage.
func (m *OutageMonitor) recordTransition(t election.Transition, peers []blackbox.Peer) {
	// At is set when the record is written, unless the transition has its own.
	r := blackbox.Record{Since: t.Since.UTC(), Peers: peers}
	switch t.Kind {
	case election.TransitionStalled:
		// This process was paused, which does not concern an outage that may last.
		m.o.Journal.Write(blackbox.Record{Kind: blackbox.Stalled, Since: t.Since.UTC(), At: t.Until.UTC()})
		return
	case election.TransitionLost:
		m.setOutage(&Outage{
			Since:  t.Since.UTC(),
			Cause:  t.Cause,
			Term:   m.sources.Raft.Load().CurrentTerm(),
			Leader: m.sources.Machine.Leadership().Leader,
		})
		r.Kind, r.Cause = blackbox.Lost, t.Cause
		m.o.Logger.Error("quorum lost", "cause", t.Cause, "since", stampOf(t.Since),
			"unreachable", strings.Join(unreachable(peers), " "))
	case election.TransitionRegained:
		r.Kind, r.Cause = blackbox.View, viewRegained
	case election.TransitionSlipped:
		r.Kind, r.Cause = blackbox.View, viewSlipped
	case election.TransitionRestored:
		r.Kind, r.At = blackbox.Restored, t.Until.UTC()
		m.o.Logger.Info("quorum restored", "since", stampOf(t.Since), "refused", m.refused.load())
	}
	m.recordOutage(r)
	// The last record of an outage still has its term and leader.
	if t.Kind == election.TransitionRestored {
		m.setOutage(nil)
	}
}

// stampOf is a time for a diagnostic.
func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// recordOutage adds what is known of the outage that lasts to r, and records it. It is called by the goroutine of Run
// alone.
func (m *OutageMonitor) recordOutage(r blackbox.Record) {
	m.mu.Lock()
	if o := m.now; o != nil {
		r.Term, r.Leader = o.Term, o.Leader
	}
	m.mu.Unlock()
	// The count so far; the last record of an outage has all.
	r.Refused = m.refused.load()
	m.recorded, m.peers = time.Now(), r.Peers
	m.o.Journal.Write(r)
}

// recordProgress records that an outage lasts: when a peer came or went, and at least each
// viewEvery.
func (m *OutageMonitor) recordProgress(now time.Time, peers []blackbox.Peer) {
	m.mu.Lock()
	if m.now != nil {
		// What Current returns between two records of the journal.
		m.now.Peers, m.now.Refused = peers, m.refused.load()
	}
	lasts := m.now != nil
	m.mu.Unlock()

	// The ages of contacts change with every observation; only who is reachable makes a record.
	sameReach := func(a, b blackbox.Peer) bool { return a.ID == b.ID && a.Reachable == b.Reachable }
	switch {
	case !lasts:
	case !slices.EqualFunc(peers, m.peers, sameReach):
		m.recordOutage(blackbox.Record{Kind: blackbox.View, Cause: viewPeers, Peers: peers})
	case now.Sub(m.recorded) >= viewEvery:
		m.recordOutage(blackbox.Record{Kind: blackbox.View, Cause: viewLasts, Peers: peers})
	}
}

// setOutage sets the outage that lasts; nil ends it.
func (m *OutageMonitor) setOutage(o *Outage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = o
}

// Current returns a copy of the outage that lasts; nil if none does.
func (m *OutageMonitor) Current() *Outage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		return nil
	}
	o := *m.now
	o.Refused = m.refused.load()
	return &o
}

// Views returns the outages in the journal that have ended and are not in the log yet, and whether another may follow:
// one lasts, or its end is not yet in the journal. The list must not be changed.
func (m *OutageMonitor) Views() (list []election.View, more bool) {
	// The end of an outage is queued for the journal before the outage is forgotten, and listed once it is written.
	more = m.Current() != nil || m.o.Journal.unwritten()
	return m.o.Journal.views(m.o.Self), more
}

// KeepJournal writes the journal until ctx ends. Once in a ping's interval it notes that this node runs, and how much
// of the journal is in the log.
func (m *OutageMonitor) KeepJournal(ctx context.Context) {
	tick := time.NewTicker(m.o.Timing.Ping)
	defer tick.Stop()
	m.o.Journal.keep(ctx, tick.C, func(journal string) uint64 {
		health := m.sources.Machine.Health()
		return health.TakenOf(journal)
	})
}
