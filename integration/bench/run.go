package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Sample is what one measurement gave.
// --json prints each.
type Sample struct {
	Work   string `json:"work"`
	System string `json:"system"`
	// Which of the system's ways it used; "" where there is one alone.
	Way   string `json:"way"`
	Round int    `json:"round"` // from 1
	// By the name of the figure, such as events_per_s; the unit is in the name.
	Values map[string]float64 `json:"values"`

	// Attempts is how often a measurement was made, since a disturbed one is made again; the
	// attempts of its parts are added.
	Attempts int `json:"attempts,omitempty"`
	// Stolen is the share of the processors' working time that the host took during the
	// attempt that counts; of several parts, the greatest.
	Stolen float64 `json:"stolen,omitempty"`
}

// Failure is a measurement that gave nothing.
type Failure struct {
	Work   string `json:"work"`
	System string `json:"system"`
	Round  int    `json:"round"`
	Error  string `json:"error"`
}

// scale is how long the measurements take.
type scale struct {
	// The report of a quick run says that it was one.
	quick bool
	// How long publishing is warmed up, and for how long it is then measured.
	warm, publish, waited time.Duration // waited: one part of a measurement of callers that each wait
	// For how long a client for Python is measured.
	python time.Duration
	// How many cursors follow the log, and for how long events are published to them.
	cursors int
	fanout  time.Duration
}

// scaleOf returns the scale of a report, or of a quick run that only shows that everything works.
func scaleOf(quick bool) scale {
	if quick {
		return scale{
			quick:   true,
			warm:    200 * time.Millisecond,
			publish: time.Second,
			waited:  time.Second / 3,
			python:  time.Second,
			cursors: 100,
			fanout:  3 * time.Second,
		}
	}
	return scale{
		warm:    500 * time.Millisecond,
		publish: 6 * time.Second,
		waited:  time.Second,
		python:  3 * time.Second,
		cursors: 1000,
		fanout:  20 * time.Second,
	}
}

// runner measures, round by round.
// One goroutine uses it, so samples and failures need no lock.
type runner struct {
	systems []system
	works   []work
	scale   scale
	rounds  int
	dir     string
	program string // the binary of ringlog
	python  string // an interpreter with the clients for Python, once it is made

	samples  []Sample
	failures []Failure
}

// run has all systems do one work after the other in each round, each work beginning with
// another system. All are up meanwhile, at rest but for the one whose turn it is: on a machine
// whose speed changes within minutes, what is compared has to be measured close together.
func (r *runner) run(ctx context.Context) {
	if len(r.works) == 0 {
		return
	}
	for round := range r.rounds {
		// All systems are up during the round.
		// turns has the systems that have started. The others are left out of this round.
		turns := r.start(ctx, round)
		for i, w := range r.works {
			// With each work another system is first: none always follows the one that loads the disk most.
			for j := range turns {
				turns[(i+j)%len(turns)].work(ctx, w)
			}
		}
		// Folders are removed with the systems, so the disk holds the logs of one round at most.
		for _, t := range turns {
			t.stop(ctx)
		}
		// What is still to be written belongs to this round, not to the first measurement of the next.
		flushAll()
	}
}

// How long a start, one work of one system, and a stop may each take. One that takes longer has failed.
const (
	startWithin   = time.Minute
	measureWithin = 6 * time.Minute
	closeWithin   = 30 * time.Second
)

// start brings the systems up on empty folders, beginning with another one in each round.
func (r *runner) start(ctx context.Context, round int) (turns []*turn) {
	for i := range r.systems {
		if ctx.Err() != nil {
			break
		}
		// The first to start has the machine for itself, so it is another one in each round.
		sys := r.systems[(i+round)%len(r.systems)]
		t := &turn{
			runner: r,
			sys:    sys,
			round:  round + 1,
			sizes:  sys.sizes(r.scale.quick),
			source: newSource(),
			dir:    filepath.Join(r.dir, fmt.Sprintf("%s-%d", sys.name(), round+1)),
		}
		// A system that does not start has failed at every work of the round.
		if err := t.start(ctx); err != nil {
			for _, w := range r.works {
				r.fail(w.name, sys, t.round, fmt.Errorf("start: %w\n%s", err, tailOfLogs(t.dir)))
			}
			// No process is left: start ends those that it has started before it returns an error.
			t.clear()
			continue
		}
		turns = append(turns, t)
	}
	return turns
}

// start makes the folder and starts the system in it.
func (t *turn) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	t.session, err = t.sys.start(ctx, t.dir)
	return err
}

// stop ends the system and removes its folder.
func (t *turn) stop(ctx context.Context) {
	// A system is stopped after an interrupt as well, for which ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := t.session.close(ctx); err != nil {
		// The samples of the round stay; the report lists the failure beside them.
		t.fail("stop", t.sys, t.round, err)
	}
	t.clear()
}

// clear removes the system's folder.
func (t *turn) clear() {
	if err := os.RemoveAll(t.dir); err != nil {
		t.fail("stop", t.sys, t.round, err)
	}
}

// fail keeps and prints a failure.
func (r *runner) fail(work string, sys system, round int, err error) {
	progress("round %d  %-13s %-8s failed: %v", round, sys.name(), work, err)
	r.failures = append(r.failures, Failure{Work: work, System: sys.name(), Round: round, Error: err.Error()})
}

// turn is one system at work in a round.
// The runner that it embeds keeps its samples and failures.
type turn struct {
	*runner
	// Set by start.
	sys     system
	session session
	dir     string
	round   int
	sizes   sizes
	source  *source
	// It includes warm-ups, which are in the log like everything else.
	published int // events acknowledged so far
}

// work measures one work, and leaves the servers at rest.
func (t *turn) work(ctx context.Context, w work) {
	if ctx.Err() != nil {
		return
	}
	// The work ends early if a server does; the report names that cause, not the cancelled context.
	watched, stop := whileAll(ctx, t.session.pids())
	measuring, cancel := context.WithTimeout(watched, measureWithin)
	err := w.measure(measuring, t)
	if cause := context.Cause(measuring); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	// The watch has ended before the next system works, and reads nothing of /proc meanwhile.
	cancel()
	stop()
	switch {
	case ctx.Err() != nil || errors.Is(err, errNotOffered):
		// Neither an interrupt nor a missing feature is a failure.
	case err != nil:
		t.fail(w.name, t.sys, t.round, fmt.Errorf("%w\n%s", err, tailOfLogs(t.dir)))
	default:
		// What the work left to be done in the background is not charged to the system whose turn is next.
		t.awaitQuiet(ctx)
	}
}

const (
	maxStolen = 0.05 // of the time in which processors had something to do
	attempts  = 5
)

// measured measures once the servers are at rest, and again if the host took more than
// maxStolen of the processors' working time meanwhile. The least disturbed attempt counts.
func (t *turn) measured(ctx context.Context, work, way string, measure func() (map[string]float64, error)) error {
	best := Sample{Work: work, Way: way}
	// values is what the last attempt gave, best.Values what the least disturbed one gave.
	var values map[string]float64
	err := t.leastDisturbed(ctx, &best, func() (err error) {
		values, err = measure()
		return err
	}, func() { best.Values = values })
	if err == nil {
		t.keep(best)
	}
	return err
}

// leastDisturbed repeats a measurement, or a part of one, until the host takes little enough,
// and calls keep after each that is less disturbed than those before. It adds the
// attempts to s, and keeps in s the share of the most disturbed part.
func (t *turn) leastDisturbed(ctx context.Context, s *Sample, measure func() error, keep func()) error {
	least := 1.0 // the share that the host took of the attempt that counts so far
	for attempt := 0; attempt == 0 || (attempt < attempts && least > maxStolen); attempt++ {
		// The servers may still compact for an earlier attempt.
		t.awaitQuiet(ctx)
		before := processors()
		if err := measure(); err != nil {
			return err
		}
		// The first attempt counts however disturbed it was: the report says so, and has a figure.
		if stolen := processors().stolenSince(before); attempt == 0 || stolen < least {
			least = stolen
			keep()
		}
		s.Attempts++
	}
	s.Stolen = max(s.Stolen, least)
	return nil
}

// record keeps the result of a measurement that is made once, disturbed or not.
func (t *turn) record(work, way string, values map[string]float64) {
	t.keep(Sample{Work: work, Way: way, Values: values})
}

// keep adds a sample of this turn and prints it.
func (t *turn) keep(s Sample) {
	s.System, s.Round = t.sys.name(), t.round
	t.samples = append(t.samples, s)
	text := ""
	// Sorted by name: a map has no order.
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		text += fmt.Sprintf("  %s %s", name, figure(s.Values[name]))
	}
	progress("round %d  %-13s %-8s %-45s%s", s.Round, s.System, s.Work, s.Way, text)
}

// awaitQuiet lets the servers come to rest.
func (t *turn) awaitQuiet(ctx context.Context) { quiet(ctx, t.session.pids()) }

// ensure publishes until there are n events to read.
func (t *turn) ensure(ctx context.Context, n int) error {
	// Works that read use what earlier works have published. Only the rest is published here.
	if t.published >= n {
		return nil
	}
	// No sample comes of it, so any way will do.
	_, err := t.publish(ctx, t.session.publishWays()[0], counting(n-t.published))
	return err
}

// publish publishes and checks that the system holds all that it has acknowledged.
func (t *turn) publish(ctx context.Context, way string, q *quota) (tally, error) {
	// The time includes the last acknowledgement, for which publish waits.
	began := time.Now()
	done, err := t.session.publish(ctx, way, t.source, q)
	done.took = time.Since(began)
	t.published += done.events
	return done, errors.Join(err, t.holdsAll(ctx))
}
