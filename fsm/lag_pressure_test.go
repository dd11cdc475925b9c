package fsm

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ringrift/ringlog/internal/frame"
)

// throttled returns the names of the cursors that are throttled.
func throttled(m *Machine) []string { return slices.Sorted(maps.Keys(m.s.ranks.throttled)) }

// A leader looks at the cursors that may reach a limit and at those that are throttled, wherever they are, also if it
// was restarted or has installed a snapshot, and goes round. It does not look at those that are near the tail.
func TestOnlyCursorsThatMayChangeAreLookedAt(t *testing.T) {
	var c copies
	c.counts = map[string]int{}
	c.empty(t)
	defer c.close()
	var index uint64
	apply := func(requests ...request) {
		index++
		c.each(func(m *Machine) { applyTo(t, m, entryOf(index, 1, "n1", epoch, requests...)) })
	}
	create := func(name string, at frame.PositionKind) request {
		return do(frame.CursorCreate{Name: name, Start: frame.Position{Kind: at}})
	}
	report := func(name string, lag uint64) request {
		return do(frame.LagReport{Cursor: name, Created: epoch.UnixNano(), Lag: lag})
	}
	want := func(after string, n int, names ...string) {
		t.Helper()
		for i, m := range c.m {
			var got []string
			for _, cur := range m.ThrottleCandidates(after, n) {
				got = append(got, cur.Name)
			}
			if !slices.Equal(got, names) {
				t.Errorf("the copy that %s: after %q: %q, not %q", copyDirs[i], after, got, names)
			}
		}
	}
	apply(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}))
	apply(create("a", frame.AtStart), create("b", frame.AtStart))
	for n := range 10 {
		apply(publish(ev(n)))
	}
	apply(create("near", frame.AtEnd), create("caught-up", frame.AtEnd))
	want("", 9) // nothing is limited
	apply(do(frame.SettingSet{Key: "backpressure.lag", Value: "caught-up=8/2,*=9/3"}))
	apply(report("caught-up", 8), report("near", 8), report("a", 9))
	want("", 9, "a", "b", "caught-up")

	c.lags = true
	apply(publish(ev(11)))
	c.install(t)
	reload(t, c.m[1])
	want("", 9, "a", "b", "caught-up")
	want("a", 2, "b", "caught-up")
	want("b", 2, "caught-up", "a")

	// The limits are gone: those that are throttled are to be released.
	apply(do(frame.SettingSet{Key: "backpressure.lag"}), do(frame.CursorDelete{Name: "a"}))
	want("", 9, "caught-up")
	apply(report("caught-up", 8))
	want("", 9)
	if got := fmt.Sprint(throttled(c.m[0]), throttled(c.m[1]), throttled(c.m[2])); got != "[] [] []" {
		t.Error(got)
	}
}
