package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// A group that nobody reads for long is still known as it is: what a member released counts as
// nobody's delivery, and what is pending are events that its filter passes.
func TestAGroupThatNobodyReadsKeepsItsCounts(t *testing.T) {
	l := newLeader(t)
	l.group("g", event.Filter{Types: []string{"WANTED"}})
	e := l.engine()
	var wanted []uint64
	for i := range 3 {
		wanted = append(wanted, l.publish("WANTED", i, i)...)
		l.publish("OTHER", 10*i, 10*i+9)
	}
	session := uint64(0)
	say := func(r Request) Answer {
		t.Helper()
		r.Group, r.Member, r.Session = "g", "w", session
		got, err := e.Exchange(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		session = got.Session
		return got
	}
	fetch := Request{Ahead: true, Want: 10, Wait: 20 * time.Second}
	var given []uint64
	for len(given) < len(wanted) {
		for _, one := range say(fetch).Events {
			given = append(given, one.Offset)
		}
	}
	if !slices.Equal(given, wanted) {
		t.Fatalf("%v, want %v", given, wanted)
	}
	var released []group.Nack
	for _, offset := range wanted {
		released = append(released, group.Nack{Offset: offset, Released: true})
	}
	say(Request{Nacks: released})
	say(Request{Leave: true})
	session = 0

	unused := func(crowded bool) *liveGroup {
		e.mu.Lock()
		g := e.live["g"]
		e.mu.Unlock()
		g.mu.Lock()
		g.lastUsed = g.lastUsed.Add(-2 * groupIdle)
		counts := g.coordinator.Counts()
		g.mu.Unlock()
		if counts.Members != 0 {
			t.Fatalf("%+v after the member has left", counts)
		}
		c, _ := l.Machine().Cursor("g")
		g.inUse(c.Group.Policy, crowded)
		return g
	}
	if g := unused(false); g.ctx.Err() != nil {
		t.Error("what was released is forgotten after a while")
	}
	again := say(fetch)
	if again.Counts[0] != 1 {
		t.Errorf("%+v: what was released comes as another delivery", again)
	}
	say(Request{Acks: []frame.Range{{From: wanted[0], To: wanted[0]}}, Leave: true})
	g := unused(true)
	select {
	case <-g.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("a group without members among many does not end")
	}
	if c, _ := l.Machine().Group("g"); c.Group.Open-uint64(len(c.Group.Retries)) != 2 {
		t.Errorf("%+v: 2 events are pending", c.Group)
	}
}
