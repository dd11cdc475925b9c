// Raft blocks until a change of leadership was taken from its channel. There is no issue. Delete this
// file when raft never waits for who takes them.

package upstream

import "sync"

// edges is the unbounded queue of gained (true) and lost (false) leadership.
// Raft blocks until an edge is taken, so taking never waits for anything.
type edges struct {
	mu   sync.Mutex
	list []bool
	wake chan struct{} // holds one
}

func newEdges() *edges { return &edges{wake: make(chan struct{}, 1)} }

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

// take empties the queue: whether anything happened, and where it ended.
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
