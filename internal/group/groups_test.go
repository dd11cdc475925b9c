package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// shared is a coordinator with one event of each of the keys, in order, all reserved.
func shared(t *testing.T, keys ...string) *Coordinator {
	t.Helper()
	policy := Policy{AckWait: 30 * time.Second, Session: 10 * time.Second, MaxPending: 100}
	c := New(time.Unix(1000, 0), State{}, policy, 0)
	more(c, 1, keys...)
	return c
}

// more feeds and reserves events from an offset on.
func more(c *Coordinator, from uint64, keys ...string) {
	var events []Event
	for i, key := range keys {
		events = append(events, Event{Offset: from + uint64(i), Key: key, Bytes: 100})
	}
	c.Feed(events, from+uint64(len(keys)))
	if _, some := c.NextAckBatch(len(keys), false); some {
		c.AckBatchDone(true)
	}
}

func joined(t *testing.T, c *Coordinator, name string) *Member {
	t.Helper()
	m, err := c.Join(time.Unix(1000, 0), name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func takes(c *Coordinator, m *Member, want, bytes, units int) (offsets []uint64) {
	demand := Demand{Events: want, Bytes: bytes, Units: units, Ahead: true}
	for _, d := range c.Take(time.Unix(1000, 0), m, demand, nil) {
		offsets = append(offsets, d.Offset)
	}
	return offsets
}

func TestAMemberHoldsOneEventOfAKeyUnlessItWorksAhead(t *testing.T) {
	c := shared(t, "a", "a", "b", "a")
	m := joined(t, c, "m")
	plain := func() (offsets []uint64) {
		for _, d := range c.Take(time.Unix(1000, 0), m, Demand{Events: 9, Bytes: 1 << 20, Units: 9}, nil) {
			offsets = append(offsets, d.Offset)
		}
		return offsets
	}
	if got := plain(); !slices.Equal(got, []uint64{1, 3}) {
		t.Fatal(got)
	}
	if got := plain(); got != nil {
		t.Fatalf("%v follow an event of their key that is not settled", got)
	}
	c.Ack(m, frame.Range{From: 3, To: 3}, nil)
	if !c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1}) || m.lost != nil {
		t.Fatalf("a failure revoked %v", m.Lost())
	}
	if _, some := c.NextAckBatch(0, false); !some {
		t.Fatal("the failure is in no ack batch")
	}
	c.AckBatchDone(true)
	if got := plain(); !slices.Equal(got, []uint64{1}) {
		t.Fatal(got)
	}
	c.Ack(m, frame.Range{From: 1, To: 1}, nil)
	if got := plain(); !slices.Equal(got, []uint64{2}) {
		t.Fatal(got)
	}
	if got := takes(c, m, 9, 1<<20, 9); !slices.Equal(got, []uint64{4}) {
		t.Fatalf("ahead: %v", got)
	}
}

// A member that joins later gets a key of one that has several, once the held events of that
// key are settled and the log has that.
func TestAMemberWithSeveralKeysLeavesOneToTheNext(t *testing.T) {
	c := shared(t, "a", "b", "a", "b")
	first, second := joined(t, c, "first"), joined(t, c, "second")
	if got := takes(c, first, 2, 1<<20, 2); !slices.Equal(got, []uint64{1, 3}) {
		t.Fatal(got)
	}
	if got := takes(c, first, 2, 1<<20, 2); !slices.Equal(got, []uint64{2, 4}) {
		t.Fatal(got)
	}
	more(c, 5, "a", "b")
	if got := takes(c, second, 9, 1<<20, 9); got != nil {
		t.Fatalf("keys of another member: %v", got)
	}
	if got := takes(c, first, 9, 1<<20, 9); !slices.Equal(got, []uint64{6}) {
		t.Fatalf("one of its two keys, and another member has none: %v", got)
	}
	c.Ack(first, frame.Range{From: 1, To: 3}, nil)
	if got := takes(c, second, 9, 1<<20, 9); got != nil {
		t.Fatalf("%v, and the log does not have what was settled before it", got)
	}
	c.NextAckBatch(0, false)
	c.AckBatchDone(true)
	if got := takes(c, second, 9, 1<<20, 9); !slices.Equal(got, []uint64{5}) {
		t.Fatalf("the key that the other member left: %v", got)
	}
}

func TestAnAnswerIsBoundedInEventsBytesAndParts(t *testing.T) {
	for _, in := range []struct {
		want, bytes, units int
		got                []uint64
	}{
		{3, 1 << 20, 9, []uint64{1, 2, 3}},
		{9, 150, 9, []uint64{1, 2}},
		{9, 1, 9, []uint64{1}},
		{9, 1 << 20, 2, []uint64{1, 2}},
		{0, 1 << 20, 9, nil},
	} {
		c := shared(t, "", "", "", "")
		if got := takes(c, joined(t, c, "w"), in.want, in.bytes, in.units); !slices.Equal(got, in.got) {
			t.Errorf("%+v: %v", in, got)
		}
	}
}

func TestMembersAreBounded(t *testing.T) {
	c := shared(t)
	for i := range MaxMembers {
		joined(t, c, fmt.Sprint(i))
	}
	if _, err := c.Join(time.Unix(1000, 0), "one more", nil, nil); err != ErrFull {
		t.Error(err)
	}
	joined(t, c, "7") // that is there
}

// An exchange keeps its member's session for as long as it is under way.
func TestAMemberWhoseExchangeLastsIsNotSilent(t *testing.T) {
	c := shared(t, "", "")
	m := joined(t, c, "w")
	takes(c, m, 1, 1<<20, 1)
	c.Begin(m)
	late := time.Unix(1000, 0).Add(20 * time.Second)
	c.Tick(late)
	if c.Counts() != (Counts{Held: 1, Members: 1}) {
		t.Errorf("%+v", c.Counts())
	}
	c.End(late, m, m.Session)
	if due := c.Due(); !due.Equal(time.Unix(1030, 0)) {
		t.Errorf("the next thing is due at %s", due)
	}
	c.Tick(late.Add(11 * time.Second))
	if c.Counts() != (Counts{Redelivering: 1}) {
		t.Errorf("%+v", c.Counts())
	}
}
