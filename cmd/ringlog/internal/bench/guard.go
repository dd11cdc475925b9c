package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

const (
	// benchLooks is how many events are read at each end of the log.
	benchLooks = 500
	// stillFor is how long a cluster must be idle before a benchmark starts.
	stillFor = time.Second
	// lookEvery is how often the leader is asked meanwhile.
	lookEvery = 100 * time.Millisecond
)

// requireAlone refuses a cluster that others use: whose log holds their events, as
// far as its ends show, or that they publish to now.
func (b *bench) requireAlone(ctx context.Context) error {
	// Both ends are enough to recognize a log that others use.
	ends := []client.TailOptions{
		// Linearizable: a node that lags may not have the events of others yet.
		{From: client.FromStart(), Limit: benchLooks, NoFollow: true, Consistency: client.Linearizable},
		{From: client.FromLast(benchLooks), NoFollow: true, Consistency: client.Linearizable},
	}
	for _, o := range ends {
		// Events of earlier benchmarks do not count, by their source.
		foreign, err := b.foreignEvents(ctx, o, func(ev event.Event) bool { return ev.Source != benchSource })
		if err != nil {
			return err
		}
		if len(foreign) > 0 {
			return shell.Usagef("the cluster at %s holds events of others, such as %s: a benchmark would publish "+
				"many of its own among them.\n"+
				"Use a cluster that holds nothing else, or pass --yes", b.clusterName(), mention(foreign[0]))
		}
	}
	return b.requireStill(ctx)
}

// requireStill watches the leader for a second and refuses a cluster to which
// anybody publishes meanwhile, including another benchmark.
func (b *bench) requireStill(ctx context.Context) error {
	before, err := b.watchLog(ctx, "")
	if err != nil {
		return err
	}
	began := time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	// The first change ends it. A cluster that is at rest takes the whole time.
	for time.Since(began) < stillFor {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		// The same node is asked each time, so the figures can be compared.
		now, err := b.watchLog(ctx, before.leader)
		if err != nil {
			return err
		}
		if err := b.compareLogs(ctx, before, now, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// logState is the part of a leader's status that changes when clients publish.
// Two of them show whether anybody published in between.
type logState struct {
	leader     string // its URL
	lastOffset uint64
	suppressed uint64 // duplicates so far
}

// watchLog asks a leader how far its log is; "" is whoever leads now.
func (b *bench) watchLog(ctx context.Context, leader string) (logState, error) {
	// A follower may lag: the leader's own status is what counts.
	if leader == "" {
		s, err := b.client.Admin().Status(ctx)
		if err != nil {
			return logState{}, err
		}
		leader = s.LeaderHTTP
		if leader == "" {
			return logState{}, fmt.Errorf("bench: %w", shell.ErrLeaderless)
		}
	}
	// Even if it leads no more, both figures are of the same node.
	s, err := b.client.Admin().StatusOf(ctx, leader)
	if err != nil {
		return logState{}, err
	}
	return logState{leader: leader, lastOffset: s.LastOffset, suppressed: s.Dedup.Suppressed}, nil
}

// compareLogs refuses a cluster to which others published between two polls. What the cluster appends
// itself does not count.
func (b *bench) compareLogs(ctx context.Context, before, now logState, between time.Duration) error {
	const remedy = "the figures would include theirs.\nWait until they are done, use a cluster of your own, or " +
		"pass --yes"
	// Suppressed duplicates leave no event, but take as much work.
	if n := now.suppressed - before.suppressed; now.suppressed > before.suppressed {
		return shell.Usagef("others publish to the cluster at %s now: %d duplicates within %s: "+remedy,
			b.clusterName(), n, shell.Short(between))
	}
	// Events that the cluster appends itself do not count.
	if now.lastOffset <= before.lastOffset {
		return nil
	}
	// MinOffset: the node that answers waits until it has the last of them.
	o := client.TailOptions{From: client.FromOffset(before.lastOffset + 1), NoFollow: true, MinOffset: now.lastOffset}
	foreign, err := b.foreignEvents(ctx, o, func(event.Event) bool { return true })
	if err != nil || len(foreign) == 0 {
		return err
	}
	return shell.Usagef("others publish to the cluster at %s now: %d events within %s, the last %s: "+remedy,
		b.clusterName(), len(foreign), shell.Short(between), mention(foreign[len(foreign)-1]))
}

// foreignEvents returns those events that o reads, that clients published and that match.
func (b *bench) foreignEvents(ctx context.Context, o client.TailOptions,
	match func(event.Event) bool) (list []event.Event, err error) {
	// Trimmed events are skipped: nothing is known about them.
	for ev, err := range b.client.Tail(ctx, o) {
		var gap *client.GapError
		switch {
		case errors.As(err, &gap):
		case err != nil:
			return nil, err
		case !event.IsReserved(ev.Type) && match(ev):
			list = append(list, ev)
		}
	}
	return list, nil
}

// mention names one event for a person.
func mention(ev event.Event) string {
	// The source says whose event it is, if it has one.
	text := fmt.Sprintf("%s at offset %d", ev.Type, ev.Offset)
	if ev.Source != "" {
		text += " from " + ev.Source
	}
	return text
}

// clusterName names the cluster.
func (b *bench) clusterName() string { return strings.Join(b.sh.Endpoints, ",") }

// requireRoom refuses, before anything is published, requests that the cluster would
// not take. It leaves room for what an event has beside its payload.
func (b *bench) requireRoom(ctx context.Context) error {
	// Names, keys and ids of an event, and its place in the request.
	const beside = 256
	settings, err := b.client.Admin().Settings(ctx)
	if err != nil {
		return err
	}
	limits := map[string]int{}
	for _, s := range settings {
		// Settings that are no numbers are none of the limits below.
		var n int
		if _, err := fmt.Sscan(s.Value, &n); err == nil {
			limits[s.Key] = n
		}
	}
	// A limit that an older node does not have is not checked.
	exceeds := func(key string, n int) bool { return limits[key] > 0 && n > limits[key] }
	if exceeds("limits.request_events", b.opts.batch) {
		return shell.Usagef("--batch %d: the cluster takes %d events in a request (limits.request_events)",
			b.opts.batch, limits["limits.request_events"])
	}
	// Each size is checked: a benchmark that fails halfway has published for nothing.
	for _, size := range b.opts.sizes {
		if exceeds("limits.event_bytes", size) {
			return shell.Usagef("--size %d: the cluster takes payloads of %d bytes (limits.event_bytes)", size,
				limits["limits.event_bytes"])
		}
		// With a batch of 1 the limit of an event is the only one.
		if b.opts.batch > 1 && exceeds("limits.request_bytes", b.opts.batch*(size+beside)) {
			limit := limits["limits.request_bytes"]
			return shell.Usagef("--size %d with --batch %d makes requests of up to %d bytes; the cluster takes %d "+
				"(limits.request_bytes): use --batch %d",
				size, b.opts.batch, b.opts.batch*(size+beside), limit, max(1, limit/(size+beside)))
		}
	}
	return nil
}
