package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// Bounds of what is asked for.
const (
	maxBenchMembers  = 1000
	maxBenchPrefetch = 10_000
	maxBenchKeys     = 1_000_000
	// flushEvery is how often a member checks how long its acks take.
	flushEvery = 10 * time.Millisecond
	// leaveWithin bounds how long a member takes to leave, also if no node answers.
	leaveWithin = 5 * time.Second
)

// groupFlags are those that only the benchmark of groups has.
// Keys bound how many members can work at once: those of a key stay in order.
func groupFlags() []cli.Flag {
	return []cli.Flag{
		// Who takes the events.
		&cli.IntFlag{Name: "members", Usage: "read as `N` members of the group, each with its own goroutine", Value: 1},
		&cli.IntFlag{Name: "prefetch", Usage: "let a member buffer `N` events", Value: 4096},
		&cli.IntFlag{Name: "keys", Usage: "spread events over `N` ordering keys; 0 means none", Value: 8},
	}
}

// readGroupFlags reads what only a group has.
func (o *benchOptions) readGroupFlags(c *cli.Context) error {
	// The bounds keep a typing error from starting thousands of sessions.
	o.members, o.prefetch, o.keys = c.Int("members"), c.Int("prefetch"), c.Int("keys")
	switch {
	case o.members < 1 || o.members > maxBenchMembers:
		return shell.Usagef("--members %d: use 1 to %d", o.members, maxBenchMembers)
	case o.prefetch < 1 || o.prefetch > maxBenchPrefetch:
		return shell.Usagef("--prefetch %d: use 1 to %d", o.prefetch, maxBenchPrefetch)
	case o.keys < 0 || o.keys > maxBenchKeys:
		return shell.Usagef("--keys %d: use 0 to %d", o.keys, maxBenchKeys)
	}
	return nil
}

// keyOf returns the key of event n: in a group benchmark one of --keys in turn, else its configuration.
func (r *round) keyOf(n int64, config string) string {
	switch {
	case r.opts.members == 0:
		return config
	// Without a key events are in no order, and all members can work at once.
	case r.opts.keys == 0:
		return ""
	}
	return "key-" + strconv.FormatInt(n%int64(r.opts.keys), 10)
}

// benchGroup lets the members of a group of its own take the events and acknowledge each,
// and ends when every ack is durable. It removes the group.
func benchGroup(ctx context.Context, r *round) (err error) {
	// The events are in the log before anybody takes them.
	// The group begins with the warm-up.
	from, err := r.publishEvents(ctx)
	if err != nil {
		return err
	}
	// A name of its own, so no member of another run joins.
	name := fmt.Sprintf("%s-%s-%d", benchSource, r.run, r.size)
	if _, err := r.client.CreateGroup(ctx, name, client.GroupSpec{From: client.FromOffset(from)}); err != nil {
		return err
	}
	// The group is removed after Ctrl-C, too, for which ctx has ended.
	defer func() { err = errors.Join(err, r.client.DeleteCursor(context.WithoutCancel(ctx), name)) }()
	defer startMeter(r.sh, "reading", int64(r.opts.events), &r.tally.events)()
	// The member that takes the last event ends the work of all.
	w := &groupWork{round: r}
	// It ends with errAllTaken, with the first error of a member, or with ctx.
	w.ctx, w.end = context.WithCancelCause(ctx)
	defer w.end(nil)
	// With a warm-up, work starts the clock.
	if r.warmed == 0 {
		r.tally.start()
	}
	var members sync.WaitGroup
	for range r.opts.members {
		// Each member has a session and a goroutine of its own.
		// NoCreate: the group was made above, and one made here would begin elsewhere.
		m, err := r.client.JoinGroup(ctx, name, client.GroupOptions{NoCreate: true, Prefetch: r.opts.prefetch})
		if err != nil {
			// Members that have joined end with w.ctx, and are awaited below.
			w.end(err)
			break
		}
		members.Go(func() {
			err := w.work(ctx, m)
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
			defer cancel()
			// Close makes the last acks durable, so its error counts.
			err = errors.Join(err, m.Close(leaving))
			if err != nil {
				w.end(err)
			}
		})
	}
	members.Wait()
	r.tally.stop()
	// The context has ended in any case; only this cause means that every event was taken.
	if cause := context.Cause(w.ctx); !errors.Is(cause, errAllTaken) {
		return cause
	}
	return nil
}

// errAllTaken ends the work of all members without an error.
var errAllTaken = errors.New("all events were taken")

// groupWork is what the members of a group share while they work.
type groupWork struct {
	*round
	taken atomic.Int64    // events, by all members, with the warm-up
	ctx   context.Context // ends when all were taken
	end   context.CancelCauseFunc
}

// work takes and acknowledges events until all are, and waits for the member's last ack.
func (w *groupWork) work(ctx context.Context, m *client.GroupMember) error {
	// A second goroutine measures, so the member does not wait for its acks.
	// There is room for the result, so watch ends even if nobody receives it.
	watched := make(chan error, 1)
	var acked atomic.Int64
	go func() { watched <- w.watch(m, &acked) }()
	for {
		// Next ends with the work of all; Flush below does not.
		d, err := m.Next(w.ctx)
		if err == nil {
			err = d.Ack()
		}
		if err != nil {
			// The end of all is no error of this member, whose last acks have to be durable yet.
			if w.ctx.Err() == nil {
				w.end(err)
			}
			return errors.Join(<-watched, m.Flush(ctx))
		}
		// watch flushes only when this number has grown.
		acked.Add(1)
		// The warm-up does not count, nor what is taken past the end.
		// n is the number of this event among those of all members.
		switch n := w.taken.Add(1); {
		case n <= int64(w.warmed):
			if n == int64(w.warmed) {
				w.tally.start()
			}
		case n <= int64(w.warmed+w.opts.events):
			w.tally.count(1, len(d.Payload))
		}
		// Several members may get here. The first call of end decides the cause.
		if w.taken.Load() >= int64(w.warmed+w.opts.events) {
			w.end(errAllTaken)
		}
	}
}

// watch measures how long an ack takes to be durable while the member works.
func (w *groupWork) watch(m *client.GroupMember, acked *atomic.Int64) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	// before is what acked was at the last tick.
	for before := int64(0); ; {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return nil
		}
		now := acked.Load()
		// Without an ack since the last time there is nothing to wait for.
		if now == before {
			continue
		}
		before = now
		// Flush returns once all acks so far are durable.
		sent := time.Now()
		switch err := m.Flush(w.ctx); {
		case w.ctx.Err() != nil:
			return nil
		case err != nil:
			w.end(err)
			return err
		case w.taken.Load() > int64(w.warmed):
			// Only flushes after the warm-up are measured.
			w.tally.latencies.add(time.Since(sent))
		}
	}
}
