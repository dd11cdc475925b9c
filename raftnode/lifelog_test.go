package raftnode

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/internal/frame"
)

// A node that joins logs the snapshot it gets and that it has joined; later how its suffrage changes. Each is one line.
func TestANodeLogsThatItJoinsAndGetsAndLosesItsVote(t *testing.T) {
	var out lineBuffer
	votersInBubble(t, 3, func(cfg *Config) {
		cfg.Timing.TrailingLogs = 1
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Level: hclog.Info, Output: &out, DisableTime: true})
	}, func(t testing.TB, c *cluster) {
		logs := func(line string) {
			t.Helper()
			eventually(t, "the log has "+line, func() bool { return len(out.lines(line)) > 0 })
			if got := out.lines(line); len(got) != 1 {
				t.Errorf("%d times %q: %q", len(got), line, got)
			}
		}
		leader := c.leader()
		for i := range 20 {
			publish(t, leader, i)
		}
		if err := leader.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		logs(leader.cfg.ID + ".snapshots: snapshot written: index=")

		c.joins("n4", nil)
		logs("n4.snapshots: snapshot installed: index=")
		logs("n4: joined as voter: cluster=" + leader.machine.ClusterID())
		c.joins("n5", func(cfg *Config) { cfg.NonVoter = true })
		logs("n5: joined as non-voter: cluster=" + leader.machine.ClusterID())
		c.settle()

		if _, err := leader.Promote(t.Context(), "n5", false); err != nil {
			t.Fatal(err)
		}
		logs("n5: promoted to voter")
		if _, err := leader.Demote(t.Context(), "n5"); err != nil {
			t.Fatal(err)
		}
		logs("n5: demoted to non-voter")
		// Who has formed the cluster has neither joined it nor been promoted.
		if got := slices.Concat(out.lines("joined as "), out.lines("promoted to ")); len(got) != 3 {
			t.Errorf("logged: %q", got)
		}
	})
}

// joinCalls are Peers that record which nodes are asked to admit one.
type joinCalls struct {
	Peers
	mu   sync.Mutex
	urls []string
}

func (j *joinCalls) Join(ctx context.Context, url string, m frame.Member, opts MemberOptions) error {
	j.mu.Lock()
	j.urls = append(j.urls, url)
	j.mu.Unlock()
	return j.Peers.Join(ctx, url, m, opts)
}

// All nodes may be started with the same list of seeds, each of them included.
func TestANodeDoesNotAskItselfToBeAdmitted(t *testing.T) {
	votersInBubble(t, 1, nil, func(t testing.TB, c *cluster) {
		calls := &joinCalls{}
		n2 := c.joins("n2", func(cfg *Config) {
			cfg.Join = []string{"http://n2", "http://n1"}
			calls.Peers, cfg.Peers = cfg.Peers, calls
		})
		eventually(t, "n2 has a vote", func() bool { return slices.Contains(n2.roster.Voters(), "n2") })
		calls.mu.Lock()
		defer calls.mu.Unlock()
		if slices.Contains(calls.urls, "http://n2") || !slices.Contains(calls.urls, "http://n1") {
			t.Errorf("asked %q", calls.urls)
		}
	})
}
