package client

import (
	"maps"
	"slices"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/prefetch"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// office is a group's leader with what the log has of the group, which outlives it.
type office struct {
	c      *group.Coordinator
	now    time.Time
	policy group.Policy
	keys   []string // of the events, by offset-1

	floor, reserved uint64
	done            map[uint64]bool
	retries         map[uint64]frame.GroupRetry
	dead            map[uint64]bool

	term    int
	session uint64
	settle  *group.AckBatch // under way
	stored  bool
	round   int // that takes in what is said now
	flight  int // that is under way
	over    int // the last that ended
}

func (o *office) elect() {
	s := group.State{Committed: o.floor, Reserved: o.reserved}
	for _, offset := range slices.Sorted(maps.Keys(o.done)) {
		if offset > o.floor {
			s.Done = append(s.Done, frame.Range{From: offset, To: offset})
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(o.retries)) {
		s.Retries = append(s.Retries, o.retries[offset])
	}
	o.term++
	o.session += 1000
	o.c = group.New(o.now, s, o.policy, o.session)
	o.settle, o.stored, o.over = nil, false, o.round
	o.round++
	var events []group.Event
	for i, key := range o.keys {
		events = append(events, group.Event{Offset: uint64(i + 1), Key: key, Bytes: 10})
	}
	o.c.Feed(events, uint64(len(events)+1))
}

// commitStep takes the next step of committing acks and letters to the log.
func (o *office) commitStep(reserve int) bool {
	switch {
	case o.settle == nil:
		o.flight, o.round = o.round, o.round+1
		if s, some := o.c.NextAckBatch(reserve, false); some {
			o.settle, o.stored = &s, false
			return true
		}
		return o.bury()
	case !o.stored:
		o.store(o.settle)
		o.stored = true
	default:
		o.c.AckBatchDone(true)
		o.settle = nil
		o.bury()
	}
	return true
}

func (o *office) bury() (some bool) {
	for _, d := range o.c.Deaths() {
		o.done[d.Offset], o.dead[d.Offset], some = true, true, true
		delete(o.retries, d.Offset)
		o.c.LetterStored(d.Offset, true)
	}
	o.advance()
	o.over = o.flight
	return some
}

func (o *office) store(s *group.AckBatch) {
	for _, r := range s.Done {
		for offset := r.From; offset <= r.To; offset++ {
			o.done[offset] = true
			delete(o.retries, offset)
		}
	}
	for _, r := range s.Retries {
		if !o.done[r.Offset] {
			o.retries[r.Offset] = r
		}
	}
	o.reserved = max(o.reserved, s.Reserved)
	o.advance()
}

func (o *office) advance() {
	for o.done[o.floor+1] {
		o.floor++
	}
	o.reserved = max(o.reserved, o.floor)
}

// errand is a call of a member on its way.
type errand struct {
	req     *ringlogv1.ExchangeRequest
	term    int // of the leader that it came to; 0 is none yet
	round   int
	session uint64
	m       *group.Member
	refused []frame.Range
	resp    *ringlogv1.ExchangeResponse
	fenced  bool
	end     func(*ringlogv1.ExchangeRequest, *ringlogv1.ExchangeResponse, error)
}

// enter is what the leader does when a call comes.
func (o *office) enter(e *errand) {
	e.term = o.term
	var err error
	if e.req.Session == 0 {
		var nacks []group.Nack
		for _, n := range e.req.Nacks {
			nacks = append(nacks, nackOf(n))
		}
		e.m, err = o.c.Join(o.now, e.req.Member, framed(e.req.Holding), nacks)
	} else {
		e.m, err = o.c.Enter(o.now, e.req.Member, e.req.Session)
	}
	if err != nil {
		e.fenced = true
		return
	}
	e.session = e.m.Session
	for _, r := range framed(e.req.Acks) {
		e.refused = o.c.Ack(e.m, r, e.refused)
	}
	for _, n := range e.req.Nacks {
		if !o.c.Nack(o.now, e.m, nackOf(n)) {
			e.refused = append(e.refused, frame.Range{From: n.Offset, To: n.Offset})
		}
	}
	if len(e.req.Acks)+len(e.req.Nacks) > 0 {
		e.round = o.round
	}
}

func nackOf(n *ringlogv1.Nack) group.Nack {
	return group.Nack{Offset: n.Offset, Delivery: n.Delivery, Dead: n.Dead, Released: n.Released}
}

func framed(list []*ringlogv1.OffsetRange) (out []frame.Range) {
	for _, r := range list {
		out = append(out, frame.Range{From: r.From, To: r.To})
	}
	return out
}

// answer makes the answer to a call, if it can be.
func (o *office) answer(e *errand) bool {
	switch {
	case e.term != o.term || e.round > o.over:
		return false
	case e.fenced || !e.m.Live(e.session):
		e.fenced = true
		return true
	}
	resp := &ringlogv1.ExchangeResponse{
		Session:   e.session,
		Committed: o.floor,
		Refused:   prefetch.RangesToWire(e.refused),
		Revoked:   prefetch.RangesToWire(e.m.Lost()),
	}
	if e.req.Want > 0 {
		for _, d := range o.c.Take(
			o.now,
			e.m,
			group.Demand{Events: int(e.req.Want), Bytes: 1 << 20, Units: int(e.req.Want), Ahead: e.req.Ahead},
			nil,
		) {
			resp.Runs = append(
				resp.Runs,
				&ringlogv1.Run{
					Events: []*ringlogv1.Event{{Type: "X", Key: o.keys[d.Offset-1], Offset: d.Offset, Payload: []byte("{}")}},
				},
			)
			resp.Deliveries = append(resp.Deliveries, &ringlogv1.Delivery{Offset: d.Offset, Count: d.Count})
		}
	}
	e.resp = resp
	return true
}
