package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/fsm/store"
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
// of different builds may have different ones.
type BuiltIn struct {
	Name    string    // begins with a zero byte, so that no definition has it
	Fold    view.Fold // publishes nothing
	Version uint64    // as Options.Version
}

// firstBuiltIn is the generation of the first view that is built in. Those of definitions count up from 1.
const firstBuiltIn = 1 << 63

// defined returns what is folded: the views that are built in, and those that are defined.
func (e *Engine) defined(d *fsm.ViewDefinitions) (list []fsm.ViewDefinition) {
	for i, b := range e.opts.BuiltIn {
		list = append(list, fsm.ViewDefinition{Name: b.Name, Generation: firstBuiltIn + uint64(i), Since: 1})
	}
	return append(list, d.List...)
}

// Source is what views are folded from. It is the state machine. Its methods must not wait for an entry that is being
// applied, since such an entry may wait for the engine.
type Source interface {
	Log() *log.Log
	ViewDefinitions() *fsm.ViewDefinitions
	FeatureLevel() uint32
}

// Engine folds the views of one node. It is safe for concurrent use.
type Engine struct {
	opts   Options
	source Source // set by Start
	wake   chan struct{}
	ctx    context.Context // ends when the engine is stopped
	stop   context.CancelFunc
	done   sync.WaitGroup // for run
	again  chan struct{}  // semaphore of one: held while a view is folded again for a reader

	gate chan struct{} // semaphore of one: held while the log is trimmed, and while copies are made or installed
	loop sync.Mutex    // held while run folds; it is taken before dbMu

	// dbMu is held shared while db is used, and to replace it. It is taken before mu.
	dbMu sync.RWMutex
	db   *pebble.DB // nil once the engine is closed

	mu     sync.Mutex // guards the following; held to commit, so a snapshot taken under it is at the offset in at
	live   []*folded  // by name
	reload bool       // the views are to be loaded again
	swept  bool       // what is stored of views that are not live was removed
	moved  chan struct{}
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

// memory is what the database takes of it for its cache, and for a table, in bytes.
const memory = 16 << 20

// store returns the options of the folder.
func (e *Engine) store() *store.Options {
	return &store.Options{Dir: e.opts.Dir, FS: e.opts.FS, Logger: e.opts.Logger, Fatal: e.opts.Fatal, Memory: memory}
}

// open opens the folder's database.
func (e *Engine) open() (*pebble.DB, error) {
	if err := e.opts.FS.MkdirAll(e.opts.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
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
	e.Stop()
	e.dbMu.Lock()
	defer e.dbMu.Unlock()
	db := e.db
	e.db = nil
	if db == nil {
		return nil
	}
	return db.Close()
}

// view calls use with the database, which stays open until use returns.
func (e *Engine) view(use func(db *pebble.DB) error) error {
	e.dbMu.RLock()
	defer e.dbMu.RUnlock()
	if e.db == nil {
		return ErrClosed
	}
	return use(e.db)
}

// syncEvery is how often what was folded is made durable, so that a trim seldom has to wait for it.
const syncEvery = time.Second

// run folds until the engine is stopped.
func (e *Engine) run() {
	sync := time.NewTicker(syncEvery)
	defer sync.Stop()
	var seen *fsm.ViewDefinitions
	for e.ctx.Err() == nil {
		e.loop.Lock()
		// The channel belongs to the end: growth since then has closed it.
		_, last := e.source.Log().Bounds()
		grown := e.source.Log().Grown(last + 1)
		defined := e.source.ViewDefinitions()
		more, err := e.round(defined, defined != seen, last)
		e.loop.Unlock()
		if !e.must(err) {
			return
		}
		seen = defined
		if more {
			continue
		}
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

// gather waits for more events, unless somebody waits for those that there are.
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

// hurry has what gathers folded now.
func (e *Engine) hurry() {
	select {
	case e.wake <- struct{}{}:
	default: // it is to look already
	}
}

// round folds some events of each view, up to last, and reports whether there may be more. The caller holds loop.
func (e *Engine) round(defined *fsm.ViewDefinitions, changed bool, last uint64) (more bool, err error) {
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
	for _, f := range e.folds() {
		stepped, err := e.step(f, last)
		if err != nil {
			return false, err
		}
		more = more || stepped
	}
	return more, nil
}

// must ends the node over an error of the store, and returns false if the engine has to end.
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

// folds returns what is folded.
func (e *Engine) folds() []*folded {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.live)
}

// adopt begins to fold what is defined and not folded yet, and removes what is not defined any more.
func (e *Engine) adopt(defined *fsm.ViewDefinitions) error {
	var live []*folded
	list := e.defined(defined)
	for _, d := range list {
		f := e.byGeneration(d.Generation)
		if f == nil {
			var err error
			f, err = e.load(d)
			if err != nil {
				return err
			}
		}
		if err := e.dropEmitted(f, d.Emitted); err != nil {
			return err
		}
		live = append(live, f)
	}
	e.mu.Lock()
	for i, f := range live {
		f.def = list[i]
	}
	gone := slices.DeleteFunc(e.live, func(f *folded) bool { return slices.Contains(live, f) })
	for _, f := range gone {
		f.endWatches()
	}
	e.live = live
	e.announce()
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

// announce wakes whoever waits for a view. The caller holds mu.
func (e *Engine) announce() {
	close(e.moved)
	e.moved = make(chan struct{})
}

// sync makes durable what is folded by now.
func (e *Engine) sync() error {
	return e.view(func(db *pebble.DB) error {
		// What a view has passed without a match is not stored yet.
		e.mu.Lock()
		upTo := map[*folded]uint64{}
		batch := db.NewBatch()
		defer batch.Close()
		var err error
		dirty := false
		for _, f := range e.live {
			if f.at > f.durable {
				dirty = true
			}
			if f.at > f.storedAt {
				err = errors.Join(err, f.storeMeta(batch))
			}
			upTo[f] = f.at
		}
		if err == nil && dirty {
			err = batch.Commit(pebble.NoSync)
			for f, at := range upTo {
				f.storedAt = max(f.storedAt, at)
			}
		}
		e.mu.Unlock()
		// Not under mu: readers do not wait for the disk.
		if err == nil && dirty {
			err = db.LogData(nil, pebble.Sync)
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
	for {
		e.mu.Lock()
		moved, lags, durable := e.moved, false, true
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
		if !lags && durable {
			return nil
		}
		if !lags {
			return e.sync()
		}
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
