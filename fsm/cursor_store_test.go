package fsm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// wide is a filter of as many bytes as one may have, or a few less.
func wide(n int) event.Filter {
	f := event.Filter{}
	for len(f.Keys) < 60 {
		f.Keys = append(f.Keys, fmt.Sprintf("%08d%s", n, strings.Repeat("k", 248)))
	}
	return f
}

// A commit writes where the cursor is, however much its filter takes.
func TestACommitWritesAFewBytes(t *testing.T) {
	n := newNode(t)
	apply := func(requests ...request) {
		n.index++
		for i, r := range applyTo(t, n.m, entryOf(n.index, 1, "n1", n.at, requests...)) {
			if r.Refusal != nil {
				t.Fatalf("%T: %v", requests[i].command, r.Refusal)
			}
		}
	}
	apply(publish(ev(1), ev(2)), do(frame.CursorCreate{Name: "wide", Filter: wide(1)}), do(frame.CursorOpen{Name: "wide"}))
	written := func() uint64 { return n.m.db.(interface{ Metrics() *pebble.Metrics }).Metrics().WAL.BytesIn }
	before := written()
	apply(do(frame.CursorCommit{Name: "wide", Offset: 1, Generation: 1}))
	const most = 60
	value, closer, err := n.m.db.Get(key(prefixPlace, "wide"))
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	if len(value) > most {
		t.Errorf("the place of a cursor takes %d bytes", len(value))
	}
	if wrote := written() - before; wrote > 2000 { // most of it is the meta record
		t.Errorf("an entry with one commit writes %d bytes", wrote)
	}
}

// All cursors together are bounded in bytes, and one that is removed or gets a smaller
// filter makes room; a restart counts the same.
func TestCursorsAreBoundedInBytes(t *testing.T) {
	disk := vfs.NewMem()
	n := &node{t: t, m: open(t, disk), term: 1, at: epoch}
	apply := func(c frame.Command) *Refusal {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, do(c)))[0].Refusal
	}
	fits := func(c frame.Command) {
		t.Helper()
		if refused := apply(c); refused != nil {
			t.Fatalf("%T: %v", c, refused)
		}
	}
	full := func(c frame.Command) {
		t.Helper()
		if refused := apply(c); refused == nil || refused.Code != Overloaded ||
			!strings.Contains(refused.Remedy, "cursor.max_bytes") {
			t.Fatalf("%T: %v", c, refused)
		}
	}
	fits(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}})
	fits(frame.SettingSet{Key: "cursor.max_bytes", Value: "65536"})
	for i := range 3 {
		fits(frame.CursorCreate{Name: fmt.Sprint(i), Filter: wide(i)})
	}
	full(frame.CursorCreate{Name: "3", Filter: wide(3)})
	full(frame.GroupCreate{Name: "3", Filter: wide(3)})
	fits(frame.CursorCreate{Name: "small"})
	full(frame.CursorChange{Name: "small", Filter: wide(3)})
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.m = open(t, disk)
	defer func() { n.m.Close() }()
	full(frame.CursorChange{Name: "small", Filter: wide(3)})
	fits(frame.CursorChange{Name: "0"})
	fits(frame.CursorChange{Name: "small", Filter: wide(3)})
	full(frame.CursorChange{Name: "0", Filter: wide(3)})
	fits(frame.CursorDelete{Name: "1"})
	fits(frame.CursorChange{Name: "0", Filter: wide(3)})
	over := wide(4)
	over.Sources = over.Keys
	refused := apply(frame.CursorCreate{Name: "over", Filter: over})
	if refused == nil || refused.Code != Invalid || over.Validate() == nil {
		t.Errorf("a filter of %d bytes: %v, %v", over.Bytes(), refused, over.Validate())
	}
}

// A cursor that a build stored in one piece, as those of a restored backup may be, is read.
func TestACursorStoredInOnePieceIsRead(t *testing.T) {
	disk := vfs.NewMem()
	m := open(t, disk)
	old := map[string]string{
		"plain": `{"name":"plain","filter":{"types":["MODEL_PROMOTED"]},"policy":{"hold_events":7},
			"committed":3,"generation":2,"created":"2026-01-05T10:00:00Z","touched":"2026-01-05T11:00:00Z",
			"seeks":1,"last_seek":{"from":5,"to":2,"at":"2026-01-05T10:30:00Z"},"moved":"2026-01-05T11:00:00.5Z",
			"stalled":{"since":"2026-01-05T12:00:00Z"},"gap":{"from":1,"to":2,"reason":"forced","types":{"A":2}}}`,
		"group": `{"name":"group","filter":{},"policy":{},"committed":0,"generation":1,
			"created":"2026-01-05T10:00:00Z","touched":"2026-01-05T10:00:00Z",
			"group":{"policy":{},"reserved":4,"open":2}}`,
	}
	for name, value := range old {
		setKey(t, m.db, key(prefixCursor, name), []byte(value))
	}
	check := func(stage string, committed uint64) {
		c, _ := m.Cursor("plain")
		want := Cursor{
			Name:       "plain",
			Filter:     event.Filter{Types: []string{"MODEL_PROMOTED"}},
			Policy:     frame.CursorPolicy{HoldEvents: 7},
			Committed:  committed,
			Generation: 2,
			Created:    epoch,
			Touched:    epoch.Add(time.Hour),
			Seeks:      1,
			LastSeek:   &Seek{From: 5, To: 2, At: epoch.Add(30 * time.Minute)},
			Moved:      epoch.Add(time.Hour + time.Second/2),
			Stalled:    &Stall{Since: epoch.Add(2 * time.Hour)},
		}
		if got, want := mustJSON(t, c), mustJSON(t, want); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", stage, got, want)
		}
		if g, ok := m.Group("group"); !ok || g.Group.Reserved != 4 || g.Group.Open != 2 {
			t.Errorf("%s: %+v", stage, g.Group)
		}
	}
	reload(t, m)
	check("as it was stored", 3)
	c := m.s.cursors["plain"]
	c.Committed = 9
	setKey(t, m.db, key(prefixPlace, "plain"), c.encodePlace())
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = open(t, disk)
	defer m.Close()
	check("once it has moved", 9)
	value := c.encodePlace()
	for n := range value {
		if err := (&Cursor{}).decodePlace(value[:n]); err == nil {
			t.Errorf("%d of its %d bytes are taken for a place", n, len(value))
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
