package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/fsm/store"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/internal/view"
	"github.com/ringrift/ringlog/log"
)

// ErrClosed is returned by an engine that is closing. It is the state machine's, whose entry ends with it.
var ErrClosed = fsm.ErrClosed

// FoldVersion is that of the folds of package view. A change by which the same events give other rows raises it.
const FoldVersion = 1

// Options say where an engine keeps what it folds. Dir, Fatal and Compile are required.
type Options struct {
	Dir    string
	FS     vfs.FS       // nil is the disk
	Logger hclog.Logger // nil is silence
	// Fatal is called with a failed or hanging write, after which the node must not continue.
	Fatal func(error)
	// Compile makes a fold of a declaration.
	Compile func(declaration string) (view.Fold, error)
	// Version is that of the fold: a view that another one has folded is folded again.
	Version uint64
	// BuiltIn are views that every node has, without a definition.
	BuiltIn []BuiltIn
}

// BuiltIn is a view of which every node folds as much as its log has. What it folds is the node's own affair, so nodes
// of different builds may have different ones. It is folded from offset 1, or from the first event that is still there.
type BuiltIn struct {
	Name    string    // begins with a zero byte, so that no definition has it
	Fold    view.Fold // publishes nothing
	Version uint64    // as Options.Version
}

// firstBuiltIn is the generation of the first view that is built in. Those of definitions count up from 1.
const firstBuiltIn = 1 << 63

// defined returns what is folded: the views that are built in, and those that are defined. Their generations are in the
// order of the list, from firstBuiltIn on, so load finds one by its number.
func (e *Engine) defined(d *fsm.ViewDefinitions) (list []fsm.ViewDefinition) {
	for i, b := range e.opts.BuiltIn {
		list = append(list, fsm.ViewDefinition{Name: b.Name, Generation: firstBuiltIn + uint64(i), Since: 1})
	}
	return append(list, d.List...)
}

// Source is what views are folded from. It is the state machine. Its methods must not wait for an entry that is being
// applied, since such an entry may wait for the engine. Each method returns what is true at the moment, and may be
// called by several goroutines at once.
type Source interface {
	Log() *log.Log
	ViewDefinitions() *fsm.ViewDefinitions // a new value for each change, whose predecessor's Replaced is closed
	FeatureLevel() uint32                  // what all members of the cluster know
}

// Engine folds the views of one node. It is safe for concurrent use.
type Engine struct {
	opts   Options
	source Source          // set by Start
	wake   chan struct{}   // holds an element if run is to look now; see hurry
	ctx    context.Context // ends when the engine is stopped
	stop   context.CancelFunc
	done   sync.WaitGroup // for run
	again  chan struct{}  // semaphore of one: held while a view is folded again for a reader

	gate chan struct{} // semaphore of one: held while the log is trimmed, and while copies are made or installed
	loop sync.Mutex    // held while run folds; it is taken before dbMu

	// dbMu is held shared while db is used, and to replace it. It is taken before mu.
	dbMu sync.RWMutex
	db   kv.DB // nil once the engine is closed

	mu     sync.Mutex    // guards the following; held to commit, so a snapshot taken under it is at the offset in at
	live   []*folded     // by name
	reload bool          // the views are to be loaded again
	swept  bool          // what is stored of views that are not live was removed
	moved  chan struct{} // closed and replaced when a view has moved on, or the list of views has changed
	// fired holds an element since the last receive after which there are more firings.
	fired chan struct{}
}

// Open opens the database in o.Dir, or makes an empty one. One that is damaged is removed: all that it has can be
// folded again, as far as the log is still there.
func Open(o Options) (*Engine, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	e := &Engine{opts: o, wake: make(chan struct{}, 1), moved: make(chan struct{}), fired: make(chan struct{}, 1),
		again: make(chan struct{}, 1), gate: make(chan struct{}, 1)}
	e.ctx, e.stop = context.WithCancel(context.Background())
	var err error
	e.db, err = e.open()
	// Rows are derived from the log, so a damaged store is no loss but of time, and of what the log has trimmed.
	if errors.Is(err, store.ErrDamaged) {
		o.Logger.Error("the store of the views is damaged: they are folded again", "error", err)
		if err = o.FS.RemoveAll(o.Dir); err == nil {
			e.db, err = e.open()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the views: %w", err)
	}
	return e, nil
}

const (
	memory = 16 << 20 // bytes that the database takes for its cache, and for a table
	// tables are merged at once: rows change in no order of their keys, so each merge writes most of them again.
	tables = 8
)

// store returns the options of the folder. Fatal is given to the store too: a write that hangs is found there.
func (e *Engine) store() *store.Options {
	return &store.Options{Dir: e.opts.Dir, FS: e.opts.FS, Logger: e.opts.Logger, Fatal: e.opts.Fatal, Memory: memory,
		Tables: tables}
}

// open opens the folder's database.
func (e *Engine) open() (kv.DB, error) {
	if err := e.opts.FS.MkdirAll(e.opts.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	// The folder's manifest names the database: Swap puts another one in its place.
	path, err := e.store().Current()
	if err != nil {
		return nil, err
	}
	return e.store().Open(path)
}

// Start begins to fold. It is called once.
func (e *Engine) Start(source Source) {
	e.source = source
	e.done.Go(e.run)
}

// Stop ends the folding, and what waits for it. Readers still read. It may be called again.
func (e *Engine) Stop() {
	e.stop()
	e.done.Wait()
}

// Close stops the engine and closes its database. It may be called again.
func (e *Engine) Close() error {
	// run must have ended, since it uses the database.
	e.Stop()
	e.dbMu.Lock()
	defer e.dbMu.Unlock()
	// Readers that come later find nil. A second call closes nothing.
	db := e.db
	e.db = nil
	if db == nil {
		return nil
	}
	return db.Close()
}

// view calls use with the database, which stays open until use returns. It returns ErrClosed if the engine is closed.
// use must not take dbMu again.
func (e *Engine) view(use func(db kv.DB) error) error {
	e.dbMu.RLock()
	defer e.dbMu.RUnlock()
	if e.db == nil {
		return ErrClosed
	}
	return use(e.db)
}

// syncEvery is how often what was folded is made durable, so that a trim seldom has to wait for it.
const syncEvery = time.Second

// run folds until the engine is stopped. It is the only goroutine that folds and writes rows.
func (e *Engine) run() {
	sync := time.NewTicker(syncEvery)
	defer sync.Stop()
	var seen *fsm.ViewDefinitions
	for e.ctx.Err() == nil {
		// Swap holds loop while it replaces what is folded.
		e.loop.Lock()
		// The channel belongs to the end: growth since then has closed it.
		_, last := e.source.Log().Bounds()
		// Taken before the round: what is appended while it folds is not missed.
		grown := e.source.Log().Grown(last + 1)
		defined := e.source.ViewDefinitions()
		more, err := e.round(defined, defined != seen, last)
		e.loop.Unlock()
		// The store is at fault and the node ends, or the engine is being closed.
		if !e.must(err) {
			return
		}
		seen = defined
		// There is more of the log, so nothing is waited for.
		if more {
			continue
		}
		// All is folded. What has to be done next comes from the log, from new definitions, from somebody who waits, or
		// from the clock.
		select {
		case <-grown:
			e.gather(len(defined.List) > 0)
		case <-defined.Replaced:
		case <-e.wake:
		case <-sync.C:
			if !e.must(e.sync()) {
				return
			}
		case <-e.ctx.Done():
		}
	}
}

// How long events gather before they are folded, so that an entry costs a node little that nobody asks for its rows.
// Views that are defined have rules, which publish soon after the event.
const (
	gatherFor     = 10 * time.Millisecond
	gatherBuiltIn = 200 * time.Millisecond
)

// gather waits for more events, unless somebody waits for those that there are. defined says whether there are views
// with rules.
func (e *Engine) gather(defined bool) {
	limit := gatherBuiltIn
	if defined {
		limit = gatherFor
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.wake:
	case <-e.ctx.Done():
	}
}

// hurry has what gathers folded now. It does not wait.
func (e *Engine) hurry() {
	select {
	case e.wake <- struct{}{}:
	default: // it is to look already
	}
}

// round folds some events of each view, up to last, and reports whether there may be more. The caller holds loop.
// changed says that defined is another than in the round before.
func (e *Engine) round(defined *fsm.ViewDefinitions, changed bool, last uint64) (more bool, err error) {
	// A swap has emptied the list of views: it is loaded again, though the definitions may be the same.
	e.mu.Lock()
	changed = changed || e.reload
	e.reload = false
	e.mu.Unlock()
	// A view that was removed is not folded any more.
	if changed {
		if err := e.adopt(defined); err != nil {
			return false, err
		}
	}
	// Views take turns, a chunk each: one that begins at the start of the log must not keep the others waiting.
	for _, f := range e.folds() {
		stepped, err := e.step(f, last)
		if err != nil {
			return false, err
		}
		more = more || stepped
	}
	return more, nil
}

// must ends the node over an error of the store, and returns false if the engine has to end. Without its store the node
// cannot keep what it has promised to BeforeTrim.
func (e *Engine) must(err error) bool {
	if err == nil {
		return true
	}
	// The log and the database are closed only after the engine was stopped.
	if e.ctx.Err() == nil {
		e.opts.Fatal(fmt.Errorf("fold views: %w", err))
	}
	return false
}

// folds returns what is folded. The list is the caller's; the views are guarded by mu.
func (e *Engine) folds() []*folded {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.live)
}

// adopt begins to fold what is defined and not folded yet, and removes what is not defined any more. It is called by
// run alone. A view whose declaration has changed has another generation, so it is another view here.
func (e *Engine) adopt(defined *fsm.ViewDefinitions) error {
	var live []*folded
	list := e.defined(defined)
	for _, d := range list {
		// What is live keeps its rows in memory.
		f := e.byGeneration(d.Generation)
		if f == nil {
			var err error
			f, err = e.load(d)
			if err != nil {
				return err
			}
		}
		// The state says that these firings were published, by this node or another.
		if err := e.dropEmitted(f, d.Emitted); err != nil {
			return err
		}
		live = append(live, f)
	}
	e.mu.Lock()
	for i, f := range live {
		// Only Emitted can differ within one generation.
		f.def = list[i]
	}
	// What was live and is not defined any more. The list is not used again, so its memory is free for it.
	gone := slices.DeleteFunc(e.live, func(f *folded) bool { return slices.Contains(live, f) })
	for _, f := range gone {
		f.endWatches()
	}
	e.live = live
	// Who waits for a definition, or for one that was removed, looks again.
	e.announce()
	// The first call removes what an earlier process has left.
	sweep := len(gone) > 0 || !e.swept
	e.swept = true
	e.mu.Unlock()
	if !sweep {
		return nil
	}
	return e.removeOthers(live)
}

// byGeneration returns the live view of a generation, nil if there is none.
func (e *Engine) byGeneration(generation uint64) *folded {
	for _, f := range e.folds() {
		if f.generation == generation {
			return f
		}
	}
	return nil
}

// announce wakes whoever waits for a view. The caller holds mu. Whoever waits takes moved under mu before it looks, so
// it misses nothing in between.
func (e *Engine) announce() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// sync makes durable what is folded by now. Rows are written without a sync. A sync of the database's log makes all of
// them durable that were written before.
func (e *Engine) sync() error {
	return e.view(func(db kv.DB) error {
		// What a view has passed without a match is not stored yet.
		e.mu.Lock()
		// Where each view is now: what is folded during the sync is not promised by it.
		upTo := map[*folded]uint64{}
		batch := db.NewBatch()
		defer batch.Close()
		var err error
		dirty := false
		for _, f := range e.live {
			// Without progress since the last sync there is nothing to write.
			if f.at > f.durable {
				dirty = true
			}
			if f.at > f.storedAt {
				err = errors.Join(err, f.storeMeta(batch))
			}
			upTo[f] = f.at
		}
		// The offsets go into the same log as the rows before them, so they are never ahead of these after a crash.
		if err == nil && dirty {
			err = batch.Commit(kv.NoSync)
			for f, at := range upTo {
				f.storedAt = max(f.storedAt, at)
			}
		}
		e.mu.Unlock()
		// Not under mu: readers do not wait for the disk.
		if err == nil && dirty {
			err = db.Sync()
		}
		if err != nil || !dirty {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		for f, at := range upTo {
			f.durable = max(f.durable, at)
		}
		return nil
	})
}

// BeforeTrim returns once all views have folded the log up to the offset before first and have it on the disk. The
// state machine calls it before it removes those events, and applies nothing meanwhile. It returns ErrClosed if the
// engine is stopped before that.
//
// A view whose fold fails is not waited for.
func (e *Engine) BeforeTrim(first uint64) error {
	// A copy that is being made has the log as it is before.
	select {
	case e.gate <- struct{}{}:
		defer func() { <-e.gate }()
	case <-e.ctx.Done():
		return fmt.Errorf("trim below %d while the node closes: %w", first, ErrClosed)
	}
	// Until nothing lags, it looks again whenever a view has moved on.
	for {
		e.mu.Lock()
		moved, lags, durable := e.moved, false, true
		// What is defined counts, not what is live: run may not have adopted the newest view yet.
		for _, d := range e.defined(e.source.ViewDefinitions()) {
			f := e.liveGeneration(d.Generation)
			switch {
			case f == nil:
				lags = true // it was defined a moment ago
			case f.failed == "":
				lags = lags || f.at+1 < first
				durable = durable && f.durable+1 >= first
			}
		}
		e.mu.Unlock()
		// The usual case: the sync of the last second has it.
		if !lags && durable {
			return nil
		}
		// All is folded but not on the disk. What this sync makes durable is enough.
		if !lags {
			return e.sync()
		}
		// A view that gathers events would keep the entry waiting.
		e.hurry()
		select {
		case <-moved:
		case <-e.ctx.Done():
			return fmt.Errorf("trim below %d before the views have folded it: %w", first, ErrClosed)
		}
	}
}

// liveGeneration is byGeneration for a caller that holds mu.
func (e *Engine) liveGeneration(generation uint64) *folded {
	at := slices.IndexFunc(e.live, func(f *folded) bool { return f.generation == generation })
	if at < 0 {
		return nil
	}
	return e.live[at]
}
