package groups

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/frame"
)

// Bounds of what is kept of a failure's words until its event is settled.
const (
	maxText    = 1 << 10
	maxHandler = 256
)

// Nack says that a member could not handle an event. Released gives it back unhandled,
// which does not count; Dead gives it up.
type Nack struct {
	Offset   uint64
	Delay    time.Duration
	Error    string
	Handler  string
	Dead     bool
	Released bool
}

// Ack settles what the member holds of the range, and adds the rest of it to refused.
func (c *Coordinator) Ack(m *Member, r frame.Range, refused []frame.Range) []frame.Range {
	return c.each(r, refused, func(n uint64, s *slot) bool {
		if s.state != held || s.member != m {
			return false
		}
		m.Figures.Acked++
		c.finish(n, s)
		return true
	})
}

// Progress gives what the member holds of the range its whole time again.
func (c *Coordinator) Progress(now time.Time, m *Member, r frame.Range, refused []frame.Range) []frame.Range {
	c.tell(now)
	return c.each(r, refused, func(_ uint64, s *slot) bool {
		if s.state != held || s.member != m {
			return false
		}
		s.at = c.now + int64(c.policy.AckWait)
		return true
	})
}

// Nack ends a delivery; false says that the member does not hold the event.
func (c *Coordinator) Nack(now time.Time, m *Member, nack Nack) bool {
	c.tell(now)
	n := c.find(nack.Offset)
	if !c.slots.has(n) {
		return false
	}
	s := c.slots.at(n)
	if s.offset != nack.Offset || s.state != held || s.member != m {
		return false
	}
	if nack.Released {
		c.putBack(n, s, 0, false)
		return true
	}
	m.Figures.Nacked++
	c.fail(n, s, failure{text: nack.Error, handler: nack.Handler, dead: nack.Dead, told: true, at: c.now + int64(max(0, nack.Delay))})
	return true
}

// failure says how a delivery ended.
type failure struct {
	text    string
	handler string // "" is the member's name
	at      int64  // it comes again not before
	dead    bool   // it does not come again in any case
	told    bool   // it is to be kept in the log
}

// fail ends a delivery that counts: the event comes again, or dies.
func (c *Coordinator) fail(n uint64, s *slot, f failure) {
	if f.handler == "" {
		f.handler = s.member.Name
	}
	if f.dead || c.policy.MaxDeliver > 0 && uint64(s.count) >= c.policy.MaxDeliver {
		c.die(s, f)
		return
	}
	if f.told {
		s.failed, s.untold, s.fails = true, true, s.count
		c.notes[s.offset] = note{clip(f.text, maxText), clip(f.handler, maxHandler)}
		c.touch(n)
	}
	c.putBack(n, s, f.at, true)
}

// die gives an event up. The later ones of its key that are held go on: it does not come
// again. The others wait until its letter is stored, before which another leader would hand
// it out.
func (c *Coordinator) die(s *slot, f failure) {
	if old, had := c.notes[s.offset]; f.text == "" && had {
		f.text = old.text
	}
	c.notes[s.offset] = note{clip(f.text, maxText), clip(f.handler, maxHandler)}
	s.failed = true
	if s.key != nil {
		s.key.dying++
	}
	c.unhold(s)
	s.state = dying
	c.dying = append(c.dying, s.offset)
}

// expire ends a delivery that its member was too long about.
func (c *Coordinator) expire(n uint64, s *slot) {
	m := s.member
	m.Figures.Expired++
	m.lose(s.offset)
	c.fail(n, s, failure{text: fmt.Sprintf("not acknowledged within %s by %s", c.policy.AckWait, m.Name), told: true})
}

// clip bounds a text in bytes.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit])
}
