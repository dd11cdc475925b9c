package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/RaduBerinde/btreemap"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/view"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// tally counts the events of each key, and fires at every count that its step divides.
type tally struct {
	types []string
	step  uint64
	gate  <-chan struct{} // nil, or what Apply waits for
	fails string          // the key whose events cannot be folded
}

func (c *tally) Emits() []event.Type { return []event.Type{"TALLY_REACHED"} }

func (c *tally) RowOf(e *event.Event) string { return e.Key }

func (c *tally) KeyOf(row string) (string, bool) { return row, true }

func (c *tally) Skipped(view.Rows) (view.Skipped, error) { return view.Skipped{}, nil }

func (c *tally) Filter() event.Filter { return event.Filter{Types: c.types} }

func (c *tally) Apply(rows view.Rows, e *event.Event) ([]view.Firing, error) {
	if c.gate != nil {
		<-c.gate
	}
	if c.fails != "" && e.Key == c.fails {
		return nil, errors.New("it cannot be folded")
	}
	value, _, err := rows.Get(e.Key)
	if err != nil {
		return nil, err
	}
	n := uint64(1)
	if len(value) > 0 {
		n += binary.BigEndian.Uint64(value)
	}
	if err := rows.Set(e.Key, binary.BigEndian.AppendUint64(nil, n)); err != nil {
		return nil, err
	}
	if c.step == 0 || n%c.step != 0 {
		return nil, nil
	}
	fired := event.New("TALLY_REACHED", map[string]any{"key": e.Key, "n": n, "offset": e.Offset})
	fired.Key, fired.CausationID = e.Key, strconv.FormatUint(e.Offset, 10)
	return []view.Firing{{Rule: "step", Key: e.Key, Event: fired}}, nil
}

func (c *tally) Show(rows view.Rows, key string) (json.RawMessage, bool, error) {
	value, found, err := rows.Get(key)
	if err != nil || !found {
		return nil, false, err
	}
	return fmt.Appendf(nil, `{"n":%d}`, binary.BigEndian.Uint64(value)), true, nil
}

func (c *tally) Keys(rows view.Rows, after string, limit int) (keys []string, err error) {
	err = rows.Each("", after, func(key string, _ []byte) bool {
		keys = append(keys, key)
		return len(keys) < limit
	})
	return keys, err
}

// compileTally makes a tally of {"types":[…],"step":3,"fails":"k"}.
func compileTally(declaration string) (view.Fold, error) {
	var d struct {
		Types []string
		Step  uint64
		Fails string
	}
	if err := json.Unmarshal([]byte(declaration), &d); err != nil {
		return (*tally)(nil), err
	}
	return &tally{types: d.Types, step: d.Step, fails: d.Fails}, nil
}

// tb is what a test and a rapid test share.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// bench is a state machine with an engine, as a node has them.
type bench struct {
	t       tb
	fs      vfs.FS
	dir     string // of the node
	machine *fsm.Machine
	engine  *Engine
	options Options
	index   uint64
}

func newBench(t tb, fs vfs.FS, options Options) *bench {
	b := &bench{t: t, fs: fs, options: options}
	b.open()
	b.apply(frame.Request{Command: frame.TermStart{ClusterID: "c",
		Members: []frame.Member{{ID: "n1", FeatureLevel: fsm.FeatureLevel}}}})
	return b
}

func (b *bench) open() {
	b.t.Helper()
	o := b.options
	o.Dir, o.FS = b.dir+"/views", b.fs
	if o.Compile == nil {
		o.Compile = compileTally
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	var err error
	b.engine, err = Open(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.machine, err = fsm.Open(fsm.Options{Dir: b.dir + "/state", FS: b.fs, BeforeTrim: func(first uint64) error {
		return b.engine.BeforeTrim(first)
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.index = b.machine.Applied()
	b.engine.Start(b.machine)
}

func (b *bench) close() {
	b.t.Helper()
	if err := errors.Join(b.engine.Close(), b.machine.Close()); err != nil {
		b.t.Fatal(err)
	}
}

// encode returns the next entry of these requests.
func (b *bench) encode(requests ...frame.Request) []byte {
	b.index++
	var f frame.Builder
	for _, r := range requests {
		f.Add(r.Command, r.Batch)
	}
	return f.Encode(frame.Seal{Time: noon.Add(time.Duration(b.index) * time.Second), Proposer: "n1"})
}

func (b *bench) apply(requests ...frame.Request) []fsm.Result {
	b.t.Helper()
	out, err := b.machine.Apply(b.index, 1, b.encode(requests...))
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Results
}

func (b *bench) define(name, declaration string) {
	b.t.Helper()
	got := b.apply(frame.Request{Command: frame.ViewDefine{Name: name, Declaration: declaration,
		Revision: b.machine.ViewDefinitions().Revision}})
	if got[0].Refusal != nil {
		b.t.Fatal(got[0].Refusal)
	}
}

// publish appends an event of a type for each key.
func (b *bench) publish(kind string, keys ...string) {
	b.t.Helper()
	var batch frame.Batch
	for _, key := range keys {
		e := event.New(event.Type(kind), map[string]any{})
		e.Key, e.NoDedup = key, true
		batch.Add(&e, e.Hash())
	}
	b.apply(frame.Request{Command: frame.Publish{Count: len(keys)}, Batch: &batch})
}

func (b *bench) trim(before uint64) {
	b.t.Helper()
	b.apply(frame.Request{Command: frame.Trim{Before: before, Force: true}})
}

// last is the log's end.
func (b *bench) last() uint64 { _, last := b.machine.Log().Bounds(); return last }

// caughtUp returns once a view is at the log's end.
func (b *bench) caughtUp(name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defined, _ := b.machine.ViewDefinitions().Get(name)
	err := errors.Join(b.engine.WaitDefined(ctx, name, defined.Generation), b.engine.Wait(ctx, name, b.last()))
	if err != nil {
		b.t.Fatal(err)
	}
}

// rows is all rows of a view, after what it says of itself.
func (b *bench) rows(name string) string {
	b.t.Helper()
	var text strings.Builder
	err := b.engine.Read(name, func(r *Reader) error {
		fmt.Fprintf(&text, "at %d from %d rows %d:", r.At, r.From, r.Rows)
		keys, err := r.Keys("", 1000)
		for _, key := range keys {
			row, _, err := r.Show(key)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, " %s=%s", key, row)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return text.String()
}

// firings is what rules publish and have not published yet.
func (b *bench) firings(name string) string {
	b.t.Helper()
	d, _ := b.machine.ViewDefinitions().Get(name)
	list, err := b.engine.Firings(d.Generation, d.Emitted, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range list {
		fmt.Fprintf(&text, "%d %s %s cause %s;", f.Offset, f.Event.Key, f.Event.Payload,
			f.Event.CausationID)
	}
	return text.String()
}

func want(t tb, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestAViewFoldsWhatItsFilterPassesFromTheBeginningOfTheLog(t *testing.T) {
	b := newBench(t, vfs.NewMem(), Options{})
	defer b.close()
	b.publish("A", "x", "y", "x")
	b.define("v", `{"types":["A"],"step":3}`)
	b.publish("B", "x")
	b.publish("A", "y", "x")
	b.caughtUp("v")
	want(t, b.rows("v"), `at 7 from 1 rows 2: x={"n":3} y={"n":2}`)
	want(t, b.firings("v"), `7 x {"key": "x", "n": 3, "offset": 7} cause 7;`)

	// Defined otherwise, it is folded again; what was defined before is gone.
	b.define("v", `{"types":["B"]}`)
	b.caughtUp("v")
	want(t, b.rows("v"), `at 7 from 1 rows 1: x={"n":1}`)
	want(t, b.firings("v"), ``)
	b.apply(frame.Request{Command: frame.ViewRemove{Name: "v"}})
	b.define("w", `{"types":["A"]}`)
	b.caughtUp("w")
	if err := b.engine.Read("v", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed view: %v", err)
	}
	keys := 0
	db := b.engine.db
	it, err := db.Iter(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		keys++
	}
	if keys != 3 { // of w: what is known of it, and two rows
		t.Errorf("%d keys are stored", keys)
	}
}

// Rules report nothing of before the view was defined, and what was published is dropped.
func TestFiringsAreKeptUntilTheyArePublished(t *testing.T) {
	fs := vfs.NewMem()
	b := newBench(t, fs, Options{})
	b.publish("A", "x", "x")
	b.define("v", `{"types":["A"],"step":1}`)
	b.publish("A", "x", "y", "x")
	b.caughtUp("v")
	d, _ := b.machine.ViewDefinitions().Get("v")
	if list, err := b.engine.Firings(d.Generation, d.Emitted, 2); err != nil || len(list) != 2 || list[1].Offset != 5 {
		t.Fatalf("%+v %v", list, err)
	}
	b.apply(frame.Request{Command: frame.ViewSkip{ViewEmission: frame.ViewEmission{View: "v", Generation: d.Generation,
		From: d.Emitted, To: 5}}})
	// Reopened, it has the same; a fold of another version makes the same again.
	for version := range uint64(2) {
		b.close()
		b.options.Version = version
		b.open()
		b.caughtUp("v")
		want(t, b.rows("v"), `at 6 from 1 rows 2: x={"n":4} y={"n":1}`)
		want(t, b.firings("v"), `6 x {"key": "x", "n": 4, "offset": 6} cause 6;`)
		if s := b.engine.List(); len(s) != 1 || s[0].Firings != 1 {
			t.Errorf("%+v", s)
		}
	}
	b.close()
}

// A trim waits until the views have the events that it removes, and have them on the disk: a power loss right after it
// takes nothing that the log does not have any more.
func TestATrimWaitsForTheViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		gate := make(chan struct{})
		held := func(declaration string) (view.Fold, error) {
			return &tally{types: []string{"A"}, gate: gate}, nil
		}
		b := newBench(t, fs, Options{Compile: held})
		b.define("v", `{}`)
		for range 10 {
			b.publish("A", "x")
		}
		trimmed := atomic.Bool{}
		go func() {
			b.trim(9)
			trimmed.Store(true)
		}()
		synctest.Wait()
		if trimmed.Load() {
			t.Fatal("a trim did not wait")
		}
		// What is read meanwhile does not wait for the entry.
		if s := b.engine.List(); s[0].At > 1 || s[0].Of != 11 {
			t.Errorf("%+v", s)
		}
		close(gate)
		synctest.Wait()
		if !trimmed.Load() {
			t.Fatal("the trim waits although the view has folded everything")
		}
		// The state has what it decided on the disk. What the view has needs no sync of its own after that.
		if err := b.machine.Sync(); err != nil {
			t.Fatal(err)
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		b.close()
		b.fs = after
		b.open()
		defer b.close()
		synctest.Wait()
		if s := b.engine.List(); s[0].At != 11 || s[0].Incomplete() {
			t.Errorf("after a power loss: %+v", s)
		}
	})
}

// A node that closes does not wait for a fold that would take long, and applies the entry after its next start.
func TestAStopEndsTheWaitOfATrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		gate := make(chan struct{})
		b := newBench(t, fs, Options{Compile: func(string) (view.Fold, error) { return &tally{gate: gate}, nil }})
		b.define("v", `{}`)
		for range 5 {
			b.publish("A", "x")
		}
		entry, index := b.encode(frame.Request{Command: frame.Trim{Before: 5, Force: true}}), b.index
		failed := make(chan error, 1)
		go func() {
			_, err := b.machine.Apply(index, 1, entry)
			failed <- err
		}()
		synctest.Wait()
		go b.engine.stop()
		if err := <-failed; !errors.Is(err, fsm.ErrClosed) {
			t.Errorf("the entry: %v", err)
		}
		close(gate)
		b.close()
		b.options.Compile = nil
		b.open()
		defer b.close()
		if _, err := b.machine.Apply(index, 1, entry); err != nil {
			t.Fatal(err)
		}
		if first, _ := b.machine.Log().Bounds(); first != 5 {
			t.Errorf("the log begins at %d", first)
		}
		b.index = index
		b.caughtUp("v")
		want(t, b.rows("v"), `at 6 from 1 rows 2: x={"n":5}`)
	})
}

// A view whose events are gone is folded from those that are left, and says so.
func TestAViewWithoutItsEventsIsIncomplete(t *testing.T) {
	fs := vfs.NewMem()
	b := newBench(t, fs, Options{})
	b.define("v", `{"types":["A"]}`)
	b.publish("A", "x", "y")
	b.publish("A", "x")
	b.publish("A", "x")
	b.trim(5)
	b.caughtUp("v")
	want(t, b.rows("v"), `at 5 from 1 rows 2: x={"n":3} y={"n":1}`)
	b.close()
	// Another version of the fold has to fold again.
	b.options.Version = 1
	b.open()
	defer b.close()
	b.caughtUp("v")
	want(t, b.rows("v"), `at 5 from 5 rows 1: x={"n":1}`)
	if s := b.engine.List(); !s[0].Incomplete() {
		t.Errorf("%+v", s)
	}
}

// A node notes the digest of all rows at the same offsets as any other, however its chunks end, and whatever was
// restarted on the way. It is that of the rows.
func TestDigestsAreThoseOfTheRows(t *testing.T) {
	b := newBench(t, vfs.NewMem(), Options{})
	defer func() { b.close() }()
	b.define("v", `{"types":["A"]}`)
	for i := range 60 {
		keys := make([]string, 97)
		for n := range keys {
			keys[n] = fmt.Sprint(i*n%23, "k")
		}
		b.publish([]string{"A", "A", "B"}[i%3], keys...)
		if i == 13 || i == 25 {
			b.caughtUp("v")
			b.close()
			b.open()
		}
	}
	b.caughtUp("v")
	got, err := b.engine.Digests("v")
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]uint64{} // of a fold of the whole log
	fold, rows, seen := &tally{}, newInMemory(), map[string]bool{}
	for offset := uint64(1); offset <= b.last(); offset++ {
		ev, err := b.machine.Log().Get(offset)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "A" {
			seen[ev.Key] = true
			if _, err := fold.Apply(rows, &ev); err != nil {
				t.Fatal(err)
			}
		}
		for key := range seen {
			value, _, _ := rows.Get(key)
			want[offset] += rowSum(key, value)
		}
	}
	if n := len(got); n < 3 || got[n-1].Offset != b.last() || got[n-2].Offset != 5000 || got[n-3].Offset != 4000 {
		t.Errorf("of a log that ends at %d: %v", b.last(), got)
	}
	for _, d := range got {
		if d.Sum != want[d.Offset] {
			t.Errorf("at %d: %x, want %x", d.Offset, d.Sum, want[d.Offset])
		}
	}
}

// A view that is built in is folded without a definition, over restarts, and a trim waits for it. It is not listed.
func TestABuiltInView(t *testing.T) {
	gate := make(chan struct{})
	built := BuiltIn{Name: "\x00b", Fold: &tally{types: []string{"A"}, gate: gate}, Version: 1}
	b := newBench(t, vfs.NewMem(), Options{BuiltIn: []BuiltIn{built}})
	b.define("v", `{"types":["B"]}`)
	b.publish("A", "x", "y")
	b.publish("A", "x")
	trimmed := make(chan struct{})
	go func() { defer close(trimmed); b.trim(4) }()
	gate <- struct{}{}
	select {
	case <-trimmed:
		t.Error("the events are gone before both are folded")
	default:
	}
	close(gate)
	<-trimmed
	b.caughtUp("\x00b")
	want(t, b.rows("\x00b"), `at 4 from 1 rows 2: x={"n":2} y={"n":1}`)
	if list := b.engine.List(); len(list) != 1 || list[0].Name != "v" {
		t.Errorf("%+v", list)
	}
	// What is stored is used by the next run, and folded again by another version.
	b.close()
	b.open()
	b.caughtUp("\x00b")
	want(t, b.rows("\x00b"), `at 4 from 1 rows 2: x={"n":2} y={"n":1}`)
	b.close()
	b.options.BuiltIn[0].Version = 2
	b.open()
	defer b.close()
	b.caughtUp("\x00b")
	want(t, b.rows("\x00b"), `at 4 from 4 rows 1: x={"n":1}`)
}

// A snapshot has what a view that is built in has folded of events that are trimmed, also if no view is defined.
func TestASnapshotHasTheViewsThatAreBuiltIn(t *testing.T) {
	fs := vfs.NewMem()
	options := Options{BuiltIn: []BuiltIn{{Name: "\x00b", Fold: &tally{types: []string{"A"}}}}}
	from := newBench(t, fs, options)
	defer func() { from.close() }()
	checkpoint := func(to string) bool {
		made, err := from.engine.Checkpoint(to+".views", func() error {
			_, err := from.machine.Checkpoint(to)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	from.caughtUp("\x00b")
	if checkpoint("/empty") {
		t.Error("there is a copy of no rows")
	}
	from.publish("A", "x")
	from.publish("A", "x")
	from.trim(3)
	from.caughtUp("\x00b")
	if !checkpoint("/copy") {
		t.Fatal("there is no copy")
	}
	to := &bench{t: t, fs: fs, dir: "/to", options: options}
	if err := fs.MkdirAll("/to", 0o755); err != nil {
		t.Fatal(err)
	}
	to.open()
	defer func() { to.close() }()
	if err := to.engine.Swap("/copy.views", func() error { return to.machine.Swap("/copy") }); err != nil {
		t.Fatal(err)
	}
	to.index = to.machine.Applied()
	to.caughtUp("\x00b")
	want(t, to.rows("\x00b"), `at 3 from 1 rows 1: x={"n":2}`)
}

// BenchmarkPassed folds a log in which a view has no event.
func BenchmarkPassed(b *testing.B) {
	built := BuiltIn{Name: "\x00b", Fold: &tally{types: []string{"A"}}}
	w := newBench(b, vfs.NewMem(), Options{BuiltIn: []BuiltIn{built}})
	keys := make([]string, 100)
	for range 1000 {
		w.publish("B", keys...)
	}
	for b.Loop() {
		b.StopTimer()
		w.close()
		w.options.BuiltIn[0].Version++
		w.open()
		b.StartTimer()
		w.caughtUp("\x00b")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(w.last()), "ns/event")
	w.close()
}

// Rows that are read ahead are those that a fold would read one after the other, also where there is none.
func TestRowsAreReadAhead(t *testing.T) {
	w := newBench(t, vfs.NewMem(), Options{})
	defer func() { w.close() }()
	w.define("v", `{"types":["A"]}`)
	var keys []string
	for n := range 900 {
		keys = append(keys, fmt.Sprintf("k%03d", n))
	}
	w.publish("A", keys[100:]...)
	w.caughtUp("v")
	// Memory has no row, so the first chunk reads many, and the second reads ahead.
	w.close()
	w.open()
	w.publish("A", keys[100:400]...)
	w.caughtUp("v")
	w.publish("A", slices.Concat(keys[:100], keys[300:])...)
	w.caughtUp("v")
	text := fmt.Sprintf("at %d from 1 rows 900:", w.last())
	for n, key := range keys {
		count := 2
		switch {
		case n < 100:
			count = 1
		case n >= 300 && n < 400:
			count = 3
		}
		text += fmt.Sprintf(` %s={"n":%d}`, key, count)
	}
	want(t, w.rows("v"), text)
}

// BenchmarkRebuild folds a log on the disk again, as a node does whose fold is of another version.
func BenchmarkRebuild(b *testing.B) {
	for _, keys := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchmarkRebuild(b, keys, max(keys, 200_000)) })
	}
}

// benchmarkRebuild folds two rounds of that many events, of keys that come in no order.
func benchmarkRebuild(b *testing.B, keys, events int) {
	const rounds, batch = 2, 500
	dir := b.TempDir()
	compile := func(declaration string) (view.Fold, error) {
		d, err := view.Parse([]byte(declaration))
		if err != nil {
			return nil, err
		}
		return view.Compile(d)
	}
	w := &bench{t: b, fs: vfs.Default, dir: dir, options: Options{Compile: compile}}
	w.open()
	w.apply(frame.Request{Command: frame.TermStart{ClusterID: "c",
		Members: []frame.Member{{ID: "n1", FeatureLevel: fsm.FeatureLevel}}}})
	for round := range rounds {
		for first := 0; first < events; first += batch {
			var published frame.Batch
			for n := first; n < first+batch; n++ {
				e := event.New("TRAINING_PROGRESS", fmt.Appendf(nil, `{"epoch": %d, "loss": %d.5}`, round, n%7))
				e.Key, e.NoDedup = fmt.Sprintf("key-%07d", n*7919%keys), true
				published.Add(&e, e.Hash())
			}
			w.apply(frame.Request{Command: frame.Publish{Count: batch}, Batch: &published})
		}
	}
	w.define("v", `{"name": "v", "types": ["TRAINING_PROGRESS"], "fields": {
		"loss": {"kind": "last", "of": "payload.loss"}, "best": {"kind": "min", "of": "payload.loss"},
		"mean": {"kind": "ewma", "of": "payload.loss", "half_life": "1h"}, "n": {"kind": "count"}}}`)
	folded := func() {
		b.Helper()
		defined, _ := w.machine.ViewDefinitions().Get("v")
		err := errors.Join(w.engine.WaitDefined(b.Context(), "v", defined.Generation),
			w.engine.Wait(b.Context(), "v", w.last()))
		if err != nil {
			b.Fatal(err)
		}
	}
	folded()
	var used, before syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w.close()
		w.options.Version++
		w.open()
		folded()
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	took := used.Utime.Nano() + used.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(b.N)*float64(w.last())/(float64(took)/1e9), "events/core-s")
	b.ReportMetric(float64(w.last())*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(used.Maxrss)/1024, "MiB-most")
	w.close()
	size := int64(0)
	err := filepath.WalkDir(dir+"/views", func(_ string, file os.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		info, err := file.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size)/float64(keys), "disk-B/key")
}

// A snapshot has what its views have folded of events that are trimmed: a node that installs it has the same rows, and
// folds on.
func TestASnapshotHasTheViews(t *testing.T) {
	fs := vfs.NewMem()
	from := newBench(t, fs, Options{})
	defer func() { from.close() }()
	from.define("v", `{"types":["A"],"step":2}`)
	for range 4 {
		from.publish("A", "x", "y")
	}
	from.trim(8)
	made, err := from.engine.Checkpoint("/copy.views", func() error {
		_, err := from.machine.Checkpoint("/copy")
		return err
	})
	if err != nil || !made {
		t.Fatal(made, err)
	}
	from.publish("A", "x")

	to := &bench{t: t, fs: fs, dir: "/to"}
	if err := fs.MkdirAll("/to", 0o755); err != nil {
		t.Fatal(err)
	}
	to.open()
	defer func() { to.close() }()
	// What it had before goes.
	to.apply(frame.Request{Command: frame.TermStart{ClusterID: "c",
		Members: []frame.Member{{ID: "n1", FeatureLevel: fsm.FeatureLevel}}}})
	to.define("old", `{"types":["A"]}`)
	to.caughtUp("old")
	w, err := to.engine.Watch("old")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := to.engine.Swap("/copy.views", func() error { return to.machine.Swap("/copy") }); err != nil {
		t.Fatal(err)
	}
	to.index = to.machine.Applied()
	<-w.Changed()
	if _, err := w.Keys(); !errors.Is(err, ErrNotFound) {
		t.Errorf("the watch of a view that is gone: %v", err)
	}
	to.publish("A", "x")
	from.caughtUp("v")
	to.caughtUp("v")
	want(t, to.rows("v"), `at 10 from 1 rows 2: x={"n":5} y={"n":4}`)
	want(t, to.rows("v"), from.rows("v"))
	want(t, to.firings("v"), from.firings("v"))
	// The same after a restart.
	to.close()
	to.open()
	to.caughtUp("v")
	want(t, to.rows("v"), from.rows("v"))
}

// No trim comes between the copy of the views and that of the state.
func TestATrimWaitsForACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, vfs.NewMem(), Options{})
		defer b.close()
		b.define("v", `{"types":["A"]}`)
		b.publish("A", "x")
		b.publish("A", "x")
		trimmed := atomic.Bool{}
		var done sync.WaitGroup
		_, err := b.engine.Checkpoint("/copy.views", func() error {
			done.Go(func() {
				b.trim(3)
				trimmed.Store(true)
			})
			synctest.Wait()
			if trimmed.Load() {
				t.Error("the log was trimmed before the state was copied")
			}
			_, err := b.machine.Checkpoint("/copy")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		done.Wait()
	})
}

// A view whose fold fails says why, and holds nothing up.
func TestAViewThatCannotBeFoldedHoldsNothingUp(t *testing.T) {
	b := newBench(t, vfs.NewMem(), Options{Logger: hclog.NewNullLogger()})
	defer b.close()
	b.define("bad", `{"types":["A"],"fails":"y"}`)
	b.define("worse", `{"types":"A"}`)
	b.define("good", `{"types":["A"]}`)
	b.publish("A", "x")
	b.publish("A", "y")
	b.publish("A", "x")
	b.caughtUp("good")
	b.trim(4)
	if err := b.engine.Read("worse", nil); !errors.Is(err, ErrFailed) {
		t.Errorf("a view that does not compile: %v", err)
	}
	list := b.engine.List()
	if list[0].Failed == "" || list[2].Failed == "" || list[1].Failed != "" {
		t.Errorf("%+v", list)
	}
	if err := b.engine.Wait(t.Context(), "bad", 4); !errors.Is(err, ErrFailed) {
		t.Errorf("a wait for a view that fails: %v", err)
	}
}

// A row of the past is the one that a fold up to there has.
func TestARowAtAnOffset(t *testing.T) {
	b := newBench(t, vfs.NewMem(), Options{})
	defer b.close()
	b.define("v", `{"types":["A"]}`)
	for range 5 {
		b.publish("A", "x")
	}
	b.publish("A", "y")
	b.caughtUp("v")
	show := func(key string, at uint64) string {
		var row json.RawMessage
		err := b.engine.ReadAt(t.Context(), "v", key, at, func(r *Reader) (err error) {
			if r.At != at {
				t.Errorf("read at %d, not at %d", r.At, at)
			}
			row, _, err = r.Show(key)
			return err
		})
		return fmt.Sprintf("%s %v", row, err)
	}
	want(t, show("x", 7), `{"n":5} <nil>`)
	want(t, show("x", 6), `{"n":5} <nil>`)
	want(t, show("x", 3), `{"n":2} <nil>`)
	want(t, show("y", 6), ` <nil>`)
	b.trim(4)
	want(t, show("x", 6), `{"n":5} <nil>`)
	want(t, show("x", 5), ` the events that the row was folded from are gone; the first kept is 4`)
}

// A watch learns of each row that changes, and of the view's end.
func TestAWatchLearnsOfChanges(t *testing.T) {
	b := newBench(t, vfs.NewMem(), Options{})
	defer b.close()
	b.define("v", `{"types":["A"]}`)
	b.caughtUp("v")
	w, err := b.engine.Watch("v")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	b.publish("A", "x", "y", "x")
	b.publish("B", "z")
	b.caughtUp("v")
	<-w.Changed()
	if keys, err := w.Keys(); err != nil || len(keys) != 2 || !keys["x"] || !keys["y"] {
		t.Errorf("%v %v", keys, err)
	}
	b.define("v", `{"types":["B"]}`)
	<-w.Changed()
	if _, err := w.Keys(); !errors.Is(err, ErrNotFound) {
		t.Errorf("the end of a view: %v", err)
	}
}

// Whatever is restarted, trimmed, or lost with the power on the way: the rows are those of a fold of the whole log in
// one go, and each firing is published once.
func TestAViewIsAFoldOfTheWholeLog(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		var fs vfs.FS = vfs.NewCrashableMem()
		b := newBench(t, fs, Options{})
		defer func() { b.close() }()
		declaration := fmt.Sprintf(`{"types":["A"],"step":%d}`, rapid.IntRange(1, 4).Draw(t, "step"))
		b.define("v", declaration)
		b.publish("B", "x")
		if err := b.machine.Sync(); err != nil {
			t.Fatal(err)
		}
		type entry struct {
			index uint64
			data  []byte
		}
		var entries []entry // that raft has
		run := func(r frame.Request) {
			data := b.encode(r)
			entries = append(entries, entry{b.index, data})
			if _, err := b.machine.Apply(b.index, 1, data); err != nil {
				t.Fatal(err)
			}
		}
		// The whole log, whatever is trimmed of it.
		var log []event.Event
		every := event.Filter{}.Compile(event.Builtin())
		record := func() {
			for uint64(len(log)) < b.last() {
				chunk, err := b.machine.Log().Read(uint64(len(log))+1, &every, 1000)
				if err != nil || chunk.Gap != nil {
					t.Fatal(err, chunk.Gap)
				}
				log = append(log, chunk.Events...)
			}
		}
		record()
		var published []string
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"publish", "publish", "publish", "trim", "reopen", "crash", "emit",
				"settle", "sync"}).Draw(t, "action") {
			case "publish":
				var batch frame.Batch
				for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 1, 5).Draw(t, "keys") {
					e := event.New(event.Type(rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "type")), map[string]any{})
					e.Key, e.NoDedup = key, true
					batch.Add(&e, e.Hash())
				}
				run(frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: &batch})
			case "trim":
				run(frame.Request{Command: frame.Trim{Before: b.last(), Force: true}})
				counts["trim"]++
			case "reopen":
				b.close()
				b.open()
			case "crash":
				crashed := b.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
				b.close()
				b.fs = crashed
				b.open()
				// Raft applies again what the state has lost.
				for _, e := range entries {
					if _, err := b.machine.Apply(e.index, 1, e.data); err != nil {
						t.Fatal(err)
					}
					b.index = max(b.index, e.index)
				}
				counts["crash"]++
			case "sync":
				if err := b.machine.Sync(); err != nil {
					t.Fatal(err)
				}
			case "settle":
				b.caughtUp("v")
			case "emit":
				d, _ := b.machine.ViewDefinitions().Get("v")
				list, err := b.engine.Firings(d.Generation, d.Emitted, rapid.IntRange(1, 3).Draw(t, "limit"))
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					break
				}
				var batch frame.Batch
				for _, f := range list {
					e := f.Event
					e.NoDedup = true
					batch.Add(&e, e.Hash())
				}
				run(frame.Request{Command: frame.Publish{Count: batch.Len(), Emission: frame.ViewEmission{View: "v",
					Generation: d.Generation, From: d.Emitted, To: list[len(list)-1].Offset}}, Batch: &batch})
				counts["emitted"]++
			}
			record()
		}
		b.caughtUp("v")
		d, _ := b.machine.ViewDefinitions().Get("v")

		fold, err := compileTally(declaration)
		if err != nil {
			t.Fatal(err)
		}
		rows, wanted := newInMemory(), []string{}
		for i := range log {
			e := &log[i]
			if string(e.Type) == "TALLY_REACHED" {
				published = append(published, string(e.Payload))
			}
			if string(e.Type) != "A" {
				continue
			}
			fired, err := fold.Apply(rows, e)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fired {
				if e.Offset <= d.Emitted {
					payload, _ := event.Canonicalize(f.Event.Payload, event.DefaultLimits())
					wanted = append(wanted, string(payload))
				}
			}
		}
		if strings.Join(published, "\n") != strings.Join(wanted, "\n") {
			t.Fatalf("published\n%s\nwant\n%s", strings.Join(published, "\n"), strings.Join(wanted, "\n"))
		}
		err = b.engine.Read("v", func(r *Reader) error {
			sum := uint64(0)
			for key, value := range rows.rows.Ascend(btreemap.Min[string](), btreemap.Max[string]()) {
				sum += rowSum(key, value)
			}
			if r.Digest != sum {
				t.Fatalf("the digest is %x, want %x", r.Digest, sum)
			}
			if r.At != b.last() || r.From != 1 || int(r.Rows) != rows.rows.Len() {
				t.Fatalf("%+v, want %d rows at %d", r.Status, rows.rows.Len(), b.last())
			}
			for _, key := range []string{"x", "y", "z"} {
				got, _, err := r.Show(key)
				want, _, _ := fold.Show(rows, key)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s is %s, want %s; %v", key, got, want, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, kind := range []string{"trim", "crash", "emitted"} {
		if counts[kind] == 0 && !testing.Short() {
			t.Errorf("no history has %s", kind)
		}
	}
}
