package group

import (
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// followed is what a new leader begins with: events 1 to n of one key, which may all have been
// delivered. A delivery of the first has failed.
func followed(n uint64) *Coordinator {
	state := State{Reserved: n, Retries: []frame.GroupRetry{{Offset: 1, Deliveries: 1, Error: "e"}}}
	policy := Policy{AckWait: 30 * time.Second, Session: 10 * time.Second, MaxDeliver: 9, MaxPending: 100}
	c := New(time.Unix(1000, 0), state, policy, 0)
	var events []Event
	for offset := uint64(1); offset <= n; offset++ {
		events = append(events, Event{Offset: offset, Key: "k", Bytes: 1})
	}
	c.Feed(events, n+1)
	return c
}

func rejoined(t *testing.T, c *Coordinator, name string, holding frame.Range, nacks ...Nack) *Member {
	t.Helper()
	m, err := c.Join(time.Unix(1000, 0), name, []frame.Range{holding}, nacks)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An event that was redelivered stays with its new member, and so do the later ones of its
// key. The delivery counts.
func TestARedeliveredEventStaysWithItsMemberOverAChangeOfLeader(t *testing.T) {
	c := followed(3)
	other := joined(t, c, "other")
	if got := takes(c, other, 9, 1<<20, 9); got != nil {
		t.Fatalf("%v is delivered, and its member has not joined yet", got)
	}
	m := rejoined(t, c, "w", frame.Range{From: 1, To: 2})
	if m.lost != nil {
		t.Fatalf("it does not keep %v", m.Lost())
	}
	if !c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1}) {
		t.Error("a nack of a held event is refused")
	}
	if s, some := c.NextAckBatch(0, false); !some || len(s.Retries) != 1 || s.Retries[0].Deliveries != 2 {
		t.Errorf("%+v", s)
	}
}

// A member that joins with an event of a key has everything that is held of that key: the rest
// waits for nobody.
func TestAClaimFreesTheRestOfItsKey(t *testing.T) {
	c := followed(3)
	m := rejoined(t, c, "w", frame.Range{From: 1, To: 2})
	if got := takes(c, m, 9, 1<<20, 9); !slices.Equal(got, []uint64{3}) {
		t.Errorf("%v", got)
	}
}

// A member that does not know whether its nack was processed does not keep an event that may
// have been redelivered to others since.
func TestAMemberDoesNotKeepWhatItMayHaveReleased(t *testing.T) {
	for _, nack := range []Nack{{Offset: 1}, {Offset: 1, Released: true}, {Offset: 1, Delivery: 1}} {
		c := followed(2)
		m := rejoined(t, c, "w", frame.Range{From: 1, To: 2}, nack)
		if !slices.Equal(m.Lost(), []frame.Range{{From: 1, To: 2}}) {
			t.Errorf("%+v: the member keeps something", nack)
		}
		if m := rejoined(t, c, "other", frame.Range{From: 1, To: 2}); m.lost != nil {
			t.Errorf("%+v: the other member loses %v", nack, m.Lost())
		}
	}
	for _, nack := range []Nack{{Offset: 1, Dead: true}, {Offset: 1, Delivery: 2}} {
		c := followed(2)
		if m := rejoined(t, c, "w", frame.Range{From: 1, To: 2}, nack); m.lost != nil {
			t.Errorf("%+v is not what has failed: the member loses %v", nack, m.Lost())
		}
	}
}

// A failed event is redelivered once the log has the failure.
func TestAFailureIsInTheLogBeforeTheNextDelivery(t *testing.T) {
	for _, key := range []string{"", "k"} {
		c := shared(t, key)
		m, other := joined(t, c, "w"), joined(t, c, "other")
		takes(c, m, 1, 1<<20, 1)
		c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1})
		for _, settled := range []bool{false, true} {
			c.NextAckBatch(0, false)
			if got := takes(c, other, 1, 1<<20, 1); got != nil {
				t.Errorf("key %q: %v is delivered", key, got)
			}
			c.AckBatchDone(settled)
		}
		if got := takes(c, other, 1, 1<<20, 1); !slices.Equal(got, []uint64{1}) {
			t.Errorf("key %q: %v", key, got)
		}
	}
}

// Until the log has an acknowledgement its key stays with the member: a member that got the
// next event could not keep it after one that is open again.
func TestAKeyStaysUntilTheLogHasWhatIsSettled(t *testing.T) {
	c := shared(t, "k", "k")
	m, other := joined(t, c, "w"), joined(t, c, "other")
	takes(c, m, 1, 1<<20, 1)
	c.Ack(m, frame.Range{From: 1, To: 1}, nil)
	if got := takes(c, other, 1, 1<<20, 1); got != nil {
		t.Errorf("%v goes to another member", got)
	}
	c.NextAckBatch(0, false)
	c.AckBatchDone(true)
	if got := takes(c, other, 1, 1<<20, 1); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v, once the log has it", got)
	}
}

// Nobody gets the event after a dead one of its key before the dead letter is stored, even
// once the member is gone.
func TestAKeyWaitsForItsLetter(t *testing.T) {
	for _, gone := range []func(*Coordinator, *Member){
		func(*Coordinator, *Member) {},
		(*Coordinator).Leave,
		func(c *Coordinator, _ *Member) { c.Tick(time.Unix(1011, 0)) },
	} {
		c := shared(t, "k", "k")
		m := joined(t, c, "w")
		takes(c, m, 1, 1<<20, 1)
		c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1, Dead: true})
		gone(c, m)
		other := joined(t, c, "other")
		for _, stored := range []bool{false, true} {
			if got := takes(c, other, 1, 1<<20, 1); got != nil {
				t.Errorf("%v is delivered", got)
			}
			for range c.Deaths() {
				c.LetterStored(1, stored)
			}
		}
		if got := takes(c, other, 1, 1<<20, 1); !slices.Equal(got, []uint64{2}) {
			t.Errorf("%v, once its letter is stored", got)
		}
	}
}

// A dead letter has when its first delivery failed, not when its last did.
func TestALetterHasTheTimeOfItsFirstFailure(t *testing.T) {
	c := shared(t, "k")
	m := joined(t, c, "w")
	takes(c, m, 1, 1<<20, 1)
	c.Nack(time.Unix(1001, 0), m, Nack{Offset: 1})
	c.NextAckBatch(0, false)
	c.AckBatchDone(true)
	takes(c, m, 1, 1<<20, 1)
	c.Nack(time.Unix(1004, 0), m, Nack{Offset: 1, Dead: true})
	list := c.Deaths()
	if len(list) != 1 || !list[0].FirstFailed.Equal(time.Unix(1001, 0)) || list[0].Attempts != 2 {
		t.Errorf("%+v", list)
	}
}

// A key does not wait for what its member settled once the session has ended.
func TestASilentMemberKeepsNoKey(t *testing.T) {
	c := shared(t, "k", "k")
	m := joined(t, c, "w")
	takes(c, m, 1, 1<<20, 1)
	c.Ack(m, frame.Range{From: 1, To: 1}, nil)
	c.Tick(time.Unix(1011, 0))
	if got := takes(c, joined(t, c, "other"), 1, 1<<20, 1); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v", got)
	}
}

// A member that joins again does not keep an event that another was given meanwhile.
func TestAMemberDoesNotKeepWhatAnotherHolds(t *testing.T) {
	c := shared(t, "k")
	takes(c, joined(t, c, "w"), 1, 1<<20, 1)
	c.Tick(time.Unix(1011, 0))
	if got := takes(c, joined(t, c, "other"), 1, 1<<20, 1); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("the other member was given %v", got)
	}
	m := rejoined(t, c, "w", frame.Range{From: 1, To: 1})
	if !slices.Equal(m.Lost(), []frame.Range{{From: 1, To: 1}}) {
		t.Errorf("it loses %v", m.Lost())
	}
}
