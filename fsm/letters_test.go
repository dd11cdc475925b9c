package fsm

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// manyLetters makes a state whose cursor has dead-lettered n events.
func manyLetters(b *testing.B, dir string, n int) (m *Machine, index uint64) {
	m, err := Open(Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	apply := func(requests ...request) {
		index++
		e := entryOf(index, 1, "n1", epoch, requests...)
		out, err := m.Apply(e.index, e.term, e.data)
		if err != nil || out.Results[0].Refusal != nil {
			b.Fatal(err, out.Results)
		}
	}
	apply(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}),
		do(frame.CursorCreate{Name: "trainer"}),
		do(frame.SettingSet{Key: "dlq.max_bytes", Value: "10000000000"}))
	const perEntry = 1000
	for from := 0; from < n; from += perEntry {
		var events []event.Event
		var dead []request
		for i := range perEntry {
			e := training(from + i)
			events = append(events, e)
			dead = append(dead, do(frame.DeadLetter{
				Cursor:   "trainer",
				Offset:   uint64(from + i + 2),
				Handler:  "train",
				Error:    "out of memory",
				Attempts: 3,
				Event:    frame.EncodeCopy(&e),
			}))
		}
		apply(publish(events...))
		apply(dead...)
	}
	return m, index
}

// BenchmarkManyLetters measures what 100 000 letters cost: an entry that has nothing to do
// with them, one that redrives 1000, and opening the state.
func BenchmarkManyLetters(b *testing.B) {
	for _, letters := range []int{0, 100_000} {
		dir := b.TempDir()
		m, index := manyLetters(b, dir, letters)
		b.Run(fmt.Sprintf("entry/%d", letters), func(b *testing.B) {
			for b.Loop() {
				index++
				e := entryOf(index, 1, "n1", epoch.Add(time.Duration(index)*time.Millisecond),
					publish(training(int(index)+1_000_000)))
				if _, err := m.Apply(e.index, e.term, e.data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("list/%d", letters), func(b *testing.B) {
			for b.Loop() {
				if err := m.EachLetter(context.Background(), 0, func(LetterView) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("redrive/%d", letters), func(b *testing.B) {
			if letters == 0 {
				b.Skip()
			}
			next, done := uint64(1), 0
			for b.Loop() {
				if next > uint64(letters) {
					b.Skip("all are redriven")
				}
				ids := make([]uint64, 1000)
				for i := range ids {
					ids[i] = next
					next++
				}
				index++
				e := entryOf(index, 1, "n1", epoch.Add(time.Duration(index)*time.Millisecond), do(frame.Redrive{Letters: ids}))
				out, err := m.Apply(e.index, e.term, e.data)
				if err != nil {
					b.Fatal(err)
				}
				done += out.Results[0].Letters.Done
			}
			b.ReportMetric(float64(done)/float64(b.N), "letters/op")
		})
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("open/%d", letters), func(b *testing.B) {
			for b.Loop() {
				m, err := Open(Options{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
