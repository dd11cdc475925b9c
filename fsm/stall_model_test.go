package fsm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// standing is a cursor as one would watch it by hand.
type standing struct {
	committed  uint64
	generation uint64
	moved      time.Time
	movedIn    uint64 // entry
	stalled    bool
}

// Whatever cursors do, a stall is reported when one has not moved for the time with an event
// open for as long, within the grain; stalls and recoveries take turns; and two stalls of a
// cursor are at least the time apart. A machine that is reopened on the way reports the same.
func TestStallsAreToldInTurns(t *testing.T) {
	const after = time.Minute
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, known, told := epoch, map[string]*standing{}, map[string]time.Time{}
		index := uint64(0)
		apply := func(r ...request) Result {
			index++
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[0]
		}
		voters := 0
		configure := func() {
			index++
			voters = 1 - voters // n2 gets a vote, or loses it
			members := []ConfigMember{{ID: "n1", Voter: true}, {ID: "n2", Voter: voters == 1}}
			for _, m := range []*Machine{plain, troubled} {
				if err := m.ApplyConfiguration(index, 1, []byte("raw"), members); err != nil {
					t.Fatalf("configure: %v", err)
				}
			}
			troubled = trouble(t, troubled, troubledFS, counts)
		}
		apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "cursor.stall_after", Value: after.String()}))
		configure()
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			before := now
			now = now.Add(rapid.SampledFrom([]time.Duration{
				0, 300 * time.Millisecond, 10 * time.Second, 50 * time.Second, 2 * time.Minute,
			}).Draw(t, "wait"))
			first, last := plain.Log().Bounds()
			name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "cursor")
			c := known[name]
			switch what := rapid.IntRange(0, 10).Draw(t, "what"); {
			case what == 10: // a configuration does not move replicated time
				now = before
				configure()
				counts["configuration"]++
			case what < 3:
				apply(publish(noDedup(ev(1))))
			case what < 4:
				apply(do(frame.Tick{}))
			case c == nil:
				atEnd := frame.Position{Kind: frame.AtEnd}
				made := apply(do(frame.CursorCreate{Name: name, Start: atEnd}), do(frame.CursorOpen{Name: name}))
				known[name] = &standing{committed: made.Cursor.Committed, generation: 1, moved: now}
			case what == 4:
				apply(do(frame.CursorDelete{Name: name}))
				delete(known, name)
				delete(told, name)
			case what == 5:
				to := rapid.Uint64Range(first, last+1).Draw(t, "to")
				apply(do(frame.CursorSeek{Name: name, To: frame.Position{Kind: frame.AtOffset, Offset: to}}))
				c.committed, c.moved, c.movedIn = to-1, now, index
			case what == 6:
				apply(do(frame.Trim{Before: rapid.Uint64Range(1, last).Draw(t, "before"), Force: true}))
			default:
				to := last
				if rapid.IntRange(0, 2).Draw(t, "to the end") == 0 {
					to = rapid.Uint64Range(1, last).Draw(t, "commit")
				}
				apply(do(frame.CursorCommit{Name: name, Offset: to, Generation: c.generation}))
				if to > c.committed {
					c.committed, c.moved, c.movedIn = to, now, index
				}
			}
			// The log holds what was told of it; what is behind this entry's stalls is young.
			first, end := plain.Log().Bounds()
			for offset := max(first, last+1); offset <= end; offset++ {
				e, err := plain.Log().Get(offset)
				if err != nil {
					t.Fatalf("%d: %v", offset, err)
				}
				if e.Type != event.CursorStalled && e.Type != event.CursorRecovered {
					continue
				}
				counts[string(e.Type)]++
				var p struct {
					Cursor    string
					Committed uint64
					Lag       uint64 `json:"lag_events"`
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatalf("%v", err)
				}
				if most := offset - 1 - p.Committed; p.Lag > most {
					t.Fatalf("%s at %d has committed %d and lags by %d events, of which there are %d", p.Cursor, offset,
						p.Committed, p.Lag, most)
				}
				c, before := known[p.Cursor], told[p.Cursor]
				if stalls := e.Type == event.CursorStalled; c == nil || stalls == c.stalled {
					t.Fatalf("%s of %s, which stands so already", e.Type, p.Cursor)
				} else if c.stalled = stalls; stalls {
					if !before.IsZero() && now.Sub(before) < after {
						t.Fatalf("%s is told again after %s", p.Cursor, now.Sub(before))
					}
					told[p.Cursor] = now
				} else if !c.moved.Equal(now) {
					t.Fatalf("%s recovers without moving", p.Cursor)
				}
			}
			for name, c := range known {
				cur, _ := plain.Cursor(name)
				if (cur.Stalled != nil) != c.stalled || cur.Committed != c.committed {
					t.Fatalf("%s: %+v, want %+v", name, cur, c)
				}
				open := now // of this entry
				if next := max(c.committed+1, first); next <= last {
					if cols, err := plain.Log().Columns(next); err == nil {
						open = cols.AppendedAt
					}
				}
				stands := now.Sub(latestOf(open, c.moved))
				if behind := c.committed < end; !c.stalled && behind && stands >= after+stallGrain || c.stalled && !behind {
					t.Fatalf("%s: behind %v, it stands for %s, stalled %v", name, behind, stands, c.stalled)
				}
				if c.stalled && c.movedIn == index && now.Sub(open) < after {
					t.Fatalf("%s has moved, what is open is %s old, and it is stalled", name, now.Sub(open))
				}
				due := troubled.NextDeadline()
				if most := latestOf(open, c.moved).Add(after + stallGrain); !c.stalled && c.committed < end &&
					(due.IsZero() || due.After(most)) {
					t.Fatalf("%s is due at %s, the next deadline is %s", name, most, due)
				}
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", kind, counts[kind])
	}
	for _, kind := range []event.Type{event.CursorStalled, event.CursorRecovered} {
		if counts[string(kind)] == 0 {
			t.Error(fmt.Sprint("no ", kind))
		}
	}
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
