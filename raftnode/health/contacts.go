package health

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Contacts remembers, per member, when the newest AppendEntries that it answered
// in the sender's own term was sent.
//
// raft.VerifyLeader counts answers by when they arrive. An answer that was buffered while this process was paused
// would prove a leadership that has ended; so what counts is when the request was sent.
type Contacts struct {
	mu    sync.Mutex                // guards both maps, which are nil until the first entry
	asked map[raft.ServerID]contact // by member; an entry is replaced by a later term and never removed
	calls map[raft.ServerID]calls
}

// calls are raft's own requests to a member, answered or not.
type calls struct {
	underWay int       // begun and not ended
	ended    time.Time // when one last began or ended
}

// contact is a member's newest answer to raft, and what it has of the leader's log, both in one term.
type contact struct {
	term uint64
	at   time.Time // when the answered request was sent

	matched uint64    // the last entry that it has, and the leader too
	replied time.Time // when it last confirmed that
}

// Note takes an answer of a member, in term, to a request that was sent at a time. It ignores older ones.
func (c *Contacts) Note(id raft.ServerID, term uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = make(map[raft.ServerID]contact)
	}
	last := c.asked[id]
	switch {
	// What was matched in an earlier term was the log of another leadership.
	case term > last.term:
		c.asked[id] = contact{term: term, at: at, replied: at}
	case term == last.term && at.After(last.at):
		last.at = at
		c.asked[id] = last
	}
}

// Match notes that a member has the leader's log up to an entry. Raft asks every member
// for that, also while nothing is appended.
func (c *Contacts) Match(id raft.ServerID, term, index uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.asked[id]; last.term == term {
		last.matched, last.replied = index, now
		c.asked[id] = last
	}
}

// Stalled returns how long a member that lacks entries of the leader's log, which ends at last, has confirmed
// nothing; 0 if it lacks none or has not answered in term.
func (c *Contacts) Stalled(id raft.ServerID, term, last uint64, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Nothing is known about another term, whose log was another leader's.
	known := c.asked[id]
	if known.term != term || known.matched >= last {
		return 0
	}
	return now.Sub(known.replied)
}

// Quorum reports whether a majority of the servers' voters, self among them
// without being asked, still was in term at some moment after since.
func (c *Contacts) Quorum(self raft.ServerID, servers []raft.Server, term uint64, since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	voters, with := 0, 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		// An answer counts by when its request was sent: it shows the term that the voter was in then or later.
		if last := c.asked[s.ID]; s.ID == self || (last.term == term && !last.at.Before(since)) {
			with++
		}
	}
	return with > voters/2
}

// Majority returns the last moment at which a majority of the voters was in term, self counting as in it now; zero
// if there was none.
func (c *Contacts) Majority(self raft.ServerID, servers []raft.Server, term uint64, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	var at []time.Time
	for _, s := range servers {
		switch last := c.asked[s.ID]; {
		case s.Suffrage != raft.Voter:
		case s.ID == self:
			at = append(at, now)
		case last.term == term:
			at = append(at, last.at)
		default:
			at = append(at, time.Time{})
		}
	}
	if len(at) == 0 {
		return time.Time{}
	}
	// The middle one, newest first: as many voters as a majority were in term then or later.
	slices.SortFunc(at, func(a, b time.Time) int { return b.Compare(a) })
	return at[len(at)/2]
}

// Newest is when the newest answered request to a member was sent; zero if none
// was.
func (c *Contacts) Newest(id raft.ServerID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[id].at
}

// Begin notes that a request to a member is being sent.
func (c *Contacts) Begin(id raft.ServerID) { c.countCall(id, 1) }

// End notes that a request has been answered or has failed.
func (c *Contacts) End(id raft.ServerID) { c.countCall(id, -1) }

// countCall adds by to the requests under way to a member.
func (c *Contacts) countCall(id raft.ServerID, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[raft.ServerID]calls)
	}
	c.calls[id] = calls{c.calls[id].underWay + by, time.Now()}
}

// Quiet reports whether no request to a member has been under way for that duration.
func (c *Contacts) Quiet(id raft.ServerID, duration time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.calls[id]
	return last.underWay == 0 && time.Since(last.ended) > duration
}
