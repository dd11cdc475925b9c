package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func (w *Watch) notified() bool {
	select {
	case <-w.Moved():
		return true
	default:
		return false
	}
}

// Who watches cursors learns of each entry that moves or removes one of them, and of no other:
// however many watch other cursors, an entry wakes none of those. Another state wakes all.
func TestAWatchLearnsOfItsOwnCursorsAlone(t *testing.T) {
	m := open(t, vfs.NewMem())
	t.Cleanup(func() { m.Close() })
	index := uint64(0)
	entry := func(requests ...request) {
		t.Helper()
		index++
		for i, r := range applyTo(t, m, entryOf(index, 1, "n1", epoch.Add(time.Duration(index)*time.Second), requests...)) {
			if r.Refusal != nil {
				t.Fatalf("%T: %v", requests[i].command, r.Refusal)
			}
		}
	}
	entry(do(frame.CursorCreate{Name: "a"}), do(frame.CursorCreate{Name: "b"}), do(frame.CursorCreate{Name: "c"}),
		do(frame.GroupCreate{Name: "g"}), publish(noDedup(ev(1)), noDedup(ev(2)), noDedup(ev(3))))
	entry(do(frame.CursorOpen{Name: "a"}), do(frame.CursorOpen{Name: "b"}), do(frame.CursorOpen{Name: "c"}))

	both, group := m.WatchCursors([]string{"a", "b"}), m.WatchCursors([]string{"g"})
	var others []*Watch
	for range 1000 {
		others = append(others, m.WatchCursors([]string{"c"}))
	}
	commit := func(name string, offset uint64) request {
		return do(frame.CursorCommit{Name: name, Offset: offset, Generation: 1})
	}
	g, _ := m.Cursor("g")
	term, generation := m.Leadership().Term, g.Generation
	for _, c := range []struct {
		name        string
		request     request
		both, group bool
	}{
		{"an event", publish(noDedup(ev(4))), false, false},
		{"a commit", commit("a", 1), true, false},
		{"a commit again", commit("a", 1), false, false},
		{"a commit of the other", commit("b", 2), true, false},
		{"a seek back", do(frame.CursorSeek{Name: "b", To: frame.Position{Kind: frame.AtStart}}), true, false},
		{"another filter", do(frame.CursorChange{Name: "b", Filter: event.Filter{Types: []string{"A"}}}), false, false},
		{"an open", do(frame.CursorOpen{Name: "a"}), false, false},
		{"a group's ack", do(frame.GroupSettle{
			Name:       "g",
			Term:       term,
			Generation: generation,
			Reserved:   2,
			Done:       []frame.Range{{From: 1, To: 2}},
		}), false, true},
		{"a removal", do(frame.CursorDelete{Name: "a"}), true, false},
	} {
		entry(c.request)
		if got := both.notified(); got != c.both {
			t.Errorf("%s: notified %v", c.name, got)
		}
		if got := group.notified(); got != c.group {
			t.Errorf("%s: the group notified %v", c.name, got)
		}
	}
	for _, w := range others {
		if w.notified() {
			t.Fatal("notified of another cursor")
		}
	}

	if _, err := m.Checkpoint("incoming"); err != nil {
		t.Fatal(err)
	}
	if err := m.Swap("incoming"); err != nil {
		t.Fatal(err)
	}
	for _, w := range others {
		if !w.notified() {
			t.Fatal("not notified of another state")
		}
		w.Close()
	}
	both.Close()
	group.Close()
	if n := len(m.watches.byName); n != 0 {
		t.Errorf("%d cursors are still watched", n)
	}
}

// What commits cost beside watches of another cursor.
func BenchmarkCommitBesideWatches(b *testing.B) {
	for _, watches := range []int{0, 4096} {
		b.Run(fmt.Sprint(watches), func(b *testing.B) {
			s := newBeside(b, nil, 0, 0)
			for range watches {
				w := s.m.WatchCursors([]string{"other"})
				b.Cleanup(w.Close)
			}
			for b.Loop() {
				s.small(b)
			}
		})
	}
}
