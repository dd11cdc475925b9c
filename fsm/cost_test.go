package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// besides are what an entry is decided beside. Each begins with a log that retention keeps
// at a thousand events, and says what is set and where cursors are.
var besides = []struct {
	name     string
	settings map[string]string
	cursors  int
	lag      int // events that come after the cursors; -1: each tenth of them is at another one
}{
	{"none", nil, 0, 0},
	{"abandoned", map[string]string{"cursor.hold_events": "1"}, manyCursors, 1100},
	{"passed by force", nil, manyCursors, 0},
	{"holding", nil, manyCursors, 0},
	{"abandoned one after the other", map[string]string{"cursor.hold_events": "1"}, manyCursors, -1},
	{"expiring", map[string]string{"cursor.idle_expiry": "720h", "cursor.hold_events": "1",
		"backpressure.lag": "cursor-*=1000/10"}, manyCursors, 1100},
}

const manyCursors = 10_000

// beside has a machine with that many cursors whose log is at its bound, and decides small
// entries.
type beside struct {
	m     *Machine
	index uint64
	last  uint64 // offset
	at    time.Time
}

func newBeside(t testing.TB, settings map[string]string, cursors, lag int) *beside {
	m, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	b := &beside{m: m, at: epoch}
	b.entry(t, do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}),
		do(frame.SettingSet{Key: "cursor.stall_after", Value: "0s"}),
		do(frame.SettingSet{Key: "cursor.max", Value: fmt.Sprint(manyCursors + 1)}))
	b.entry(t, do(frame.CursorCreate{Name: "reader"}))
	for range 100 {
		b.entry(t, publish(noDedup(ev(1))))
	}
	for n := 0; n < cursors; {
		var made []request
		most := 1000
		if lag < 0 {
			most = 10
			made = append(made, publish(noDedup(ev(n))))
		}
		for ; n < cursors && len(made) < most; n++ {
			made = append(made, do(frame.CursorCreate{
				Name:  fmt.Sprintf("cursor-%06d", n),
				Start: frame.Position{Kind: frame.AtEnd},
			}))
		}
		b.entry(t, made...)
	}
	for key, value := range settings {
		b.entry(t, do(frame.SettingSet{Key: key, Value: value}))
	}
	b.last = b.m.Stats().Last
	for range lag {
		b.small(t)
	}
	b.entry(t, do(frame.SettingSet{Key: "retention.events", Value: "1000"}))
	for range 1100 + 800*min(lag, 0) { // with cursors everywhere, each trim passes some
		b.small(t)
	}
	return b
}

func (b *beside) entry(t testing.TB, requests ...request) {
	b.index++
	b.at = b.at.Add(time.Millisecond)
	for i, r := range applyTo(t, b.m, entryOf(b.index, 1, "n1", b.at, requests...)) {
		if r.Refusal != nil {
			t.Fatalf("%T: %v", requests[i].command, r.Refusal)
		}
	}
}

// requests are those of a small entry: an event, and a reader's commit of what was there.
func (b *beside) requests() []request {
	b.last++
	return []request{publish(noDedup(ev(int(b.index)))), do(frame.CursorCommit{Name: "reader", Offset: b.last - 1})}
}

func (b *beside) small(t testing.TB) { b.entry(t, b.requests()...) }

// What an entry costs does not depend on how many cursors there are that it does not touch:
// that lag, that trims have passed, that hold retention up, or that may expire.
func TestAnEntryCostsTheSameBesideAnyNumberOfCursors(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, whose work is counted")
	}
	alone := newBeside(t, nil, 0, 0)
	for _, c := range besides[1:] {
		t.Run(c.name, func(t *testing.T) {
			b := newBeside(t, c.settings, c.cursors, c.lag)
			if c.name == "passed by force" {
				b.entry(t, do(frame.Trim{Before: b.m.Stats().Last - 500, Force: true}))
				b.entry(t, do(frame.SettingSet{Key: "cursor.hold_events", Value: "1"}))
				for range 600 {
					b.small(t)
				}
			}
			first := b.m.Stats().First
			var with, without []time.Duration
			for range 40 { // in turns, so both meet the same noise
				for _, one := range []struct {
					*beside
					took *[]time.Duration
				}{{b, &with}, {alone, &without}} {
					began := time.Now()
					for range retentionEvery { // one of which trims
						one.small(t)
					}
					*one.took = append(*one.took, time.Since(began))
				}
			}
			if trims := b.m.Stats().First > first; trims != (c.name != "holding") {
				t.Fatalf("the log began at %d, and begins at %d", first, b.m.Stats().First)
			}
			// The shortest times are those that a busy machine has disturbed least. To look at each of 10 000
			// cursors takes far more than ten times as long as an entry.
			least, usual := slices.Min(with), slices.Min(without)
			t.Logf("%d entries take %s beside %d cursors, %s alone: %.2f", retentionEvery, least, c.cursors,
				usual, float64(least)/float64(usual))
			if least > 8*usual {
				t.Errorf("they take %s beside %d cursors, %s alone", least, c.cursors, usual)
			}
		})
	}
}

// BenchmarkBesideCursors decides entries of one event at steady retention, beside many
// cursors that they do not touch.
func BenchmarkBesideCursors(b *testing.B) {
	for _, c := range besides {
		if c.name == "passed by force" {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			m := newBeside(b, c.settings, c.cursors, c.lag)
			entries := make([]entry, 0, 1<<16)
			next := 0
			for b.Loop() {
				if next == len(entries) {
					b.StopTimer()
					entries, next = entries[:0], 0
					for range 1000 {
						m.index++
						m.at = m.at.Add(time.Millisecond)
						entries = append(entries, entryOf(m.index, 1, "n1", m.at, m.requests()...))
					}
					b.StartTimer()
				}
				e := entries[next]
				next++
				if _, err := m.m.Apply(e.index, e.term, e.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
