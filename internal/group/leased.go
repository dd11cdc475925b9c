package group

import (
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// Leased is what a member settles under the lease of a role. The log decides it before the coordinator counts it: the
// member holds its events until then.
type Leased struct {
	Done    []frame.Range
	Retries []frame.GroupRetry
	Deaths  []Death

	nacks []Nack // those of Retries
}

// PlanLeased returns what acks and nacks of a member settle, and what of them the member does not hold. What it
// releases is not settled, and is released at once.
func (c *Coordinator) PlanLeased(
	now time.Time, m *Member, acks []frame.Range, nacks []Nack,
) (l Leased, refused []frame.Range) {
	c.setNow(now)
	for _, r := range acks {
		refused = c.eachIn(r, refused, func(_ uint64, s *slot) bool {
			if s.state != held || s.member != m {
				return false
			}
			l.Done = frame.AppendRange(l.Done, frame.Range{From: s.offset, To: s.offset})
			return true
		})
	}
	for _, nack := range nacks {
		_, s := c.slotAt(nack.Offset)
		switch {
		case s == nil || s.state != held || s.member != m:
			refused = append(refused, frame.Range{From: nack.Offset, To: nack.Offset})
		case nack.Released:
			c.Nack(now, m, nack)
		case nack.Dead || c.lastDelivery(s):
			first := c.reasons[s.offset].first
			if first == 0 {
				first = c.now
			}
			if nack.Handler == "" {
				nack.Handler = m.Name
			}
			l.Deaths = append(l.Deaths, Death{Offset: s.offset, Attempts: uint64(s.count), FirstFailed: time.Unix(0, first),
				Error: truncate(nack.Error, maxText), Handler: truncate(nack.Handler, maxHandler)})
		default:
			retry := frame.GroupRetry{Offset: s.offset, Deliveries: uint64(s.count), Error: truncate(nack.Error, maxText)}
			if nack.Delay > 0 {
				retry.After = time.Unix(0, c.now+int64(nack.Delay)).UTC()
			}
			l.Retries, l.nacks = append(l.Retries, retry), append(l.nacks, nack)
		}
	}
	// A member may name them in any order, and the log takes ascending ones.
	slices.SortFunc(l.Retries, func(a, b frame.GroupRetry) int { return int(int64(a.Offset - b.Offset)) })
	return l, refused
}

// LeasedDone counts what the log has settled for a member. An event that was taken from the member meanwhile is settled
// as well, whoever holds it by now.
func (c *Coordinator) LeasedDone(now time.Time, m *Member, l Leased) {
	c.setNow(now)
	for _, r := range l.Done {
		c.eachIn(r, nil, func(n uint64, s *slot) bool {
			if s.state == held && s.member == m {
				m.Figures.Acked++
			}
			c.settleStored(n, s, m)
			return true
		})
	}
	for _, nack := range l.nacks {
		c.Nack(now, m, nack)
	}
}

// LeasedDead counts an event whose dead letter was stored for a member.
func (c *Coordinator) LeasedDead(m *Member, offset uint64) {
	n, s := c.slotAt(offset)
	if s == nil {
		return
	}
	if s.state == held && s.member == m {
		m.Figures.Nacked++
	}
	c.settleStored(n, s, m)
}

// settleStored settles an event that the log has as settled by m.
func (c *Coordinator) settleStored(n uint64, s *slot, m *Member) {
	if s.settled() {
		return
	}
	if s.state == held && s.member != m {
		s.member.addLost(s.offset)
	}
	c.dying = slices.DeleteFunc(c.dying, func(offset uint64) bool { return offset == s.offset })
	c.settleSlot(n, s)
}
