package server

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringrift/ringlog/api"
)

// streamPlaces bounds the streams under way: reads that follow, waits, and publish streams. It is safe for
// concurrent use.
type streamPlaces struct {
	places chan struct{}    // holds one element for each stream under way
	gauge  prometheus.Gauge // shows how many there are

	mu sync.Mutex
	of map[string]int // how many a token has, by its id; no entry is zero
}

// newStreamPlaces returns places for most streams, none of them taken.
func newStreamPlaces(most int, gauge prometheus.Gauge) *streamPlaces {
	return &streamPlaces{places: make(chan struct{}, most), gauge: gauge, of: map[string]int{}}
}

// enter takes a place for a call without waiting, or refuses. One token has at most half of them. The caller has to call
// release once.
func (p *streamPlaces) enter(ctx context.Context) (release func(), err error) {
	// Callers without a token of their own, such as nodes, are bounded by the places alone.
	id := ""
	if who, _ := callerOf(ctx); who != nil {
		id = who.id
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != "" && 2*p.of[id] >= cap(p.places) {
		return nil, api.Refuse(api.Overloaded, "follow",
			"the token has half of the streams that this node serves at a time, which is the most for one",
			"end some, or read from another node")
	}
	// A full server refuses at once: a stream that waits for a place would look like one that is quiet.
	select {
	case p.places <- struct{}{}:
		p.of[id]++
		p.gauge.Inc()
		return func() { p.leave(id) }, nil
	default:
		return nil, api.Refuse(api.Overloaded, "follow",
			"there are as many streams as this node serves at a time",
			"end some, or read from another node")
	}
}

// leave gives a place back.
func (p *streamPlaces) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[id]--
	if p.of[id] == 0 {
		delete(p.of, id)
	}
	<-p.places
	p.gauge.Dec()
}

// halfTaken reports whether no more than half of the places are free.
func (p *streamPlaces) halfTaken() bool { return 2*len(p.places) >= cap(p.places) }
