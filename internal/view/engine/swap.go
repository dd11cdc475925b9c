package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// A snapshot of the state has the views beside it: whoever installs it may have no other way to what they have folded
// of events that are trimmed. gate keeps trims and swaps away while both are copied, so that the views of a snapshot
// have all that its state has trimmed. They may have less than the state: the rest is folded from its log.

// Checkpoint makes a copy of the views in dir, on the same file system, and then calls state, which makes one of the
// state. Without a view that a snapshot has to have there is no copy, and made is false. ErrClosed is returned if the
// engine stops before it begins.
func (e *Engine) Checkpoint(dir string, state func() error) (made bool, err error) {
	select {
	case e.gate <- struct{}{}:
		defer func() { <-e.gate }()
	case <-e.ctx.Done():
		return false, ErrClosed
	}
	// The views first: they may have less than the state, and never less than it has trimmed.
	if e.copied() {
		made = true
		// With the log of writes flushed, the copy opens as it is here now.
		err := e.view(func(db kv.DB) error { return db.Checkpoint(dir) })
		if err != nil {
			return true, fmt.Errorf("checkpoint of the views into %s: %w", dir, err)
		}
	}
	return made, state()
}

// copied reports whether a snapshot has the views: if one is defined, or one that is built in has rows, in a cluster
// whose nodes all know what to do with them.
func (e *Engine) copied() bool {
	if len(e.source.ViewDefinitions().List) > 0 {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// An older build would not know the folder. A built-in view without rows is folded again from the log.
	hasRows := func(f *folded) bool { return f.count > 0 }
	return e.source.FeatureLevel() >= frame.LevelViews && slices.ContainsFunc(e.live, hasRows)
}

// Swap calls state, which replaces the state, and puts the copy of the views in dir, a folder on the same file system,
// in the place of these; "" leaves them. Nothing is folded meanwhile. After a crash in between the views are newer than
// the state, which is of the same log: they are right once it has come as far. It waits for a copy that is being made.
func (e *Engine) Swap(dir string, state func() error) error {
	// It is called by who applies entries, so no trim waits: only a copy may have to end first.
	e.gate <- struct{}{}
	defer func() { <-e.gate }()
	// run is between two rounds from here on.
	e.loop.Lock()
	defer e.loop.Unlock()
	// The views first, so that a crash leaves them newer and not older than the state.
	err := e.replace(dir)
	if err == nil {
		err = state()
	}
	// All is loaded as it is stored now. Also after an error: which of both were replaced is not known here.
	e.mu.Lock()
	for _, f := range e.live {
		f.endWatches()
	}
	e.live, e.swept, e.reload = nil, false, true
	e.announce()
	e.mu.Unlock()
	e.hurry()
	return err
}

// replace puts the database in dir in the place of this one.
func (e *Engine) replace(dir string) error {
	if dir == "" {
		return nil
	}
	// No reader has the database open.
	e.dbMu.Lock()
	defer e.dbMu.Unlock()
	if e.db == nil {
		return ErrClosed
	}
	path, old, err := e.store().Replace(dir)
	if err != nil {
		return err
	}
	db, err := e.store().Open(path)
	if err != nil {
		return err
	}
	// The new one is in use before the old one goes. Its files are deleted once nothing has them open.
	before := e.db
	e.db = db
	return errors.Join(before.Close(), e.opts.FS.RemoveAll(old))
}
