package raftnode

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// urgentPingFactor is how much more often an unreachable voter is pinged while the cluster cannot
// afford to lose another.
const urgentPingFactor = 5

// missedReadings is how many readings of its clock this process may miss before it counts as paused.
const missedReadings = 3

// lastReport is the newest report of another member.
type lastReport struct {
	report Report
	asked  time.Time // when it was asked for, by this machine's clock
	at     time.Time // when it came
	clock  clock.Sample

	differs bool // its state was found to differ from this node's
}

// claim returns what the report says of its member's leadership, by this machine's clock.
func (s lastReport) claim(cluster string) election.Claim {
	c := election.Claim{Member: s.report.ID, Asked: s.asked, Answered: s.at}
	if s.report.Role == RoleLeader && s.report.ClusterID == cluster {
		c.Term = s.report.Term
		if !s.report.Confirmed.IsZero() {
			c.Confirmed = s.asked.Add(-s.report.Time.Sub(s.report.Confirmed))
		}
	}
	return c
}

// watch pings the other members over their HTTP port, on a leader and on followers, and keeps what they report of
// themselves. Each is pinged once in an interval, with at most one ping under way. It is safe for concurrent use.
type watch struct {
	watchOptions

	asking sync.WaitGroup
	awake  *election.PauseClock // what silences are measured in

	mu       sync.Mutex
	seen     map[string]*seen
	asked    map[string]bool        // members with a ping under way
	other    map[string]bool        // members in whose place another data folder has just answered
	contacts map[string]raftContact // of raft, by member
	leads    time.Time              // since when this node has led, by awake; zero: it does not
}

// watchOptions are what a watch needs of its node. All functions are required; none may wait.
type watchOptions struct {
	self      string
	peers     Peers                // nil: nobody is asked
	ping      time.Duration        // the interval
	misses    int                  // pings without an answer until a member is out of reach
	heartbeat time.Duration        // of raft
	clocks    func() clock.Reading // of this machine

	members func() []datadir.Peer // whom to ask
	applied func() uint64         // the index of the own state, to compare digests there
	urgent  func() bool           // members out of reach are asked more often
	differs func(Report) bool     // compares a report's digests with the own ones
	// onReport is called for each report, in the goroutine that asked for it.
	onReport func(r Report, asked, now time.Time)
	onRound  func()                        // after each interval, in the goroutine of run
	heard    func(member string) time.Time // when raft's newest answered request to a member was sent
}

// raftContact is raft's newest contact with a member.
type raftContact struct {
	asked time.Time // by the machine's clock
	at    time.Time // by awake
}

// seen is what is known of one member.
type seen struct {
	lastReport
	detector *election.Detector
}

// newWatch returns a watch that asks nobody before run.
func newWatch(o watchOptions) *watch {
	return &watch{watchOptions: o, awake: election.NewPauseClock(time.Now(), missedReadings*o.ping/urgentPingFactor),
		seen: map[string]*seen{}, asked: map[string]bool{}, other: map[string]bool{}, contacts: map[string]raftContact{}}
}

// run pings until ctx ends, and returns when no ping is under way.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.ping / urgentPingFactor)
	defer tick.Stop()
	defer w.asking.Wait()
	for turn := 0; ; turn++ {
		w.noteContacts(time.Now())
		// The ticker runs at the urgent pace: one tick in urgentPingFactor is an interval.
		if turn%urgentPingFactor == 0 {
			w.round(ctx, false)
			w.onRound()
		} else if w.urgent() {
			w.round(ctx, true)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round sends a ping to every other member, or only to those out of reach, and does
// not wait for the answers.
func (w *watch) round(ctx context.Context, missing bool) {
	members := w.members()
	for _, m := range members {
		if m.ID == w.self || m.HTTP == "" || w.peers == nil {
			continue
		}
		// A member that does not answer keeps one request under way, not one more at each interval.
		if _, healthy := w.last(m.ID); healthy && missing || !w.reserve(m.ID) {
			continue
		}
		w.asking.Go(func() {
			defer w.answered(m.ID)
			ctx, cancel := context.WithTimeout(ctx, max(2*w.ping, time.Second))
			defer cancel()
			_, _ = w.ask(ctx, m)
		})
	}
	w.forget(members)
}

// reserve marks a ping to a member as under way; false if one is already.
func (w *watch) reserve(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked[id] {
		return false
	}
	w.asked[id] = true
	return true
}

// answered ends what reserve began, with or without an answer.
func (w *watch) answered(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asked, id)
}

// ask asks one member now, keeps its report and returns it. It blocks until the member answers or ctx ends, and
// does not count as the ping of a round. An answer from another node or another data folder is an error.
func (w *watch) ask(ctx context.Context, m datadir.Peer) (lastReport, error) {
	if w.peers == nil || m.HTTP == "" {
		return lastReport{}, fmt.Errorf("raftnode: ask %s: it has no HTTP address", m.ID)
	}
	// What a report says held when it was asked for or later, however long the answer took.
	start, asked := time.Now(), w.clocks()
	report, err := w.peers.Identify(ctx, URL(m.HTTP), Question{DigestAt: w.applied()})
	answered := w.clocks()
	other := err == nil && report.ID == m.ID && m.Incarnation != "" && report.Incarnation != m.Incarnation
	// See replaced.
	w.mu.Lock()
	w.other[m.ID] = other
	w.mu.Unlock()
	if err != nil {
		return lastReport{}, fmt.Errorf("raftnode: ask %s: %w", m.ID, err)
	}
	if report.ID != m.ID || other {
		return lastReport{}, fmt.Errorf("raftnode: ask %s: %s of incarnation %s answered at %s", m.ID, report.ID, report.Incarnation, m.HTTP)
	}
	// Digests are compared at once: after digestReach more entries either side has forgotten them.
	s := lastReport{report: report, asked: start, at: time.Now(),
		clock: clock.NewSample(report.Time, asked, answered), differs: w.differs(report)}
	// Without mu: onReport takes locks and closes connections.
	w.onReport(report, s.asked, s.at)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[m.ID]
	if known == nil {
		known = &seen{detector: election.NewDetector(w.ping, w.misses)}
		w.seen[m.ID] = known
	}
	known.lastReport = s
	known.detector.Answered(w.awake.At(s.at))
	return s, nil
}

// askAll asks members at once and returns the answers of those that gave one before ctx
// ended, by id.
func (w *watch) askAll(ctx context.Context, members []datadir.Peer) map[string]lastReport {
	answers := make(map[string]lastReport, len(members))
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, m := range members {
		asking.Go(func() {
			s, err := w.ask(ctx, m)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[m.ID] = s
		})
	}
	asking.Wait()
	return answers
}

// forget drops what is known of nodes that are members no more, and of data folders that were replaced.
func (w *watch) forget(members []datadir.Peer) {
	known := make(map[string]string, len(members))
	for _, m := range members {
		known[m.ID] = m.Incarnation
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.seen {
		// Under the id of a replaced folder the new one starts without a history.
		if incarnation, ok := known[id]; !ok || incarnation != "" && incarnation != s.report.Incarnation {
			delete(w.seen, id)
			delete(w.contacts, id)
		}
	}
	maps.DeleteFunc(w.other, func(id string, _ bool) bool { _, member := known[id]; return !member })
}

// replaced reports whether a node with another data folder answers under a member's id.
func (w *watch) replaced(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.other[id]
}

// last returns the newest report of a member, and whether the member still answers pings. The report is the zero
// value if there is none.
func (w *watch) last(id string) (s lastReport, healthy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return known.lastReport, known.detector.Reachable(w.awake.At(time.Now()))
	}
	return s, false
}

// silence is for how long a member has not answered while this process ran; negative: it
// never did.
func (w *watch) silence(id string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return max(0, w.awake.At(now).Sub(known.detector.Last()))
	}
	return -1
}

// lead sets whether this node leads from now on: only a leader knows whom raft reaches.
func (w *watch) lead(leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads = time.Time{}
	if leads {
		w.leads = w.awake.At(time.Now())
	}
}

// noteContacts reads raft's contacts, often enough that a pause of this process does not count as a silence of the
// others.
func (w *watch) noteContacts(now time.Time) {
	awake, members := w.awake.At(now), w.members()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range members {
		w.noteContact(m.ID, now, awake)
	}
}

// noteContact keeps when raft's newest answered request to a member was sent. It is called with mu held.
func (w *watch) noteContact(id string, now, awake time.Time) {
	if asked := w.heard(id); asked.After(w.contacts[id].asked) {
		w.contacts[id] = raftContact{asked, awake.Add(asked.Sub(now))}
	}
}

// raftReach is for how long a contact of raft's counts: a leader itself counts on a
// follower for a lease.
func (w *watch) raftReach() time.Duration {
	return max(w.ping*time.Duration(w.misses), w.heartbeat)
}

// absence returns why a member does not count as there, and for how long it has been silent: election.ReasonHTTP if
// it does not answer pings, ReasonRaft if it does, but this node leads and raft has had no contact with it for
// raftReach; "" if it does count. silent is -1 if there never was contact.
//
// Whatever depends on who is there asks this one function: the margin of the quorum,
// the guard of removals and demotions, promotion, the successor of a leader, and what
// the log reports of the voters.
func (w *watch) absence(id string) (reason string, silent time.Duration) {
	if id == w.self {
		return "", 0
	}
	now := time.Now()
	awake := w.awake.At(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[id]
	if known == nil {
		return election.ReasonHTTP, -1
	}
	if !known.detector.Reachable(awake) {
		return election.ReasonHTTP, max(0, now.Sub(known.at))
	}
	// A node that does not lead sends nothing by raft.
	if w.leads.IsZero() {
		return "", 0
	}
	w.noteContact(id, now, awake)
	contact := w.contacts[id]
	since := contact.at
	// A leadership that has just begun had no time to reach anybody.
	if w.leads.After(since) {
		since = w.leads
	}
	if awake.Sub(since) < w.raftReach() {
		return "", 0
	}
	if known.detector.Last().Sub(since) < w.raftReach()/3 {
		// It has not answered a ping for as long as raft: it is gone, and the detector is
		// about to find that out.
		return election.ReasonHTTP, max(0, now.Sub(known.at))
	}
	if contact.asked.IsZero() {
		return election.ReasonRaft, -1
	}
	return election.ReasonRaft, now.Sub(contact.asked)
}

// there reports whether a member counts as there; see absence.
func (w *watch) there(id string) bool {
	reason, _ := w.absence(id)
	return reason == ""
}

// steady reports whether a member has answered for a while without a silence.
func (w *watch) steady(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[id]
	return known != nil && known.detector.Steady(w.awake.At(time.Now()))
}

// reports returns the newest reports of the members that answer pings.
func (w *watch) reports() (list []Report) {
	for _, s := range w.freshReports() {
		list = append(list, s.report)
	}
	return list
}

// freshReports returns the newest reports of the members that answer pings, and when they arrived.
func (w *watch) freshReports() (list []lastReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.detector.Reachable(w.awake.At(time.Now())) {
			list = append(list, s.lastReport)
		}
	}
	return list
}
