package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// benchSource marks the events that benchmarks publish.
const benchSource = "ringlog-bench"

type benchOptions struct {
	events, size, batch, callers int
	yes                          bool
}

// benchResult is what a benchmark prints. The latencies are of publish: a request;
// of tail: from publishing an event to reading it; of cursor: a commit.
type benchResult struct {
	Bench           string  `json:"bench"`
	Events          int     `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	P50ms           float64 `json:"p50_ms"`
	P99ms           float64 `json:"p99_ms"`
	Voters          int     `json:"voters"`
	LogStore        string  `json:"log_store"`
	EventBytes      int     `json:"event_bytes"`
}

func benchCommand(sh *shell) *cli.Command {
	command := func(name, usage string, body func(context.Context, *bench) (benchResult, error)) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, Flags: benchFlags(), Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			o := benchOptions{events: c.Int("events"), size: c.Int("size"), batch: c.Int("batch"), callers: c.Int("callers"), yes: c.Bool("yes")}
			if err := o.validate(); err != nil {
				return err
			}
			return runBench(c.Context, sh, name, o, body)
		}}
	}
	return &cli.Command{
		Name: "bench", Usage: "how fast a cluster is; it publishes, so use one that holds nothing else",
		Subcommands: []*cli.Command{
			command("publish", "append events", benchPublish),
			command("tail", "read events from the start, then as they come", benchTail),
			command("cursor", "read events through a durable cursor with commits", benchCursor),
		},
	}
}

func benchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "events", Usage: "how many", Value: 50_000},
		&cli.IntFlag{Name: "size", Usage: "`BYTES` of a payload", Value: 256},
		&cli.IntFlag{Name: "batch", Usage: "events of a request, or of a commit; 1 lets the client batch concurrent callers", Value: 256},
		&cli.IntFlag{Name: "callers", Usage: "requests at the same time", Value: 8},
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "also on a cluster that holds other events"},
	}
}

func (o benchOptions) validate() error {
	switch {
	case o.events < 1 || o.events > 100_000_000:
		return usagef("--events %d: use 1 to 100000000", o.events)
	case o.size < 64 || o.size > 1<<20:
		return usagef("--size %d: use 64 to %d", o.size, 1<<20)
	case o.batch < 1 || o.batch > 10_000:
		return usagef("--batch %d: use 1 to 10000", o.batch)
	case o.callers < 1 || o.callers > 10_000:
		return usagef("--callers %d: use 1 to 10000", o.callers)
	}
	return nil
}

// bench is a benchmark under way.
type bench struct {
	sh     *shell
	opts   benchOptions
	client *client.Client
	run    string // makes the events of this run unlike others
}

func runBench(ctx context.Context, sh *shell, name string, o benchOptions, body func(context.Context, *bench) (benchResult, error)) (err error) {
	c, err := sh.dialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeClient(c)) }()
	var s nodeStatus
	if err := c.Do(ctx, http.MethodGet, "/status", nil, nil, &s); err != nil {
		return err
	}
	b := &bench{sh: sh, opts: o, client: c, run: fmt.Sprintf("%x", time.Now().UnixNano())}
	if err := b.requireOwn(ctx); err != nil {
		return err
	}
	r, err := body(ctx, b)
	if err != nil {
		return err
	}
	r.Bench, r.Voters, r.LogStore = name, s.Quorum.Voters, b.logStore(ctx)
	r.EventsPerSecond = float64(r.Events) / max(r.Seconds, 1e-9)
	return sh.emit(r, func() error {
		return sh.facts("events", r.Events, "seconds", fmt.Sprintf("%.2f", r.Seconds), "events/s", fmt.Sprintf("%.0f", r.EventsPerSecond),
			"p50", fmt.Sprintf("%.2f ms", r.P50ms), "p99", fmt.Sprintf("%.2f ms", r.P99ms), "voters", r.Voters, "log store", r.LogStore, "payload bytes", r.EventBytes)
	})
}

// logStore is where the leader keeps its raft log, as its metrics tell.
func (b *bench) logStore(ctx context.Context) string {
	var metrics []byte
	if err := b.client.Do(ctx, http.MethodGet, "/metrics", nil, nil, &metrics); err != nil {
		return "unknown"
	}
	m := regexp.MustCompile(nodeInfoMetric + `\{.*log_store="(\w+)"`).FindSubmatch(metrics)
	if m == nil {
		return "unknown"
	}
	return string(m[1])
}

// requireOwn refuses a log that holds events of others, as far as its ends tell.
func (b *bench) requireOwn(ctx context.Context) error {
	if b.opts.yes {
		return nil
	}
	ends := []client.TailOptions{{From: client.FromStart(), Limit: 500, NoFollow: true}, {From: client.FromLast(500), NoFollow: true}}
	for _, o := range ends {
		for ev, err := range b.client.Tail(ctx, o) {
			var gap *client.GapError
			if errors.As(err, &gap) {
				continue
			}
			if err != nil {
				return err
			}
			if ev.Source != benchSource && !event.IsReserved(ev.Type) {
				return usagef("this cluster holds events of others, such as %s at offset %d: benchmarks publish many of their own. Use another cluster, or say --yes", ev.Type, ev.Offset)
			}
		}
	}
	return nil
}

// trainingTypes are what the events of a benchmark are.
func trainingTypes() []event.Type {
	return []event.Type{event.TrainingStarted, event.TrainingProgress, event.TrainingCompleted, event.EvaluationCompleted, event.NewGamesAvailable}
}

// makeEvent makes up the n-th training event of a run, of about size bytes, in the
// canonical form that Python's json.dumps gives.
func (b *bench) makeEvent(r *rand.Rand, n int) event.Event {
	config := boards()[r.IntN(len(boards()))]
	p := make([]byte, 0, b.opts.size+128)
	p = append(append(append(p, `{"config_key": "`...), config...), `", "elo": `...)
	p = appendRounded(p, 1200+r.Float64()*800, 2)
	p = strconv.AppendInt(append(p, `, "epoch": `...), int64(r.IntN(200)), 10)
	p = strconv.AppendInt(append(p, `, "host": "gpu-`...), int64(r.IntN(64)), 10)
	p = strconv.AppendInt(append(p, `", "iteration": `...), int64(n), 10)
	p = appendRounded(append(p, `, "loss": `...), r.Float64()*3, 4)
	p = append(append(append(p, `, "model_path": "models/`...), config...), "/candidate-"...)
	p = strconv.AppendInt(p, int64(r.IntN(5000)), 10)
	p = append(append(append(p, `.pth", "run": "`...), b.run...), `", "val_losses": [`...)
	for first := true; first || len(p) < b.opts.size-8; first = false {
		if !first {
			p = append(p, ", "...)
		}
		p = appendRounded(p, r.Float64()*2, 3)
	}
	types := trainingTypes()
	ev := event.New(types[abs(n)%len(types)], append(p, "]}"...))
	ev.Source, ev.Key = benchSource, config
	return ev
}

// appendRounded prints v to so many places, without zeros at the end.
func appendRounded(b []byte, v float64, places int) []byte {
	scale := math.Pow10(places)
	return strconv.AppendFloat(b, math.Round(v*scale)/scale, 'f', -1, 64)
}

// samples gathers latencies of many callers.
type samples struct {
	mu   sync.Mutex
	list []time.Duration
}

func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, d)
}

// quantile is in milliseconds.
func (s *samples) quantile(q float64) float64 {
	if len(s.list) == 0 {
		return 0
	}
	slices.Sort(s.list)
	i := min(int(q*float64(len(s.list))), len(s.list)-1)
	return float64(s.list[i].Microseconds()) / 1000
}

// benchPublish appends the events from many callers, each waiting for its answer.
func benchPublish(ctx context.Context, b *bench) (benchResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taken, size atomic.Int64
	var latencies samples
	var callers sync.WaitGroup
	bar := b.sh.progress("events")
	began := time.Now()
	for caller := range b.opts.callers {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), uint64(began.UnixNano())))
			for ctx.Err() == nil {
				end := int(taken.Add(int64(b.opts.batch)))
				n := min(b.opts.batch, b.opts.events-(end-b.opts.batch))
				if n <= 0 {
					return
				}
				events := make([]event.Event, n)
				for i := range events {
					events[i] = b.makeEvent(r, end-b.opts.batch+i)
					size.Add(int64(len(events[i].Payload)))
				}
				sent := time.Now()
				if err := b.publish(ctx, events); err != nil {
					cancel(err)
					return
				}
				latencies.add(time.Since(sent))
				if bar != nil {
					_ = bar.Add(n)
				}
			}
		})
	}
	callers.Wait()
	took := time.Since(began)
	if bar != nil {
		_ = bar.Clear()
	}
	if err := context.Cause(ctx); err != nil {
		return benchResult{}, err
	}
	return benchResult{Events: b.opts.events, Seconds: took.Seconds(), P50ms: latencies.quantile(0.5), P99ms: latencies.quantile(0.99),
		EventBytes: int(size.Load()) / b.opts.events}, nil
}

func (b *bench) publish(ctx context.Context, events []event.Event) error {
	if len(events) == 1 {
		_, err := b.client.Publish(ctx, events[0])
		return err
	}
	_, err := b.client.PublishBatch(ctx, events)
	return err
}
