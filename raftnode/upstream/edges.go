// Raft blocks until a change of leadership is taken from its channel. There is no issue. Delete this
// file when raft never waits for the reader of that channel.

package upstream

import "sync"

// edges is an unbounded queue of changes of leadership: gained (true) and lost (false).
// Raft blocks until a change is taken from its channel, so pump never waits for anything else.
type edges struct {
	mu   sync.Mutex // guards list
	list []bool
	wake chan struct{} // holds one: list is not empty
}

func newEdges() *edges { return &edges{wake: make(chan struct{}, 1)} }

// pump moves changes from raft's channel into the queue until stop is closed.
func (e *edges) pump(from <-chan bool, stop <-chan struct{}) {
	for {
		select {
		case gained := <-from:
			e.push(gained)
		case <-stop:
			return
		}
	}
}

func (e *edges) push(gained bool) {
	e.mu.Lock()
	e.list = append(e.list, gained)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// take empties the queue. moved reports whether leadership changed since the last call, leading whether
// this node leads after the newest change.
func (e *edges) take() (moved, leading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == 0 {
		return false, false
	}
	leading = e.list[len(e.list)-1]
	e.list = nil
	return true, leading
}
