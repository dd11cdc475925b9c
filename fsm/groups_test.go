package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// manyOpen makes a machine with one group and n events.
func manyOpen(t testing.TB, n int) (m *Machine, apply func(frame.Command) Result) {
	m = open(t, vfs.NewMem())
	t.Cleanup(func() { m.Close() })
	index := uint64(0)
	send := func(requests ...request) Result {
		index++
		return applyTo(t, m, entryOf(index, 1, "n1", epoch, requests...))[0]
	}
	send(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}), do(frame.GroupCreate{Name: "g"}))
	for from := 0; from < n; from += 10_000 {
		events := make([]event.Event, min(10_000, n-from))
		for i := range events {
			events[i] = noDedup(ev(i))
		}
		send(publish(events...))
	}
	return m, func(c frame.Command) Result { return send(do(c)) }
}

// holes is n ranges of one offset, every second one, from an offset on.
func holes(from uint64, n int) (list []frame.Range) {
	for i := range uint64(n) {
		list = append(list, frame.Range{From: from + 2*i, To: from + 2*i})
	}
	return list
}

func failedFrom(from uint64, n int) (list []frame.GroupRetry) {
	for i := range uint64(n) {
		list = append(list, frame.GroupRetry{Offset: from + i, Deliveries: 1, Error: "boom"})
	}
	return list
}

func (s settler) refused(c frame.GroupSettle, code Code, says string) {
	s.t.Helper()
	r := s.apply(s.of(c)).Refusal
	if r == nil || r.Code != code || !strings.Contains(r.Message+"; "+r.Remedy, says) {
		s.t.Fatalf("%+v, want %s %s", r, code, says)
	}
}

func (s settler) accepted(c frame.GroupSettle) {
	s.t.Helper()
	if r := s.apply(s.of(c)).Refusal; r != nil {
		s.t.Fatal(r)
	}
}

// settler is a group's leader.
type settler struct {
	t     testing.TB
	apply func(frame.Command) Result
}

func (settler) of(c frame.GroupSettle) frame.GroupSettle {
	c.Name, c.Generation, c.Term = "g", 1, 1
	return c
}

// What a group keeps is bounded, whatever its leader sends: past the bounds a settlement
// is refused whole, and one that settles the first open event still passes.
func TestWhatAGroupKeepsIsBounded(t *testing.T) {
	m, apply := manyOpen(t, 2*frame.MaxRanges+200)
	s, tail := settler{t, apply}, m.Stats().Last
	s.refused(frame.GroupSettle{Done: holes(3, frame.MaxRanges+1)}, Invalid, "at most 65536")
	s.accepted(frame.GroupSettle{Done: holes(3, frame.MaxRanges), Reserved: tail})
	s.refused(frame.GroupSettle{
		Done:    []frame.Range{{From: tail, To: tail}},
		Retries: failedFrom(1, 1),
	}, Overloaded, "settle offset 1,")
	dead := apply(frame.GroupDead{
		Term:   1,
		Letter: frame.DeadLetter{Cursor: "g", Generation: 1, Offset: tail, Event: copyOf(newModel(), 0)},
	})
	g, _ := m.Group("g")
	if dead.Refusal == nil || dead.Refusal.Code != Overloaded || len(g.Group.Done) != frame.MaxRanges ||
		len(g.Group.Retries) != 0 || m.Stats().Letters.Count != 0 {
		t.Fatalf("%d ranges, %d retries, %v: something of what was refused is there", len(g.Group.Done),
			len(g.Group.Retries), dead.Refusal)
	}
	s.accepted(frame.GroupSettle{Done: []frame.Range{{From: 1, To: 2}}})
}

func TestTheRetriesOfAGroupAreBounded(t *testing.T) {
	m, apply := manyOpen(t, frame.MaxRetries+200)
	s, tail := settler{t, apply}, m.Stats().Last
	s.refused(frame.GroupSettle{Reserved: tail, Retries: failedFrom(1, frame.MaxRetries+1)}, Invalid, "at most 65536")
	s.accepted(frame.GroupSettle{Reserved: tail, Retries: failedFrom(1, frame.MaxRetries)})
	s.refused(frame.GroupSettle{Retries: failedFrom(frame.MaxRetries+1, 1)}, Overloaded, "settle offset 1,")
	s.accepted(frame.GroupSettle{Done: []frame.Range{{From: 1, To: 1}}, Retries: failedFrom(frame.MaxRetries+1, 1)})
	if g, _ := m.Group("g"); len(g.Group.Retries) != frame.MaxRetries || g.Group.Retries[0].Offset != 2 {
		t.Fatalf("%d retries from %d on", len(g.Group.Retries), g.Group.Retries[0].Offset)
	}
}

// A state whose groups are damaged is not served.
func TestADamagedGroupIsNotLoaded(t *testing.T) {
	overlapping := []frame.Range{{From: 4, To: 9}, {From: 3, To: 3}}
	for _, one := range []struct {
		name       string
		key, value []byte
		says       string
	}{
		{"ranges of nobody", doneKey("x"), frame.AppendRanges(nil, []frame.Range{{From: 1, To: 2}}), `no group "x"`},
		{"ranges that overlap", doneKey("g"), frame.AppendRanges(nil, overlapping), "do not ascend"},
		{"cut ranges", doneKey("g"), []byte{2, 1}, "do not fit"},
		{"a retry of nobody", retryKey("x", 3), frame.AppendRetries(nil, failedFrom(3, 1)), `no group "x"`},
		{"a retry of another offset", retryKey("g", 3), frame.AppendRetries(nil, failedFrom(4, 1)), "retry of 4"},
		{"two retries", retryKey("g", 3), frame.AppendRetries(nil, failedFrom(3, 2)), "2 retries"},
		{"a cut key", []byte("yg"), frame.AppendRetries(nil, failedFrom(3, 1)), "cut key"},
	} {
		t.Run(one.name, func(t *testing.T) {
			m, _ := manyOpen(t, 9)
			setKey(t, m.db, one.key, one.value)
			if _, err := loadState(m.db); err == nil || !strings.Contains(err.Error(), one.says) {
				t.Errorf("%v, want %s", err, one.says)
			}
		})
	}
}

// BenchmarkSettle measures what a settlement of 1000 acknowledgements after an open event
// costs, alone and with a delivery that failed, by how many retries wait.
func BenchmarkSettle(b *testing.B) {
	for _, waiting := range []int{0, 1000, 50_000} {
		for _, failing := range []int{0, 1} {
			name := fmt.Sprintf("%d waiting/%d failing", waiting, failing)
			b.Run(name, func(b *testing.B) { benchmarkSettle(b, waiting, failing) })
		}
	}
}

func benchmarkSettle(b *testing.B, waiting, failing int) {
	const acks, events = 1000, 200_000
	m, apply := manyOpen(b, events)
	tail := m.Stats().Last
	from, generation := tail, uint64(0)
	settle := func(c frame.GroupSettle) {
		c.Name, c.Generation, c.Term = "g", generation, 1
		if r := apply(c); r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
	}
	for b.Loop() {
		if from+acks > tail { // begin again
			b.StopTimer()
			generation = apply(frame.CursorSeek{Name: "g"}).Cursor.Generation
			settle(frame.GroupSettle{Reserved: tail, Retries: failedFrom(2, waiting)})
			from = events - acks*140
			b.StartTimer()
		}
		settle(frame.GroupSettle{Done: []frame.Range{{From: from, To: from + acks - 1}}, Retries: failedFrom(1, failing)})
		from += acks
	}
}
