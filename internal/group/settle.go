package group

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of what is kept of a failure until its event is settled, in bytes.
const (
	maxText    = 1 << 10
	maxHandler = 256
)

// Nack says that a member could not handle an event. Released returns it unhandled, which
// does not count as a delivery; Dead asks for no further delivery. Delivery is which one of the
// event failed, from 1; 0 is not known.
type Nack struct {
	Offset   uint64
	Delivery uint64
	Delay    time.Duration
	Error    string
	Handler  string
	Dead     bool
	Released bool
}

// Ack settles what the member holds of the range, and appends the rest of it to refused.
func (c *Coordinator) Ack(m *Member, r frame.Range, refused []frame.Range) []frame.Range {
	return c.eachIn(r, refused, func(n uint64, s *slot) bool {
		if s.state != held || s.member != m {
			return false
		}
		m.Figures.Acked++
		c.settleSlot(n, s)
		return true
	})
}

// Progress starts the ack wait again for what the member holds of the range, and appends
// the rest of it to refused.
func (c *Coordinator) Progress(now time.Time, m *Member, r frame.Range, refused []frame.Range) []frame.Range {
	c.setNow(now)
	return c.eachIn(r, refused, func(_ uint64, s *slot) bool {
		if s.state != held || s.member != m {
			return false
		}
		s.ackDeadline = c.now + int64(c.policy.AckWait)
		return true
	})
}

// Nack ends a delivery. It returns false if the member does not hold the event.
func (c *Coordinator) Nack(now time.Time, m *Member, nack Nack) bool {
	c.setNow(now)
	n, s := c.slotAt(nack.Offset)
	if s == nil || s.state != held || s.member != m {
		return false
	}
	// What a member releases did not fail: it is deliverable at once, and the delivery does not count.
	if nack.Released {
		c.requeue(n, s, 0, false)
		return true
	}
	m.Figures.Nacked++
	c.failDelivery(n, s, failure{
		text:     nack.Error,
		handler:  nack.Handler,
		at:       c.now + int64(max(0, nack.Delay)),
		dead:     nack.Dead,
		recorded: true,
	})
	return true
}

// mayBeIn reports whether an earlier leader may have processed the nack of a parked event, whose slot has what the
// log knows.
func (n *Nack) mayBeIn(s *slot) bool {
	switch {
	case n.Released:
		return true // a release leaves no trace in the log
	case n.Dead:
		return false // the event would not be parked
	case n.Delivery == 0:
		return s.failed
	}
	return uint64(s.fails) >= n.Delivery
}

// settleSlot settles a slot in whatever state it is.
func (c *Coordinator) settleSlot(n uint64, s *slot) {
	if s.state == held {
		c.pin(s)
	}
	if s.failed {
		delete(c.reasons, s.offset)
	}
	if s.state == dying && s.key != nil {
		s.key.dying--
	}
	s.state = acked
	c.unsettled--
	c.markDirty(n)

	// The next event of its key may be deliverable now.
	if k := s.key; k != nil {
		k.open--
		c.queueKey(k)
		c.dropKey(k)
	}
}

// failure says how a delivery ended.
type failure struct {
	text     string
	handler  string // "" is the member's name
	at       int64  // no redelivery before it
	dead     bool   // no redelivery at all
	recorded bool   // the log has to record it
}

// failDelivery ends a delivery that counts: the event is parked for redelivery, or it dies.
func (c *Coordinator) failDelivery(n uint64, s *slot, f failure) {
	if f.handler == "" {
		f.handler = s.member.Name
	}
	if f.dead || c.lastDelivery(s) {
		c.markDead(s, f)
		return
	}
	// requeue keeps the event out of the queues until the log has this failure.
	if f.recorded {
		s.failed, s.unreported, s.fails = true, true, s.count
		c.noteReason(s, f)
		c.markDirty(n)
	}
	c.requeue(n, s, f.at, true)
}

// lastDelivery reports whether an event is not delivered again once its delivery has failed.
func (c *Coordinator) lastDelivery(s *slot) bool {
	return c.policy.MaxDeliver > 0 && uint64(s.count) >= c.policy.MaxDeliver
}

// noteReason keeps why the newest delivery of an event failed, and when the first did.
func (c *Coordinator) noteReason(s *slot, f failure) {
	first := c.reasons[s.offset].first
	if first == 0 {
		first = c.now
	}
	c.reasons[s.offset] = reason{truncate(f.text, maxText), truncate(f.handler, maxHandler), first}
}

// markDead ends the deliveries of an event. The later ones of its key that are held stay
// with their member, since this one is not redelivered. Those that are parked wait until
// its dead letter is stored: before that, another leader would deliver this one again.
func (c *Coordinator) markDead(s *slot, f failure) {
	// A session that ends without an error keeps the error of the delivery before.
	if old, had := c.reasons[s.offset]; f.text == "" && had {
		f.text = old.text
	}
	c.noteReason(s, f)
	s.failed = true
	if s.key != nil {
		s.key.dying++
	}
	c.unassign(s)
	s.state = dying
	c.dying = append(c.dying, s.offset)
}

// expireDelivery fails a delivery that exceeded the ack wait.
func (c *Coordinator) expireDelivery(n uint64, s *slot) {
	m := s.member
	m.Figures.Expired++
	m.addLost(s.offset)
	text := fmt.Sprintf("not acknowledged within %s by %s", c.policy.AckWait, m.Name)
	c.failDelivery(n, s, failure{text: text, recorded: true})
}

// truncate bounds a text in bytes, at the start of a rune.
func truncate(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit])
}
