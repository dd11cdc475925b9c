package groups

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/frame"
)

// ErrFull refuses a member beyond MaxMembers.
var ErrFull = fmt.Errorf("groups: there are %d members already", MaxMembers)

// ErrNoSession says that a member's session is over, or that there never was one.
var ErrNoSession = errors.New("groups: no such session")

// Member is who events are handed to. A session begins with Join and ends with the next
// one, with Leave, or with silence.
type Member struct {
	Name    string
	Session uint64

	since   int64
	seen    int64
	calls   int  // exchanges under way: it is not silent
	gone    bool // its session is over and no other has begun
	hungry  bool // it came, holds nothing and got nothing
	ahead   bool // it takes events of a key that follow one that it has not settled
	held    int
	keys    int           // that it owns
	queue   ring[unit]    // keys of its own with events that it may get
	lost    []frame.Range // what it is to be told not to handle
	Figures Figures
}

// Figures count what became of a member's events.
type Figures struct {
	Delivered, Acked, Nacked, Expired uint64
}

// Join begins a member's session, and ends the one before of that name. Of the events in
// holding, which rise, it keeps those that nobody else was given; the others are lost to
// it, and what it held and does not name goes to others.
//
// Of the nacks, which Nack is called with next, the member can not tell whether a leader
// has taken them already. So it does not keep of them what such a nack would have made
// free: what it gives back, and what has failed, which may be that very failure.
func (c *Coordinator) Join(now time.Time, name string, holding []frame.Range, nacks []Nack) (*Member, error) {
	c.tell(now)
	m := c.member(name)
	if m == nil {
		if len(c.members) >= MaxMembers {
			return nil, ErrFull
		}
		m = &Member{Name: name, queue: newRing[unit]()}
		c.members = append(c.members, m)
	}
	c.session++
	m.Session, m.since, m.lost, m.Figures = c.session, c.now, nil, Figures{}
	m.calls = 0
	c.heard(m)
	for n := c.slots.next; n > c.slots.first && m.held > 0; n-- {
		if s := c.slots.at(n - 1); s.state == held && s.member == m && !frame.HasOffset(holding, s.offset) {
			c.fail(n-1, s, failure{text: "its member joined anew without it"})
		}
	}
	doubtful := map[uint64]Nack{}
	for _, nack := range nacks {
		doubtful[nack.Offset] = nack
	}
	for _, r := range holding {
		m.lost = c.each(r, m.lost, func(n uint64, s *slot) bool {
			nack, told := doubtful[s.offset]
			if s.state == parked && told && (nack.Released || s.failed && !nack.Dead) {
				return false
			}
			return c.claim(n, s, m)
		})
	}
	return m, nil
}

// claim lets a member keep what it was given in an earlier session.
func (c *Coordinator) claim(n uint64, s *slot, m *Member) bool {
	if s.state == held {
		return s.member == m
	}
	if s.state != parked || s.count == 0 {
		return false
	}
	if k := s.key; k != nil {
		if c.advance(k); k.head != n || k.owner != nil && k.owner != m {
			return false
		}
	}
	if s.count == s.fails {
		s.count++ // it failed so often, and is held once more
	}
	s.queued = false
	c.hold(s, m)
	if s.key != nil {
		c.unclaim(s)
		c.wake(s.key)
	}
	return true
}

// unclaim lets what stands behind a claimed event of a key wait for nobody else's claim:
// all that was handed out of a key is with one member.
func (c *Coordinator) unclaim(s *slot) {
	if s.key.held > 1 {
		return // the first one did
	}
	for n := s.next; n != 0; n = c.slots.at(n).next {
		if later := c.slots.at(n); later.state == parked && later.at == c.loaded.claims {
			later.at = 0
		}
	}
}

func (c *Coordinator) member(name string) *Member {
	for _, m := range c.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Enter begins a member's exchange in a session that it has; Exit ends it.
func (c *Coordinator) Enter(now time.Time, name string, session uint64) (*Member, error) {
	c.tell(now)
	m := c.member(name)
	if m == nil || m.Session != session {
		return nil, ErrNoSession
	}
	c.heard(m)
	return m, nil
}

// Begin says that an exchange of the member is under way: until its End the member is
// not silent. A session that is over is none of both.
func (c *Coordinator) Begin(m *Member) { m.calls++ }

// End is Begin's other half, for the session that Begin was called in.
func (c *Coordinator) End(now time.Time, m *Member, session uint64) {
	c.tell(now)
	if m.Session == session && !m.gone {
		m.calls--
		c.heard(m)
	}
}

// Calls is how many exchanges of the member are under way.
func (m *Member) Calls() int { return m.calls }

// Live reports whether a session of the member's lasts.
func (m *Member) Live(session uint64) bool { return m.Session == session && !m.gone }

func (c *Coordinator) heard(m *Member) {
	m.seen = c.now
	c.silence = min(c.silence, m.seen+int64(c.policy.Session))
}

// Session is how a member looks from outside.
type Session struct {
	Figures
	Name    string
	Session uint64
	Since   time.Time
	Seen    time.Time     // of its last word
	Held    int           // handed out and not settled
	Oldest  time.Duration // since the oldest of those was handed out, or there was word of it
}

// Sessions lists the members in the order they came.
func (c *Coordinator) Sessions(now time.Time) []Session {
	c.tell(now)
	list, index := make([]Session, len(c.members)), make(map[*Member]int, len(c.members))
	for i, m := range c.members {
		index[m] = i
		list[i] = Session{Figures: m.Figures, Name: m.Name, Session: m.Session, Since: time.Unix(0, m.since).UTC(), Seen: time.Unix(0, m.seen).UTC(), Held: m.held}
	}
	for n := c.slots.first; n < c.slots.next; n++ {
		if s := c.slots.at(n); s.state == held {
			one := &list[index[s.member]]
			one.Oldest = max(one.Oldest, time.Duration(c.now+int64(c.policy.AckWait)-s.at))
		}
	}
	return list
}

// Leave ends a member's session; what it holds goes to others, not counted as delivered.
func (c *Coordinator) Leave(m *Member) {
	for n := c.slots.next; n > c.slots.first && m.held > 0; n-- {
		if s := c.slots.at(n - 1); s.state == held && s.member == m {
			c.putBack(n-1, s, 0, false)
		}
	}
	c.remove(m)
}

// silent ends the session of a member that says nothing.
func (c *Coordinator) silent(m *Member) {
	text := fmt.Sprintf("%s was not heard of for %s", m.Name, c.policy.Session)
	for n := c.slots.next; n > c.slots.first && m.held > 0; n-- {
		if s := c.slots.at(n - 1); s.state == held && s.member == m {
			c.fail(n-1, s, failure{text: text})
		}
	}
	c.unpinAll(m)
	c.remove(m)
}

func (c *Coordinator) remove(m *Member) {
	m.gone = true
	c.fed(m)
	c.members = slices.DeleteFunc(c.members, func(other *Member) bool { return other == m })
}

func (m *Member) lose(offset uint64) {
	m.lost = frame.AppendRange(m.lost, frame.Range{From: offset, To: offset})
}

// RestoreLost gives back what Lost returned and the member was not told.
func (m *Member) RestoreLost(list []frame.Range) { m.lost = append(m.lost, list...) }

// Lost returns what the member must not handle any more, once, as ranges that rise.
func (m *Member) Lost() (list []frame.Range) {
	list, m.lost = frame.JoinRanges(m.lost), nil
	return list
}
