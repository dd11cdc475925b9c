package election

import (
	"slices"
	"time"
)

// splitAfter is how many reports in a row must prove a rival before it counts as one, and how
// many must deny that it leads before it has yielded.
const splitAfter = 3

// Claim is one report of a member about its leadership. All times are by the clock of who
// received it.
type Claim struct {
	Member    string
	Term      uint64    // in which it leads; 0 if it does not lead
	Confirmed time.Time // a majority of its voters was in Term at this moment or later; zero: not known
	Asked     time.Time // when the report was asked for
	Answered  time.Time // when it arrived
}

// Rivals finds members that lead at the same time as a leader, whatever the terms, and notices
// when they stop. It is for one leadership, and used by one goroutine.
//
// Two terms may each have a leader for a moment, until the older one hears of the newer. What
// Raft excludes is that a majority still is in the older term after a majority was in the newer:
// any two majorities share a voter, and no voter's term falls. Only that counts as a proof,
// so neither a deposed leader nor a paused process is taken for a split.
type Rivals struct {
	since  time.Time         // by then a majority was in the leader's own term; zero: not known yet
	others map[string]*rival // by member
}

// rival is what the reports of one other member have shown.
type rival struct {
	asked  time.Time // of the newest report
	proved bool      // by the newest report
	proofs int       // reports in a row that prove it
	idle   int       // reports in a row in which it does not lead
}

// See takes the newest claim of another member, and the leader's own at now: a majority of voters
// was in term at confirmed or later. It may be called any number of times with the same claim.
func (r *Rivals) See(term uint64, confirmed, now time.Time, c Claim) {
	if r.since.IsZero() && !confirmed.IsZero() {
		r.since = now
	}
	if r.others == nil {
		r.others = map[string]*rival{}
	}
	other := r.others[c.Member]
	if other == nil {
		other = &rival{}
		r.others[c.Member] = other
	}
	if c.Asked.After(other.asked) {
		other.noteReport(c)
	}
	// The same report may prove more later, when a majority has confirmed the own term again.
	if c.Term != 0 && !other.proved && r.proves(term, confirmed, c) {
		other.proved, other.proofs = true, other.proofs+1
	}
}

// noteReport takes in a report that is newer than the last one.
func (o *rival) noteReport(c Claim) {
	if !o.proved {
		o.proofs = 0
	}
	o.asked, o.proved = c.Asked, false
	if c.Term != 0 {
		o.idle = 0
		return
	}
	o.proofs, o.idle = 0, o.idle+1
}

// proves reports whether majorities were in both terms in an order that Raft excludes, or a rival leads in
// the same term.
func (r *Rivals) proves(term uint64, confirmed time.Time, c Claim) bool {
	switch {
	// Without two majorities there is nothing to compare.
	case confirmed.IsZero() || c.Confirmed.IsZero():
		return false
	case c.Term > term:
		return confirmed.After(c.Answered)
	case c.Term < term:
		return c.Confirmed.After(r.since)
	default:
		return true
	}
}

// Proved returns the members that lead beside this leader, sorted.
func (r *Rivals) Proved() (ids []string) {
	for id, other := range r.others {
		if other.proofs >= splitAfter {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Yielded reports whether a member has said for a while that it does not lead.
func (r *Rivals) Yielded(id string) bool {
	other := r.others[id]
	return other != nil && other.idle >= splitAfter
}
