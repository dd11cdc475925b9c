package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringrift/ringlog/api"
)

// streamPlaces bounds the streams under way: reads that follow, waits, and publish streams. It is safe for
// concurrent use.
type streamPlaces struct {
	places chan struct{}    // holds one element for each stream under way
	gauge  prometheus.Gauge // shows how many there are
}

func newStreamPlaces(most int, gauge prometheus.Gauge) *streamPlaces {
	return &streamPlaces{places: make(chan struct{}, most), gauge: gauge}
}

// enter takes a place without waiting, or refuses. The caller has to call release once.
func (p *streamPlaces) enter() (release func(), err error) {
	// A full server refuses at once: a stream that waits for a place would look like one that is quiet.
	select {
	case p.places <- struct{}{}:
		p.gauge.Inc()
		return func() { <-p.places; p.gauge.Dec() }, nil
	default:
		return nil, api.Refuse(api.Overloaded, "follow",
			"there are as many streams as this node serves at a time",
			"end some, or read from another node")
	}
}

// halfTaken reports whether no more than half of the places are free.
func (p *streamPlaces) halfTaken() bool { return 2*len(p.places) >= cap(p.places) }
