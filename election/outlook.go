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

// OutlookConfig says how patient an Outlook is.
type OutlookConfig struct {
	Reach      time.Duration // how long an answer of a voter counts
	Leaderless time.Duration // without a leader for so long the quorum counts as lost
	Grace      time.Duration // after a start, until the first majority is seen
	Hold       time.Duration // a majority and a leader for so long end an outage
}

// Outlook is one voter's own view of the quorum, with a leader or without. It is
// used by one goroutine.
type Outlook struct {
	cfg      OutlookConfig
	started  time.Time
	seen     time.Time // the last look
	resumed  time.Time // the end of the last stall
	led      time.Time // when there was a leader last, or the start
	heard    time.Time // when raft last heard of one
	had      bool      // a majority and a leader, at least once
	lost     bool
	since    time.Time // lost: the last moment with a majority, or a leader
	regained time.Time // lost: when a majority came in reach again; zero: not yet
	good     time.Time // lost: since when there are a majority and a leader; zero: not now
}

// NewOutlook begins to watch.
func NewOutlook(at time.Time, c OutlookConfig) *Outlook {
	return &Outlook{cfg: c, started: at, seen: at, led: at}
}

// Sight is what a voter sees at one moment.
type Sight struct {
	Others []time.Time // when each other voter answered last; zero: never
	Leader bool        // somebody leads, this node included: a majority is in reach of that one
	Heard  time.Time   // when raft last heard of that leader, or as the leader of a majority; zero: never
}

// Turn is a change in an Outlook.
type Turn struct {
	Kind     TurnKind
	Since    time.Time // when what it tells began
	Regained time.Time // TurnRestored: when a majority was in reach again
	Until    time.Time // TurnRestored, TurnStalled: when it was over
	Cause    string
}

// TurnKind says what changed.
type TurnKind int

// What a look can tell.
const (
	TurnStalled  TurnKind = iota // this process did not run
	TurnLost                     // there is no quorum any more
	TurnRegained                 // a majority is in reach again
	TurnSlipped                  // and is out of reach again, before there was a leader
	TurnRestored                 // there is a majority and a leader
)

// Lost reports whether the voter sees no quorum now, and since when.
func (o *Outlook) Lost() (since time.Time, lost bool) { return o.since, o.lost }

// Resume goes on with an outage that an earlier run of the process left open, in which a majority was
// in reach again since regained, or was not yet if that is zero.
func (o *Outlook) Resume(since, regained time.Time) {
	o.lost, o.since, o.regained, o.had = true, since, regained, true
}

// See takes in what the voter sees and tells what has changed. Times never fall.
func (o *Outlook) See(at time.Time, s Sight) (turns []Turn) {
	if at.Sub(o.seen) > o.cfg.Reach {
		turns = append(turns, Turn{Kind: TurnStalled, Since: o.seen, Until: at})
		o.resumed = at
	}
	o.seen = at
	if s.Leader {
		o.led, o.heard = at, latest(o.heard, s.Heard)
	}
	majority := latest(o.majority(at, s.Others), o.heard)
	inReach := s.Leader || at.Sub(majority) < o.cfg.Reach
	o.had = o.had || inReach && s.Leader
	if o.lost {
		return append(turns, o.recover(at, inReach, s.Leader)...)
	}
	patience := at.Sub(o.started) >= o.cfg.Grace || o.had
	switch {
	case !patience:
		return turns
	case !inReach && at.Sub(latest(majority, o.resumed)) >= o.cfg.Reach:
		return append(turns, o.lose(latest(majority, o.started), CauseUnreachable))
	case at.Sub(latest(o.led, o.resumed)) >= o.cfg.Leaderless:
		return append(turns, o.lose(o.led, CauseNoLeader))
	}
	return turns
}

func (o *Outlook) lose(since time.Time, cause string) Turn {
	o.lost, o.since, o.regained, o.good = true, since, time.Time{}, time.Time{}
	return Turn{Kind: TurnLost, Since: since, Cause: cause}
}

func (o *Outlook) recover(at time.Time, inReach, leader bool) (turns []Turn) {
	switch {
	case inReach && o.regained.IsZero():
		o.regained = at
		turns = append(turns, Turn{Kind: TurnRegained, Since: at})
	case !inReach && !o.regained.IsZero() && at.Sub(o.started) >= o.cfg.Grace: // nobody has answered right after a start
		o.regained = time.Time{}
		turns = append(turns, Turn{Kind: TurnSlipped, Since: at})
	}
	if !inReach || !leader {
		o.good = time.Time{}
		return turns
	}
	if o.good.IsZero() {
		o.good = at
	}
	if at.Sub(o.good) < o.cfg.Hold {
		return turns
	}
	o.lost = false
	return append(turns, Turn{Kind: TurnRestored, Since: o.since, Regained: o.regained, Until: o.good})
}

// majority is the last moment at which enough voters had answered, self included.
func (o *Outlook) majority(at time.Time, others []time.Time) time.Time {
	need := (len(others) + 1) / 2 // of the others
	if need == 0 {
		return at
	}
	newest := slices.SortedFunc(slices.Values(others), func(a, b time.Time) int { return b.Compare(a) })
	return newest[need-1]
}
