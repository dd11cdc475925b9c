package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/frame"
)

// settleLoop settles, keeps the session alive and begins a new one where it must, until
// ctx is done, or the member is closed and all is settled.
func (m *GroupMember) settleLoop(ctx context.Context) {
	pauses := m.c.newTries("", reading).backoff
	for m.awaitDue(ctx) {
		over, err := m.step(ctx)
		switch {
		case over:
			return
		case err == nil:
			pauses.Reset()
		case ends(err):
			m.fail(err)
			return
		default:
			m.c.cfg.Logger.Debug("group", "group", m.group, "member", m.member, "error", err)
			pause(ctx, pauses.NextBackOff())
		}
	}
	m.fail(m.named(ErrClosed))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// awaitDue waits until there is something to do, and at most until the next tick.
func (m *GroupMember) awaitDue(ctx context.Context) bool {
	m.mu.Lock()
	wait := m.tick()
	if m.session == 0 || m.resend || !m.open.empty() || m.closing {
		wait = 0
	}
	m.mu.Unlock()
	if wait == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-m.due:
	case <-timer.C:
		m.mu.Lock()
		m.tick()
		m.mu.Unlock()
	case <-ctx.Done():
		return false
	}
	return true
}

// tick lets the stock's time go on where it is time, and returns how long it is to the
// next tick: a session is kept alive as often at least, and what waits is without a word
// for two ticks at most. The caller holds mu.
func (m *GroupMember) tick() time.Duration {
	every := max(time.Millisecond, min(m.timeout/3, m.ackWait/8))
	left := every - time.Since(m.ticked)
	if left > 0 {
		return left
	}
	m.ticked = time.Now()
	if m.moved || m.takers > 0 {
		m.moved, m.movedAt = false, m.ticked
	}
	if m.stuck = m.ticked.Sub(m.movedAt) > m.ackWait; m.stuck {
		m.open.returned = append(m.open.returned, m.stock.giveBack()...)
	}
	m.stock.tick(m.o.AutoProgress)
	return every
}

// step does what is due: it joins where there is no session, and else settles. over says
// that there is nothing more to do.
func (m *GroupMember) step(ctx context.Context) (over bool, err error) {
	m.mu.Lock()
	away := m.session == 0
	last := m.closing && !m.resend && m.open.empty()
	m.mu.Unlock()
	switch {
	case last && !away:
		m.leave(ctx)
		return true, nil
	case last:
		return true, nil
	case away:
		return false, m.join(ctx)
	}
	return false, m.settle(ctx)
}

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
	if m.resend && m.sent.lost {
		// What came again since was nacked: once more would be a second failure.
		m.sent.nacks = slices.DeleteFunc(m.sent.nacks, func(f failure) bool {
			return m.stock.held[f.wire.Offset] != nil || m.open.covers(f.wire.Offset)
		})
	}
	req := m.request()
	holding := rangesOf(m.stock.offsets())
	for _, s := range m.unanswered() {
		holding = append(holding, s.acks...)
		for _, f := range s.nacks {
			holding = addOffset(holding, f.wire.Offset)
		}
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
	m.releaseHeld()
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

// fetchLoop keeps the stock filled. Its pauses also keep two members of one name, each of
// which ends the other's session, from doing that all the time.
func (m *GroupMember) fetchLoop(ctx context.Context) {
	pauses := m.c.newTries("", reading).backoff
	for ctx.Err() == nil {
		m.mu.Lock()
		over := m.closing || m.failed != nil
		m.fetchIdle = true
		m.mu.Unlock()
		if over {
			return
		}
		did, err := m.fetch(ctx)
		switch {
		case err != nil:
			pause(ctx, pauses.NextBackOff())
		case did:
			pauses.Reset()
		default:
			select {
			case <-m.room:
			case <-ctx.Done():
			}
		}
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

// sharesOf are the events of an answer.
func sharesOf(resp *ringlogv1.ExchangeResponse) ([]*share, error) {
	n := 0
	for _, run := range resp.GetRuns() {
		n += len(run.GetEvents()) + int(min(run.GetSpan().GetTake(), frame.MaxRows))
	}
	counts := map[uint64]uint64{}
	for _, d := range resp.GetDeliveries() {
		counts[d.GetOffset()] = d.GetCount()
	}
	all, list := make([]share, 0, n), make([]*share, 0, n)
	for _, run := range resp.GetRuns() {
		span := run.GetSpan()
		part := span != nil && span.GetTake() < span.GetPacket().GetRows()/2
		err := eachEvent([]*ringlogv1.Run{run}, func(e *event.Event) bool {
			all = append(all, share{Delivery: Delivery{Event: *e, Count: max(1, counts[e.Offset])}, bytes: wireBytes(e) + shareBytes})
			sh := &all[len(all)-1]
			if part {
				sh.own()
			}
			list = append(list, sh)
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("client: group: %w", err)
		}
	}
	return list, nil
}

// shareBytes is about what an event takes beside its texts.
const shareBytes = 512

// fill takes in events. The caller holds mu.
func (m *GroupMember) fill(shares []*share) {
	for _, sh := range shares {
		m.taken++
		m.size += uint64(sh.bytes)
		m.stock.add(sh)
	}
}

// take takes in what every answer tells; events come after it. The caller holds mu.
func (m *GroupMember) take(resp *ringlogv1.ExchangeResponse, settled bool) {
	m.heard = time.Now()
	m.committed = max(m.committed, resp.GetCommitted())
	m.ackWait, m.timeout = defaultAckWait, defaultTimeout
	if d := resp.GetAckWait().AsDuration(); d > 0 {
		m.ackWait = d
	}
	if d := resp.GetSessionTimeout().AsDuration(); d > 0 {
		m.timeout = d
	}
	eachOffset(resp.GetRevoked(), func(offset uint64) {
		for _, s := range m.unanswered() {
			if s.tells(offset) {
				return
			}
		}
		m.stock.revoke(offset, settled)
	})
	for _, gap := range resp.GetGaps() {
		m.gaps = append(m.gaps, *gapOf(gap))
	}
	m.wakeAll()
	m.askForMore()
}

// What a node means that does not tell.
const (
	defaultAckWait = 30 * time.Second
	defaultTimeout = 10 * time.Second
)

// broke notes that a call of a session failed. Where the group may have acted on it
// without this member knowing, or does not know the session, that one is over: the next
// tells the group what the member holds. The caller holds mu.
func (m *GroupMember) broke(session uint64, err error) {
	var failed *callError
	if m.session != session || errors.As(err, &failed) && failed.refused() == nil && !failed.unknown {
		return
	}
	m.session = 0
	m.cutSession()
	signal(m.due)
}

// fail ends the membership.
func (m *GroupMember) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		m.failed = err
	}
	m.session = 0
	m.cutSession()
	m.wakeAll()
	signal(m.room)
}

// ends reports whether an error will not go away by itself.
func ends(err error) bool {
	for _, code := range []api.Code{api.NotFound, api.InvalidArgument, api.InvalidJSON, api.Unauthenticated, api.NotImplemented, api.TooLarge, api.Exists} {
		if isAnswer(err, code) {
			return true
		}
	}
	return errors.Is(err, ErrClosed)
}
