package election

import (
	"slices"
	"time"
)

// Causes of a quorum that one voter sees lost.
const (
	CauseUnreachable = "unreachable" // too few voters answer
	CauseNoLeader    = "no_leader"   // enough answer, and still nobody leads
)

// QuorumConfig says how long a QuorumTracker waits before it decides.
type QuorumConfig struct {
	Reach      time.Duration // how long an answer of a voter counts
	Leaderless time.Duration // without a leader for this long the quorum counts as lost
	Grace      time.Duration // after a start, until the first majority is seen
	Hold       time.Duration // a majority and a leader for this long end an outage
}

// QuorumTracker is one voter's own view of the quorum, with a leader or without. It is
// used by one goroutine.
type QuorumTracker struct {
	cfg      QuorumConfig
	started  time.Time // when it began to observe
	observed time.Time // the last observation
	resumed  time.Time // the end of the last stall
	led      time.Time // when there was a leader last, or the start
	heard    time.Time // when raft last heard of one
	had      bool      // there were a majority and a leader, at least once
	lost     bool      // there is an outage
	since    time.Time // lost: the last moment with a majority, or a leader
	regained time.Time // lost: when a majority came in reach again; zero: not yet
	good     time.Time // lost: since when there are a majority and a leader; zero: not now
}

// NewQuorumTracker returns a tracker that begins to observe at at.
func NewQuorumTracker(at time.Time, c QuorumConfig) *QuorumTracker {
	return &QuorumTracker{cfg: c, started: at, observed: at, led: at}
}

// Observation is what a voter sees at one moment.
type Observation struct {
	Others []time.Time // when each other voter answered last; zero: never
	Leader bool        // somebody leads, this node included: a majority is in reach of that one
	Heard  time.Time   // when raft last heard of that leader, or as the leader of a majority; zero: never
}

// Transition is a change that a QuorumTracker reports.
type Transition struct {
	Kind     TransitionKind
	Since    time.Time // when what it reports began
	Regained time.Time // TransitionRestored: when a majority was in reach again
	Until    time.Time // TransitionRestored, TransitionStalled: when it was over
	Cause    string
}

// TransitionKind says what changed.
type TransitionKind int

// What an observation can show.
const (
	TransitionStalled  TransitionKind = iota // this process did not run
	TransitionLost                           // there is no quorum any more
	TransitionRegained                       // a majority is in reach again
	TransitionSlipped                        // and is out of reach again, before there was a leader
	TransitionRestored                       // there is a majority and a leader
)

// Lost reports whether the voter sees no quorum now, and since when.
func (q *QuorumTracker) Lost() (since time.Time, lost bool) { return q.since, q.lost }

// Resume continues an outage that an earlier run of the process left open, in which a majority was
// in reach again since regained, or was not yet if that is zero.
func (q *QuorumTracker) Resume(since, regained time.Time) {
	q.lost, q.since, q.regained, q.had = true, since, regained, true
}

// Observe takes what the voter sees and returns what has changed. The times of calls must never fall.
func (q *QuorumTracker) Observe(at time.Time, o Observation) (changes []Transition) {
	// While the process did not run nobody could answer it: that does not count as their silence.
	if at.Sub(q.observed) > q.cfg.Reach {
		changes = append(changes, Transition{Kind: TransitionStalled, Since: q.observed, Until: at})
		q.resumed = at
	}
	q.observed = at
	if o.Leader {
		q.led, q.heard = at, latest(q.heard, o.Heard)
	}

	// A leader proves a majority, and raft's last contact with one does for as long as an answer would.
	majority := latest(q.lastMajority(at, o.Others), q.heard)
	inReach := o.Leader || at.Sub(majority) < q.cfg.Reach
	q.had = q.had || (inReach && o.Leader)
	if q.lost {
		return append(changes, q.observeLost(at, inReach, o.Leader)...)
	}

	// A cluster that starts has no quorum to lose until there was one, or the grace is over.
	if !q.had && at.Sub(q.started) < q.cfg.Grace {
		return changes
	}
	// A stall counts for nobody's silence: both waits begin again after it.
	switch {
	case !inReach && at.Sub(latest(majority, q.resumed)) >= q.cfg.Reach:
		return append(changes, q.lose(latest(majority, q.started), CauseUnreachable))
	case at.Sub(latest(q.led, q.resumed)) >= q.cfg.Leaderless:
		return append(changes, q.lose(q.led, CauseNoLeader))
	}
	return changes
}

// lose begins an outage.
func (q *QuorumTracker) lose(since time.Time, cause string) Transition {
	q.lost, q.since, q.regained, q.good = true, since, time.Time{}, time.Time{}
	return Transition{Kind: TransitionLost, Since: since, Cause: cause}
}

// observeLost takes an observation during an outage.
func (q *QuorumTracker) observeLost(at time.Time, inReach, leader bool) (changes []Transition) {
	switch {
	case inReach && q.regained.IsZero():
		q.regained = at
		changes = append(changes, Transition{Kind: TransitionRegained, Since: at})
	// Right after a start nobody has answered yet.
	case !inReach && !q.regained.IsZero() && at.Sub(q.started) >= q.cfg.Grace:
		q.regained = time.Time{}
		changes = append(changes, Transition{Kind: TransitionSlipped, Since: at})
	}
	// The outage is over once a majority and a leader have lasted for Hold.
	if !inReach || !leader {
		q.good = time.Time{}
		return changes
	}
	if q.good.IsZero() {
		q.good = at
	}
	if at.Sub(q.good) < q.cfg.Hold {
		return changes
	}
	q.lost = false
	return append(changes, Transition{Kind: TransitionRestored, Since: q.since, Regained: q.regained, Until: q.good})
}

// lastMajority is the time of the newest answers that make a majority with this voter. Zero: too few have
// ever answered.
func (q *QuorumTracker) lastMajority(at time.Time, others []time.Time) time.Time {
	need := (len(others) + 1) / 2 // this many others and this voter are a majority
	if need == 0 {
		return at
	}
	newest := slices.SortedFunc(slices.Values(others), func(a, b time.Time) int { return b.Compare(a) })
	return newest[need-1]
}
