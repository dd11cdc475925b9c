package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/raftnode"
)

// rejoining is a group with a member, on a node that decides each proposal as the test says.
type rejoining struct {
	*testing.T
	ops     *Engine
	leader  *leader
	offsets []uint64 // two of each key k0, k1, k2, the keys in turn; all are with the member
	session uint64
}

func newRejoining(t *testing.T) *rejoining {
	l := newLeader(t)
	l.group("g", event.Filter{})
	r := &rejoining{T: t, leader: l, offsets: l.publish("A", 1, 6)}
	l.hold()
	r.ops = l.engine()
	for got := 0; got < len(r.offsets); {
		first, err := r.say(Request{Session: r.session, Want: 10, Ahead: true, Wait: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got, r.session = got+len(first.Events), first.Session
	}
	return r
}

func (r *rejoining) say(e Request) (Answer, error) {
	e.Group, e.Member = "g", "w"
	return r.ops.Exchange(r.Context(), e)
}

// rejoin begins a session that holds the events of those numbers.
func (r *rejoining) rejoin(numbers ...int) uint64 {
	r.Helper()
	var holding []frame.Range
	for _, n := range numbers {
		holding = append(holding, r.only(n))
	}
	again, err := r.say(Request{Holding: holding})
	if err != nil || len(again.Revoked) > 0 {
		r.Fatalf("%+v %v", again, err)
	}
	return again.Session
}

func (r *rejoining) only(n int) frame.Range {
	return frame.Range{From: r.offsets[n], To: r.offsets[n]}
}

type reply struct {
	Answer
	err error
}

func (r *rejoining) begin(e Request) <-chan reply {
	out := make(chan reply, 1)
	go func() { got, err := r.say(e); out <- reply{got, err} }()
	return out
}

// What a member loses in its session is not reported to a call of the session before it that
// is still under way: nobody may wait for that one's answer any more.
func TestWhatIsRevokedIsToldToTheSessionThatLasts(t *testing.T) {
	r := newRejoining(t)
	before := r.begin(Request{Session: r.session, Acks: []frame.Range{r.only(0)}})
	<-r.leader.asked
	session := r.rejoin(1, 2, 4, 5)
	// The first of k1 fails, and the second after it is revoked.
	after := r.begin(Request{
		Session: session,
		Acks:    []frame.Range{r.only(2)},
		Nacks:   []group.Nack{{Offset: r.offsets[1]}},
	})
	eventually(t, "the nack is taken in", func() bool {
		failed := false
		r.ops.Inspect("g", func(c *group.Coordinator) { failed = c.Sessions(time.Now())[0].Nacked == 1 })
		return failed
	})
	r.leader.fate <- nil
	if got := <-before; !fenced(got.err) {
		t.Errorf("the session before was told %+v, %v", got.Answer, got.err)
	}
	<-r.leader.asked
	r.leader.fate <- nil
	if got := <-after; got.err != nil || !slices.Equal(got.Revoked, []frame.Range{r.only(4)}) {
		t.Errorf("revoked %v, %v, want %v", got.Revoked, got.err, r.only(4))
	}
}

// What an abandoned fetch would have returned stays with the member if it has joined again
// and says that it holds it.
func TestAFetchOfASessionBeforeGivesNothingBack(t *testing.T) {
	r := newRejoining(t)
	g, err := r.ops.groupFor(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	fetch := Request{Group: "g", Member: "w", Session: r.session, Want: 10, Wait: time.Hour}
	e, err := g.beginExchange(&fetch)
	if err != nil {
		t.Fatal(err)
	}
	defer e.end()
	w := &waiter{member: e.member, session: e.session, want: e.request.Want, got: make(chan received, 1)}
	w.got <- received{deliveries: []group.Delivery{{Offset: r.offsets[1], Count: 2}, {Offset: r.offsets[4], Count: 1}}}
	session := r.rejoin(0, 1, 2, 3, 4, 5)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.abandonWait(gone, w); err == nil {
		t.Error("a call that nobody waits for is answered")
	}
	acked := r.begin(Request{Session: session, Acks: []frame.Range{r.only(0), r.only(1), r.only(4)}})
	<-r.leader.asked
	r.leader.fate <- nil
	if got := <-acked; got.err != nil || len(got.Refused) > 0 {
		t.Errorf("of what it holds, %v is refused, %v", got.Refused, got.err)
	}
}

// What a call took and could not report is reported by the next one.
func TestWhatACallCouldNotTellIsNotForgotten(t *testing.T) {
	r := newRejoining(t)
	g, err := r.ops.groupFor(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	fetch := Request{Group: "g", Member: "w", Session: r.session, Want: 10, Wait: time.Hour}
	e, err := g.beginExchange(&fetch)
	if err != nil {
		t.Fatal(err)
	}
	defer e.end()
	w := &waiter{member: e.member, session: e.session, want: e.request.Want, got: make(chan received, 1)}
	w.got <- received{revoked: []frame.Range{r.only(4)}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.abandonWait(gone, w); err == nil {
		t.Error("a call that nobody waits for is answered")
	}
	if next, err := r.say(Request{Session: r.session}); err != nil ||
		!slices.Equal(next.Revoked, []frame.Range{r.only(4)}) {
		t.Errorf("revoked %v, %v", next.Revoked, err)
	}
}

// An ack whose leader goes before it is answered may be in the log: the member
// does not get an error that says that nothing happened.
func TestAnAckWhoseLeaderGoesMayBeInTheLog(t *testing.T) {
	r := newRejoining(t)
	acked := r.begin(Request{Session: r.session, Acks: []frame.Range{r.only(0)}})
	<-r.leader.asked
	r.leader.fate <- raftnode.ErrNotLeader
	if got := <-acked; !errors.Is(got.err, raftnode.ErrOutcomeUnknown) {
		t.Errorf("%+v, %v", got.Answer, got.err)
	}
}

// Nor does it get one for an event that it marks dead, whose dead letter may be in the log.
func TestADeadLetterWhoseLeaderGoesMayBeInTheLog(t *testing.T) {
	t.Parallel()
	for _, fate := range []error{raftnode.ErrNotLeader, raftnode.ErrOutcomeUnknown} {
		r := newRejoining(t)
		r.leader.bury = make(chan frame.GroupDead)
		nacked := r.begin(Request{Session: r.session, Nacks: []group.Nack{{Offset: r.offsets[0], Dead: true}}})
		<-r.leader.bury
		r.leader.fate <- fate
		if got := <-nacked; !errors.Is(got.err, raftnode.ErrOutcomeUnknown) {
			t.Errorf("%v: %+v, %v", fate, got.Answer, got.err)
		}
	}
}

// A call that nobody waits for any more begins no session: the member may have joined with
// another one since.
func TestAnAbandonedCallDoesNotJoin(t *testing.T) {
	r := newRejoining(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		if _, err := r.ops.Exchange(gone, Request{Group: "g", Member: "w"}); err == nil {
			t.Error("a call that nobody waits for is answered")
		}
	}
	if _, err := r.say(Request{Session: r.session}); err != nil {
		t.Errorf("the session is over: %v", err)
	}
}
