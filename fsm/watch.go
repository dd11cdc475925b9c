package fsm

import (
	"slices"
	"sync"
)

// Watch learns of entries that move what certain cursors have committed, or remove one of these cursors; or of
// the entry after which a claim no longer waits for its role or allocation. Entries that touch others cost it nothing.
type Watch struct {
	watches *watches
	names   []string      // each once
	moved   chan struct{} // holds an element since the last receive after which one moved
}

// Moved receives after a change; several changes may be received as one.
func (w *Watch) Moved() <-chan struct{} { return w.moved }

// Close ends the watch.
func (w *Watch) Close() { w.watches.remove(w) }

// watches are the watches under way, by name. The zero value has none. Notifying costs an entry one look-up
// for each cursor that it has moved, or claim that no longer waits.
type watches struct {
	mu     sync.Mutex // taken after a machine's own lock
	byName map[string][]*Watch
}

// WatchCursors watches cursors, each named once, from now on. Whoever looks at them after
// this call and then waits for Moved misses no change. The watch has to be closed.
func (m *Machine) WatchCursors(names []string) *Watch { return m.watches.add(names) }

// WatchClaim watches a session's claim to a role, as WatchCursors does cursors: it moves when it gets the role or ends.
func (m *Machine) WatchClaim(role, session string) *Watch {
	return m.roleWatches.add([]string{claimName(role, session)})
}

// WatchAllocation watches a request for an allocation, by its id, until it is granted or no longer waits.
func (m *Machine) WatchAllocation(id string) *Watch { return m.shareWatch.add([]string{id}) }

// add begins a watch: from here on every entry that moves one of the names fills its channel.
func (ws *watches) add(names []string) *Watch {
	w := &Watch{watches: ws, names: slices.Clone(names), moved: make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byName == nil {
		ws.byName = map[string][]*Watch{}
	}
	for _, name := range w.names {
		ws.byName[name] = append(ws.byName[name], w)
	}
	return w
}

// remove ends a watch.
func (ws *watches) remove(w *Watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	// Others may watch the same names.
	for _, name := range w.names {
		left := slices.DeleteFunc(ws.byName[name], func(other *Watch) bool { return other == w })
		// Names must not pile up: cursors and claims come and go.
		if len(left) == 0 {
			delete(ws.byName, name)
		} else {
			ws.byName[name] = left
		}
	}
}

// notify wakes the watches of these names.
func (ws *watches) notify(names []string) {
	if len(names) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, name := range names {
		wake(ws.byName[name])
	}
}

// notifyAll wakes all watches, because another state took the place of the one they looked at. What they look at may be
// anything by now.
func (ws *watches) notifyAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, list := range ws.byName {
		wake(list)
	}
}

// wake fills the channels of watches. It never blocks.
func wake(list []*Watch) {
	for _, w := range list {
		select {
		case w.moved <- struct{}{}:
		default: // it has not received the change before
		}
	}
}
