package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// failoverPayload is the size of an event, in bytes.
const failoverPayload = 256

// writer publishes one event at a time without pause and remembers what was
// acknowledged, and when.
// It is the measure of the benchmark: a caller that waits for each answer before it sends the next event.
type writer struct {
	client *client.Client
	name   string       // makes the events of this run unlike those of others
	count  atomic.Int64 // of acknowledged events

	mu sync.Mutex
	// mu guards what follows.
	changed chan struct{} // closed at the next acknowledgement
	acks    []ack         // in order
}

// ack is one acknowledged event.
// Both times have a monotonic reading, so a clock that is set makes no gap.
type ack struct {
	n        int64 // the event's number, from 1
	offset   uint64
	sent, at time.Time // published and acknowledged
}

// newWriter returns a writer that run starts.
func newWriter(c *client.Client) *writer {
	return &writer{client: c, name: fmt.Sprintf("%x", time.Now().UnixNano()), changed: make(chan struct{})}
}

// run publishes until ctx ends.
func (w *writer) run(ctx context.Context) error {
	// A fixed seed: payloads differ by their number, and sizes are the same in each run.
	random := rand.New(rand.NewPCG(3, 1))
	for n := int64(1); ; n++ {
		// The number makes each event unlike the others, and finds it again in the log.
		ev := event.Event{Type: event.TrainingCompleted, Source: benchSource,
			Payload: trainingPayload(random, failoverPayload, n, "hex8_2p", w.name)}
		sent := time.Now()
		res, err := w.client.Publish(ctx, ev)
		switch {
		case err == nil:
			// A retry of the client that finds the event stored is answered as a duplicate. The event is
			// acknowledged all the same.
			w.note(ack{n: n, offset: res.Offset, sent: sent, at: time.Now()})
		// Whether the last event was appended is open; it counts as not acknowledged.
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("publish event %d: %w", n, err)
		}
	}
}

// note remembers an acknowledgement and wakes who waits for it.
func (w *writer) note(a ack) {
	// The meter reads it without the lock.
	w.count.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	// Under one lock: a waiter that did not find the event holds the channel that is closed here.
	w.acks = append(w.acks, a)
	close(w.changed)
	w.changed = make(chan struct{})
}

// acknowledgedAfter waits until an event that was sent after t is acknowledged.
func (w *writer) acknowledgedAfter(ctx context.Context, t time.Time) error {
	for {
		// The channel is taken with the check, under one lock, so no acknowledgement is missed in between.
		w.mu.Lock()
		// The last one was sent last, since one event is sent at a time.
		ok := len(w.acks) > 0 && w.acks[len(w.acks)-1].sent.After(t)
		changed := w.changed
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for an acknowledged event: %w", context.Cause(ctx))
		}
	}
}

// gapSince returns the longest time between two successive acknowledgements, of which
// the later one is after t, and when it ended.
func (w *writer) gapSince(t time.Time) (gap time.Duration, ended time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// From the newest one back, until before the act.
	// The first acknowledgement has none before it.
	for i := len(w.acks) - 1; i > 0 && w.acks[i].at.After(t); i-- {
		if d := w.acks[i].at.Sub(w.acks[i-1].at); d > gap {
			gap, ended = d, w.acks[i].at
		}
	}
	return gap, ended
}

// all returns what was acknowledged. Call it once run has ended: the slice is the writer's own.
func (w *writer) all() []ack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acks
}

// failoverAudit compares what was acknowledged with what the log holds.
type failoverAudit struct {
	Acknowledged int `json:"acknowledged"`
	Lost         int `json:"lost"`      // acknowledged and not in the log
	Twice        int `json:"twice"`     // in the log more than once
	Misplaced    int `json:"misplaced"` // at another offset than was acknowledged
	Elections    int `json:"elections"`
	Unasked      int `json:"unasked_elections"` // more than the first one and one for each act

	acked map[int64]uint64 // acknowledged offset by number
	found map[int64]bool   // the numbers that the log has
}

// newFailoverAudit begins an audit of a log in which acks should be found.
func newFailoverAudit(acks []ack) *failoverAudit {
	a := &failoverAudit{Acknowledged: len(acks), acked: make(map[int64]uint64, len(acks)),
		found: make(map[int64]bool, len(acks))}
	// By number, as the log has no times of the writer.
	for _, k := range acks {
		a.acked[k.n] = k.offset
	}
	return a
}

// stored takes in an event of the log; name is the run's.
func (a *failoverAudit) stored(ev event.Event, name string) error {
	if ev.Type == event.LeaderElected {
		a.Elections++
	}
	// The cluster's own events have other sources.
	if ev.Source != benchSource {
		return nil
	}
	// By these two trainingPayload makes events differ.
	var payload struct {
		N   int64  `json:"iteration"`
		Run string `json:"run"`
	}
	if err := json.Unmarshal(ev.Payload, &payload); err != nil {
		return fmt.Errorf("the event at offset %d: %w", ev.Offset, err)
	}
	// Another benchmark may publish to this cluster, too.
	if payload.Run != name {
		return nil
	}
	// The first copy decides about the place.
	if a.found[payload.N] {
		a.Twice++
		return nil
	}
	a.found[payload.N] = true
	// An event that is stored without having been acknowledged is no fault: its outcome was open.
	if offset, acked := a.acked[payload.N]; acked && offset != ev.Offset {
		a.Misplaced++
	}
	return nil
}

// finish counts what is missing after a number of acts.
func (a *failoverAudit) finish(acts int) {
	// An acknowledged event that is not found is the one thing that must not happen.
	for n := range a.acked {
		if !a.found[n] {
			a.Lost++
		}
	}
	// A new cluster elects its first leader, and each act causes one more election.
	a.Unasked = max(0, a.Elections-1-acts)
}

// holds reports a log that has what was acknowledged, once and in its place.
func (a *failoverAudit) holds() bool { return a.Lost+a.Twice+a.Misplaced == 0 }

// String prints all counts, also those that should be 0.
func (a *failoverAudit) String() string {
	return fmt.Sprintf("%d events were acknowledged; %d are lost, %d are stored twice, %d at another offset; %d "+
		"elections, %d unexpected",
		a.Acknowledged, a.Lost, a.Twice, a.Misplaced, a.Elections, a.Unasked)
}
