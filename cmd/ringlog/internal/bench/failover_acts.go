package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// The acts.
// They are the names in the result, for programs as well.
const (
	actKill     = "kill"
	actStepDown = "step_down"
)

// failoverAct is the outcome of one act. Gap is the longest time between two
// acknowledged events around it; the parts follow each other from the act on.
// Times are in milliseconds; the first begins just before the act.
type failoverAct struct {
	Act string `json:"act"`
	// the node that led before
	From string `json:"from"`
	// the node that leads after
	To   string `json:"to"`
	Term uint64 `json:"term"` // of the new leader
	// between two acknowledged events, as the writer saw it
	GapMs float64 `json:"gap_ms"`
	// until a node no longer followed the old leader
	DetectMs float64 `json:"detect_ms"`
	// from there until a node led
	ElectMs float64 `json:"elect_ms"`
	// from there until an event was acknowledged
	ResumeMs float64 `json:"resume_ms"`
}

// act takes the leader away, waits until events are acknowledged under another, and
// restores the cluster.
func (f *failover) act(ctx context.Context, name string, do func(context.Context, devcluster.Status) error,
	mend func(context.Context, failoverAct) error) error {
	// An act that hangs ends the benchmark: the next would begin with a broken cluster.
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	// Know who leads before it is taken away.
	before, err := f.cluster.WaitLeader(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	// Watch the nodes while it happens.
	// It runs beside the watching: a step-down returns once another leads, when there is nothing left to see.
	failing := make(chan error, 1)
	go func() { failing <- do(ctx, before) }()
	seen, err := f.observe(ctx, before)
	// If the act itself failed, that is why no new leader was seen.
	if failed := <-failing; failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	// An event that was sent before may be acknowledged by the old leader. One that was sent after shows the
	// new one at work.
	if err := f.writer.acknowledgedAfter(ctx, seen.elected); err != nil {
		return err
	}
	// The gap is what the writer saw; its parts are what the nodes showed.
	// The acknowledgement that ends the gap is among them by now.
	gap, resumed := f.writer.gapSince(began)
	done := failoverAct{Act: name, From: before.NodeID, To: seen.leader.NodeID, Term: seen.leader.Term,
		GapMs:    shell.Millis(gap),
		DetectMs: shell.Millis(seen.noticed.Sub(began)), ElectMs: shell.Millis(seen.elected.Sub(seen.noticed)),
		// The writer may be served before a poll has seen the new leader.
		ResumeMs: shell.Millis(max(0, resumed.Sub(seen.elected)))}
	// The next act begins with a whole cluster.
	if err := mend(ctx, done); err != nil {
		return err
	}
	f.acts = append(f.acts, done)
	return nil
}

// killLeader takes the leader away without a warning.
func (f *failover) killLeader(_ context.Context, leader devcluster.Status) error {
	return f.cluster.Kill(leader.NodeID)
}

// stepLeaderDown has the leader hand over.
func (f *failover) stepLeaderDown(ctx context.Context, _ devcluster.Status) error {
	// Any voter that has caught up may take over.
	_, err := f.admin.Admin().StepDown(ctx, "")
	return err
}

// reviveKilled starts the killed node and waits until it has applied what the leader had applied when
// all nodes followed it.
func (f *failover) reviveKilled(ctx context.Context, a failoverAct) error {
	// With its folder: it only has to catch up.
	if err := f.cluster.Restart(a.From); err != nil {
		return err
	}
	if err := f.followedByAll(ctx, a); err != nil {
		return err
	}
	leader, err := f.cluster.WaitLeader(ctx)
	if err != nil {
		return err
	}
	n, err := f.cluster.Node(a.From)
	if err != nil {
		return err
	}
	// Following the leader is not enough: the node has to have caught up with the log, too.
	return f.cluster.Until(ctx, a.From+" to catch up", func() bool {
		s, err := f.cluster.Status(ctx, n)
		return err == nil && s.AppliedIndex >= leader.AppliedIndex
	})
}

// followedByAll waits until every node follows one leader.
// It has the form of what restores a cluster after an act; a step-down leaves nothing else to restore.
func (f *failover) followedByAll(ctx context.Context, _ failoverAct) error {
	_, err := f.cluster.WaitLeader(ctx)
	return err
}

// observation is what the nodes' status showed of an act, and when.
type observation struct {
	noticed time.Time // a node no longer follows the old leader
	elected time.Time // a node leads a later term
	leader  devcluster.Status
}

// observeEvery is how often a node is polled, and so the precision of the parts of a gap.
const observeEvery = 4 * time.Millisecond

// observe asks all nodes again and again until one leads a later term.
func (f *failover) observe(ctx context.Context, before devcluster.Status) (observation, error) {
	// All polling ends as soon as one node leads.
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var seen observation
	var asking sync.WaitGroup
	// Every poll ends with watching, so Wait returns.
	for _, n := range f.cluster.Nodes() {
		// Each node is polled by itself, so a dead one delays no other.
		asking.Go(func() {
			f.poll(watching, n, func(s devcluster.Status) {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				// The first node that no longer follows the old leader has detected its loss.
				if seen.noticed.IsZero() && (s.Term > before.Term || s.LeaderID != before.NodeID) {
					seen.noticed = now
				}
				// In its own term the old leader may still report that it leads.
				if seen.elected.IsZero() && s.Role == "leader" && s.Term > before.Term {
					seen.elected, seen.leader = now, s
					stop()
				}
			})
		})
	}
	asking.Wait()
	if seen.elected.IsZero() {
		return seen, fmt.Errorf("wait for a leader after term %d: %w", before.Term, context.Cause(ctx))
	}
	return seen, nil
}

// poll asks one node until ctx ends.
func (f *failover) poll(ctx context.Context, n devcluster.Node, report func(devcluster.Status)) {
	// Polling ends with the first leader, so it costs the cluster little.
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	for {
		// A node that does not answer is what an act causes: it is asked again.
		if s, err := f.cluster.Status(ctx, n); err == nil {
			report(s)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
