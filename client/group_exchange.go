package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/client/internal/prefetch"
	"github.com/ringrift/ringlog/client/internal/sender"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// session is a member's session with its group.
type session struct {
	id      uint64          // 0 while there is none
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	ackWait time.Duration
	timeout time.Duration // without contact for that long the group gives the events to others
	heard   time.Time     // the last answer
}

// What a node means that does not say.
const (
	defaultAckWait = 30 * time.Second
	defaultTimeout = 10 * time.Second
)

// newRequest begins an exchange. The caller holds mu.
func (m *GroupMember) newRequest() *ringlogv1.ExchangeRequest {
	return &ringlogv1.ExchangeRequest{Group: m.group, Member: m.member, Session: m.session.id,
		Role: m.o.Lease.Role, Fence: m.o.Lease.Fence}
}

// join begins a session, with what the member holds.
func (m *GroupMember) join(ctx context.Context) error {
	m.fetchMu.Lock() // the call of the session before is over
	defer m.fetchMu.Unlock()
	// It may be repeated: with session 0 a repetition begins another session, with the same claims.
	resp, err := m.c.exchangeGroup(ctx, m.beginJoin(), calls.Idempotent)
	if err != nil {
		return err
	}
	m.endJoin(resp)
	// A node of an earlier version would take every ack.
	if resp.GetFence() != m.o.Lease.Fence {
		return m.named(&api.Error{Code: api.NotImplemented, Field: "fence",
			Message: "the node is of a version that does not compare the fences of group members",
			Remedy:  "bring all nodes to this version"})
	}
	return nil
}

// beginJoin returns the request that begins a session, with all that the member holds and has
// not had confirmed. The session's id is 0 in it.
func (m *GroupMember) beginJoin() *ringlogv1.ExchangeRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	req := m.newRequest()
	m.acks.BeginJoin(req)
	return req
}

// endJoin begins the session that an answer to beginJoin has granted.
func (m *GroupMember) endJoin(resp *ringlogv1.ExchangeResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()

	// After a time without contact that is longer than a session lasts, others may have had the
	// events: acks that are refused now came too late.
	if time.Since(m.session.heard) > m.session.timeout {
		m.acks.NoteAway()
	}

	// The new session's context ends the fetches made under it.
	m.session.id = resp.GetSession()
	m.session.ctx, m.session.cancel = context.WithCancel(context.Background())
	m.takeAnswer(resp, false)
	m.acks.EndJoin(resp)
	m.wakeAll()
}

// sendAcks makes a call with the acks that have gathered, or with none, which keeps the session.
func (m *GroupMember) sendAcks(ctx context.Context) error {
	req := m.beginAcks()
	if req == nil {
		return nil
	}
	resp, err := m.c.exchangeGroup(ctx, req, calls.Once)
	m.endAcks(req, resp, err)
	return err
}

// beginAcks returns the request with the next batch of acks, nil if a fetch has ended the session: without one the
// request would join, and name nothing of what is held. One is in flight at a time: ackLoop alone sends them.
func (m *GroupMember) beginAcks() *ringlogv1.ExchangeRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session.id == 0 {
		return nil
	}
	req := m.newRequest()
	m.acks.BeginSend(req)
	return req
}

// endAcks takes in the answer to beginAcks, or that there was none.
func (m *GroupMember) endAcks(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		// Whether the group may have the batch decides how it is repeated.
		m.acks.FailSend(errors.Is(err, ErrOutcomeUnknown))
		m.afterFailedCall(req.Session, err)
		return
	}
	m.takeAnswer(resp, true)
	m.acks.EndSend(resp, m.session.id != 0)
	m.wakeAll()
	m.fetchIfRoom() // it may have waited for this
}

// fetch makes a call for events, if there is a session and room for them.
func (m *GroupMember) fetch(ctx context.Context) (did bool, err error) {
	m.fetchMu.Lock()
	defer m.fetchMu.Unlock()
	req, inSession := m.beginFetch()
	if req == nil {
		return false, nil
	}

	// The call ends with its session: its answer could not be used.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(inSession, cancel)()
	began := time.Now()
	resp, err := m.c.exchangeGroup(ctx, req, calls.Once)
	quick := time.Since(began) < time.Duration(req.WaitMs)*time.Millisecond/2
	if err := m.endFetch(req, resp, err); err != nil {
		return true, err
	}
	if quick && len(resp.Runs)+len(resp.Revoked)+len(resp.Gaps) == 0 {
		return true, errNothing
	}
	return true, nil
}

// errNothing makes a pause if a node does not wait for events.
var errNothing = errors.New("an empty answer, and soon")

// beginFetch returns a request for events and the context of the session that it is made in, or
// nil if nothing may be fetched now: without a session, without room, while a batch has to
// be sent again, or at the end.
func (m *GroupMember) beginFetch() (*ringlogv1.ExchangeRequest, context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req, want := m.newRequest(), m.wantedEvents()
	if m.session.id == 0 || want == 0 || m.acks.Resending() || m.closing || m.failed != nil {
		return nil, nil
	}

	// The node waits for events for less time than an attempt may take, and answers several
	// times within the session's timeout, which keeps the session alive.
	req.Want = uint32(want)
	req.WaitMs = uint32(max(1, min(m.session.timeout/3, m.c.cfg.AttemptTimeout/2).Milliseconds()))
	req.Ahead = true // the buffer keeps what follows an event of its key until that is settled
	m.buffer.BeginFetch()
	m.fetchIdle = false
	return req, m.session.ctx
}

// endFetch takes in the answer to beginFetch: what it takes back first, then its events.
func (m *GroupMember) endFetch(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) error {
	var events []*prefetch.Held
	if err == nil {
		events, err = heldEvents(resp)
	}

	// Blocks were decompressed before, without the lock.
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.takeAnswer(resp, false)
		m.addEvents(events)
	case !m.closing:
		m.afterFailedCall(req.Session, err)
	}

	// Keys that waited for this answer resume: it has brought all that was to be taken back.
	m.buffer.EndFetch()
	if m.session.id != 0 { // else the next session reports what is taken back
		m.acks.ResumeStopped()
	}
	m.wakeAll()
	return err
}

// addEvents takes in events. The caller holds mu.
func (m *GroupMember) addEvents(events []*prefetch.Held) {
	for _, h := range events {
		m.fetched.events++
		m.fetched.bytes += uint64(h.Bytes)
		m.buffer.Add(h)
	}
}

// leave releases what is held. If it fails the group takes that back when the session ends.
func (m *GroupMember) leave(ctx context.Context) {
	m.fetchMu.Lock()
	defer m.fetchMu.Unlock()

	// No fetch is in flight any more, and Next returns ErrClosed from here on.
	m.mu.Lock()
	req := m.newRequest()
	m.failed = m.named(ErrClosed)
	m.mu.Unlock()
	if req.Session == 0 { // the last fetch has ended it
		return
	}
	req.Leave = true
	if _, err := m.c.exchangeGroup(ctx, req, calls.Once); err != nil {
		m.c.cfg.Logger.Debug("leaving a group", "group", m.group, "member", m.member, "error", err)
	}
}

// takeAnswer takes in what every answer has; events come after it. fromAcks says whether it
// answers a call with acks. The caller holds mu.
func (m *GroupMember) takeAnswer(resp *ringlogv1.ExchangeResponse, fromAcks bool) {
	m.session.heard = time.Now()
	m.committed = max(m.committed, resp.GetCommitted())
	m.session.ackWait, m.session.timeout = defaultAckWait, defaultTimeout
	if d := resp.GetAckWait().AsDuration(); d > 0 {
		m.session.ackWait = d
	}
	if d := resp.GetSessionTimeout().AsDuration(); d > 0 {
		m.session.timeout = d
	}

	// Events that were taken back go before those that the answer brings.
	m.acks.TakeRevoked(resp.GetRevoked(), fromAcks)
	for _, gap := range resp.GetGaps() {
		m.gaps = append(m.gaps, *gapOf(gap))
	}
	m.wakeAll()
	m.fetchIfRoom()
}

// afterFailedCall takes in that a call of a session failed. If the group may have acted on
// it without this member knowing, or does not know the session, that one is over: the next
// begins with what the member holds. The caller holds mu.
func (m *GroupMember) afterFailedCall(session uint64, err error) {
	failed, ok := errors.AsType[*calls.Error](err)
	if m.session.id != session || (ok && failed.Refusal() == nil && !failed.Unknown) {
		return
	}
	m.session.id = 0
	m.session.cancel()
	signal(m.ackDue)
}

// heldBytes is about what an event takes in memory beside its texts.
const heldBytes = 512

// heldEvents returns the events of an answer.
func heldEvents(resp *ringlogv1.ExchangeResponse) ([]*prefetch.Held, error) {
	n := countEvents(resp.GetRuns())
	counts := map[uint64]uint64{}
	for _, d := range resp.GetDeliveries() {
		counts[d.GetOffset()] = d.GetCount()
	}
	all, list := make([]prefetch.Held, 0, n), make([]*prefetch.Held, 0, n)
	for _, run := range resp.GetRuns() {
		// Events keep the memory of their block. If they are few of it they get their own.
		span := run.GetSpan()
		few := span != nil && span.GetTake() < span.GetPacket().GetRows()/2
		err := eachEvent([]*ringlogv1.Run{run}, func(e *event.Event) bool {
			bytes := sender.WireBytes(e) + heldBytes
			all = append(all, prefetch.Held{Event: *e, Count: max(1, counts[e.Offset]), Bytes: bytes})
			h := &all[len(all)-1]
			if few {
				h.Detach()
			}
			list = append(list, h)
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("client: group: %w", err)
		}
	}
	return list, nil
}

// countEvents is about how many events runs have.
func countEvents(runs []*ringlogv1.Run) (n int) {
	for _, run := range runs {
		n += len(run.GetEvents()) + int(min(run.GetSpan().GetTake(), frame.MaxRows))
	}
	return n
}

// endsMembership reports whether an error will not go away by itself.
func endsMembership(err error) bool {
	answer, ok := errors.AsType[*api.Error](err)
	if !ok {
		return errors.Is(err, ErrClosed)
	}

	// These say that the group or this client cannot be as they are. All others may pass, also
	// a session that is fenced: then a new one begins.
	switch answer.Code {
	case api.NotFound, api.InvalidArgument, api.InvalidJSON, api.Unauthenticated, api.NotImplemented, api.TooLarge,
		api.Exists, api.OtherCluster:
		return true
	case api.Fenced:
		return answer.Field == "fence" // the lease of a role, and not the session
	}
	return errors.Is(err, ErrClosed)
}
