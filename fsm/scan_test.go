package fsm

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// filteredStory is a cursor that gets rare events alone, and a leader that scans for it.
type filteredStory struct {
	*rapid.T
	m     *Machine
	apply func(...request) Result
	wants event.Type         // of its filter
	old   []frame.CursorScan // true when they were made
}

// open returns the first offset that the cursor is to get, or MaxUint64.
func (s *filteredStory) open(c Cursor) uint64 {
	first, last := s.m.Log().Bounds()
	for offset := max(first, c.Committed+1); offset <= last; offset++ {
		if e, err := s.m.Log().Get(offset); err != nil {
			s.Fatalf("%d: %v", offset, err)
		} else if e.Type == s.wants {
			return offset
		}
	}
	return math.MaxUint64
}

// appendedAt returns when an event was appended, the zero time for one that is not there.
func (s *filteredStory) appendedAt(offset uint64) time.Time {
	if _, last := s.m.Log().Bounds(); offset > last {
		return time.Time{}
	}
	columns, err := s.m.Log().Columns(offset)
	if err != nil {
		s.Fatalf("%d: %v", offset, err)
	}
	return columns.AppendedAt
}

// scan is what a leader finds that looks from what the cursor has passed up to the tail, or to an
// offset before.
func (s *filteredStory) scan(c Cursor, upTo uint64) frame.CursorScan {
	_, last := s.m.Log().Bounds()
	out := frame.CursorScan{
		Name:       c.Name,
		Created:    c.Created.UnixNano(),
		Generation: c.Generation,
		From:       c.Passed(),
		To:         min(last, upTo),
	}
	if open := s.open(c); open <= out.To {
		out.To, out.Match = open-1, true
	}
	return out
}

// check holds what is known against the log.
func (s *filteredStory) check(c Cursor, now time.Time, after time.Duration) {
	open := s.open(c)
	first, last := s.m.Log().Bounds()
	switch {
	case c.Scanned != 0 && c.Scanned < c.Committed, c.Passed() > last, c.Passed() >= open:
		s.Fatalf("%+v, and %d is open of %d to %d", c, open, first, last)
	case c.Found && c.Scanned >= c.Committed && c.Scanned+1 >= first && c.Scanned+1 != open:
		s.Fatalf("%+v is said to have found the next, which is %d", c, open)
	}
	if c.Gap != nil && c.Gap.From <= c.Passed() && c.Passed() > c.Committed {
		s.Fatalf("a gap of what the filter keeps away: %+v %+v", c, c.Gap)
	}
	known := read(&s.m.views, func(now *state) bool { return now.nextKnown(&c) })
	if c.Stalled == nil && c.Found && known && open <= last {
		columns, err := s.m.Log().Columns(open)
		if err != nil {
			s.Fatalf("%v", err)
		}
		if stands := now.Sub(latestOf(columns.AppendedAt, c.Moved)); stands >= after+stallGrain {
			s.Fatalf("%+v has an open event, stands for %s and is not stalled", c, stands)
		}
	}
}

// Whatever a cursor, its filter and a leader do that reports what is true, or was when it
// looked: no event that the cursor is to get is passed or trimmed, and a stall is reported
// of such an event alone, also after a trim by force. A machine that is reopened on the way decides the same.
func TestOnlyWhatASubscriberGetsIsAStallOrHeld(t *testing.T) {
	const after = time.Minute
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, index := epoch, uint64(0)
		s := &filteredStory{T: t, m: plain, wants: "RARE"}
		s.apply = func(r ...request) Result {
			index++
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[0]
		}
		create := func() {
			wants := event.Filter{Types: []string{string(s.wants)}}
			s.apply(do(frame.CursorCreate{Name: "c", Filter: wants}), do(frame.CursorOpen{Name: "c"}))
		}
		s.apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "cursor.stall_after", Value: after.String()}))
		create()
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			now = now.Add(rapid.SampledFrom([]time.Duration{
				0, 300 * time.Millisecond, 10 * time.Second, 50 * time.Second, 2 * time.Minute,
			}).Draw(t, "wait"))
			before, _ := plain.Cursor("c")
			opened := s.open(before)
			openedAt := s.appendedAt(opened)
			first, last := plain.Log().Bounds()
			anywhere := rapid.Uint64Range(1, last).Draw(t, "offset")
			what := rapid.SampledFrom([]string{
				"rare", "common", "common", "tick", "scan", "scan", "scan", "part", "stale", "commit", "commit",
				"seek", "filter", "again", "trim", "force",
			}).Draw(t, "what")
			counts[what]++
			switch what {
			case "rare", "common":
				e := noDedup(ev(1))
				e.Type = "COMMON"
				if what == "rare" {
					e.Type = "RARE"
				}
				s.apply(publish(e))
			case "tick":
				s.apply(do(frame.Tick{}))
			case "scan", "part":
				upTo := uint64(math.MaxUint64)
				if what == "part" {
					upTo = max(anywhere, before.Passed())
				}
				found := s.scan(before, upTo)
				s.old = append(s.old, found)
				s.apply(do(frame.CursorsScanned{Scans: []frame.CursorScan{found, {Name: "nobody", To: 1}}}))
				if c, _ := plain.Cursor("c"); c.Stalled != nil && c.Passed() == last {
					t.Fatalf("%+v has nothing to get, and is stalled", c)
				}
			case "stale":
				if len(s.old) > 0 {
					s.apply(do(frame.CursorsScanned{Scans: []frame.CursorScan{rapid.SampledFrom(s.old).Draw(t, "found")}}))
				}
			case "commit":
				s.apply(do(frame.CursorCommit{Name: "c", Offset: anywhere, Generation: before.Generation}))
			case "seek":
				s.apply(do(frame.CursorSeek{Name: "c", To: frame.Position{Kind: frame.AtOffset, Offset: anywhere}}))
			case "filter":
				s.wants = "RARE"
				if rapid.Bool().Draw(t, "other") {
					s.wants = "COMMON"
				}
				s.apply(do(frame.CursorChange{Name: "c", Filter: event.Filter{Types: []string{string(s.wants)}}}))
			case "again":
				s.apply(do(frame.CursorDelete{Name: "c"}))
				now = now.Add(time.Millisecond) // the time distinguishes a cursor from one before of its name
				create()
			case "trim":
				s.apply(do(frame.Trim{Before: max(first, anywhere)}))
			case "force": // what is open, too
				s.apply(do(frame.Trim{Before: max(first, anywhere), Force: true}))
			}
			c, _ := plain.Cursor("c")
			s.check(c, now, after)
			if first, _ := plain.Log().Bounds(); what == "trim" && opened < first {
				t.Fatalf("offset %d was trimmed, which the cursor was to get", opened)
			}
			_, end := plain.Log().Bounds()
			for offset := last + 1; offset <= end; offset++ {
				e, err := plain.Log().Get(offset)
				if err != nil {
					t.Fatalf("%d: %v", offset, err)
				}
				counts[string(e.Type)]++
				if e.Type != event.CursorStalled {
					continue
				}
				var p struct {
					Lag     uint64 `json:"lag_events"`
					Seconds int64  `json:"lag_seconds"`
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatalf("%v", err)
				}
				// The event of a stall is there until the entry ends, which may trim it.
				open, at := s.open(c), s.appendedAt(s.open(c))
				if what == "force" {
					open, at = opened, openedAt
				}
				if open >= offset || p.Lag != offset-open || p.Seconds != int64(now.Sub(at)/time.Second) {
					t.Fatalf("%s at %d: %+v, and %d is open", e.Payload, offset, c, open)
				}
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{string(event.CursorStalled), string(event.CursorRecovered), "trim", "force", "stale",
		"part"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Error("no history had this:", kind)
		}
	}
	t.Log(counts)
}

// A group may settle what was found while what does not match before it holds its commit back.
func TestAGroupThatHasSettledWhatWasFoundIsNotStalled(t *testing.T) {
	n := newNode(t)
	apply := func(requests ...request) []Result {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, 1, "n1", n.at, requests...))
	}
	rare := ev(2)
	rare.Type = "RARE"
	apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
		do(frame.GroupCreate{Name: "g", Filter: event.Filter{Types: []string{"RARE"}}}), publish(ev(1), rare))
	g, _ := n.m.Group("g")
	_, last := n.m.Log().Bounds()
	found := frame.CursorScan{
		Name:       "g",
		Created:    g.Created.UnixNano(),
		Generation: g.Generation,
		To:         last - 1,
		Match:      true,
	}
	settled := frame.GroupSettle{
		Name:       "g",
		Generation: g.Generation,
		Term:       1,
		Reserved:   last,
		Done:       []frame.Range{{From: last, To: last}},
	}
	apply(do(frame.CursorsScanned{Scans: []frame.CursorScan{found}}))
	apply(do(settled))
	n.at = n.at.Add(time.Hour)
	apply(do(frame.Tick{}))
	g, _ = n.m.Group("g")
	if g.Stalled != nil || !g.Found || g.Committed != 0 || !g.Settled(last) {
		t.Errorf("%+v", g)
	}
	found.From, found.To, found.Match = last-1, last, false
	apply(do(frame.CursorsScanned{Scans: []frame.CursorScan{found}}))
	g, _ = n.m.Group("g")
	if g.Passed() != last || len(n.m.Unscanned("", 9)) > 0 {
		t.Errorf("%+v", g)
	}
}

// A cursor that has recovered because what is open now is younger than the limit, and that does not
// move, is reported again once that event reaches the limit, which may be soon.
func TestACursorThatRecoveredIsReportedAgain(t *testing.T) {
	n := newNode(t)
	common, rare := ev(1), ev(2)
	common.Type, rare.Type = "COMMON", "RARE"
	// scan reports the last event of the log as the first that the cursor is to get.
	scan := func() {
		c, _ := n.m.Cursor("c")
		_, last := n.m.Log().Bounds()
		n.decide(do(frame.CursorsScanned{Scans: []frame.CursorScan{{
			Name:       "c",
			Created:    c.Created.UnixNano(),
			Generation: c.Generation,
			From:       c.Passed(),
			To:         last - 1,
			Match:      true,
		}}}))
	}
	expect := func(when string, want bool) {
		t.Helper()
		if c, _ := n.m.Cursor("c"); (c.Stalled != nil) != want {
			t.Fatalf("%s: stalled %v, want %v", when, c.Stalled != nil, want)
		}
	}
	filter := func(one event.Type) event.Filter { return event.Filter{Types: []string{string(one)}} }
	n.decide(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
		do(frame.CursorCreate{Name: "c", Filter: filter("COMMON")}), publish(common))
	scan()
	n.at = n.at.Add(10 * time.Minute)
	n.decide(do(frame.Tick{}))
	expect("an event is open for ten minutes", true)

	n.decide(publish(rare))
	n.at = n.at.Add(3 * time.Minute)
	// All cursors are checked now, and none is due: the only one is stalled.
	n.decide(do(frame.SettingSet{Key: "cursor.stall_after", Value: "4m"}))
	n.decide(do(frame.CursorChange{Name: "c", Filter: filter("RARE")}))
	scan()
	expect("what the new filter passes is open for three minutes", false)
	n.at = n.at.Add(time.Minute + time.Second)
	n.decide(do(frame.Tick{}))
	expect("it is open for four minutes", true)
}
