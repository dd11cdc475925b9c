package groups

import (
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/frame"
)

// followed is what a new leader begins with: events 1 to n of one key, all of which were
// perhaps handed out, and of the first a delivery has failed.
func followed(n uint64) *Coordinator {
	c := New(time.Unix(1000, 0), State{Reserved: n, Retries: []frame.GroupRetry{{Offset: 1, Deliveries: 1, Error: "e"}}},
		Policy{AckWait: 30 * time.Second, Session: 10 * time.Second, MaxDeliver: 9, MaxPending: 100}, 0)
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

// What failed and came again stays with whom it came to, and so does what stands behind
// it. It counts as that delivery.
func TestWhatCameAgainStaysWithItsMemberOverAChangeOfLeader(t *testing.T) {
	c := followed(3)
	other := joined(t, c, "other")
	if got := takes(c, other, 9, 1<<20, 9); got != nil {
		t.Fatalf("%v is handed out, and who holds it has not come yet", got)
	}
	m := rejoined(t, c, "w", frame.Range{From: 1, To: 2})
	if m.lost != nil {
		t.Fatalf("it does not keep %v", m.Lost())
	}
	if !c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1}) {
		t.Error("a nack of what it holds is refused")
	}
	if s, some := c.NextAckBatch(0, false); !some || len(s.Retries) != 1 || s.Retries[0].Deliveries != 2 {
		t.Errorf("%+v", s)
	}
}

// Who joins with an event of a key holds all of that key that is held: the rest waits for
// nobody.
func TestAClaimFreesTheRestOfItsKey(t *testing.T) {
	c := followed(3)
	m := rejoined(t, c, "w", frame.Range{From: 1, To: 2})
	if got := takes(c, m, 9, 1<<20, 9); !slices.Equal(got, []uint64{3}) {
		t.Errorf("%v", got)
	}
}

// A member that does not know whether its nack was taken does not keep what may have gone
// to others since.
func TestWhatAMemberHasPerhapsGivenUpIsNotItsOwn(t *testing.T) {
	for _, nack := range []Nack{{Offset: 1}, {Offset: 1, Released: true}} {
		c := followed(2)
		if m := rejoined(t, c, "w", frame.Range{From: 1, To: 2}, nack); !slices.Equal(m.Lost(), []frame.Range{{From: 1, To: 2}}) {
			t.Errorf("%+v: it keeps something", nack)
		}
		if m := rejoined(t, c, "other", frame.Range{From: 1, To: 2}); m.lost != nil {
			t.Errorf("%+v: whom it went to loses %v", nack, m.Lost())
		}
	}
	c := followed(2)
	if m := rejoined(t, c, "w", frame.Range{From: 1, To: 2}, Nack{Offset: 1, Dead: true}); m.lost != nil {
		t.Errorf("what would not have failed but died: %v", m.Lost())
	}
}

// A failed event is handed out again once the log has that it failed.
func TestAFailureIsInTheLogBeforeTheNextDelivery(t *testing.T) {
	for _, key := range []string{"", "k"} {
		c := shared(t, key)
		m, other := joined(t, c, "w"), joined(t, c, "other")
		takes(c, m, 1, 1<<20, 1)
		c.Nack(time.Unix(1000, 0), m, Nack{Offset: 1})
		for _, settled := range []bool{false, true} {
			c.NextAckBatch(0, false)
			if got := takes(c, other, 1, 1<<20, 1); got != nil {
				t.Errorf("key %q: %v is handed out", key, got)
			}
			c.AckBatchDone(settled)
		}
		if got := takes(c, other, 1, 1<<20, 1); !slices.Equal(got, []uint64{1}) {
			t.Errorf("key %q: %v", key, got)
		}
	}
}

// Until the log has an acknowledgement its key stays with the member: whoever had got the
// next event could not keep it behind one that is open again.
func TestAKeyStaysUntilTheLogHasWhatIsSettled(t *testing.T) {
	c := shared(t, "k", "k")
	m, other := joined(t, c, "w"), joined(t, c, "other")
	takes(c, m, 1, 1<<20, 1)
	c.Ack(m, frame.Range{From: 1, To: 1}, nil)
	if got := takes(c, other, 1, 1<<20, 1); got != nil {
		t.Errorf("%v goes to another", got)
	}
	c.NextAckBatch(0, false)
	c.AckBatchDone(true)
	if got := takes(c, other, 1, 1<<20, 1); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v, once the log has it", got)
	}
}

// Nobody gets what stands behind a dead event before its letter is stored, whoever had it.
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
				t.Errorf("%v is handed out", got)
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

// A key does not wait for what its member settled once that one is gone.
func TestWhoIsSilentKeepsNoKey(t *testing.T) {
	c := shared(t, "k", "k")
	m := joined(t, c, "w")
	takes(c, m, 1, 1<<20, 1)
	c.Ack(m, frame.Range{From: 1, To: 1}, nil)
	c.Tick(time.Unix(1011, 0))
	if got := takes(c, joined(t, c, "other"), 1, 1<<20, 1); !slices.Equal(got, []uint64{2}) {
		t.Errorf("%v", got)
	}
}
