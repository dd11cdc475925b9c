// Package bench is the verb bench: what a cluster does per second and how long each request takes, and for
// how long nothing is acknowledged when its leader goes. It refuses a cluster that others use.
package bench

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// benchSource marks the events that benchmarks publish.
const benchSource = "ringlog-bench"

// Bounds of what a benchmark is asked for.
const (
	// Bytes for sizes, events for batches. The smallest size has room for what makes a payload unlike the
	// others.
	maxBenchEvents = 100_000_000
	maxBenchSizes  = 32
	minBenchSize   = 64
	maxBenchBatch  = 10_000
	maxWarmup      = 10 * time.Minute
)

// benchOptions say what to measure: every payload size on its own, one after the other.
type benchOptions struct {
	// as measured, in one request or commit, and at once
	events, batch, callers int
	sizes                  []int // bytes of a payload
	members, keys          int   // of a group; 0 members if it is about none
	// of each member of a group
	prefetch int
	warmup   amount
	// the form of the rows; measure also a cluster in use
	csv, yes bool
}

// amount is a number of events, or as many as arrive in a time.
type amount struct {
	// Not used where a time is given.
	events int
	lasts  time.Duration // 0: events says it
}

// workload is what one benchmark measures.
type workload struct {
	name, usage string
	latencyOf   string // what its latencies are of
	// measures one size of payloads; what it counts is in the round's tally
	// After an error, what was counted until then is reported as partial.
	body func(ctx context.Context, r *round) error
}

// groupBench is the only workload with flags of its own.
const groupBench = "group"

// workloads lists what can be measured.
func workloads() []workload {
	// In the order of the help: from writing to the most complex way of reading.
	return []workload{
		{"publish", "publish events", "a request", benchPublish},
		{"tail", "read events from the start, then as they are published", "publishing an event until it is read",
			benchTail},
		{"cursor", "read events through a durable cursor with commits", "a commit", benchCursor},
		{groupBench, "consume events as members of a group, acknowledging each", "an ack until it is durable",
			benchGroup},
	}
}

// Command is the verb bench.
func Command(sh *shell.Shell) *cli.Command {
	// One verb for each workload, with the same flags as far as they apply.
	all := &cli.Command{Name: "bench",
		Usage:       "measure how fast a cluster is",
		Description: "It publishes events, so use a cluster that holds nothing else.",
		UsageText:   shell.Examples("ringlog bench publish --events 10000 --yes", "ringlog bench failover --kills 3")}
	for _, w := range workloads() {
		flags := benchFlags()
		// Groups alone have members, keys and a prefetch.
		if w.name == groupBench {
			flags = append(flags, groupFlags()...)
		}
		all.Subcommands = append(all.Subcommands, &cli.Command{
			Name: w.name, Usage: w.usage, Flags: flags,
			UsageText: shell.Examples("ringlog bench " + w.name + " --events 10000 --yes"),
			Description: "Prints a row for each payload size, and the distribution of latencies\n" +
				"(of " + w.latencyOf + ").\n" +
				"--csv prints the rows as CSV, below a header; --json adds the histogram to each, whose counts\n" +
				"are of latencies up to le_ms and above the one before. Ctrl-C stops it and prints the figures so\n" +
				"far, marked as partial.\n" +
				"It refuses a cluster that others publish to.",
			Action: shell.NoArgs(func(c *cli.Context) error {
				o, err := benchOptionsOf(c)
				if err != nil {
					return err
				}
				if w.name == groupBench {
					if err := o.readGroupFlags(c); err != nil {
						return err
					}
				}
				if o.csv && sh.JSON {
					return shell.Usagef("--csv and --json (also as -o json, RINGLOG_OUTPUT) exclude each other: " +
						"choose one")
				}
				return runBench(c.Context, sh, w, o)
			}),
		})
	}
	// A failover is no workload: it starts its own cluster and has no sizes.
	all.Subcommands = append(all.Subcommands, failoverCommand(sh))
	return all
}

// benchFlags are those of all workloads.
func benchFlags() []cli.Flag {
	return []cli.Flag{
		// How much is measured, of which size.
		&cli.IntFlag{Name: "events", Usage: "measure `N` events of each size", Value: 50_000},
		&cli.StringFlag{Name: "size", Usage: "payload size in `BYTES`, or several such as 256,1024,4096", Value: "256"},
		// How it is asked for.
		&cli.IntFlag{Name: "batch", Value: 256,
			Usage: "put `N` events into a request or a commit; 1 lets the client batch concurrent callers"},
		&cli.IntFlag{Name: "callers", Usage: "make `N` requests at the same time", Value: 8},
		// What comes before, and how the figures are printed.
		&cli.StringFlag{Name: "warmup",
			Usage: "`EVENTS`, or a time such as 5s, before the measurement starts; 0 means none", Value: "1000"},
		&cli.BoolFlag{Name: "csv", Usage: "print comma-separated values: a header, then a row for each size"},
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "allow benchmarking a cluster in use"},
	}
}

// benchOptionsOf reads the flags.
func benchOptionsOf(c *cli.Context) (o benchOptions, err error) {
	o = benchOptions{events: c.Int("events"), batch: c.Int("batch"), callers: c.Int("callers"), csv: c.Bool("csv"),
		yes: c.Bool("yes")}
	// Sizes and the warm-up have forms of their own, so they are texts.
	o.sizes, err = parseSizes(c.String("size"))
	if err != nil {
		return o, err
	}
	o.warmup, err = parseWarmup(c.String("warmup"))
	if err != nil {
		return o, err
	}
	// Bounds keep a typing error from filling a disk.
	switch {
	case o.events < 1 || o.events > maxBenchEvents:
		return o, shell.Usagef("--events %d: use 1 to %d", o.events, maxBenchEvents)
	case o.batch < 1 || o.batch > maxBenchBatch:
		return o, shell.Usagef("--batch %d: use 1 to %d", o.batch, maxBenchBatch)
	case o.callers < 1 || o.callers > 10_000:
		return o, shell.Usagef("--callers %d: use 1 to 10000", o.callers)
	}
	return o, nil
}

// parseSizes reads payload sizes, separated by commas.
func parseSizes(list string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(list, ",") {
		// The limit of the cluster itself is checked later, by requireRoom.
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if limit := event.DefaultLimits().EventBytes; err != nil || n < minBenchSize || n > limit {
			return nil, shell.Usagef("--size %q: use %d to %d bytes, or several such as 256,1024,4096", part,
				minBenchSize, limit)
		}
		sizes = append(sizes, n)
	}
	// Each size takes as long as the first one.
	if len(sizes) > maxBenchSizes {
		return nil, shell.Usagef("--size names %d sizes: use at most %d", len(sizes), maxBenchSizes)
	}
	return sizes, nil
}

// parseWarmup reads a number of events or a time.
func parseWarmup(text string) (amount, error) {
	// A bare number counts events; a time has a unit.
	if n, err := strconv.Atoi(text); err == nil {
		if n < 0 || n > maxBenchEvents {
			return amount{}, shell.Usagef("--warmup %d: use 0 to %d events, or a time such as 5s", n, maxBenchEvents)
		}
		return amount{events: n}, nil
	}
	// Anything else must be a time.
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWarmup {
		return amount{}, shell.Usagef("--warmup %q: use a number of events such as 1000, or a time up to %s such as 5s",
			text, shell.Short(maxWarmup))
	}
	return amount{lasts: d}, nil
}
