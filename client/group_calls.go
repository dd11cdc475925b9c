package client

import (
	"context"
	"errors"
	"slices"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

// join begins a session, with what the member holds.
func (m *GroupMember) join(ctx context.Context) error {
	m.fetchMu.Lock() // the call of the session before is over
	defer m.fetchMu.Unlock()
	resp, err := m.c.exchangeGroup(ctx, m.beginJoining(), anew)
	if err == nil {
		m.endJoining(resp)
	}
	return err
}

func (m *GroupMember) beginJoining() *ringlogv1.ExchangeRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resend {
		// What came again since was nacked: once more would be a second failure.
		again := func(offset uint64) bool { return m.stock.held[offset] != nil || m.open.tells(offset) }
		m.sent.nacks = slices.DeleteFunc(m.sent.nacks, func(f failure) bool { return again(f.wire.Offset) })
		m.open.returned = append(slices.DeleteFunc(m.sent.returned, again), m.open.returned...)
		m.sent.returned = nil
	}
	m.forsake()
	req := m.request()
	if m.doubtful() {
		m.sent.fill(req)
	}
	m.back().fill(req)
	holding := rangesOf(m.stock.offsets())
	for _, s := range m.unanswered() {
		holding = append(holding, s.acks...)
		for _, f := range s.nacks {
			holding = addOffset(holding, f.wire.Offset)
		}
		holding = append(holding, rangesOf(slices.Clone(s.returned))...)
	}
	if holding = compact(holding); len(holding) > maxSettleRanges {
		holding = holding[:maxSettleRanges]
		m.stock.keepOnly(holding[maxSettleRanges-1].To)
	}
	req.Holding = rangesToWire(holding)
	return req
}

func (m *GroupMember) endJoining(resp *ringlogv1.ExchangeResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resend {
		m.sent.away = m.sent.away || time.Since(m.heard) > m.timeout
	}
	m.session = resp.GetSession()
	m.inSession, m.cutSession = context.WithCancel(context.Background())
	m.take(resp, false)
	if m.doubtful() {
		m.confirm(m.sent, resp)
		m.sent, m.resend = nil, false
	}
	m.open.returned = m.open.returned[len(m.back().returned):]
	m.releaseHeld()
}

// doubtful reports whether the group perhaps has what was settled last. Then it is said
// again with joining, so that the group knows what the member asks for in spite of it.
// The caller holds mu.
func (m *GroupMember) doubtful() bool { return m.resend && m.sent.lost }

// forsake gives back what stands behind a nack that the group perhaps has: then it has
// taken that back, and others may have it. The caller holds mu.
func (m *GroupMember) forsake() {
	stopped := m.held
	if m.doubtful() {
		stopped = slices.Concat(stopped, m.sent.nacks)
	}
	for _, f := range stopped {
		m.open.returned = append(m.open.returned, m.stock.forsake(f)...)
	}
}

// back is what is given back with joining, so that it is not kept if others may have it. The
// caller holds mu.
func (m *GroupMember) back() *settlement {
	return &settlement{returned: m.open.returned[:min(len(m.open.returned), maxSettleRanges)]}
}

// unanswered is what was settled and is not known to be durable.
func (m *GroupMember) unanswered() []*settlement {
	if m.sent == nil {
		return []*settlement{&m.open}
	}
	return []*settlement{&m.open, m.sent}
}

// settle makes a call with what has gathered, or with nothing, which keeps the session.
func (m *GroupMember) settle(ctx context.Context) error {
	req := m.beginSettling()
	resp, err := m.c.exchangeGroup(ctx, req, once)
	m.endSettling(req, resp, err)
	return err
}

func (m *GroupMember) beginSettling() *ringlogv1.ExchangeRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	req := m.request()
	m.collect().fill(req)
	m.stock.settling = true
	return req
}

func (m *GroupMember) endSettling(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stock.settling = false
	defer clear(m.stock.outdated)
	if err != nil {
		m.resend = true
		m.sent.lost = m.sent.lost || errors.Is(err, ErrOutcomeUnknown)
		m.broke(req.Session, err)
		return
	}
	m.take(resp, true)
	m.confirm(m.sent, resp)
	m.sent, m.resend = nil, false
	m.askForMore() // it may have waited for this
}

// leave gives back what is held. Where it fails the group takes it back in its time.
func (m *GroupMember) leave(ctx context.Context) {
	m.fetchMu.Lock()
	defer m.fetchMu.Unlock()
	m.mu.Lock()
	req := m.request()
	m.failed = m.named(ErrClosed)
	m.mu.Unlock()
	req.Leave = true
	if _, err := m.c.exchangeGroup(ctx, req, once); err != nil {
		m.c.cfg.Logger.Debug("leaving a group", "group", m.group, "member", m.member, "error", err)
	}
}

// fetch makes a call for events, if there is a session and room for them.
func (m *GroupMember) fetch(ctx context.Context) (did bool, err error) {
	m.fetchMu.Lock()
	defer m.fetchMu.Unlock()
	req, inSession := m.beginFetching()
	if req == nil {
		return false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(inSession, cancel)()
	began := time.Now()
	resp, err := m.c.exchangeGroup(ctx, req, once)
	quick := time.Since(began) < time.Duration(req.WaitMs)*time.Millisecond/2
	if err = m.endFetching(req, resp, err); err == nil && quick && len(resp.Runs)+len(resp.Revoked)+len(resp.Gaps) == 0 {
		err = errNothing
	}
	return true, err
}

// errNothing makes a pause where a node does not wait for events.
var errNothing = errors.New("nothing came, and soon")

func (m *GroupMember) beginFetching() (*ringlogv1.ExchangeRequest, context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req, want := m.request(), m.wanted()
	if m.session == 0 || want == 0 || m.resend || m.closing || m.failed != nil {
		return nil, nil
	}
	req.Want = uint32(want)
	req.WaitMs = uint32(max(1, min(m.timeout/3, m.c.cfg.AttemptTimeout/2).Milliseconds()))
	req.Ahead = true // stock keeps what follows an event of its key until that is settled
	m.stock.fetching, m.fetchIdle = true, false
	return req, m.inSession
}

func (m *GroupMember) endFetching(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) error {
	var shares []*share
	if err == nil {
		shares, err = sharesOf(resp)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stock.fetching = false
	switch {
	case err == nil:
		m.take(resp, false)
		m.fill(shares)
	case !m.closing:
		m.broke(req.Session, err)
	}
	clear(m.stock.doomed)
	if m.session != 0 { // else the next session tells what is taken back
		m.releaseHeld()
	}
	m.wakeAll()
	return err
}

func (m *GroupMember) releaseHeld() {
	for _, f := range m.held {
		m.stock.release(f)
	}
	m.held = nil
}
