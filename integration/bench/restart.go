package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
)

// What is measured of restarts; the base is the smaller log.
const (
	restartWork     = "restart"
	restartBaseWork = "restart-base"
	growthWork      = "growth"

	// The figures, with their units.
	caughtUp   = "caught_up_s"
	memory     = "rss_anon_mb"
	pause      = "pause_ms"
	usualPause = "longest_without_ms"
)

const (
	restartBase = 20 // the base has that part of the events
	restarts    = 3  // of a follower and of a leader each
	// How often a publisher is watched while the leader takes snapshots.
	snapshots     = 5
	fillWithin    = 30 * time.Minute
	restartWithin = 2 * time.Minute
)

// restarts measures each ringlog with a log that grows.
func (r *runner) restarts(ctx context.Context, events int) {
	for _, sys := range r.systems {
		s, ok := sys.(*ringlogSystem)
		if !ok || ctx.Err() != nil {
			continue
		}
		// After an interrupt every call fails; that is no failure of the system.
		if err := r.restartsOf(ctx, s, events); err != nil && ctx.Err() == nil {
			r.fail(restartWork, s, 1, err)
		}
	}
}

// restartsOf measures one system with a twentieth of the events, then with all of them, in the same log.
func (r *runner) restartsOf(ctx context.Context, s *ringlogSystem, events int) (err error) {
	// The limit is for all of it: filling the log, restarts and snapshots.
	ctx, cancel := context.WithTimeout(ctx, fillWithin)
	defer cancel()
	dir := filepath.Join(r.dir, s.name()+"-restart")
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, tailOfLogs(dir))
		}
		_ = os.RemoveAll(dir) // what is left is removed with the program's own folder
	}()
	session, err := s.open(ctx, dir)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		_ = session.close(closing) // everything is measured
	}()
	// Nothing is trimmed, and the dedup window is empty soon after the last event.
	for key, value := range map[string]string{"dedup.window": "1s", "retention.bytes": "0"} {
		if _, err := session.client.Admin().SetSetting(ctx, key, value); err != nil {
			return err
		}
	}
	// It is a turn outside the rounds: what it counts as published is in this log alone.
	only := &turn{runner: r, sys: s, session: session, round: 1, source: newSource()}
	p := &restartProbe{ringlogSession: session, turn: only}
	// The log grows from the base to the whole, and is filled once.
	base, err := p.grown(ctx, restartBaseWork, events/restartBase, restartBase)
	if err != nil {
		return err
	}
	full, err := p.grown(ctx, restartWork, events, 1)
	if err != nil {
		return err
	}
	// Each says how a figure grew in a log of restartBase times as many events.
	p.record(growthWork, fmt.Sprintf("%s to %s events", figure(float64(events/restartBase)), figure(float64(events))),
		map[string]float64{
			caughtUp: full[caughtUp] / base[caughtUp],
			memory:   full[memory] / base[memory],
			pause:    full[pause] / base[pause],
		})
	return nil
}

// restartProbe restarts the nodes of one cluster.
// The turn counts what is published and keeps the samples; the session has the cluster.
type restartProbe struct {
	*ringlogSession
	*turn
}

// grown publishes until the log has n events and measures, with as many snapshots in a row; it returns the
// medians. The longest of many waits is longer than that of few: a log of a twentieth is looked at for as long
// when its snapshot is taken twenty times.
func (p *restartProbe) grown(ctx context.Context, work string, n, inARow int) (map[string]float64, error) {
	// Grow the log, and wait until the dedup window takes no memory.
	began, before := time.Now(), p.published
	if err := p.ensure(ctx, n); err != nil {
		return nil, err
	}
	progress("%s: published %d events in %s", p.sys.name(), p.published-before, time.Since(began).Round(time.Second))
	if err := p.windowEmpty(ctx); err != nil {
		return nil, err
	}
	// Before the restarts, to compare with what a node takes after one.
	if err := p.running(work, n); err != nil {
		return nil, err
	}
	// Restarts of a follower and a leader in turn.
	var all []map[string]float64
	for i := range restarts {
		for _, role := range []string{"follower", "leader"} {
			values, err := p.restartOne(ctx, role)
			if err != nil {
				return nil, fmt.Errorf("restart a %s: %w", role, err)
			}
			// A round has one restart of each role.
			p.round = i + 1
			p.record(work, fmt.Sprintf("%s events, %s killed", figure(float64(n)), role), values)
			all = append(all, values)
		}
	}
	// Snapshots while one caller publishes.
	for i := range snapshots {
		values, err := p.whileSnapshots(ctx, inARow)
		if err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		p.round = i + 1
		p.record(work, fmt.Sprintf("%s events, snapshot", figure(float64(n))), values)
		all = append(all, values)
	}
	return map[string]float64{
		caughtUp: medianOf(all, caughtUp),
		memory:   medianOf(all, memory),
		pause:    medianOf(all, pause),
	}, nil
}

// running records the memory of the node that takes most, before any is restarted.
func (p *restartProbe) running(work string, n int) error {
	most := 0.0
	for _, pid := range p.pids() {
		mb, err := rssAnon(pid)
		if err != nil {
			return err
		}
		most = max(most, mb)
	}
	p.round = 1
	p.record(work, figure(float64(n))+" events, still running", map[string]float64{memory: most})
	return nil
}

// medianOf returns the median of a figure over those that have it.
func medianOf(all []map[string]float64, name string) float64 {
	var values []float64
	for _, v := range all {
		if value, ok := v[name]; ok {
			values = append(values, value)
		}
	}
	return spreadOf(values).Median
}

// windowEmpty waits until no node's dedup window holds a key, which would take memory.
func (p *restartProbe) windowEmpty(ctx context.Context) error {
	return p.cluster.Until(ctx, "an empty dedup window", func() bool {
		for _, n := range p.cluster.Nodes() {
			var s struct {
				Dedup struct{ Keys int }
			}
			err := p.client.Admin().DoAt(ctx, n.URL(), http.MethodGet, "/status", nil, nil, &s)
			if err != nil || s.Dedup.Keys > 0 {
				// A node that does not answer yet is asked again.
				return false
			}
		}
		return true
	})
}

// restartOne kills a node, starts it again when the others have a leader, and times until it
// answers, knows the leader and has applied what was committed when it was started.
func (p *restartProbe) restartOne(ctx context.Context, role string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	leader, err := p.cluster.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	nodes := p.cluster.Nodes()
	// For the role of leader it is the node that leads, else the first that does not.
	node := nodes[slices.IndexFunc(nodes, func(n devcluster.Node) bool {
		return (n.ID == leader.NodeID) == (role == "leader")
	})]
	if err := p.cluster.Kill(node.ID); err != nil {
		return nil, err
	}
	// What the others have committed by then is what it has to apply.
	leader, err = p.cluster.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	leading, err := p.cluster.Node(leader.NodeID)
	if err != nil {
		return nil, err
	}
	// Its commit index includes what was committed without the node.
	goal, err := p.client.Admin().StatusOf(ctx, leading.URL())
	if err != nil {
		return nil, err
	}
	// Its memory is taken once it has come to rest.
	// The time begins when the process is started, not when the old one was killed.
	began := time.Now()
	if err := p.cluster.Restart(node.ID); err != nil {
		return nil, err
	}
	if err := p.caughtUp(ctx, node, goal); err != nil {
		return nil, err
	}
	took := time.Since(began)
	// A node at rest has released what it needed to read its log.
	quiet(ctx, p.pids())
	mb, err := rssAnon(p.cluster.PID(node.ID))
	return map[string]float64{caughtUp: took.Seconds(), memory: mb}, err
}

// caughtUp waits until the node knows a leader and has applied what goal's node had committed.
func (p *restartProbe) caughtUp(ctx context.Context, node devcluster.Node, goal client.Status) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := p.client.Admin().StatusOf(ctx, node.URL())
		// A node that knows a leader has heard from the cluster, and is not alone with an old log.
		if err == nil && s.LeaderID != "" && s.AppliedIndex >= goal.CommitIndex {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s applied %d of %d: %w", node.ID, s.AppliedIndex, goal.CommitIndex, ctx.Err())
		}
	}
}

// whileSnapshots publishes one event after the other while the leader makes n snapshots, and
// returns the longest wait, and the longest in as many events without one.
func (p *restartProbe) whileSnapshots(ctx context.Context, n int) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	url, err := p.leaderURL(ctx)
	if err != nil {
		return nil, err
	}
	// The snapshots begin when began is closed; made has the result of all.
	// There is room for the result, so the goroutine ends even if nobody receives it.
	made := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		select {
		case <-began:
		case <-ctx.Done(): // as this function has returned
			return
		}
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = beginSnapshot(ctx, url)
		}
		made <- err
	}()
	const around = 50 // events before the snapshots begin, and after they have ended
	g := p.source.generator()
	publish := func() (float64, error) {
		sent := time.Now()
		err := p.publishOne(ctx, g.next())
		p.published++
		return millis(time.Since(sent)), err
	}
	var waits []float64
	// after is 0 while snapshots are taken, then counts the events since the last one, from 1.
	for after := 0; after < around; {
		// This happens once, since waits grows with each event.
		if len(waits) == around {
			close(began)
		}
		wait, err := publish()
		if err != nil {
			return nil, err
		}
		waits = append(waits, wait)
		if after > 0 {
			after++
			continue
		}
		// The snapshots are asked for between two events, so no wait includes the question.
		select {
		case err := <-made:
			if err != nil {
				return nil, err
			}
			after = 1
		default:
		}
	}
	// As many events again, without a snapshot.
	// The longest of many waits is long without a snapshot, too; this one is to compare with.
	var without []float64
	for range waits {
		wait, err := publish()
		if err != nil {
			return nil, err
		}
		without = append(without, wait)
	}
	return map[string]float64{pause: slices.Max(waits), usualPause: slices.Max(without)}, nil
}

// beginSnapshot asks a node for a snapshot and returns once it is taken: with its first bytes.
// The rest is not read. Once the body is closed, the node stops sending.
func beginSnapshot(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/snapshot", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("snapshot: %s", resp.Status)
	}
	// The node takes the snapshot before it sends the first byte.
	_, err = io.ReadFull(resp.Body, make([]byte, 1<<20))
	return err
}
