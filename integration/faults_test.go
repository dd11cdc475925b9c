package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

// follower returns a node that does not lead.
func (c *cluster) follower() *process {
	c.t.Helper()
	leader := c.leader()
	for _, p := range c.nodes {
		if p != leader {
			return p
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// write publishes until n more events are acknowledged.
func (c *cluster) write(l *ledger, n int64) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	until := l.counts.Load() + n
	var writing sync.WaitGroup
	for range 4 { // each is waited for, so all four take part
		cl, number := c.client(), 1000+int(l.writers.Add(1))
		writing.Go(func() { l.writer(ctx, c.t, cl, number) })
		c.eventually(30*time.Second, "a first event of a writer", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.sent[fmt.Sprintf("w%d-0", number)] {
				return errors.New("none yet")
			}
			return nil
		})
	}
	c.eventually(60*time.Second, "acknowledged events", func() error {
		if l.counts.Load() < until {
			return fmt.Errorf("%d of %d", l.counts.Load(), until)
		}
		return nil
	})
	cancel()
	writing.Wait()
}

// A follower that is cut off while the log is compacted past it catches up by a
// snapshot and then has the same state.
func TestFollowerCatchesUpBySnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3,
		"--raft-compact-interval", "1s",
		"--raft-compact-entries", "64",
		"--raft-trailing-entries", "16",
		"--log-level", "debug", // at which raft's lines are logged
	).startAll()
	l := newLedger()
	c.write(l, 500)
	lagging := c.follower()
	// While it is gone, the leader's raft log is cut past all that was sent to it.
	lagging.kill()
	before, err := c.leader().status()
	if err != nil {
		t.Fatal(err)
	}
	c.write(l, 5000)
	c.mustRun("compact", "--keep", "100", "--force", "--yes")
	c.eventually(30*time.Second, "a raft log that begins past the follower", func() error {
		if to := compactedTo(c.leader()); to <= before.CommitIndex+100 {
			c.write(l, 200)
			return fmt.Errorf("it is compacted to %d, the follower has at most %d", to, before.CommitIndex)
		}
		return nil
	})
	// It catches up, and its log says how.
	lagging.start()
	c.converged()
	c.eventually(10*time.Second, "snapshot in the follower's log", func() error {
		if text := lagging.tail(); !strings.Contains(text, "snapshot installed") {
			return fmt.Errorf("%s caught up without one:\n%s", lagging.id, text)
		}
		return nil
	})
}

// compactedTo returns the index up to which a node's raft log was deleted, as its
// diagnostics report it.
func compactedTo(p *process) (to uint64) {
	text, _ := os.ReadFile(p.log)
	for _, line := range strings.Split(string(text), "\n") {
		if _, rest, found := strings.Cut(line, "compacting logs: "); found {
			var from, index uint64
			if n, _ := fmt.Sscanf(rest, "from=%d to=%d", &from, &index); n == 2 {
				to = index
			}
		}
	}
	return to
}

// A voter whose folder was emptied is refused under its old name until it is
// removed and added again; then it takes part as a new one.
func TestWipedVoterIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	l := newLedger()
	c.write(l, 500)
	wiped := c.follower()
	wiped.kill()
	if err := os.RemoveAll(wiped.dir); err != nil {
		t.Fatal(err)
	}
	// It starts under its old name with an empty folder, and is refused.
	leader := c.leader()
	wiped.args = []string{"--join", leader.url()}
	wiped.start()
	c.eventually(30*time.Second, "a refusal of the wiped voter", func() error {
		if text := wiped.tail(); !strings.Contains(text, "incarnation") {
			return errors.New("its log does not speak of its incarnation")
		}
		return nil
	})
	if s, err := wiped.status(); err == nil && s.Role != "non-voter" && s.AppliedIndex > 0 {
		t.Fatalf("the wiped voter takes part: %+v", s)
	}
	// Removed, it may join as a new member.
	wiped.kill()
	c.mustRun("cluster", "remove", wiped.id, "--yes")
	if err := os.RemoveAll(wiped.dir); err != nil {
		t.Fatal(err)
	}
	wiped.start()
	compare(t, c, l)
}

// A cluster that lost its quorum for good is recovered from one node's folder: every
// event that node had applied is kept, and the configuration is the one given.
func TestRecoverFromLostQuorum(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	l := newLedger()
	c.write(l, 2000)
	c.converged()
	survivor := c.nodes[0]
	for _, p := range c.nodes {
		p.stop()
	}
	out, err := c.run("cluster", "recover", "--data-dir", survivor.dir, "--member", survivor.id+"="+survivor.raft, "--yes")
	if err != nil {
		t.Fatalf("recover: %v\n%s", err, out)
	}
	// The survivor has everything and accepts writes.
	alone := &cluster{t: t, nodes: []*process{survivor}}
	survivor.args = nil
	alone.startAll()
	compare(t, alone, l)
	alone.write(l, 100)
	// The others join with empty folders.
	c.forget()
	for _, lost := range c.nodes[1:] {
		if err := os.RemoveAll(lost.dir); err != nil {
			t.Fatal(err)
		}
		lost.args = []string{"--join", survivor.url()}
		lost.start()
	}
	compare(t, c, l)
}

// A node that is stopped hands over, so no lost leader is reported.
func TestGracefulRestartOfEveryNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	l := newLedger()
	for _, p := range c.nodes {
		c.write(l, 300)
		p.stop()
		c.write(l, 300)
		p.start()
		c.converged()
	}
	compare(t, c, l)
	for _, e := range readAll(t, c, c.nodes[0], c.converged().LastOffset) {
		if e.Type == event.LeaderLost {
			t.Errorf("a rolling restart lost a leader: %s", e.Payload)
		}
	}
}

// GET /metrics shows the node's figures and raft's own, for Prometheus to read.
func TestMetricsShowRaftsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 1).startAll()
	c.eventually(10*time.Second, "raft's metrics", func() error {
		resp, err := plainHTTP.Get(c.nodes[0].url() + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		names := []string{"ringlog_applied_index", "ringlog_node_info", "raft_apply", "raft_boltdb_logBatchSize"}
		for _, name := range names {
			if !strings.Contains(string(text), "\n"+name) {
				return fmt.Errorf("no %s (%v)", name, err)
			}
		}
		return err
	})
}
