package fsm

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A cursor whose filter is changed stays where it is, with its letters; who read by the
// filter before is fenced off; the same again changes nothing, and a restart neither.
func TestAFilterIsChangedInPlace(t *testing.T) {
	disk := vfs.NewMem()
	n := &node{t: t, m: open(t, disk), term: 1, at: epoch}
	apply := func(requests ...request) []Result {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))
	}
	some := event.Filter{Types: []string{"TRAINING_COMPLETED"}}
	change := do(frame.CursorChange{Name: "trainer", Filter: some, Policy: frame.CursorPolicy{HoldEvents: 7}})
	apply(do(frame.CursorCreate{Name: "trainer"}), publish(ev(1), ev(2), ev(3)))
	apply(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}))
	apply(do(frame.CursorOpen{Name: "trainer"}))
	first := uint64(1)
	for _, e := range all(t, n.m) {
		if e.Type == event.TrainingCompleted {
			first = e.Offset
			break
		}
	}
	apply(do(frame.CursorCommit{Name: "trainer", Offset: first, Generation: 1}))
	if r := apply(do(frame.CursorCreate{Name: "trainer", Filter: some}))[0]; r.Refusal == nil || r.Refusal.Code != Exists {
		t.Errorf("made with another filter: %+v", r)
	}
	for range 2 {
		r := apply(change)[0]
		if r.Refusal != nil || r.Cursor.Committed != first || r.Cursor.Generation != 2 ||
			!sameFilter(r.Cursor.Filter, some) || r.Cursor.Policy.HoldEvents != 7 {
			t.Errorf("%+v, %+v", r, r.Cursor)
		}
	}
	late := frame.CursorCommit{Name: "trainer", Offset: first + 1, Generation: 1}
	if r := apply(do(late))[0]; r.Refusal == nil || r.Refusal.Code != Fenced {
		t.Errorf("a commit by the reader before: %+v", r)
	}
	if r := apply(do(frame.CursorChange{Name: "nobody"}))[0]; r.Refusal == nil || r.Refusal.Code != NotFound {
		t.Errorf("no cursor: %+v", r)
	}
	apply(do(frame.GroupCreate{Name: "g"}))
	if r := apply(do(frame.CursorChange{Name: "g", Filter: some}))[0]; r.Refusal == nil || r.Refusal.Code != Invalid {
		t.Errorf("a group: %+v", r)
	}
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.m = open(t, disk)
	t.Cleanup(func() { n.m.Close() })
	if c, _ := n.m.Cursor("trainer"); !sameFilter(c.Filter, some) || c.Committed != first || c.Generation != 2 {
		t.Errorf("after a restart: %+v", c)
	}
}
