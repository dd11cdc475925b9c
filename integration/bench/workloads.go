package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
)

// work is one thing to measure.
type work struct {
	// For --only and the report.
	name string
	// What the report says above the table, without the capital letter and the period.
	about   string
	measure func(ctx context.Context, t *turn) error // errNotOffered if the system cannot
}

var errNotOffered = errors.New("the system does not offer this")

// allWorks are in the order of a turn: first what needs an empty log, last what loads the
// machine most.
func allWorks() []work {
	// The names are those of --only and the keys of the report; the texts are what the report prints.
	return []work{
		{"written", "bytes that the leader's process had written to disk (write_bytes of /proc/PID/io, " +
			"until it grows by less than 64 KiB in 5 s) per byte of payload published", measureWritten},
		{"publish", "acknowledged events, pipelined, from one client process", measurePublish},
		{"sync64", "64 goroutines that publish one event and wait for it, through one client", measureSync(64)},
		{"sync1", "one goroutine that publishes one event and waits for it", measureSync(1)},
		{"read", "one reader that follows the log from its start", measureRead},
		{"consume", "one durable consumer that acknowledges every 1000 events", measureConsume},
		{"group", "one member of a durable group, or a pull consumer, that acknowledges each event", measureGroup},
		{"python", "Python's http.client over kept-alive connections, batches of 256 as JSON", measurePython},
		{clientWork + "batch", "each system's client for Python: batches of 256 that are acknowledged together",
			measureClient("batch")},
		{clientWork + "soon", "publishing that does not wait, and an answer for each event", measureClient("soon")},
		{clientWork + "one", "one caller that publishes one event and waits for it", measureClient("one")},
		{clientWork + "read", "one durable consumer that acknowledges every 1000 events", measureClient("read")},
		{"fanout", "durable cursors that each follow the whole log while 200 events/s are published: " +
			"from when an event was due to when a cursor's reader had it, over every pair of both", measureFanout},
	}
}

// chosenWorks are the works that a list names; "" is all.
func chosenWorks(list string) ([]work, error) {
	works := allWorks()
	if list == "" {
		return works, nil
	}
	var some []work
	for name := range strings.SplitSeq(list, ",") {
		// A work that is named twice is measured twice.
		found := false
		for _, w := range works {
			if w.name == name {
				some, found = append(some, w), true
			}
		}
		// restartWork has a flag of its own, and is no work of a turn; naming it alone skips all others.
		if !found && name != restartWork {
			return nil, fmt.Errorf("--only: unknown work %q; known are %s", name, strings.Join(workNames(), ", "))
		}
	}
	return some, nil
}

// measurePublish measures each way of publishing for some seconds, after a warm-up.
func measurePublish(ctx context.Context, t *turn) error {
	// Every way is measured: the report takes the best of each system.
	for _, way := range t.session.publishWays() {
		// The warm-up counts as published, since it is stored, and gives no sample.
		if _, err := t.publish(ctx, way, lasting(t.scale.warm)); err != nil {
			return err
		}
		err := t.measured(ctx, "publish", way, func() (map[string]float64, error) {
			done, err := t.publish(ctx, way, lasting(t.scale.publish))
			return map[string]float64{perSecond: float64(done.events) / done.took.Seconds()}, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return nil
}

// measureSync measures callers that each wait for every event.
func measureSync(callers int) func(context.Context, *turn) error {
	name := fmt.Sprintf("sync%d", callers)
	return func(ctx context.Context, t *turn) error {
		// The warm-up opens connections; nothing of it is kept.
		if _, err := t.waited(ctx, callers, lasting(t.scale.warm)); err != nil {
			return err
		}
		// In parts of a second: the host seldom leaves the processors undisturbed for longer.
		sample := Sample{Work: name}
		var all []time.Duration
		var took time.Duration
		// Each part is repeated by itself, so a disturbance costs one part and not the whole measurement.
		for range waitedParts {
			var part, best []time.Duration
			var partTook, bestTook time.Duration
			err := t.leastDisturbed(ctx, &sample, func() (err error) {
				began := time.Now()
				part, err = t.waited(ctx, callers, lasting(t.scale.waited))
				partTook = time.Since(began)
				return err
			}, func() { best, bestTook = part, partTook })
			if err != nil {
				return err
			}
			all, took = append(all, best...), took+bestTook
		}
		// The quantiles are those of all parts together, not a mean of quantiles.
		slices.Sort(all)
		sample.Values = map[string]float64{
			perSecond: float64(len(all)) / took.Seconds(),
			p50:       millis(quantile(all, 0.5)),
			p99:       millis(quantile(all, 0.99)),
		}
		t.keep(sample)
		return t.holdsAll(ctx)
	}
}

// waitedParts is in how many parts callers that wait are measured.
const waitedParts = 3

// waited returns how long each event took until its acknowledgement, sorted.
func (t *turn) waited(ctx context.Context, callers int, q *quota) ([]time.Duration, error) {
	var all latencies
	// A batch of one: each caller waits for its own event.
	done, err := eachBatch(ctx, callers, 1, t.source, q, func(ctx context.Context, events []event.Event) error {
		sent := time.Now()
		if err := t.session.publishOne(ctx, events[0]); err != nil {
			return err
		}
		all.add(time.Since(sent))
		return nil
	})
	// Also if one caller failed: what was acknowledged has to be in the log.
	t.published += done.events
	return all.sorted(), err
}

// holdsAll checks that what was acknowledged is stored.
func (t *turn) holdsAll(ctx context.Context) error {
	stored, err := t.session.stored(ctx)
	// More may be stored: an event whose answer was lost, or one that the cluster emitted.
	if err == nil && stored < t.published {
		err = fmt.Errorf("%d events were acknowledged, %d are stored", t.published, stored)
	}
	return err
}

// measureRead measures how fast a reader follows the log from its start.
func measureRead(ctx context.Context, t *turn) error {
	r, ok := t.session.(reader)
	if !ok {
		return errNotOffered
	}
	return t.timed(ctx, "read", r.readWays(), t.sizes.read, r.read)
}

// measureConsume measures how fast a durable consumer reads the log.
func measureConsume(ctx context.Context, t *turn) error {
	c, ok := t.session.(consumer)
	if !ok {
		return errNotOffered
	}
	return t.timed(ctx, "consume", c.consumeWays(), t.sizes.consume, c.consume)
}

// timed measures how long it takes to be handed the first n events.
func (t *turn) timed(
	ctx context.Context, work string, ways []string, n int,
	do func(ctx context.Context, way string, n int) error,
) error {
	// At this point the log has n events; the reading below stops after them.
	if err := t.ensure(ctx, n); err != nil {
		return err
	}
	for _, way := range ways {
		// A tenth of the events warms up connections and what the system keeps for readers.
		if err := do(ctx, way, n/10); err != nil {
			return fmt.Errorf("%s: warm-up: %w", way, err)
		}
		err := t.measured(ctx, work, way, func() (map[string]float64, error) {
			// Each call begins at the start of the log, so every attempt is the same work.
			began := time.Now()
			err := do(ctx, way, n)
			return map[string]float64{perSecond: float64(n) / time.Since(began).Seconds()}, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return nil
}

// A leader is at rest once it has written less than restBytes in restFor.
const (
	restFor       = 5 * time.Second
	restBytes     = 64 << 10 // an idle node still writes a little, such as a disk probe every second
	settledWithin = 150 * time.Second
)

// measureWritten publishes to a log that was empty, so each byte that is
// written belongs to what was published.
func measureWritten(ctx context.Context, t *turn) error {
	// Only the leader's process is measured: every member writes the same entries.
	pid, err := t.session.leaderPID(ctx)
	if err != nil {
		return err
	}
	before, err := writtenBytes(pid)
	if err != nil {
		return err
	}
	// What was written during the publishing and until the leader has come to rest.
	// The first way alone: what is written hardly depends on the way.
	way := t.session.publishWays()[0]
	done, err := t.publish(ctx, way, counting(t.sizes.written))
	if err != nil {
		return err
	}
	after, err := settledBytes(ctx, pid)
	if err != nil {
		return err
	}
	// With another leader, a part of the writing would be missing.
	if now, err := t.session.leaderPID(ctx); err != nil || now != pid {
		return errors.Join(errors.New("the leader changed while it was measured"), err)
	}
	// done.bytes has payloads only, so keys, ids and hashes count as overhead.
	t.record("written", way, map[string]float64{perByte: float64(after-before) / float64(done.bytes)})
	return nil
}

// settledBytes waits until a process writes next to nothing.
func settledBytes(ctx context.Context, pid int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, settledWithin)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	// since is when it had last written more than an idle node does.
	// last is what had been written at since.
	for last, since := int64(0), time.Now(); ; {
		now, err := writtenBytes(pid)
		if err != nil {
			return 0, err
		}
		if now-last >= restBytes {
			last, since = now, time.Now()
		}
		if time.Since(since) >= restFor {
			return now, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("it never stopped writing: %w", ctx.Err())
		}
	}
}
