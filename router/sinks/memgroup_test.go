package sinks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/sinks"
)

// memGroup is a group in memory, for tests with a clock of their own: it counts
// deliveries, keeps delays and the order of a key, as the cluster does. The tests against
// the cluster itself are in real_test.go.
type memGroup struct {
	mu         sync.Mutex
	open       []*memEvent
	letters    []uint64
	maxDeliver uint64
	say        func(format string, args ...any)
	changed    chan struct{}
}

type memEvent struct {
	event.Event
	deliveries uint64
	notBefore  time.Time
	holder     *memMember
}

type memMember struct {
	g      *memGroup
	hold   int
	closed bool
}

func newMemGroup(events ...event.Event) *memGroup {
	g := &memGroup{changed: make(chan struct{}), say: func(string, ...any) {}}
	for i, ev := range events {
		ev.Offset = uint64(i + 1)
		g.open = append(g.open, &memEvent{Event: ev})
	}
	return g
}

func (g *memGroup) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *memGroup) join(_ context.Context, hold int) (sinks.Member, error) {
	g.say("joined")
	return &memMember{g: g, hold: hold}, nil
}

func (g *memGroup) settled(context.Context) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open) == 0, nil
}

// ready is an event that may be handed out now, else when one might be.
func (g *memGroup) ready() (*memEvent, time.Duration) {
	keys, soon := map[string]bool{}, time.Hour
	for _, ev := range g.open {
		wait := time.Until(ev.notBefore)
		if !keys[ev.Key] && ev.holder == nil && wait <= 0 {
			return ev, 0
		}
		if ev.Key != "" {
			keys[ev.Key] = true
		}
		if ev.holder == nil && wait > 0 {
			soon = min(soon, wait)
		}
	}
	return nil, soon
}

func (m *memMember) Next(ctx context.Context) (client.Delivery, error) {
	for {
		m.g.mu.Lock()
		ev, soon := m.g.ready()
		changed := m.g.changed
		if ev != nil {
			ev.holder = m
			ev.deliveries++
			d := client.NewDelivery(ev.Event, ev.deliveries, m)
			m.g.mu.Unlock()
			return d, nil
		}
		m.g.mu.Unlock()
		timer := time.NewTimer(soon)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return client.Delivery{}, context.Cause(ctx)
		}
		timer.Stop()
	}
}

var errNotHeld = errors.New("not held")

// end takes an event from its holder and calls then with it.
func (m *memMember) end(offset uint64, then func(*memEvent)) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	i := slices.IndexFunc(m.g.open, func(ev *memEvent) bool { return ev.Offset == offset && ev.holder == m })
	if i < 0 || m.closed {
		return errNotHeld
	}
	m.g.open[i].holder = nil
	then(m.g.open[i])
	m.g.wake()
	return nil
}

func (g *memGroup) remove(ev *memEvent) {
	g.open = slices.DeleteFunc(g.open, func(o *memEvent) bool { return o == ev })
}

func (m *memMember) Ack(offset uint64) error {
	return m.end(offset, m.g.remove)
}

func (m *memMember) Progress(uint64) error { return nil }

func (m *memMember) Nack(offset uint64, o client.NackOptions) error {
	return m.end(offset, func(ev *memEvent) {
		switch {
		case o.Released:
			ev.deliveries--
		case o.Dead || m.g.maxDeliver > 0 && ev.deliveries >= m.g.maxDeliver:
			m.g.letters = append(m.g.letters, ev.Offset)
			m.g.remove(ev)
		default:
			ev.notBefore = time.Now().Add(o.Delay)
		}
	})
}

func (m *memMember) Close(context.Context) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.closed = true
	for _, ev := range m.g.open {
		if ev.holder == m {
			ev.holder = nil
			ev.deliveries--
		}
	}
	m.g.say("left")
	m.g.wake()
	return nil
}
