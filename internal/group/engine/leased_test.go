package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// acquire gives a role to a session, once nobody else has it.
func (l *leader) acquire(role, session string) frame.RoleLease {
	l.Helper()
	got, err := l.Propose(l.Context(), frame.Request{
		Command: frame.RoleAcquire{Role: role, Holder: session, Session: session, TTL: time.Hour}})
	if err != nil || got.Role.Held.Session != session {
		l.Fatalf("%+v %v", got.Role, err)
	}
	return frame.RoleLease{Role: role, Fence: got.Role.Fence}
}

func (l *leader) release(role, session string) {
	l.Helper()
	release := frame.RoleRelease{Role: role, Session: session}
	if _, err := l.Propose(l.Context(), frame.Request{Command: release}); err != nil {
		l.Fatal(err)
	}
}

// leaseIsOver reports whether an error is that of a call whose lease is over.
func leaseIsOver(err error) bool {
	refusal, ok := errors.AsType[*fsm.Refusal](err)
	return ok && refusal.Code == fsm.Fenced && refusal.Field == fsm.FieldFence
}

// What a member settles under the lease of a role is refused by the entry that decides it, also where the role has gone
// to another one after the node has looked: its events go to the next holder, and nothing of it is in the log.
func TestAcksOfAHolderThatHasLostItsRoleAreRefused(t *testing.T) {
	for _, kind := range []string{"acks", "a nack", "a dead letter"} {
		t.Run(kind, func(t *testing.T) {
			l := newLeader(t)
			eventually(t, "the level of fences", func() bool { return l.Machine().FeatureLevel() >= frame.LevelFences })
			l.group("g", event.Filter{Types: []string{"A"}})
			offsets := l.publish("A", 1, 3)
			all := []frame.Range{{From: offsets[0], To: offsets[2]}}
			old := l.acquire("R", "old")
			e := l.engine()
			say := func(member string, lease frame.RoleLease, r Request) (Answer, error) {
				r.Group, r.Member, r.Lease = "g", member, lease
				return e.Exchange(t.Context(), r)
			}
			first, err := say("old", old, Request{Want: 10, Wait: 20 * time.Second})
			if err != nil || len(first.Events) != 3 {
				t.Fatalf("%+v %v", first, err)
			}

			// The call passes the node, and its command comes after the end of the lease.
			l.hold()
			l.deaths = make(chan frame.GroupDead)
			settles := Request{Session: first.Session, Acks: all}
			switch kind {
			case "a nack":
				settles = Request{Session: first.Session, Acks: all[:0],
					Nacks: []group.Nack{{Offset: offsets[1], Error: "e", Delivery: 1}}}
			case "a dead letter":
				settles = Request{Session: first.Session, Nacks: []group.Nack{{Offset: offsets[1], Error: "e", Dead: true}}}
			}
			failed := make(chan error, 1)
			go func() { _, err := say("old", old, settles); failed <- err }()
			switch kind {
			case "a dead letter":
				if c := <-l.deaths; c.Letter.Lease != old {
					t.Errorf("%+v", c)
				}
			default:
				if c := <-l.asked; c.Lease != old {
					t.Errorf("%+v", c)
				}
			}
			l.release("R", "old")
			lease := l.acquire("R", "new")
			l.fate <- nil
			if err := <-failed; !leaseIsOver(err) {
				t.Fatalf("%v", err)
			}
			g, _ := l.Machine().Group("g")
			if g.Committed >= offsets[0] || len(g.Group.Done)+len(g.Group.Retries) > 0 {
				t.Fatalf("committed %d, %+v", g.Committed, g.Group)
			}
			l.free.Store(true)

			// Nor does it get anything more.
			if _, err := say("old", old, Request{Want: 10}); !leaseIsOver(err) {
				t.Errorf("%v", err)
			}
			next, err := say("new", lease, Request{Want: 10, Wait: 20 * time.Second})
			if err != nil || len(next.Events) != 3 {
				t.Fatalf("%+v %v", next, err)
			}
			settles.Session, settles.Leave = next.Session, true
			if _, err := say("new", lease, settles); err != nil {
				t.Fatal(err)
			}
			g, _ = l.Machine().Group("g")
			_, none := l.Machine().LetterAt("g", offsets[1])
			got := fmt.Sprint(g.Committed == offsets[2], g.Settled(offsets[1]), len(g.Group.Retries), none == nil)
			want := map[string]string{"acks": "true true 0 false", "a nack": "false false 1 false",
				"a dead letter": "false true 0 true"}
			if got != want[kind] {
				t.Errorf("the next holder has settled %s, want %s: %+v", got, want[kind], g.Group)
			}
		})
	}
}

// A holder settles under its lease what it settles without one.
func TestAHolderSettlesUnderItsLease(t *testing.T) {
	l := newLeader(t)
	eventually(t, "the level of fences", func() bool { return l.Machine().FeatureLevel() >= frame.LevelFences })
	l.group("g", event.Filter{Types: []string{"A"}})
	offsets := l.publish("A", 1, 6)
	lease := l.acquire("R", "m")
	e := l.engine()
	say := func(r Request) Answer {
		t.Helper()
		r.Group, r.Member, r.Lease = "g", "m", lease
		a, err := e.Exchange(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	got := say(Request{Want: 10, Wait: 20 * time.Second})
	nacks := []group.Nack{
		{Offset: offsets[1], Error: "late"}, {Offset: offsets[0], Error: "no"}, {Offset: offsets[2], Released: true},
		{Offset: 99},
	}
	refused := say(Request{Session: got.Session, Nacks: nacks}).Refused
	if !slices.Equal(refused, []frame.Range{{From: 99, To: 99}}) {
		t.Errorf("%v", refused)
	}
	g, _ := l.Machine().Group("g")
	for i, text := range []string{"no", "late"} {
		if r, failed := g.Group.Retry(offsets[i]); !failed || r.Error != text || r.Deliveries != 1 {
			t.Errorf("%+v", r)
		}
	}
	for committed := uint64(0); committed < offsets[5]; {
		a := say(Request{Session: got.Session, Want: 10, Wait: 20 * time.Second})
		for i, ev := range a.Events {
			want := uint64(1)
			if ev.Offset < offsets[2] {
				want = 2
			}
			if a.Counts[i] != want {
				t.Errorf("%d is delivery %d", ev.Offset, a.Counts[i])
			}
		}
		say(Request{Session: got.Session, Acks: []frame.Range{{From: offsets[0], To: offsets[5]}}})
		g, _ = l.Machine().Group("g")
		committed = g.Committed
	}
}
