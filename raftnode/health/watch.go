package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// urgentPingFactor is how much more often an unreachable member is pinged while the cluster cannot
// afford to lose another.
const urgentPingFactor = 5

// missedReadings is how many readings of its clock this process may miss before it counts as paused.
const missedReadings = 3

// Timing is how often voters are asked, and what raft waits for.
type Timing struct {
	Ping      time.Duration // the interval of pings
	Misses    int           // pings without an answer until a member is out of reach
	Heartbeat time.Duration // how long a follower waits for its leader
	Election  time.Duration // how long a candidate waits for votes
	Lease     time.Duration // how long a leader leads without hearing from a quorum
}

// Urgent is the interval of pings to an unreachable member while the cluster cannot afford to lose another. What has
// to notice a change as soon as the pings do runs at this pace.
func (t Timing) Urgent() time.Duration { return t.Ping / urgentPingFactor }

// reach is how long a member may be silent until it is out of reach.
func (t Timing) reach() time.Duration { return t.Ping * time.Duration(t.Misses) }

// Answer is the newest report of another member, and when it was given. The zero value is that of a member that never
// answered.
type Answer struct {
	Report Report
	Asked  time.Time    // when it was asked for, by this machine's clock
	At     time.Time    // when it came, by this machine's clock
	Clock  clock.Sample // of the member's wall clock

	Differs bool // the member's state was found to differ from this node's
}

// claim returns what the report says of its member's leadership, by this machine's clock.
func (s Answer) claim(cluster string) election.Claim {
	c := election.Claim{Member: s.Report.ID, Asked: s.Asked, Answered: s.At}
	// A Term of 0 says that it claims no leadership of this cluster.
	if s.Report.Role == roster.RoleLeader && s.Report.ClusterID == cluster {
		c.Term = s.Report.Term
		if !s.Report.Confirmed.IsZero() {
			// By the member's clock the confirmation is that long before its answer. It read its clock after it was
			// asked, so the result is not later than the true moment.
			c.Confirmed = s.Asked.Add(-s.Report.Time.Sub(s.Report.Confirmed))
		}
	}
	return c
}

// A Watch pings the other members over their HTTP port, on a leader and on followers, and keeps what they report of
// themselves. Each is pinged once in an interval, with at most one ping under way. It is safe for concurrent use.
type Watch struct {
	o WatchOptions

	asking sync.WaitGroup       // pings under way; Run waits for them
	awake  *election.PauseClock // what silences are measured in

	mu           sync.Mutex             // guards what follows; never held during a call of o's functions but Contacts
	seen         map[string]*seen       // by id
	pinging      map[string]bool        // members with a ping under way
	failed       map[string]error       // why the newest ping of each member failed
	contacts     map[string]raftContact // of raft, by member
	leadingSince time.Time              // since when this node has led, by awake; zero: it does not
}

// WatchOptions are what a watch needs of its node. All functions are required; none may wait.
type WatchOptions struct {
	Self   string
	Peers  Identifier // nil: nobody is asked
	Timing Timing
	Clocks func() clock.Reading // of this machine

	Members   func() []datadir.Peer // whom to ask
	ClusterID func() string         // "" while this node is in none
	Applied   func() uint64         // the index of this node's state, at which digests are compared
	Urgent    func() bool           // members out of reach are asked more often
	Differs   func(Report) bool     // compares a report's digests with this node's
	Contacts  *Contacts             // when raft's newest answered request to a member was sent
	// OnReport is called for each report, in the goroutine that asked for it. It may take locks and close
	// connections: the watch holds no lock during the call.
	OnReport func(r Report, asked, now time.Time)
	OnRound  func() // called after each interval, in the goroutine of Run
}

// Why a ping fails although a node answers it. Each lasts until somebody acts on it.
var (
	ErrOtherToken   = errors.New("the two nodes have different cluster tokens")
	errOtherFolder  = errors.New("another data folder answers under its id")
	errOtherCluster = errors.New("a node of another cluster answers at its address")
)

// Identifier asks a node what it is. A call is bounded by its context, and several may be made at once. Its error
// wraps ErrOtherToken if a node answers that has another cluster token, or if only one of the two has any.
type Identifier interface {
	Identify(ctx context.Context, url string, q Question) (Report, error)
}

// raftContact is raft's newest contact with a member.
type raftContact struct {
	asked time.Time // by the machine's clock
	at    time.Time // by awake
}

// seen is what is known of one member.
type seen struct {
	Answer
	detector *election.Detector // of its answers, measured by Watch.awake
}

// NewWatch returns a watch that asks nobody before Run.
func NewWatch(o WatchOptions) *Watch {
	return &Watch{
		o:        o,
		awake:    election.NewPauseClock(time.Now(), missedReadings*o.Timing.Urgent()),
		seen:     map[string]*seen{},
		pinging:  map[string]bool{},
		failed:   map[string]error{},
		contacts: map[string]raftContact{},
	}
}

// Run pings until ctx ends, and returns when no ping is under way.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(w.o.Timing.Urgent())
	defer tick.Stop()
	// The caller closes what answers are checked against once Run has returned.
	defer w.asking.Wait()
	for turn := 0; ; turn++ {
		w.noteContacts(time.Now())
		// The ticker runs at the urgent pace: one tick in urgentPingFactor is an interval.
		if turn%urgentPingFactor == 0 {
			w.pingMembers(ctx, false)
			w.o.OnRound()
		} else if w.o.Urgent() {
			w.pingMembers(ctx, true)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pingMembers sends a ping to every other member, or only to those out of reach, and does
// not wait for the answers.
func (w *Watch) pingMembers(ctx context.Context, missing bool) {
	members := w.o.Members()
	for _, m := range members {
		if m.ID == w.o.Self || m.HTTP == "" || w.o.Peers == nil {
			continue
		}
		// Between intervals only members out of reach are pinged.
		if _, healthy := w.Last(m.ID); healthy && missing {
			continue
		}
		// A member that does not answer keeps one request under way, not one more at each interval.
		if !w.beginPing(m.ID) {
			continue
		}
		w.asking.Go(func() {
			defer w.endPing(m.ID)
			// An answer that takes longer counts as none.
			ctx, cancel := context.WithTimeout(ctx, max(2*w.o.Timing.Ping, time.Second))
			defer cancel()
			_, _ = w.Ask(ctx, m)
		})
	}
	w.Forget(members)
}

// beginPing marks a ping to a member as under way; false if one is already.
func (w *Watch) beginPing(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pinging[id] {
		return false
	}
	w.pinging[id] = true
	return true
}

// endPing ends what beginPing began, with or without an answer.
func (w *Watch) endPing(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pinging, id)
}

// Ask asks one member now, keeps its report and returns it. It blocks until the member answers or ctx ends, and
// does not count as the ping of a round. An answer from another node or another data folder is an error.
func (w *Watch) Ask(ctx context.Context, m datadir.Peer) (Answer, error) {
	if w.o.Peers == nil || m.HTTP == "" {
		return Answer{}, fmt.Errorf("ask %s: it has no HTTP address", m.ID)
	}
	// What a report says held when it was asked for or later, however long the answer took.
	start, asked := time.Now(), w.o.Clocks()
	// Without mu: an answer may take as long as ctx lets it.
	report, err := w.o.Peers.Identify(ctx, roster.URL(m.HTTP), Question{DigestAt: w.o.Applied()})
	// The member read its clock between these two readings.
	answered := w.o.Clocks()
	// An answer from elsewhere does not count as the member's: its old report stays until it is forgotten.
	if err == nil {
		err = w.fromElsewhere(m, report)
	}
	w.mu.Lock()
	w.failed[m.ID] = err
	w.mu.Unlock()
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", m.ID, err)
	}
	// Digests are compared at once: after digestReach more entries either side has forgotten them.
	s := Answer{
		Report:  report,
		Asked:   start,
		At:      time.Now(),
		Clock:   clock.NewSample(report.Time, asked, answered),
		Differs: w.o.Differs(report),
	}
	// Without mu, see WatchOptions.
	w.o.OnReport(report, s.Asked, s.At)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[m.ID]
	if known == nil {
		known = &seen{detector: election.NewDetector(w.o.Timing.Ping, w.o.Timing.Misses)}
		w.seen[m.ID] = known
	}
	known.Answer = s
	known.detector.Answered(w.awake.At(s.At))
	return s, nil
}

// fromElsewhere returns why a report is not that of the member that was asked; nil if it is.
func (w *Watch) fromElsewhere(m datadir.Peer, r Report) error {
	if r.ID == m.ID && (m.Incarnation == "" || r.Incarnation == m.Incarnation) {
		return nil
	}
	// The clusters are compared first: a member's id may be used in another cluster as well.
	why := errOtherFolder
	if own := w.o.ClusterID(); r.ClusterID != "" && own != "" && r.ClusterID != own {
		why = errOtherCluster
	} else if r.ID != m.ID {
		why = errors.New("another node answers at its address")
	}
	return fmt.Errorf("%w: %s of incarnation %s at %s", why, r.ID, r.Incarnation, m.HTTP)
}

// AskAll asks members at once and returns the answers of those that gave one before ctx
// ended, by id.
func (w *Watch) AskAll(ctx context.Context, members []datadir.Peer) map[string]Answer {
	answers := make(map[string]Answer, len(members))
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, m := range members {
		// Who fails is left out: the caller takes it for one that has not answered.
		asking.Go(func() {
			s, err := w.Ask(ctx, m)
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

// Forget drops what is known of nodes that are no longer members, and of data folders that were replaced.
func (w *Watch) Forget(members []datadir.Peer) {
	known := make(map[string]string, len(members))
	for _, m := range members {
		known[m.ID] = m.Incarnation
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.seen {
		// Under the id of a replaced folder the new one starts without a history.
		if incarnation, ok := known[id]; !ok || (incarnation != "" && incarnation != s.Report.Incarnation) {
			delete(w.seen, id)
			delete(w.contacts, id)
		}
	}
	maps.DeleteFunc(w.failed, func(id string, _ error) bool {
		_, member := known[id]
		return !member
	})
}

// Mismatch is what is wrong with the node that answers in a member's place; the zero value if nothing is known to be.
type Mismatch struct {
	Token   bool // it has another cluster token than this node
	Folder  bool // it has another data folder than the member: once the member is removed, it can join
	Cluster bool // it is of another cluster
}

// Mismatch returns what was wrong with the node that answered the newest ping of a member.
func (w *Watch) Mismatch(id string) Mismatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.failed[id]
	return Mismatch{
		Token:   errors.Is(err, ErrOtherToken),
		Folder:  errors.Is(err, errOtherFolder),
		Cluster: errors.Is(err, errOtherCluster),
	}
}

// Last returns the newest report of a member, and whether the member still answers pings. The report is the zero
// value if there is none.
func (w *Watch) Last(id string) (s Answer, healthy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return known.Answer, known.detector.Reachable(w.awake.At(time.Now()))
	}
	return s, false
}

// silence is how long a member has not answered while this process ran; negative if it
// never did.
func (w *Watch) silence(id string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return max(0, w.awake.At(now).Sub(known.detector.Last()))
	}
	return -1
}

// SetLeading sets whether this node leads from now on: only a leader knows whom raft reaches.
func (w *Watch) SetLeading(leads bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leadingSince = time.Time{}
	if leads {
		w.leadingSince = w.awake.At(time.Now())
	}
}

// noteContacts reads raft's contacts, often enough that a pause of this process does not count as a silence of the
// others.
func (w *Watch) noteContacts(now time.Time) {
	awake, members := w.awake.At(now), w.o.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range members {
		w.noteContact(m.ID, now, awake)
	}
}

// noteContact keeps when raft's newest answered request to a member was sent. It is called with mu held.
func (w *Watch) noteContact(id string, now, awake time.Time) {
	if asked := w.o.Contacts.Newest(raft.ServerID(id)); asked.After(w.contacts[id].asked) {
		// The time since the request was sent is the same by both clocks, unless this process was paused in between.
		w.contacts[id] = raftContact{asked, awake.Add(asked.Sub(now))}
	}
}

// raftReach is how long raft's last contact with a member counts: a leader itself relies on a
// follower for a lease.
func (w *Watch) raftReach() time.Duration {
	return max(w.o.Timing.reach(), w.o.Timing.Heartbeat)
}

// Absence returns why a member does not count as present, and how long it has been silent: election.ReasonHTTP if
// it does not answer pings, ReasonRaft if it does, but this node leads and raft has had no contact with it for
// raftReach; "" if it does count. silent is -1 if there never was contact.
//
// Everything that depends on who is present asks this one function: the margin of the quorum,
// the guard of removals and demotions, promotion, the successor of a leader, and what
// the log reports of the voters.
func (w *Watch) Absence(id string) (reason string, silent time.Duration) {
	if id == w.o.Self {
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
		return election.ReasonHTTP, max(0, now.Sub(known.At))
	}
	// A node that does not lead sends nothing by raft.
	if w.leadingSince.IsZero() {
		return "", 0
	}
	w.noteContact(id, now, awake)
	// The silence counts from raft's last contact, or from the start of this leadership if that is later.
	contact := w.contacts[id]
	since := contact.at
	// A leadership that has just begun had no time to reach anybody.
	if w.leadingSince.After(since) {
		since = w.leadingSince
	}
	if awake.Sub(since) < w.raftReach() {
		return "", 0
	}
	if known.detector.Last().Sub(since) < w.raftReach()/3 {
		// It has answered neither pings nor raft for about the same time: it is gone, and the detector is
		// about to find that out.
		return election.ReasonHTTP, max(0, now.Sub(known.At))
	}
	if contact.asked.IsZero() {
		return election.ReasonRaft, -1
	}
	return election.ReasonRaft, now.Sub(contact.asked)
}

// AbsenceText is a reason of Watch.Absence, for people.
func AbsenceText(reason string) string {
	if reason == election.ReasonRaft {
		return "it answers over HTTP, and raft has no contact with it: look at its raft port"
	}
	return "it does not answer over HTTP"
}

// Present reports whether a member counts as present; see Absence.
func (w *Watch) Present(id string) bool {
	reason, _ := w.Absence(id)
	return reason == ""
}

// steady reports whether a member has answered for a while without a silence.
func (w *Watch) steady(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[id]
	return known != nil && known.detector.Steady(w.awake.At(time.Now()))
}

// Reports returns the newest reports of the members that answer pings.
func (w *Watch) Reports() (list []Report) {
	for _, s := range w.answers() {
		list = append(list, s.Report)
	}
	return list
}

// answers returns the newest reports of the members that answer pings, and when they arrived.
func (w *Watch) answers() (list []Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if s.detector.Reachable(w.awake.At(time.Now())) {
			list = append(list, s.Answer)
		}
	}
	return list
}

// Quorum counts voters; Margin is Healthy minus Needed.
type Quorum struct {
	Voters  int `json:"voters"`
	Needed  int `json:"needed"`  // the smallest majority
	Healthy int `json:"healthy"` // that count as present; see Watch.Absence
	Margin  int `json:"margin"`  // below 0: nothing can be decided
}

// AtRisk reports whether the loss of one more voter would stop the cluster, or the loss of one already has.
func (q Quorum) AtRisk() bool { return q.Voters > 1 && q.Margin <= 0 && q.Healthy < q.Voters }

// Quorum counts voters, and those that are present.
func (w *Watch) Quorum(voters []string) Quorum {
	q := Quorum{Voters: len(voters), Needed: len(voters)/2 + 1}
	for _, id := range voters {
		if w.Present(id) {
			q.Healthy++
		}
	}
	q.Margin = q.Healthy - q.Needed
	return q
}
