package view_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/view"
)

// memory is rows in memory. It hands out one buffer again and again, as a store may that reuses its own.
type memory struct {
	rows map[string][]byte
	buf  []byte
}

func newMemory() *memory { return &memory{rows: map[string][]byte{}} }

func (m *memory) Get(key string) ([]byte, bool, error) {
	v, ok := m.rows[key]
	m.buf = append(m.buf[:0], v...)
	return m.buf, ok, nil
}

func (m *memory) Set(key string, value []byte) error {
	m.rows[key] = append(m.rows[key][:0], value...)
	for i := range m.buf {
		m.buf[i] = 0xff // what Get returned is void now
	}
	return nil
}

func (m *memory) Delete(key string) error {
	delete(m.rows, key)
	return nil
}

func (m *memory) Each(prefix, after string, yield func(string, []byte) bool) error {
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		if strings.HasPrefix(key, prefix) && key > after && !yield(key, m.rows[key]) {
			return nil
		}
	}
	return nil
}

// dump is all rows, for comparing.
func (m *memory) dump() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m.rows)) {
		fmt.Fprintf(&b, "%s=%x\n", key, m.rows[key])
	}
	return b.String()
}

// start is when the events of tests begin.
var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// series makes events one after another.
type series struct {
	at     time.Time
	offset uint64
}

func newSeries() *series { return &series{at: start} }

// next returns an event that is appended some time after the one before.
func (s *series) next(after time.Duration, t event.Type, key, payload string) *event.Event {
	s.at = s.at.Add(after)
	s.offset++
	ev := event.New(t, []byte(payload))
	ev.Key, ev.Offset, ev.Term, ev.AppendedAt = key, s.offset, 1, s.at
	return &ev
}

// compile returns the view of a declaration.
func compile(t testing.TB, text string) *view.View {
	t.Helper()
	d, err := view.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := view.Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// apply folds an event and returns its firings.
func apply(t fataler, v *view.View, rows view.Rows, e *event.Event) []view.Firing {
	t.Helper()
	firings, err := v.Apply(rows, e)
	if err != nil {
		t.Fatal(err)
	}
	return firings
}

// show returns the row of a key.
func show(t fataler, v *view.View, rows view.Rows, key string) string {
	t.Helper()
	text, found, err := v.Show(rows, key)
	if err != nil || !found {
		t.Fatalf("row %q: %v, %v", key, found, err)
	}
	return string(text)
}

// fataler is a test or a check of rapid.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
