package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/event"
)

// system is something to measure, as three processes on this machine.
type system interface {
	name() string
	settings() []string // for the report: what differs from the defaults, and what matters
	sizes(quick bool) sizes
	// start runs it on an empty folder and returns once it accepts events.
	start(ctx context.Context, dir string) (session, error)
}

// sizes are how many events the measurements of a system use: what it does in some seconds.
// A work that the system does not offer has 0.
type sizes struct {
	read, consume, group, written int
}

// session is a running system and one client of it. Its methods may be called from one goroutine at
// a time, except publishOne. close ends every process.
type session interface {
	// publishWays are ways to publish as fast as possible. The best one counts.
	publishWays() []string
	// publish appends events in one of the ways until the quota is used up, and returns
	// when all are acknowledged.
	publish(ctx context.Context, way string, src *source, q *quota) (tally, error)
	// publishOne appends an event and waits for its acknowledgement.
	publishOne(ctx context.Context, ev event.Event) error
	// stored returns how many events the system reports that it holds.
	stored(ctx context.Context) (int, error)

	// leaderPID returns the process that leads, pids those of all servers.
	leaderPID(ctx context.Context) (int, error)
	pids() []int
	close(ctx context.Context) error
}

// reader is a session of a system that can be tailed.
type reader interface {
	readWays() []string
	// read follows the events from the first one on, until it has received n.
	read(ctx context.Context, way string, n int) error
}

// consumer is a session of a system that keeps a reader's place.
type consumer interface {
	consumeWays() []string
	// consume reads through a new durable consumer that acknowledges every ackEvery
	// events, unless the way is another.
	consume(ctx context.Context, way string, n int) error
}

// ackEvery is how many events a consumer acknowledges at once.
const ackEvery = 1000

var errShort = errors.New("fewer events came than were published")

// tally is what was acknowledged.
type tally struct {
	events, bytes int // bytes of payload
	// turn.publish sets it; sessions leave it 0.
	took time.Duration // from the first event to the last acknowledgement
}

// quota bounds publishing by a time, a number of events, or both.
// Several goroutines may take from it at the same time.
type quota struct {
	until time.Time
	left  atomic.Int64
}

// lasting is a quota that ends after d.
func lasting(d time.Duration) *quota {
	q := &quota{until: time.Now().Add(d)}
	// No system publishes that many.
	q.left.Store(1 << 60)
	return q
}

// counting is a quota of n events.
func counting(n int) *quota {
	// No work lasts that long.
	q := &quota{until: time.Now().Add(time.Hour)}
	q.left.Store(int64(n))
	return q
}

// take returns how many of n events may still be published.
func (q *quota) take(n int) int {
	if time.Now().After(q.until) {
		return 0
	}
	// left falls below 0 when several want the last events; what they get together is never more than there
	// was.
	left := q.left.Add(-int64(n)) + int64(n)
	return int(max(0, min(int64(n), left)))
}
