package client

import (
	"context"
	"slices"
	"testing"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/prefetch"
	"github.com/ringrift/ringlog/event"
)

// given is a member that holds events of a key, from offset 1 on, the first handed out.
func given(t *testing.T, key string, n int) *GroupMember {
	t.Helper()
	m := testMember(10)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		m.addEvents([]*prefetch.Held{{Event: event.Event{Offset: uint64(i + 1), Key: key}}})
	}
	if m.buffer.Next() == nil {
		t.Fatal("nothing may be handled")
	}
	return m
}

// fetches lets a fetch be answered.
func fetches(t *testing.T, m *GroupMember, resp *ringlogv1.ExchangeResponse) {
	t.Helper()
	req, _ := m.beginFetch()
	if req == nil {
		t.Fatal("it fetches nothing")
	}
	if err := m.endFetch(req, resp, nil); err != nil {
		t.Fatal(err)
	}
}

// What came again while its nack is unanswered is taken back like any other event.
func TestWhatCameAgainIsTakenBack(t *testing.T) {
	t.Parallel()
	m := given(t, "", 1)
	if err := SettlerOf(m).Nack(1, NackOptions{}); err != nil {
		t.Fatal(err)
	}
	m.beginAcks()
	fetches(
		t,
		m,
		&ringlogv1.ExchangeResponse{
			Session: 1,
			Runs:    []*ringlogv1.Run{{Events: []*ringlogv1.Event{{Offset: 1, Type: "X", Payload: []byte("{}")}}}},
		},
	)
	if !m.buffer.Holds(1) {
		t.Fatal("it was not redelivered")
	}
	fetches(t, m, &ringlogv1.ExchangeResponse{Session: 1, Revoked: []*ringlogv1.OffsetRange{one(1)}})
	if sh := m.buffer.Next(); sh != nil {
		t.Errorf("%d is handed out, and is another's", sh.Offset)
	}
}

// After a nack without an answer others may have what follows it in its key: the member
// releases that with joining, and repeats the nack.
func TestAMemberKeepsNothingAfterANackWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	m := given(t, "k", 3)
	if err := SettlerOf(m).Nack(1, NackOptions{}); err != nil {
		t.Fatal(err)
	}
	m.endAcks(m.beginAcks(), nil, errCut)
	req := m.beginJoin()
	var nacked, released []uint64
	for _, n := range req.Nacks {
		if n.Released {
			released = append(released, n.Offset)
		} else {
			nacked = append(nacked, n.Offset)
		}
	}
	if !slices.Equal(nacked, []uint64{1}) || !slices.Equal(released, []uint64{3, 2}) {
		t.Errorf("it joins with nacks of %v and releases %v", nacked, released)
	}
	m.endJoin(&ringlogv1.ExchangeResponse{Session: 2})
	if sh := m.buffer.Next(); sh != nil || m.acks.Resending() {
		t.Errorf("it continues with %+v, and repeats what is answered: %v", sh, m.acks.Resending())
	}
}

// A member that has not heard of the group for its session's time hands nothing out: the
// group may have given it to others.
func TestAMemberOutOfTouchHandsNothingOut(t *testing.T) {
	t.Parallel()
	m := given(t, "", 2)
	m.session.heard = time.Now().Add(-m.session.timeout)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := m.Next(now); err == nil {
		t.Errorf("%d is handed out", d.Offset)
	}
	m.endJoin(&ringlogv1.ExchangeResponse{Session: 2})
	if d, err := m.Next(now); err != nil || d.Offset != 2 {
		t.Errorf("%d %v", d.Offset, err)
	}
}

// While the group does not know what was given back, nothing is fetched: it would be what
// follows that in its key.
func TestNothingIsFetchedUntilWhatIsGivenBackIsSettled(t *testing.T) {
	t.Parallel()
	m := given(t, "", 2)
	m.acks.ReleaseWaiting()
	if req, _ := m.beginFetch(); req != nil {
		t.Error("it fetches before it has said so")
	}
	req := m.beginAcks()
	if req, _ := m.beginFetch(); req != nil {
		t.Error("it fetches before that is answered")
	}
	m.endAcks(req, &ringlogv1.ExchangeResponse{Session: 1}, nil)
	if req, _ := m.beginFetch(); req == nil {
		t.Error("it does not fetch again")
	}
}
