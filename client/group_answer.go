package client

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

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
		if m.stock.held[offset] != nil || !m.tells(offset) {
			m.stock.revoke(offset, settled)
		}
	})
	for _, gap := range resp.GetGaps() {
		m.gaps = append(m.gaps, *gapOf(gap))
	}
	m.wakeAll()
	m.askForMore()
}

// tells reports whether an offset is the subject of what is not answered. The caller holds
// mu.
func (m *GroupMember) tells(offset uint64) bool {
	return slices.ContainsFunc(m.unanswered(), func(s *settlement) bool { return s.tells(offset) })
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
	for _, code := range []api.Code{api.NotFound, api.InvalidArgument, api.InvalidJSON, api.Unauthenticated, api.NotImplemented, api.TooLarge, api.Exists, api.OtherCluster} {
		if isAnswer(err, code) {
			return true
		}
	}
	return errors.Is(err, ErrClosed)
}
