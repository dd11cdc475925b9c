package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

func TestAStoredResultIsReadAsItWas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := Result{First: rng.Uint64N(3) * rng.Uint64N(1<<40)}
		row, offset := 0, rng.Uint64N(1<<40)
		for range rng.IntN(30) {
			want.Duplicates = append(want.Duplicates, Duplicate{Row: row, Offset: offset})
			row, offset = row+1, offset+1
			if rng.IntN(3) == 0 {
				row, offset = row+rng.IntN(1000), rng.Uint64N(1<<40)
			}
		}
		if rng.IntN(5) == 0 {
			want = Result{Refusal: conflict(rng.Uint64N(1 << 40))}
			want.Refusal.Row = rng.IntN(frame.MaxRows)
		}
		b := appendStored(nil, &want)
		got, err := decodeStored(b)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
		if _, err := decodeStored(b[:rng.IntN(len(b))]); err == nil && want.Refusal != nil {
			t.Fatalf("a cut result is read: %x", b)
		}
	}
}

func FuzzDecodeStored(f *testing.F) {
	f.Add([]byte{resultAccepted, 7, 0, 200, 4, 9})
	f.Add([]byte{resultConflict, 7, 9})
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = decodeStored(b) })
}

// ofResults calls each with the stored results by key.
func ofResults(t *testing.T, m *Machine, each func(key string, value []byte)) {
	t.Helper()
	err := m.log.View(func(db kv.DB) error {
		return scan(db, prefixResult, func(key string, value []byte) error {
			each(key, value)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// largeResults are the bytes of the stored results that count.
func largeResults(t *testing.T, m *Machine) (bytes uint64) {
	t.Helper()
	ofResults(t, m, func(_ string, value []byte) {
		if len(value) > smallResult {
			bytes += uint64(len(value))
		}
	})
	return bytes
}

func TestResultsOfProducersAreBoundedInBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, whose bytes are counted")
	}
	n := &node{t: t, m: open(t, vfs.NewMem()), term: 1, at: epoch}
	apply := func(requests ...request) []Result {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))
	}
	var thousand, scattered []event.Event
	for i := range 1000 {
		thousand = append(thousand, ev(i))
		scattered = append(scattered, ev(i*7919%1000))
	}
	apply(publish(thousand...))
	apply(produce("repeats", 1, thousand...))
	ofResults(t, n.m, func(key string, value []byte) {
		if len(value) > smallResult {
			t.Errorf("an exact repetition of 1000 events is stored in %d bytes", len(value))
		}
	})

	const bound, largest = 20_000, 8 * 1000
	n.m.s.settings.ProducerBytes = bound
	for i := range uint64(300) {
		producer := fmt.Sprintf("p%d", i%7)
		sequence := i/7 + 1
		r := apply(produce(producer, sequence, scattered...))[0]
		if r.Refusal != nil { // it was forgotten
			r = apply(produce(producer+fmt.Sprint(i), 1, scattered...))[0]
		}
		if r.Refusal != nil || len(r.Duplicates) != 1000 {
			t.Fatalf("%+v", r.Refusal)
		}
		stored := largeResults(t, n.m)
		if counted := n.m.Stats().Results; counted != stored || stored > bound+largest {
			t.Fatalf("request %d: %d bytes are counted, %d are stored, the bound is %d", i, counted, stored, bound)
		}
	}
	if n.m.s.producers.get("repeats") == nil {
		t.Error("a producer with small results is forgotten for the large ones of others")
	}
	counted := n.m.Stats().Results
	reload(t, n.m)
	if again := n.m.Stats().Results; again != counted {
		t.Errorf("%d bytes are counted, after a restart %d", counted, again)
	}
	for sequence := uint64(1); sequence <= 3*resultsKept; sequence++ { // small results take the slots of large ones
		one := noDedup(ev(1))
		if sequence%3 == 0 {
			apply(produce("slots", sequence, scattered...))
		} else {
			apply(produce("slots", sequence, one))
		}
	}
	if counted, stored := n.m.Stats().Results, largeResults(t, n.m); counted != stored {
		t.Errorf("%d bytes are counted, %d are stored", counted, stored)
	}
}

// A backup of an earlier build has results as JSON.
func TestAResultStoredAsJSONAnswersARetry(t *testing.T) {
	n := &node{t: t, m: open(t, vfs.NewMem()), term: 1, at: epoch}
	apply := func(requests ...request) Result {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))[0]
	}
	request := produce("p", 1, ev(1), ev(2), ev(1))
	want := apply(request)
	k := resultKey("p", 1)
	value, closer, err := n.m.db.Get(k)
	if err != nil {
		t.Fatal(err)
	}
	older, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	older = append(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(value)), older...)
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	setKey(t, n.m.db, k, older)
	got := apply(request)
	if !got.Replayed || got.First != want.First || !cmp.Equal(got.Duplicates, want.Duplicates) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNoTextForPeopleIsStoredWithAResult(t *testing.T) {
	n := &node{t: t, m: open(t, vfs.NewMem()), term: 1, at: epoch}
	apply := func(requests ...request) Result {
		n.index++
		return applyTo(t, n.m, entryOf(n.index, n.term, "n1", n.at, requests...))[0]
	}
	apply(publish(withID(ev(1), "d")))
	request := produce("p", 1, ev(7), withID(ev(2), "d"))
	first := apply(request)
	if first.Refusal == nil || first.Refusal.Code != Conflict || first.Refusal.Row != 1 || first.Refusal.Offset == 0 {
		t.Fatalf("%+v", first)
	}
	ofResults(t, n.m, func(_ string, value []byte) {
		if bytes.Contains(value, []byte("dedup")) || bytes.Contains(value, []byte("content")) {
			t.Errorf("%q", value)
		}
	})
	if again := apply(request); !again.Replayed || !cmp.Equal(again.Refusal, first.Refusal) {
		t.Errorf("%+v, want %+v", again, first.Refusal)
	}
}
