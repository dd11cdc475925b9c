package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm/store"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

type tb interface {
	Helper()
	Fatalf(string, ...any)
}

// writer appends blocks as the state machine does.
type writer struct {
	t             tb
	db            kv.DB
	log           *Log
	batch         kv.Batch
	bytes         uint64
	first, last   uint64
	at            time.Time
	kept          []event.Event // by offset - 1
	starts, sizes []uint64
}

func newWriter(t tb) *writer {
	o := store.Options{Dir: "db", FS: vfs.NewMem(), Logger: hclog.NewNullLogger(), Memory: 4 << 20,
		Fatal: func(err error) { t.Fatalf("the store: %v", err) }}
	path, err := o.Current()
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	db, err := o.Open(path)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	l := New(1<<20, nil)
	l.Attach(db, 1, 0)
	return &writer{t: t, db: db, log: l, first: 1, at: time.Unix(1000, 0).UTC()}
}

func (w *writer) Set(k, v []byte)             { w.check(w.batch.Set(k, v)) }
func (w *writer) SetBlock(k, v []byte, _ int) { w.Set(k, v) }
func (w *writer) DeleteRange(from, to []byte) { w.check(w.batch.DeleteRange(from, to)) }
func (w *writer) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("write: %v", err)
	}
}

// block appends events; those in suppressed are suppressed rows.
func (w *writer) block(events []event.Event, suppressed ...int) {
	w.blockFor("", events, suppressed...)
}

// blockFor appends a block for one cursor.
func (w *writer) blockFor(target string, events []event.Event, suppressed ...int) {
	var batch frame.Batch
	b := &Block{First: w.last + 1, Index: w.last + 10, Term: 3, AppendedAt: w.at,
		Suppressed: NewBitmap(len(events)), Live: len(events) - len(suppressed), Target: target}
	for i := range events {
		batch.Add(&events[i], events[i].Hash())
		if slices.Contains(suppressed, i) {
			b.Suppressed.Set(i)
			continue
		}
		e := events[i]
		e.Offset, e.AppendedAt, e.Term = uint64(len(w.kept)+1), w.at, 3
		if target != "" {
			e.Target, e.Redrive = target, 100*e.Offset
			b.Letters = append(b.Letters, e.Redrive)
		}
		w.kept = append(w.kept, e)
	}
	b.Block = frame.EncodeBlock(&batch)
	w.batch = w.db.NewBatch()
	size := Append(w, b, w.bytes)
	w.check(w.batch.Commit(kv.NoSync))
	w.bytes += size
	w.starts, w.sizes = append(w.starts, b.First), append(w.sizes, size)
	w.last = b.Last()
	w.log.Advance(w.first, w.last)
}

// store replaces a value.
func (w *writer) store(key, value []byte) {
	w.batch = w.db.NewBatch()
	w.Set(key, value)
	w.check(w.batch.Commit(kv.NoSync))
}

func (w *writer) trim(to uint64) {
	from := w.first
	w.first = to
	w.log.Advance(to, w.last)
	w.batch = w.db.NewBatch()
	w.DeleteRange(BlockKeys(from, to))
	w.DeleteRange(ColumnKeys(from, to))
	w.check(w.batch.Commit(kv.NoSync))
}

func draw(t *rapid.T) event.Event {
	name := rapid.SampledFrom([]string{"", "a", "b", "c"})
	e := event.New(rapid.SampledFrom([]event.Type{
		event.TrainingCompleted,
		event.TrainingStarted,
		event.ModelPromoted,
	}).Draw(t, "type"),
		fmt.Appendf(nil, `{"n": %d}`, rapid.IntRange(0, 99).Draw(t, "n")))
	e.Source, e.Key, e.CorrelationID = name.Draw(t, "source"), name.Draw(t, "key"), name.Draw(t, "chain")
	return e
}

// Read returns, for any blocks, filter, start and limit, what a walk over the plain list
// returns: each event once, in order, with a gap where a trim was. Events that were
// redriven for one cursor are read by that one alone, whatever its filter.
func TestReadAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWriter(t)
		defer w.db.Close()
		for range rapid.IntRange(1, 12).Draw(t, "blocks") {
			events := rapid.SliceOfN(rapid.Custom(draw), 1, 9).Draw(t, "events")
			var suppressed []int
			for i := range len(events) - 1 {
				if rapid.IntRange(0, 3).Draw(t, "suppressed") == 0 {
					suppressed = append(suppressed, i)
				}
			}
			w.blockFor(rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "target"), events, suppressed...)
			w.at = w.at.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "wait")) * time.Second)
		}
		if rapid.Bool().Draw(t, "trim") {
			w.trim(rapid.SampledFrom(w.starts).Draw(t, "to"))
		}
		one := rapid.SampledFrom([][]string{nil, {"a"}, {"b", "c"}})
		f := event.Filter{Sources: one.Draw(t, "sources"), Keys: one.Draw(t, "keys"), CorrelationIDs: one.Draw(t, "chains"),
			Types: rapid.SampledFrom([][]string{nil, {"training.*"}, {"MODEL_PROMOTED"}}).Draw(t, "types")}
		m := f.Compile(event.Builtin())
		from := rapid.Uint64Range(1, w.last+2).Draw(t, "from")
		cursor := rapid.SampledFrom([]string{"", "x"}).Draw(t, "cursor")
		checkRead(t, w, cursor, &m, from, rapid.IntRange(1, 7).Draw(t, "limit"))
		checkSpans(t, w, cursor, from, rapid.IntRange(1, 7).Draw(t, "span"))
		checkCount(t, w, cursor, from, &m)
		checkPick(t, w)
		at := w.at.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * time.Second)
		checkOffsetAt(t, w, at)
	})
}

func checkRead(t *rapid.T, w *writer, cursor string, m *event.Matcher, from uint64, limit int) {
	next := from
	var got []uint64
	for next <= w.last {
		c, err := w.log.ReadFor(cursor, next, m, limit)
		if err != nil {
			t.Fatalf("read %d: %v", next, err)
		}
		if c.Gap != nil && (next >= w.first || c.Gap.From != next || c.Gap.To != w.first-1 || c.Next != w.first) {
			t.Fatalf("read %d of %d: gap %+v", next, w.first, c.Gap)
		}
		if c.Next <= next || len(c.Events) > limit {
			t.Fatalf("read %d: next %d, %d events", next, c.Next, len(c.Events))
		}
		for _, e := range c.Events {
			want := w.kept[e.Offset-1]
			if string(e.Payload) != string(want.Payload) || e.Type != want.Type ||
				!e.AppendedAt.Equal(want.AppendedAt) || e.Term != 3 ||
				e.Target != want.Target || e.Redrive != want.Redrive {
				t.Fatalf("event %d: %+v, want %+v", e.Offset, e, want)
			}
			got = append(got, e.Offset)
		}
		next = c.Next
	}
	if want := w.expect(cursor, m, from); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
}

// checkCount counts up to some offset, some blocks at a time.
func checkCount(t *rapid.T, w *writer, cursor string, from uint64, m *event.Matcher) {
	to := rapid.Uint64Range(from, w.last+2).Draw(t, "count to")
	blocks := rapid.IntRange(1, 3).Draw(t, "blocks at a time")
	var got, want uint64
	for next := from; next <= min(to, w.last); {
		n, err := w.log.CountFor(cursor, next, to, m, blocks)
		if err != nil || n.Next <= next || n.Next > to+1 || n.Blocks > blocks {
			t.Fatalf("count %d to %d: %+v, %v", next, to, n, err)
		}
		got, next = got+n.Events, n.Next
	}
	for _, offset := range w.expect(cursor, m, from) {
		if offset <= to {
			want++
		}
	}
	if got != want {
		t.Fatalf("counted %d from %d to %d, want %d", got, from, to, want)
	}
}

// checkPick picks some offsets, of which those that are not in the log are left out.
func checkPick(t *rapid.T, w *writer) {
	offsets := rapid.SliceOfDistinct(rapid.Uint64Range(1, w.last+2), rapid.ID[uint64]).Draw(t, "offsets")
	slices.Sort(offsets)
	var want []event.Event
	for _, offset := range offsets {
		if w.first <= offset && offset <= w.last {
			want = append(want, w.kept[offset-1])
		}
	}
	got, err := w.log.Pick(offsets)
	if err != nil || len(got) != len(want) {
		t.Fatalf("pick %v: %d events, want %d (%v)", offsets, len(got), len(want), err)
	}
	for i := range got {
		if got[i].Offset != want[i].Offset || string(got[i].Payload) != string(want[i].Payload) {
			t.Fatalf("pick %v: %+v, want %+v", offsets, got[i], want[i])
		}
	}
}

// expect walks over the plain list.
func (w *writer) expect(cursor string, m *event.Matcher, from uint64) (want []uint64) {
	for i := range w.kept {
		e, o := &w.kept[i], uint64(i+1)
		own := e.Target != "" && e.Target == cursor
		if o >= max(from, w.first) && (own || (e.Target == "" && m.Match(e))) {
			want = append(want, o)
		}
	}
	return want
}

// checkSpans reads everything as it is stored, and the cursor's own events decoded.
func checkSpans(t *rapid.T, w *writer, cursor string, from uint64, limit int) {
	var got []uint64
	all := event.Filter{}.Compile(event.Builtin())
	for next := from; next <= w.last; {
		found, err := w.log.ReadSpans(cursor, next, limit, 1<<20)
		if err != nil || (found.Next <= next && !found.Targeted) {
			t.Fatalf("spans from %d: to %d, %v", next, found.Next, err)
		}
		for _, s := range found.Spans {
			for i := range s.Take {
				got = append(got, s.First+uint64(s.Skip+i))
			}
		}
		next = found.Next
		if found.Targeted {
			c, err := w.log.ReadFor(cursor, next, &all, 1)
			if err != nil || len(c.Events) != 1 || c.Events[0].Offset != next || c.Events[0].Target != cursor {
				t.Fatalf("the cursor's own at %d: %+v, %v", next, c, err)
			}
			got, next = append(got, next), c.Next
		}
	}
	if want := w.expect(cursor, &all, from); !slices.Equal(got, want) {
		t.Fatalf("spans of %q: %v, want %v", cursor, got, want)
	}
}

func checkOffsetAt(t *rapid.T, w *writer, at time.Time) {
	got, err := w.log.OffsetAt(at)
	if err != nil {
		t.Fatalf("offset at %s: %v", at, err)
	}
	want := w.last + 1
	for o := w.last; o >= w.first && !w.kept[o-1].AppendedAt.Before(at); o-- {
		want = o
	}
	if got != want {
		t.Fatalf("offset at %s: %d, want %d", at, got, want)
	}
}

func three() []event.Event {
	return []event.Event{
		event.New(event.TrainingStarted, nil),
		event.New(event.TrainingCompleted, []byte(`{"a": 1}`)),
		event.New(event.ModelPromoted, nil),
	}
}

// Every flipped bit of a stored block is found before an event of it is returned, and the
// error says which block it is and what to do.
func TestEveryFlippedBitIsFound(t *testing.T) {
	w := newWriter(t)
	defer w.db.Close()
	w.block(three(), 1)
	w.blockFor("trainer", three())
	all := event.Filter{}.Compile(event.Builtin())
	for _, key := range [][]byte{blockKey(1), columnsKey(1), blockKey(3)} {
		value, closer, err := w.db.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		whole := slices.Clone(value)
		closer.Close()
		for i := range len(whole) * 8 {
			flipped := slices.Clone(whole)
			flipped[i/8] ^= 1 << (i % 8)
			w.store(key, flipped)
			w.log.cache.clear()
			_, readErr := w.log.ReadFor("trainer", 1, &all, 10)
			_, columnsErr := w.log.Columns(1)
			if err := errors.Join(readErr, columnsErr); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%c: bit %d of byte %d: %v", key[0], i%8, i/8, err)
			}
		}
		w.store(key, whole)
	}
}

// Every reader, with a filter or without, notices that a block between two others is
// missing, and the damage is reported.
func TestAHoleIsNotPassedOver(t *testing.T) {
	w := newWriter(t)
	defer w.db.Close()
	reported := 0
	w.log.onDamage = func(error) { reported++ }
	for range 3 {
		w.block(three())
	}
	w.batch = w.db.NewBatch()
	w.check(errors.Join(w.batch.Delete(blockKey(4)), w.batch.Delete(columnsKey(4)), w.batch.Commit(kv.NoSync)))
	all := event.Filter{}.Compile(event.Builtin())
	some := event.Filter{Types: []string{"no.such"}}.Compile(event.Builtin())
	for _, m := range []*event.Matcher{&all, &some} {
		if _, err := w.log.Read(1, m, 100); !errors.Is(err, ErrCorrupt) {
			t.Errorf("read over the hole: %v", err)
		}
		if _, err := w.log.Read(5, m, 100); !errors.Is(err, ErrCorrupt) {
			t.Errorf("read in the hole: %v", err)
		}
	}
	if err := w.log.EachColumns(1, 9, func(*Columns) bool { return true }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("columns over the hole: %v", err)
	}
	if _, err := w.log.Pick([]uint64{1, 5, 7}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("pick in the hole: %v", err)
	}
	if reported != 6 {
		t.Errorf("the damage was reported %d times, not 6", reported)
	}
}

// A restore waits for at most maxBlocksPerRead blocks of a pick whose offsets are scattered.
func TestAPickOfManyBlocksReleasesTheDatabaseBetween(t *testing.T) {
	w := newWriter(t)
	defer w.db.Close()
	offsets := make([]uint64, 2*maxBlocksPerRead+1)
	for i := range offsets {
		w.block(three())
		offsets[i] = w.last
	}
	events, left, err := w.log.pickSome(nil, offsets)
	if err != nil || len(events) != maxBlocksPerRead || !slices.Equal(left, offsets[maxBlocksPerRead:]) {
		t.Errorf("the first part: %d events, %d offsets left (%v)", len(events), len(left), err)
	}
	events, err = w.log.Pick(offsets)
	if err != nil || len(events) != len(offsets) || events[len(events)-1].Offset != w.last {
		t.Errorf("all of it: %d events of %d (%v)", len(events), len(offsets), err)
	}
}

func TestGetOutsideTheLog(t *testing.T) {
	w := newWriter(t)
	defer w.db.Close()
	w.block(three())
	w.block(three())
	w.trim(4)
	var trimmed *TrimmedError
	if _, err := w.log.Get(3); !errors.As(err, &trimmed) || trimmed.First != 4 {
		t.Errorf("below the first: %v", err)
	}
	var past *PastTailError
	if _, err := w.log.Get(7); !errors.As(err, &past) || past.Tail != 6 {
		t.Errorf("past the tail: %v", err)
	}
}

// A lagging follower is asked for events that it does not have yet, also with an empty log:
// that is no damage.
func TestColumnsPastTheTailAreNoDamage(t *testing.T) {
	w := newWriter(t)
	defer w.db.Close()
	w.log.onDamage = func(err error) { t.Errorf("damage was reported: %v", err) }
	for _, tail := range []uint64{0, 3} {
		var past *PastTailError
		if _, err := w.log.Columns(tail + 1); !errors.As(err, &past) || past.Tail != tail {
			t.Errorf("the columns after %d: %v", tail, err)
		}
		w.block(three())
	}
}

// Readers that run concurrently with appends, trims and a swap of the database see gaps,
// and never an error, a repeated event or a hole.
func TestReadersRunAgainstTheWriter(t *testing.T) {
	w := newWriter(t)
	ctx, cancel := context.WithCancel(t.Context())
	const total = 3000
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			all := event.Filter{}.Compile(event.Builtin())
			for next := uint64(1); next <= total; {
				if err := w.log.Wait(t.Context(), next); err != nil {
					t.Errorf("wait %d: %v", next, err)
					return
				}
				c, err := w.log.Read(next, &all, 50)
				if err != nil {
					t.Errorf("read %d: %v", next, err)
					return
				}
				for i, e := range c.Events {
					if e.Offset != next+uint64(i) {
						t.Errorf("read %d: offset %d at %d", next, e.Offset, i)
						return
					}
				}
				if c.Gap == nil && c.Next != next+uint64(len(c.Events)) {
					t.Errorf("read %d: next is %d", next, c.Next)
				}
				next = c.Next
			}
		})
	}
	readers.Go(func() { askEverywhere(ctx, t, w.log) })
	for w.last < total {
		w.block(three())
		if w.last%60 == 0 {
			w.trim(w.last - 29)
		}
	}
	cancel()
	readers.Wait()
	w.log.Attach(nil, w.first, w.last)
	if err := w.db.Close(); err != nil {
		t.Fatal(err)
	}
}

// askEverywhere asks for single offsets until ctx ends: what a trim removes meanwhile is
// reported as trimmed, and never as damaged.
func askEverywhere(ctx context.Context, t *testing.T, l *Log) {
	for ctx.Err() == nil {
		first, last := l.Bounds()
		if first > last {
			continue
		}
		_, getErr := l.Get(first)
		_, columnsErr := l.Columns(first)
		typesErr := l.EachTypes(first, first, func(uint64, int, []string) bool { return true })
		_, atErr := l.OffsetAt(time.Unix(2000, 0))
		for _, err := range []error{getErr, columnsErr, typesErr, atErr} {
			if trimmed := (*TrimmedError)(nil); err != nil && !errors.As(err, &trimmed) {
				t.Errorf("at %d: %v", first, err)
				return
			}
		}
	}
}
