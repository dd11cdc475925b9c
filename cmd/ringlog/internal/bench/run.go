package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// bench is a benchmark under way.
// It lasts for all sizes; a round is one of them.
type bench struct {
	sh     *shell.Shell
	work   workload
	opts   benchOptions
	client *client.Client
	run    string       // makes the events of this run unlike those of others
	made   atomic.Int64 // events so far, which makes them unlike each other
	// of the cluster, as part of the result
	voters int
}

// round is a benchmark with payloads of one size.
type round struct {
	*bench
	size   int
	warmed int // events before the counting started
	// Its zero value is ready; the workload starts it.
	tally tally
}

// runBench measures one workload with every payload size.
func runBench(ctx context.Context, sh *shell.Shell, w workload, o benchOptions) (err error) {
	// One client for all rounds: its connections are warm after the first.
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// How many voters there are is part of the result.
	s, err := c.Admin().Status(ctx)
	if err != nil {
		return err
	}
	// Nothing is published before the cluster is known to take it and to be used by nobody else.
	b := &bench{sh: sh, work: w, opts: o, client: c, run: fmt.Sprintf("%x", time.Now().UnixNano()),
		voters: s.Quorum.Voters}
	if err := b.requireRoom(ctx); err != nil {
		return err
	}
	// --yes is for a cluster whose other users are known.
	if !o.yes {
		if err := b.requireAlone(ctx); err != nil {
			return err
		}
	}
	return b.runRounds(ctx)
}

// runRounds runs every size and reports each, also the one that an error or a Ctrl-C cut
// short.
func (b *bench) runRounds(ctx context.Context) error {
	// Each size is a round of its own, and the first that fails is the last.
	// failed is the error of the last size that was measured.
	out := newBenchReport(b.sh, b.opts.csv)
	var failed error
	for _, size := range b.opts.sizes {
		r := &round{bench: b, size: size}
		// A size that was cut short is reported as far as it went.
		failed = b.work.body(ctx, r)
		// A workload that failed may not have stopped its clock. Stopping again changes nothing.
		r.tally.stop()
		if r.tally.events.Load() > 0 {
			if err := out.add(r.result(failed != nil)); err != nil {
				return errors.Join(failed, err)
			}
		}
		if failed != nil {
			b.sh.Say("cut short: %d of %d events of %d bytes were measured", r.tally.events.Load(), b.opts.events, size)
			break
		}
	}
	return errors.Join(failed, out.finish())
}

// result summarizes the round so far.
func (r *round) result(partial bool) benchResult {
	// The warm-up is in neither.
	n, seconds := r.tally.events.Load(), r.tally.took.Seconds()
	// A round that was cut short at once has no time and no events to divide by.
	perSecond := float64(n) / max(seconds, 1e-9)
	payload := float64(r.tally.bytes.Load()) / float64(max(n, 1))
	return benchResult{
		Bench: r.work.name, Size: r.size, Events: n, Seconds: seconds, EventsPerSecond: perSecond,
		// Megabytes of 10^6 bytes, of payloads alone.
		MBPerSecond: perSecond * payload / 1e6,
		quantiles:   r.tally.latencies.quantiles(), Voters: r.voters, EventBytes: int(payload), Batch: r.opts.batch,
		Callers: r.opts.callers, Warmup: r.warmed, Members: r.opts.members, Keys: r.opts.keys, Partial: partial,
		LatencyOf: r.work.latencyOf, Histogram: r.tally.latencies.histogram(),
	}
}

// meterEvery is how often a progress bar is redrawn. It only reads a count,
// so drawing does not slow down what is measured.
const meterEvery = 100 * time.Millisecond

// startMeter draws a progress bar of count until stop is called; total is -1 if it is not known.
// If standard error is no terminal, it draws nothing.
func startMeter(sh *shell.Shell, what string, total int64, count *atomic.Int64) (stop func()) {
	// A log or a pipe has no use for a bar.
	if !sh.ErrTerminal {
		return func() {}
	}
	// -1 draws a spinner without an end.
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(sh.Err), progressbar.OptionSetDescription(what),
		progressbar.OptionSetItsString("events"), progressbar.OptionShowIts(), progressbar.OptionShowCount(),
		progressbar.OptionEnableColorCodes(sh.Colour), progressbar.OptionClearOnFinish())
	// Drawing has a goroutine of its own, so it does not slow down the measurement.
	// over asks the goroutine to end; ended is closed when it has.
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		// Until stop is called, which waits for the last drawing.
		tick := time.NewTicker(meterEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = bar.Set64(count.Load())
			case <-over:
				_ = bar.Clear()
				return
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}
