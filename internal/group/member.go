package group

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// ErrFull refuses a member beyond MaxMembers.
var ErrFull = fmt.Errorf("group: there are %d members already", MaxMembers)

// ErrNoSession says that a member's session has ended, or never began.
var ErrNoSession = errors.New("group: no such session")

// Member receives events. A session begins with Join and ends with the next Join of that
// name, with Leave, or with silence.
type Member struct {
	Name    string
	Session uint64

	since   int64         // when the session began, in nanoseconds since 1970
	seen    int64         // when its last exchange began or ended, in nanoseconds since 1970
	calls   int           // exchanges under way: while there are any, the member is not silent
	gone    bool          // its session has ended and no other has begun
	starved bool          // it asked, holds nothing and got nothing
	ahead   bool          // it takes events of a key that follow one that it has not settled
	held    int           // slots that it holds; what is pinned does not count
	keys    int           // that it owns
	queue   ring[unit]    // its own keys with events that it may get
	lost    []frame.Range // what it must not handle and has not been notified of
	Figures Figures
}

// Figures count what became of a member's events.
type Figures struct {
	Delivered, Acked, Nacked, Expired uint64
}

// Join begins a member's session and ends the one before of that name. The member keeps
// those of the events in holding, which ascend, that nobody else was given; it loses the
// others. What it held and does not name goes to other members.
//
// nacks are the member's unconfirmed nacks; the caller applies them with Nack right after
// Join. An earlier leader may have processed them already and redelivered the events, so
// Join does not restore the member's claim to an event that it released, or that has since
// failed in the delivery that the nack names or a later one: that failure may be this very nack.
func (c *Coordinator) Join(now time.Time, name string, holding []frame.Range, nacks []Nack) (*Member, error) {
	c.setNow(now)
	m := c.members.named(name)
	if m == nil {
		if len(c.members.list) >= MaxMembers {
			return nil, ErrFull
		}
		m = &Member{Name: name, queue: newRing[unit]()}
		c.members.list = append(c.members.list, m)
	}

	// The session starts with no history.
	c.members.last++
	m.Session, m.since, m.lost, m.Figures = c.members.last, c.now, nil, Figures{}
	m.calls = 0
	c.members.keepAlive(m, c.now, c.policy.Session)

	// Fail what it held and does not name.
	c.eachHeld(m, func(n uint64, s *slot) {
		if !frame.HasOffset(holding, s.offset) {
			c.failDelivery(n, s, failure{text: "its member joined again without it"})
		}
	})

	// Let it claim what it names, but for what an unconfirmed nack may have made free.
	unconfirmed := map[uint64]Nack{}
	for _, nack := range nacks {
		unconfirmed[nack.Offset] = nack
	}
	for _, r := range holding {
		m.lost = c.eachIn(r, m.lost, func(n uint64, s *slot) bool {
			nack, nacked := unconfirmed[s.offset]
			if s.state == parked && nacked && nack.mayBeIn(s) {
				return false
			}
			return c.claim(n, s, m)
		})
	}
	return m, nil
}

// claim lets a member keep what it was given in an earlier session.
func (a *assignments) claim(n uint64, s *slot, m *Member) bool {
	if s.state == held {
		return s.member == m
	}
	if s.state != parked || s.count == 0 {
		return false
	}
	// An event of a key can be claimed as the first one of its key that is not held, and
	// only where all held ones are with this member.
	if k := s.key; k != nil {
		a.advanceHead(k)
		if k.head != n || (k.owner != nil && k.owner != m) {
			return false
		}
	}
	// Where the last counted delivery has failed, the member holds a later one, which no
	// leader recorded.
	if s.count == s.fails {
		s.count++
	}
	s.queued = false
	a.assign(s, m)
	if s.key != nil {
		a.dropOtherClaims(s)
		a.queueKey(s.key)
	}
	return true
}

// dropOtherClaims makes the events after a claimed one of their key deliverable: they wait
// for nobody else's claim, since one member holds everything that is held of a key.
func (a *assignments) dropOtherClaims(s *slot) {
	if s.key.held > 1 {
		return // the first claim did it
	}
	for n := s.next; n != 0; n = a.slots.at(n).next {
		if later := a.slots.at(n); later.state == parked && later.notBefore == a.claimsUntil {
			later.notBefore = 0
		}
	}
}

// Enter returns the member for an exchange in its session.
func (c *Coordinator) Enter(now time.Time, name string, session uint64) (*Member, error) {
	c.setNow(now)
	m := c.members.named(name)
	if m == nil || m.Session != session {
		return nil, ErrNoSession
	}
	c.members.keepAlive(m, c.now, c.policy.Session)
	return m, nil
}

// Begin notes that an exchange of the member is under way. The member is not silent until
// the matching End. A session that has ended does not count either.
func (c *Coordinator) Begin(m *Member) { m.calls++ }

// End ends what Begin began, in the session in which it was called.
func (c *Coordinator) End(now time.Time, m *Member, session uint64) {
	c.setNow(now)
	if m.Session == session && !m.gone {
		m.calls--
		c.members.keepAlive(m, c.now, c.policy.Session)
	}
}

// Calls is how many exchanges of the member are under way.
func (m *Member) Calls() int { return m.calls }

// Live reports whether the member's session of that number has not ended.
func (m *Member) Live(session uint64) bool { return m.Session == session && !m.gone }

// Session describes a member and its session.
type Session struct {
	Figures
	Name    string
	Session uint64
	Since   time.Time
	Seen    time.Time     // of its last exchange
	Held    int           // delivered and not settled
	Oldest  time.Duration // the longest that it has held one of them without reporting progress
}

// Sessions lists the members in the order they joined.
func (c *Coordinator) Sessions(now time.Time) []Session {
	c.setNow(now)
	list, index := make([]Session, len(c.members.list)), make(map[*Member]int, len(c.members.list))
	for i, m := range c.members.list {
		index[m] = i
		list[i] = Session{
			Figures: m.Figures,
			Name:    m.Name,
			Session: m.Session,
			Since:   time.Unix(0, m.since).UTC(),
			Seen:    time.Unix(0, m.seen).UTC(),
			Held:    m.held,
		}
	}
	// A held event expires an ack wait after its delivery or the last progress.
	for n := c.slots.first; n < c.slots.next; n++ {
		if s := c.slots.at(n); s.state == held {
			of := &list[index[s.member]]
			of.Oldest = max(of.Oldest, time.Duration(c.now+int64(c.policy.AckWait)-s.ackDeadline))
		}
	}
	return list
}

// Leave ends a member's session. What it holds goes to others and does not count as
// delivered.
func (c *Coordinator) Leave(m *Member) {
	c.eachHeld(m, func(n uint64, s *slot) { c.requeue(n, s, 0, false) })
	c.members.remove(m)
}

// expireSession ends the session of a silent member.
func (c *Coordinator) expireSession(m *Member) {
	text := fmt.Sprintf("%s was not heard of for %s", m.Name, c.policy.Session)
	c.eachHeld(m, func(n uint64, s *slot) { c.failDelivery(n, s, failure{text: text}) })
	c.unpinAll(m)
	c.members.remove(m)
}

// members are the sessions of a group. They know no event: what a member holds is counted in
// the Member by the assignments.
type members struct {
	list  []*Member // in the order they joined
	last  uint64    // the number of the last session that began
	due   int64     // no session ends before it, in nanoseconds since 1970
	yield int       // keys that members with several are to leave to members without one
}

// named returns the member of that name, or nil.
func (ms *members) named(name string) *Member {
	for _, m := range ms.list {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// keepAlive starts the time again, of the length session, in which the member may be silent.
func (ms *members) keepAlive(m *Member, now int64, session time.Duration) {
	m.seen = now
	ms.due = min(ms.due, now+int64(session))
}

// remove ends a member's session. What it held has been taken from it before.
func (ms *members) remove(m *Member) {
	m.gone = true
	ms.setStarved(m, false)
	ms.list = slices.DeleteFunc(ms.list, func(other *Member) bool { return other == m })
}

// setStarved notes whether a member asked and has nothing. For each starved member, one with
// several keys is to leave one of them.
func (ms *members) setStarved(m *Member, starved bool) {
	if m.starved == starved {
		return
	}
	m.starved = starved
	if starved {
		ms.yield++
	} else {
		ms.yield = max(0, ms.yield-1)
	}
}

// addLost notes an offset that the member must not handle, for Lost to return.
func (m *Member) addLost(offset uint64) {
	m.lost = frame.AppendRange(m.lost, frame.Range{From: offset, To: offset})
}

// Lost returns what the member must not handle any more, once, as ascending ranges.
func (m *Member) Lost() (list []frame.Range) {
	list, m.lost = frame.JoinRanges(m.lost), nil
	return list
}

// RestoreLost adds what Lost returned and the member was not notified of.
func (m *Member) RestoreLost(list []frame.Range) { m.lost = append(m.lost, list...) }
