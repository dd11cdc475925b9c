package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/internal/view"
)

// Errors of readers.
var (
	// ErrNotFound: the name is neither defined nor built in.
	ErrNotFound = errors.New("there is no such view")
	// ErrNotYet: the state was replaced, or the definition is new.
	ErrNotYet = errors.New("this node is about to load the view")
	// ErrFailed: the view cannot be compiled, or the fold of an event has failed.
	ErrFailed = errors.New("the view is not folded any further")
	// ErrGone: a GoneError has the first event that is left.
	ErrGone = errors.New("the events that the row was folded from are gone")
	// ErrTooLarge: maxAgain is the bound.
	ErrTooLarge = errors.New("the view has too many rows to fold it again for one of them")
	// ErrLags: maxWatched is the bound.
	ErrLags = errors.New("a reader of changes lags by too many of them")
)

// Status says how far a view is on this node.
type Status struct {
	fsm.ViewDefinition
	At      uint64 // the offset up to which all events are folded
	Of      uint64 // the log's end
	From    uint64 // the first offset that was folded; after Since if events before it are gone
	Rows    int64  // of keys
	Firings int    // that were not published yet
	Failed  string // why it is not folded any further; empty if it is
	Digest  uint64 // of all rows, as of At
}

// Incomplete reports whether events were gone before they were folded.
func (s *Status) Incomplete() bool { return s.From > s.Since }

// status returns how far a view is. The caller holds mu.
func (e *Engine) status(f *folded) Status {
	// After a crash within Swap a view may be beyond the end of the log.
	_, last := e.source.Log().Bounds()
	return Status{ViewDefinition: f.def, At: f.at, Of: max(last, f.at), From: f.from, Rows: f.count, Firings: f.firings,
		Failed: f.failed, Digest: f.digest}
}

// Digests returns the digests of a view at the latest of the offsets at which all nodes note theirs, and at the one
// that it is at, in their order.
func (e *Engine) Digests(name string) ([]Digest, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.named(name)
	if f == nil {
		return nil, e.absent(name)
	}
	list := slices.Clone(f.digests)
	if n := len(list); n == 0 || list[n-1].Offset != f.at {
		list = append(list, Digest{f.at, f.digest})
	}
	return list, nil
}

// List returns the views that are defined, by name.
func (e *Engine) List() []Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]Status, 0, len(e.live))
	for _, f := range e.live {
		if f.generation < firstBuiltIn {
			list = append(list, e.status(f))
		}
	}
	return list
}

// Reader reads the rows of a view as they are at one offset. It is valid until the function that it was given to
// returns.
type Reader struct {
	Status
	fold view.Fold
	rows view.Rows
}

// Show returns the row of a key as JSON, false if there is none.
func (r *Reader) Show(key string) (json.RawMessage, bool, error) { return r.fold.Show(r.rows, key) }

// Stored are the stored rows, for who knows the fold. They cannot be changed.
func (r *Reader) Stored() view.Rows { return r.rows }

// Keys returns up to limit keys after the key after, in the order of their bytes.
func (r *Reader) Keys(after string, limit int) ([]string, error) {
	return r.fold.Keys(r.rows, after, limit)
}

// Skipped returns which events could not be folded.
func (r *Reader) Skipped() (view.Skipped, error) { return r.fold.Skipped(r.rows) }

// Read calls use with the rows of a view as they are now. The database is not replaced meanwhile: use must be quick. It
// returns ErrNotFound or ErrNotYet for a view that is not live, and ErrFailed for one that cannot be compiled. A view
// that has failed later is read as it was then.
func (e *Engine) Read(name string, use func(*Reader) error) error {
	return e.view(func(db kv.DB) error {
		// The snapshot is at the offset that at is. Under mu no chunk is committed.
		e.mu.Lock()
		f := e.named(name)
		if f == nil {
			e.mu.Unlock()
			return e.absent(name)
		}
		snapshot, status := db.NewSnapshot(), e.status(f)
		e.mu.Unlock()
		defer snapshot.Close()
		// No build of this version could compile it.
		if f.fold == nil {
			return fmt.Errorf("%w: %s", ErrFailed, status.Failed)
		}
		return use(&Reader{Status: status, fold: f.fold, rows: &stored{reader: snapshot, generation: f.generation}})
	})
}

// absent is the error for a view that is not live: after the state was replaced it may be defined. A caller may hold
// mu: it asks the state only.
func (e *Engine) absent(name string) error {
	_, defined := e.source.ViewDefinitions().Get(name)
	if defined || slices.ContainsFunc(e.opts.BuiltIn, func(b BuiltIn) bool { return b.Name == name }) {
		return ErrNotYet
	}
	return ErrNotFound
}

// named returns the live view of a name, nil if there is none. The caller holds mu.
func (e *Engine) named(name string) *folded {
	for _, f := range e.live {
		if f.def.Name == name {
			return f
		}
	}
	return nil
}

// Wait returns once a view has folded the log up to an offset. It also returns if the view fails or is removed, if ctx
// ends, and if the engine stops. A view that is about to be loaded is waited for.
func (e *Engine) Wait(ctx context.Context, name string, offset uint64) error {
	for {
		// moved is taken together with where the view is, so a move in between closes it.
		e.mu.Lock()
		f, moved := e.named(name), e.moved
		var status Status
		if f != nil {
			status = e.status(f)
		}
		e.mu.Unlock()
		switch {
		case f == nil && e.absent(name) == ErrNotFound:
			return ErrNotFound
		case f != nil && status.At >= offset:
			return nil
		case status.Failed != "":
			return fmt.Errorf("%w: %s", ErrFailed, status.Failed)
		}
		// Somebody waits: the events are not to gather first.
		e.hurry()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ctx.Done():
			return ErrClosed
		}
	}
}

// WaitDefined returns once this node folds a view in a generation, or a later one. The caller knows that the generation
// is defined: a name that is unknown is waited for.
func (e *Engine) WaitDefined(ctx context.Context, name string, generation uint64) error {
	for {
		e.mu.Lock()
		f, moved := e.named(name), e.moved
		known := f != nil && f.generation >= generation
		e.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ctx.Done():
			return ErrClosed
		}
	}
}

// ReadAt calls use with the rows of a view as they were at an offset, which it has folded. If a key is given, use reads
// the row of that key alone. What has changed since is folded again, in memory, from the events it was folded from. Its
// errors are those of Read and of foldAgain.
func (e *Engine) ReadAt(ctx context.Context, name, key string, at uint64, use func(*Reader) error) error {
	var status Status
	again := false
	err := e.Read(name, func(r *Reader) error {
		status = r.Status
		if r.At > at {
			// A row that was made before is the same. One that is not there may have been, or not.
			_, found, err := r.Show(key)
			if err != nil {
				return err
			}
			if again = key == "" || !found || r.rows.(*stored).newest > at; again {
				return nil
			}
			r.At = at
		}
		return use(r)
	})
	if err != nil || !again {
		return err
	}
	// The view as it was read. If it was removed meanwhile, there is nothing to fold.
	e.mu.Lock()
	f := e.liveGeneration(status.Generation)
	e.mu.Unlock()
	if f == nil {
		return ErrNotFound
	}
	// One at a time: each takes memory and a core.
	select {
	case e.again <- struct{}{}:
		defer func() { <-e.again }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// From the first offset that is in its rows, so the result is what they were.
	rows := newInMemory()
	if err := e.foldAgain(ctx, f, rows, status.From, at); err != nil {
		return err
	}
	status.At, status.Rows = at, int64(rows.rows.Len())
	return use(&Reader{Status: status, fold: f.fold, rows: rows})
}

// foldAgain folds the events from one offset to another into rows. It writes nothing to the database, and what rules
// publish is dropped. It returns a GoneError if some of the events are trimmed, and ErrTooLarge if the rows take more
// than maxAgain.
func (e *Engine) foldAgain(ctx context.Context, f *folded, rows *inMemory, from, to uint64) error {
	for from <= to {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		chunk, err := e.source.Log().Read(from, &f.matcher, chunkEvents)
		if err != nil {
			return err
		}
		// Events are missing. The view has them in its rows, but not as of to.
		if chunk.Gap != nil {
			return &GoneError{First: chunk.Gap.To + 1}
		}
		for i := range chunk.Events {
			if chunk.Events[i].Offset > to {
				break
			}
			if _, err := f.fold.Apply(rows, &chunk.Events[i]); err != nil {
				return err
			}
		}
		if rows.bytes > maxAgain {
			return ErrTooLarge
		}
		from = chunk.Next
	}
	return nil
}

// GoneError says that events are not retained from which a row would have to be folded.
type GoneError struct{ First uint64 }

// Error implements error.
func (g *GoneError) Error() string {
	return fmt.Sprintf("%v; the first kept is %d", ErrGone, g.First)
}

// Is makes it ErrGone.
func (g *GoneError) Is(target error) bool { return target == ErrGone }

// maxAgain bounds what is folded again in memory, in bytes.
const maxAgain = 64 << 20

// inMemory is rows in memory. It is for one goroutine.
type inMemory struct {
	rows  *btreemap.BTreeMap[string, []byte] // sorted, as Each goes through them in order
	bytes int                                // what keys and values take, with rowOverhead for each row
}

// newInMemory returns rows that are empty.
func newInMemory() *inMemory {
	return &inMemory{rows: btreemap.New[string, []byte](32, strings.Compare)}
}

var _ view.Rows = (*inMemory)(nil)

// Get implements view.Rows.
func (m *inMemory) Get(key string) (value []byte, found bool, err error) {
	_, value, found = m.rows.Get(key)
	return value, found, nil
}

// Set implements view.Rows.
func (m *inMemory) Set(key string, value []byte) error {
	_, old, replaced := m.rows.Get(key)
	if !replaced {
		m.bytes += len(key) + rowOverhead
	}
	m.bytes += len(value) - len(old)
	m.rows.ReplaceOrInsert(key, append([]byte(nil), value...))
	return nil
}

// Delete implements view.Rows.
func (m *inMemory) Delete(key string) error {
	if _, old, found := m.rows.Get(key); found {
		m.bytes -= len(key) + rowOverhead + len(old)
		m.rows.Delete(key)
	}
	return nil
}

// Each implements view.Rows.
func (m *inMemory) Each(prefix, from string, yield func(key string, value []byte) bool) error {
	// From the prefix, or from after from, to the last key that has the prefix.
	low := btreemap.GE(prefix)
	if from >= prefix {
		low = btreemap.GT(from)
	}
	high := btreemap.Max[string]()
	if end := after([]byte(prefix)); end != nil {
		high = btreemap.LT(string(end))
	}
	for key, value := range m.rows.Ascend(low, high) {
		if !yield(key, value) {
			return nil
		}
	}
	return nil
}

// Fired is an event that a rule publishes for the event at an offset.
type Fired struct {
	Offset uint64
	Event  event.Event
}

// maxFiringsBytes bounds what Firings returns, in bytes; the offset that passes it is the last.
const maxFiringsBytes = 1 << 20

// Firings returns what the rules of a view publish for the events after an offset: about limit of them, and all of an
// offset or none.
func (e *Engine) Firings(generation, from uint64, limit int) (list []Fired, err error) {
	err = e.view(func(db kv.DB) error {
		_, high := span(prefixFiring, generation)
		it, err := db.Iter(firingKey(generation, from+1), high)
		if err != nil {
			return err
		}
		defer it.Close()
		// The offset that is the last may be large: its firings are published as one, or not at all.
		bytes := 0
		for ok := it.First(); ok; ok = it.Next() {
			offset := offsetOf(it.Key())
			if full := len(list) >= limit || bytes >= maxFiringsBytes; full && offset != list[len(list)-1].Offset {
				break
			}
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			// The event keeps the memory that it is decoded from; the iterator's is valid until the next step.
			ev, err := frame.DecodeCopy(append([]byte(nil), value...))
			if err != nil {
				return err
			}
			list = append(list, Fired{offset, ev})
			bytes += len(value)
		}
		return it.Error()
	})
	if err != nil {
		return nil, fmt.Errorf("read firings: %w", err)
	}
	return list, nil
}

// Fired holds an element since the last receive after which there are more firings.
func (e *Engine) Fired() <-chan struct{} { return e.fired }

// Watch learns of the rows of one view that change.
type Watch struct {
	engine  *Engine
	view    *folded
	changed chan struct{} // holds an element since the last Keys after which there is something

	// The engine's mu guards these.
	keys  map[string]bool
	ended bool // the view was removed, or defined otherwise
	lags  bool // more keys have changed than are kept
}

// maxWatched is how many keys that have changed a watch keeps for its reader.
const maxWatched = 10_000

// Watch watches the rows of a view from now on. Whoever reads them after this call, then waits for Changed, misses no
// change. It has to be closed.
func (e *Engine) Watch(name string) (*Watch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.named(name)
	if f == nil {
		return nil, e.absent(name)
	}
	// Under mu: each chunk that is committed from here on is noted.
	w := &Watch{engine: e, view: f, changed: make(chan struct{}, 1), keys: map[string]bool{}}
	f.watches[w] = true
	return w, nil
}

// Close ends the watch. It may be called again.
func (w *Watch) Close() {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	delete(w.view.watches, w)
}

// Changed receives after rows have changed, and once the watch has ended.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Keys returns the keys that have changed since the last call. It is ErrNotFound once the view was removed or defined
// otherwise, and ErrLags if more have changed than are kept.
func (w *Watch) Keys() (map[string]bool, error) {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	switch {
	case w.ended:
		return nil, ErrNotFound
	case w.lags:
		return nil, ErrLags
	}
	// The map is the caller's from here on.
	keys := w.keys
	w.keys = map[string]bool{}
	return keys, nil
}

// add notes changed rows. The caller holds the engine's mu.
func (w *Watch) add(rows []string) {
	// Rows that a fold has beside those of keys are of no interest.
	for _, row := range rows {
		if key, ok := w.view.fold.KeyOf(row); ok {
			w.keys[key] = true
		}
	}
	// A reader that is too slow has to read all rows again, so single keys are of no use to it.
	if len(w.keys) > maxWatched {
		w.keys, w.lags = map[string]bool{}, true
	}
	if len(w.keys) > 0 || w.lags {
		w.signal()
	}
}

// signal wakes the reader.
func (w *Watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // it has not received the change before
	}
}

// endWatches ends the watches of a view that is not live any more. The caller holds the engine's mu.
func (f *folded) endWatches() {
	for w := range f.watches {
		w.ended = true
		w.signal()
	}
}
