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
type Sample struct {
	Work   string             `json:"work"`
	System string             `json:"system"`
	Way    string             `json:"way"`
	Round  int                `json:"round"` // from 1
	Values map[string]float64 `json:"values"`
}

// Failure is a measurement that gave nothing.
type Failure struct {
	Work   string `json:"work"`
	System string `json:"system"`
	Round  int    `json:"round"`
	Error  string `json:"error"`
}

// scale says how long the measurements are.
type scale struct {
	quick                 bool
	warm, publish, waited time.Duration // waited: of those who publish one event and wait
	python                time.Duration
	cursors               int
	fanout                time.Duration
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{quick: true, warm: 200 * time.Millisecond, publish: time.Second, waited: time.Second, python: time.Second, cursors: 100, fanout: 3 * time.Second}
	}
	return scale{warm: 500 * time.Millisecond, publish: 6 * time.Second, waited: 3 * time.Second, python: 3 * time.Second, cursors: 1000, fanout: 20 * time.Second}
}

// runner measures, round by round.
type runner struct {
	systems []system
	works   []work
	scale   scale
	rounds  int
	dir     string

	samples  []Sample
	failures []Failure
}

// run has each system do all its work in each round, one system after the other on an empty
// folder with the others not running, each round beginning with another one.
func (r *runner) run(ctx context.Context) {
	if len(r.works) == 0 {
		return
	}
	for round := range r.rounds {
		for i := range r.systems {
			if ctx.Err() != nil {
				return
			}
			r.turn(ctx, r.systems[(i+round)%len(r.systems)], round+1)
		}
	}
}

const (
	startWithin   = time.Minute
	measureWithin = 5 * time.Minute
	closeWithin   = 30 * time.Second
)

// turn is one system's part of a round.
func (r *runner) turn(ctx context.Context, sys system, round int) {
	dir := filepath.Join(r.dir, fmt.Sprintf("%s-%d", sys.name(), round))
	t := &turn{runner: r, sys: sys, round: round, sizes: sys.sizes(r.scale.quick), source: newSource()}
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		t.session, err = sys.start(starting, dir)
	}
	if err != nil {
		for _, w := range r.works {
			r.fail(w.name, sys, round, fmt.Errorf("start: %w\n%s", err, tailOfLogs(dir)))
		}
	} else {
		t.workAll(ctx, dir)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if err := t.session.close(closing); err != nil {
			r.fail("stop", sys, round, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		r.fail("stop", sys, round, err)
	}
	flushAll()
}

func (r *runner) fail(work string, sys system, round int, err error) {
	say("round %d  %-13s %-8s failed: %v", round, sys.name(), work, err)
	r.failures = append(r.failures, Failure{Work: work, System: sys.name(), Round: round, Error: err.Error()})
}

// turn is one system at work.
type turn struct {
	*runner
	sys       system
	session   session
	round     int
	sizes     sizes
	source    *source
	published int // events acknowledged so far
}

func (t *turn) workAll(ctx context.Context, dir string) {
	pids := t.session.pids()
	for _, w := range t.works {
		measuring, stop := whileAll(ctx, pids)
		measuring, cancel := context.WithTimeout(measuring, measureWithin)
		err := w.measure(measuring, t)
		if cause := context.Cause(measuring); err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		cancel()
		stop()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNotOffered):
		case err != nil:
			t.fail(w.name, t.sys, t.round, fmt.Errorf("%w\n%s", err, tailOfLogs(dir)))
		}
	}
}

// record keeps what a measurement gave.
func (t *turn) record(work, way string, values map[string]float64) {
	t.samples = append(t.samples, Sample{Work: work, System: t.sys.name(), Way: way, Round: t.round, Values: values})
	text := ""
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text += fmt.Sprintf("  %s %s", name, figure(values[name]))
	}
	say("round %d  %-13s %-8s %-45s%s", t.round, t.sys.name(), work, way, text)
}

// settle lets the servers come to rest.
func (t *turn) settle(ctx context.Context) { quiet(ctx, t.session.pids()) }

// ensure publishes until there are n events to read.
func (t *turn) ensure(ctx context.Context, n int) error {
	if t.published >= n {
		return nil
	}
	_, err := t.publish(ctx, t.session.publishWays()[0], counting(n-t.published))
	return err
}

// publish publishes and checks that the system holds all that it has acknowledged.
func (t *turn) publish(ctx context.Context, way string, q *quota) (tally, error) {
	began := time.Now()
	done, err := t.session.publish(ctx, way, t.source, q)
	done.took = time.Since(began)
	t.published += done.events
	return done, errors.Join(err, t.holdsAll(ctx))
}
