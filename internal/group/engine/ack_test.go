package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// TestAnAckIsAnsweredOnceTheLogHasIt ends the leadership after a member's ack and before the log has it.
func TestAnAckIsAnsweredOnceTheLogHasIt(t *testing.T) {
	l := newLeader(t)
	l.group("g", event.Filter{})
	offsets := l.publish("A", 1, 2)
	l.hold()
	e := l.engine()
	say := func(r Request) (Answer, error) {
		r.Group, r.Member = "g", "w"
		return e.Exchange(t.Context(), r)
	}
	first, err := say(Request{Want: 10, Wait: 20 * time.Second})
	if err != nil || len(first.Events) != 2 {
		t.Fatalf("%+v %v", first, err)
	}
	ack := Request{Session: first.Session, Acks: []frame.Range{{From: offsets[0], To: offsets[1]}}}
	failed := make(chan error, 1)
	go func() { _, err := say(ack); failed <- err }()
	if c := <-l.asked; !slices.Equal(c.Done, ack.Acks) {
		t.Errorf("%+v", c)
	}
	l.fate <- raftnode.ErrOutcomeUnknown
	if err := <-failed; err == nil {
		t.Error("an ack that the log does not have is answered as durable")
	}
	if got := l.committed("g"); got >= offsets[0] {
		t.Errorf("committed %d", got)
	}
	l.lost.Store(false)
	if _, err := say(ack); !fenced(err) {
		t.Errorf("the session continues: %v", err)
	}
	again, err := say(Request{Holding: ack.Acks})
	if err != nil || len(again.Revoked) > 0 {
		t.Fatalf("%+v %v", again, err)
	}
	done := make(chan error, 1)
	go func() { ack.Session = again.Session; _, err := say(ack); done <- err }()
	<-l.asked
	l.fate <- nil
	if err := <-done; err != nil || l.committed("g") != offsets[1] {
		t.Errorf("%v, committed %d", err, l.committed("g"))
	}
}
