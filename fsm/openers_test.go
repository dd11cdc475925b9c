package fsm

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/frame"
)

func (n *node) decide(requests ...request) []Result {
	n.index++
	return applyTo(n.t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))
}

// An attempt to open a cursor may be late: by then the same caller has opened it with another
// attempt, or somebody else has. It fences nobody off.
func TestALateOpenFencesNobody(t *testing.T) {
	disk := vfs.NewMem()
	n := &node{t: t, m: open(t, disk), term: 1, at: epoch}
	t.Cleanup(func() { n.m.Close() })
	apply := n.decide
	begin := func(opener string) (uint64, Code) {
		t.Helper()
		r := apply(do(frame.CursorOpen{Name: "c", Opener: opener}))[0]
		if r.Refusal != nil {
			return r.Refusal.Expected, r.Refusal.Code
		}
		if len(r.Cursor.Openers) > 0 {
			t.Errorf("the answer shows the openers")
		}
		return r.Cursor.Generation, ""
	}
	apply(do(frame.CursorCreate{Name: "c"}))
	for i, step := range []struct {
		opener     string
		generation uint64
		code       Code
	}{
		{"a", 1, ""}, {"a", 1, ""}, {"b", 2, ""}, {"a", 2, Fenced}, {"b", 2, ""},
		{"", 3, ""}, {"", 4, ""}, {"b", 4, Fenced}, {"a", 4, Fenced},
	} {
		if generation, code := begin(step.opener); generation != step.generation || code != step.code {
			t.Errorf("step %d, %q: generation %d %q, want %d %q", i, step.opener, generation, code, step.generation, step.code)
		}
	}
	begin("d") // generation 5
	apply(do(frame.CursorChange{Name: "c", Policy: frame.CursorPolicy{HoldEvents: 1}}))
	if generation, code := begin("d"); code != Fenced || generation != 6 {
		t.Errorf("after another filter: generation %d %q", generation, code)
	}
	for i := range 100 { // what is kept does not grow
		begin(fmt.Sprint("x", i))
	}
	if generation, code := begin("x99"); code != "" || generation != 106 {
		t.Errorf("generation %d %q", generation, code)
	}
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.m = open(t, disk)
	if generation, code := begin("x99"); code != "" || generation != 106 {
		t.Errorf("after a restart: generation %d %q", generation, code)
	}
	if _, code := begin(string(make([]byte, frame.MaxCallerID+1))); code != Invalid {
		t.Errorf("a long opener: %q", code)
	}
}

func TestALateSeekMovesNothing(t *testing.T) {
	n := &node{t: t, m: open(t, vfs.NewMem()), term: 1, at: epoch}
	t.Cleanup(func() { n.m.Close() })
	apply := n.decide
	apply(publish(ev(1), ev(2), ev(3), ev(4), ev(5)))
	apply(do(frame.CursorCreate{Name: "c"}))
	seek := func(seeker string, to uint64) uint64 {
		t.Helper()
		r := apply(do(frame.CursorSeek{Name: "c", Seeker: seeker, To: frame.Position{Kind: frame.AtOffset, Offset: to}}))[0]
		if r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
		return r.Cursor.Committed
	}
	for i, step := range []struct {
		seeker   string
		to, want uint64
	}{{"a", 4, 3}, {"b", 2, 1}, {"a", 4, 1}, {"b", 2, 1}, {"", 4, 3}, {"", 2, 1}, {"c", 5, 4}, {"a", 2, 4}} {
		if got := seek(step.seeker, step.to); got != step.want {
			t.Errorf("step %d: committed %d, want %d", i, got, step.want)
		}
	}
}
