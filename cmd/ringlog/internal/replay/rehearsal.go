package replay

import (
	"context"
	"sync"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/log"
)

// readAhead is how many events a rehearsal reads of the log at a time.
const readAhead = 256

// Rehearsal hands out events of the past, as a group would to its only member, and forgets what becomes of them. It is
// safe for concurrent use.
type Rehearsal struct {
	log     *log.Log      // of the past, which does not change while it is read
	matcher event.Matcher // which events are handed out
	last    uint64        // the last event that is handed out

	mu      sync.Mutex        // guards the fields below
	next    uint64            // where to read on
	read    []event.Event     // what is not handed out yet
	held    map[uint64]string // keys of what is not settled, by offset
	settled chan struct{}     // closed when something is
}

// Events returns what hands out the events of the past from an offset on that pass a filter.
func (p *Past) Events(from uint64, f event.Filter) *Rehearsal {
	// The beginning of the log may be trimmed, so that it begins with the first event that there is.
	first, last := p.Machine().Log().Bounds()
	return &Rehearsal{log: p.Machine().Log(), matcher: f.Compile(p.Machine().Catalogue()), last: last,
		next: max(from, first), held: map[uint64]string{}, settled: make(chan struct{})}
}

// Next implements sinks.Member. After the last event it waits for ctx.
func (m *Rehearsal) Next(ctx context.Context) (client.Delivery, error) {
	// After each wait it looks again: what was settled need not be what held up the next event.
	for {
		d, wait, err := m.take()
		if err != nil || wait == nil {
			return d, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return client.Delivery{}, ctx.Err()
		}
	}
}

// take hands out the next event, or returns what to wait for. wait is nil if there is an event or an error. It is
// the channel that the next settle closes.
func (m *Rehearsal) take() (d client.Delivery, wait <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A chunk may have no event that passes the filter.
	for len(m.read) == 0 && m.next <= m.last {
		chunk, err := m.log.Read(m.next, &m.matcher, readAhead)
		if err != nil {
			return d, nil, err
		}
		m.read, m.next = chunk.Events, chunk.Next
	}
	// There is nothing more: all settles wake up Next, which comes here again and waits for ctx.
	if len(m.read) == 0 {
		return d, m.settled, nil
	}
	// Events of one key are handled in their order.
	e := m.read[0]
	if e.Key != "" {
		for _, key := range m.held {
			if key == e.Key {
				return d, m.settled, nil
			}
		}
	}
	m.read = m.read[1:]
	// An event without a key is held, too: Settled counts it.
	m.held[e.Offset] = e.Key
	return client.NewDelivery(e, 1, m), nil, nil
}

// settle forgets an event that was handed out.
func (m *Rehearsal) settle(offset uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, offset)
	// All that wait look again, and the next ones wait for the next event that is settled.
	close(m.settled)
	m.settled = make(chan struct{})
	return nil
}

// Ack implements client.Settler.
func (m *Rehearsal) Ack(offset uint64) error { return m.settle(offset) }

// Nack implements client.Settler: nothing is delivered again.
func (m *Rehearsal) Nack(offset uint64, _ client.NackOptions) error { return m.settle(offset) }

// Progress implements client.Settler.
func (m *Rehearsal) Progress(uint64) error { return nil }

// Close implements sinks.Member.
func (m *Rehearsal) Close(context.Context) error { return nil }

// Settled reports whether all events were handed out and settled.
func (m *Rehearsal) Settled(context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.read) == 0 && m.next > m.last && len(m.held) == 0, nil
}
