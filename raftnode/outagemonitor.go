package raftnode

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
	"github.com/ringrift/ringlog/raftnode/blackbox"
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
	Cause   string          `json:"cause"`
	Term    uint64          `json:"term"`
	Leader  string          `json:"last_leader"`
	Refused uint64          `json:"refused"` // writes refused here since then
	Peers   []blackbox.Peer `json:"peers"`
}

// outageMonitor observes the quorum on one voter, without a leader. It records an outage in the journal first; a later
// leader proposes it to the log.
//
// One goroutine, that of run, observes, and another writes the journal: a disk that hangs blocks neither the first nor
// those that ask, among them raft's own goroutine.
type outageMonitor struct {
	self    string // id of this voter
	timing  Timing
	logger  hclog.Logger
	journal *outageJournal
	started time.Time // wall clock
	before  time.Time // when this node ran last before that; zero: never

	sources outageSources // set by attach

	refused refusals // writes refused since there was a leader last

	// Of the goroutine of run alone.
	tracker  *election.QuorumTracker // nil while this node is no voter of a formed cluster
	recorded time.Time               // when the last record of this outage was made
	peers    []blackbox.Peer         // of that record

	mu  sync.Mutex // guards now, which other goroutines read
	now *Outage    // nil while none lasts
}

// outageSources are the parts of a node that its outage monitor reads. None of them waits
// for a disk.
type outageSources struct {
	raft     *upstream.Raft
	contacts *contacts
	pings    *watch
	machine  *fsm.Machine
	openTerm func() uint64 // the term this node takes proposals in; 0: it does not
}

// openOutageMonitor opens the journal at path and records since when this node was down. The
// monitor observes nothing before attach and run.
func openOutageMonitor(path string, cfg Config, logger hclog.Logger) (*outageMonitor, error) {
	journal, err := openOutageJournal(path, cfg.journalFS, logger)
	if err != nil {
		return nil, err
	}
	m := &outageMonitor{
		self:    cfg.ID,
		timing:  cfg.Timing,
		logger:  logger,
		journal: journal,
		started: time.Now().UTC(),
		before:  journal.lastRun,
	}
	if !m.before.IsZero() && m.before.Before(m.started) {
		journal.write(blackbox.Record{Kind: blackbox.Down, Since: m.before, At: m.started})
		journal.flush() // now: a later start would find only the end of this run
	}
	return m, nil
}

// attach sets what the monitor reads; it has to be called before run and keepJournal. It also registers with raft, so
// that a lease that expires is recorded at once: the leader steps down, and no majority has answered it for the
// duration of the lease.
func (m *outageMonitor) attach(sources outageSources) {
	m.sources = sources
	r := sources.raft.Load()
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
func (m *outageMonitor) recordStepDown(term uint64) {
	now := time.Now()
	contact := m.majorityContact(term, now)
	if contact.IsZero() || now.Sub(contact) < m.timing.Lease {
		return
	}
	m.journal.write(blackbox.Record{
		Kind:   blackbox.LeaseExpired,
		At:     now.UTC(),
		Since:  contact.UTC(),
		Term:   term,
		Leader: m.self,
	})
}

// majorityContact is the last moment at which a majority of the voters was in term, by what this
// leader has heard of them; zero if it never was.
func (m *outageMonitor) majorityContact(term uint64, now time.Time) time.Time {
	return m.sources.contacts.majority(raft.ServerID(m.self), m.sources.raft.Servers(), term, now)
}

// run observes until ctx ends.
func (m *outageMonitor) run(ctx context.Context) {
	tick := time.NewTicker(m.timing.Ping / urgentPingFactor)
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
func (m *outageMonitor) observe(now time.Time) {
	others, peers, voter := m.otherVoters(now)
	if !voter {
		m.tracker = nil
		m.setOutage(nil)
		return
	}
	if m.tracker == nil {
		m.startTracker(now)
	}
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
// voter is false where this node is not one itself, or no cluster is formed.
func (m *outageMonitor) otherVoters(now time.Time) (others []time.Time, peers []blackbox.Peer, voter bool) {
	for _, id := range votersOf(m.sources.raft.Servers()) {
		if id == m.self {
			voter = m.sources.machine.ClusterID() != ""
			continue
		}
		s, healthy := m.sources.pings.last(id)
		p := blackbox.Peer{ID: id, Reachable: healthy, LastContactMs: -1}
		if !s.at.IsZero() {
			p.LastContactMs = now.Sub(s.at).Milliseconds()
		}
		// The journal has the wall clock's age; the tracker gets the time this process ran.
		var answered time.Time
		if silent := m.sources.pings.silence(id, now); silent >= 0 {
			answered = now.Add(-silent)
		}
		others, peers = append(others, answered), append(peers, p)
	}
	return others, peers, voter
}

// hasLeader reports whether this node follows a leader whose term it has applied, or is one that
// takes proposals.
func (m *outageMonitor) hasLeader() bool {
	r := m.sources.raft.Load()
	if r.State() == raft.Leader {
		return m.sources.openTerm() != 0
	}
	_, id := r.LeaderWithID()
	return id != "" && m.sources.machine.Term() == r.CurrentTerm()
}

// leaderContact is when raft was last in contact with a leader, or as the leader with a majority.
func (m *outageMonitor) leaderContact(now time.Time) time.Time {
	r := m.sources.raft.Load()
	if r.State() != raft.Leader {
		return r.LastContact()
	}
	return m.majorityContact(r.CurrentTerm(), now)
}

// startTracker begins to track the quorum. An outage that the journal has no end of, since this
// process was restarted in it, is resumed.
func (m *outageMonitor) startTracker(now time.Time) {
	t := m.timing
	m.tracker = election.NewQuorumTracker(now, election.QuorumConfig{
		Reach:      t.Ping * time.Duration(t.Misses),
		Leaderless: max(leaderlessFor, 5*t.Election),
		Grace:      max(leaderlessFor, 5*t.Election),
		Hold:       min(outageHold, 2*t.Ping),
	})
	open, regained, ok := openOutage(m.journal.file.Records())
	if !ok {
		return
	}
	// The outage keeps its beginning and its count of refusals, as if this process had not been restarted.
	m.tracker.Resume(open.Since, regained)
	m.refused.reset(open.Refused)
	m.setOutage(&Outage{Since: open.Since, Cause: open.Cause, Term: open.Term, Leader: open.Leader, Refused: open.Refused})
}

// recordTransition records a transition, and logs the beginning and the end of an outage.
func (m *outageMonitor) recordTransition(t election.Transition, peers []blackbox.Peer) {
	r := blackbox.Record{Since: t.Since.UTC(), Peers: peers}
	switch t.Kind {
	case election.TransitionStalled:
		// This process was paused: no matter of the outage that may last.
		m.journal.write(blackbox.Record{Kind: blackbox.Stalled, Since: t.Since.UTC(), At: t.Until.UTC()})
		return
	case election.TransitionLost:
		m.setOutage(&Outage{
			Since:  t.Since.UTC(),
			Cause:  t.Cause,
			Term:   m.sources.raft.Load().CurrentTerm(),
			Leader: m.sources.machine.Leadership().Leader,
		})
		r.Kind, r.Cause = blackbox.Lost, t.Cause
		m.logger.Error("quorum lost", "cause", t.Cause, "since", stampOf(t.Since),
			"unreachable", strings.Join(unreachable(peers), " "))
	case election.TransitionRegained:
		r.Kind, r.Cause = blackbox.View, viewRegained
	case election.TransitionSlipped:
		r.Kind, r.Cause = blackbox.View, viewSlipped
	case election.TransitionRestored:
		r.Kind, r.At = blackbox.Restored, t.Until.UTC()
		m.logger.Warn("quorum restored", "since", stampOf(t.Since), "refused", m.refused.load())
	}
	m.recordOutage(r)
	// The last record of an outage still has its term and leader.
	if t.Kind == election.TransitionRestored {
		m.setOutage(nil)
	}
}

// stampOf is a time for a diagnostic.
func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// recordOutage adds what is known of the outage that lasts to r, and records it. It is called by the goroutine of run
// alone.
func (m *outageMonitor) recordOutage(r blackbox.Record) {
	m.mu.Lock()
	if o := m.now; o != nil {
		r.Term, r.Leader = o.Term, o.Leader
	}
	m.mu.Unlock()
	r.Refused = m.refused.load()
	m.recorded, m.peers = time.Now(), r.Peers
	m.journal.write(r)
}

// recordProgress records that an outage lasts: when a peer came or went, and at least each
// viewEvery.
func (m *outageMonitor) recordProgress(now time.Time, peers []blackbox.Peer) {
	m.mu.Lock()
	if m.now != nil {
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
		m.recordOutage(blackbox.Record{Kind: blackbox.View, Cause: viewGoesOn, Peers: peers})
	}
}

// setOutage sets the outage that lasts; nil ends it.
func (m *outageMonitor) setOutage(o *Outage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = o
}

// outage returns a copy of the outage that lasts; nil if none does.
func (m *outageMonitor) outage() *Outage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		return nil
	}
	o := *m.now
	o.Refused = m.refused.load()
	return &o
}

// views returns the outages in the journal that have ended and are not in the log yet, and whether one lasts. The list
// must not be changed.
func (m *outageMonitor) views() (list []election.View, lasts bool) {
	list = m.journal.views(m.self)
	m.mu.Lock()
	defer m.mu.Unlock()
	return list, m.now != nil
}

// keepJournal writes the journal until ctx ends. Once in a ping's interval it notes that this node runs, and how much
// of the journal is in the log.
func (m *outageMonitor) keepJournal(ctx context.Context) {
	tick := time.NewTicker(m.timing.Ping)
	defer tick.Stop()
	m.journal.keep(ctx, tick.C, func(journal string) uint64 {
		health := m.sources.machine.Health()
		return health.TakenOf(journal)
	})
}
