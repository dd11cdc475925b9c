package statestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm"
)

const (
	historyLook  = time.Second      // between two looks at whether a checkpoint is due
	historyEvery = 10 * time.Second // at least, between two checkpoints
)

// Kept is a checkpoint of the state as it was after the entry Index.
type Kept struct {
	Dir   string // of the state's files
	Index uint64 // of the last entry in it
}

// History keeps checkpoints of the state as it was, each with the entries of raft's log that follow it: by these the
// state can be had at every entry since the oldest one. It changes nothing about what raft keeps. A checkpoint is made
// so often that one of them is reached by what a compaction leaves of the log, and removed once the log does not reach
// back to it. Its files are links, and take room for as long as the state itself has no use for them any more.
type History struct {
	HistoryOptions
	dir string // holds a folder for each checkpoint, and nothing else of the history

	mu   sync.Mutex // guards the fields below, and is held while folders are made, linked and removed
	kept []Kept     // ascending
	made time.Time  // when the newest one was tried
}

// HistoryOptions are what a history is made of. None of them is nil.
type HistoryOptions struct {
	Machine   *fsm.Machine
	Snapshots *Snapshots
	// First is the index of the first entry of raft's log, 0 while that is empty.
	First func() (uint64, error)
	// Stays is how many entries a compaction leaves at least.
	Stays func() uint64
	// Full reports that the disk has no room for copies.
	Full   func() bool
	Logger hclog.Logger
}

// OpenHistory opens the checkpoints in dir, which it makes if it is missing.
func OpenHistory(dir string, o HistoryOptions) (*History, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	// Those of an earlier run are still good: they are of the same log.
	kept, err := KeptIn(dir)
	if err != nil {
		return nil, err
	}
	return &History{HistoryOptions: o, dir: dir, kept: kept}, nil
}

// KeptIn lists the checkpoints in a folder, the oldest first; a folder that is missing has none.
func KeptIn(dir string) (list []Kept, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	for _, e := range entries {
		// Whatever else is in the folder is not the history's.
		if index, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && e.Name() == folderOf(index) {
			list = append(list, Kept{filepath.Join(dir, e.Name()), index})
		}
	}
	return list, nil // names have one length, so their order is that of the indexes
}

// folderOf is the name of the checkpoint of an entry.
func folderOf(index uint64) string { return fmt.Sprintf("%020d", index) }

// Reaches reports whether a log that begins with first, 0 if it is empty, has what follows the entry at index.
func Reaches(first, index uint64) bool { return first != 0 && first <= index+1 }

// Run makes and removes checkpoints until ctx ends.
func (h *History) Run(ctx context.Context) {
	tick := time.NewTicker(historyLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// Nothing that a node decides depends on its history: what fails is tried again.
		if err := h.look(historyEvery); err != nil && ctx.Err() == nil && !errors.Is(err, fsm.ErrClosed) {
			h.Logger.Warn("the history of the state was not kept", "error", err)
		}
	}
}

// Look removes the checkpoints that are of no use any more, and makes one if it is due, however new the last one is.
func (h *History) Look() error { return h.look(0) }

// look is Look. It makes no checkpoint sooner than every after the last one.
func (h *History) look(every time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, err := h.First()
	if err != nil {
		return err
	}
	// First what is of no use, as it takes room. A full disk has no room for any.
	err = h.remove(func(k Kept) bool { return h.Full() || !Reaches(first, k.Index) })
	if err != nil || h.Full() || time.Since(h.made) < every || !h.due(first) {
		return err
	}
	// Also if it fails, so that a failing disk is not tried at each look.
	h.made = time.Now()
	return h.make()
}

// due reports whether so many entries were applied since the newest checkpoint that the next compaction might leave
// too few of them. A log that is whole needs none until then.
func (h *History) due(first uint64) bool {
	// How many entries were applied since the newest one.
	since := h.Machine.Applied()
	switch n := len(h.kept); {
	case n > 0:
		since -= min(since, h.kept[n-1].Index)
	case first > 1:
		return true
	}
	// Half of what a compaction leaves: one more checkpoint follows before the log ends after this one.
	return first != 0 && since >= max(h.Stays()/2, 1)
}

// make makes a checkpoint of the state as it is now.
func (h *History) make() error {
	// What is flushed need not be copied, nor read again with the checkpoint.
	if err := h.Machine.Flush(); err != nil {
		return err
	}
	// In a folder that is emptied at a start, and under its name only once it is whole.
	made := h.Snapshots.folder("kept-")
	p, err := h.Machine.Checkpoint(made)
	if err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	// The name has the index of the state that was copied, which may be past what due has looked at.
	k := Kept{filepath.Join(h.dir, folderOf(p.Index)), p.Index}
	if err := os.Rename(made, k.Dir); err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	h.kept = append(h.kept, k)
	return nil
}

// remove removes the checkpoints that are of no use. One that cannot be removed is forgotten until the next start. The
// caller holds mu.
func (h *History) remove(useless func(Kept) bool) (err error) {
	h.kept = slices.DeleteFunc(h.kept, func(k Kept) bool {
		if !useless(k) {
			return false
		}
		err = errors.Join(err, os.RemoveAll(k.Dir))
		return true
	})
	return err
}

// With calls do with the checkpoints, the oldest first. None is removed before it returns, and none is made. do
// must not keep the list.
func (h *History) With(do func([]Kept) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return do(h.kept)
}
