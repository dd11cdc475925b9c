package fsm

import (
	"slices"
	"sync"
)

// CursorWatch learns of entries that move what certain cursors have committed, or remove
// one of these cursors. Entries that touch other cursors cost it nothing.
type CursorWatch struct {
	watches *cursorWatches
	names   []string      // of the cursors, each once
	moved   chan struct{} // holds an element since the last receive after which one moved
}

// Moved receives after a change; several changes may be received as one.
func (w *CursorWatch) Moved() <-chan struct{} { return w.moved }

// Close ends the watch.
func (w *CursorWatch) Close() { w.watches.remove(w) }

// cursorWatches are the watches under way, by cursor. The zero value has none. Notifying costs an entry one look-up
// for each cursor that it has moved.
type cursorWatches struct {
	mu     sync.Mutex // taken after a machine's own lock
	byName map[string][]*CursorWatch
}

// WatchCursors watches cursors, each named once, from now on. Whoever looks at them after
// this call and then waits for Moved misses no change. The watch has to be closed.
func (m *Machine) WatchCursors(names []string) *CursorWatch {
	w := &CursorWatch{watches: &m.watches, names: slices.Clone(names), moved: make(chan struct{}, 1)}
	// From here on every entry that moves one of them fills the channel.
	w.watches.mu.Lock()
	defer w.watches.mu.Unlock()
	if w.watches.byName == nil {
		w.watches.byName = map[string][]*CursorWatch{}
	}
	for _, name := range w.names {
		w.watches.byName[name] = append(w.watches.byName[name], w)
	}
	return w
}

// remove ends a watch.
func (ws *cursorWatches) remove(w *CursorWatch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	// Others may watch the same cursors.
	for _, name := range w.names {
		left := slices.DeleteFunc(ws.byName[name], func(other *CursorWatch) bool { return other == w })
		// Names must not pile up: cursors come and go.
		if len(left) == 0 {
			delete(ws.byName, name)
		} else {
			ws.byName[name] = left
		}
	}
}

// notify wakes the watches of these cursors.
func (ws *cursorWatches) notify(names []string) {
	if len(names) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, name := range names {
		wake(ws.byName[name])
	}
}

// notifyAll wakes all watches, because another state took the place of the one they looked at.
func (ws *cursorWatches) notifyAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, list := range ws.byName {
		wake(list)
	}
}

// wake fills the channels of watches. It never blocks.
func wake(list []*CursorWatch) {
	for _, w := range list {
		select {
		case w.moved <- struct{}{}:
		default: // it has not received the change before
		}
	}
}
