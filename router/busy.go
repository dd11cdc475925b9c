package router

import "sync"

// busy counts what is in flight. Before it is waited for to be over, nothing may begin any
// more but from what is in flight.
type busy struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed once n is 0; nil while nobody waits
}

// begin counts one more in flight.
func (b *busy) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
}

// end counts one less, and wakes those that wait once there is none.
func (b *busy) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	if b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// over is closed once nothing is in flight.
func (b *busy) over() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()

	// Nothing is in flight: the channel is closed already.
	if b.n == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	return b.idle
}
