package raftnode

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/upstream"
)

// patient has voters campaign early when their leader has ended, and wait long otherwise.
func patient(cfg *Config) {
	cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = 3*time.Second, 3*time.Second, 200*time.Millisecond
}

func TestAnEndedLeaderIsReplacedBeforeItsHeartbeatIsMissed(t *testing.T) {
	votersInBubble(t, 3, patient, func(t testing.TB, c *cluster) {
		publish(t, c.leader(), 1)
		c.settle() // nobody's log is ahead
		gone := c.leader()
		usual := c.followers()[0].raft.Load().ReloadableConfig()
		began := time.Now()
		c.crash(gone.cfg.ID)
		publish(t, c.leader(), 2)
		if took := time.Since(began); took >= gone.cfg.Timing.Heartbeat {
			t.Errorf("writing resumed after %s, a heartbeat timeout is %s", took, gone.cfg.Timing.Heartbeat)
		}
		for _, n := range c.all() {
			eventually(t, n.cfg.ID+" is patient again", func() bool { return n.raft.Load().ReloadableConfig() == usual })
		}
	})
}

// A leader that only lost its connections comes back with new ones and stays.
func TestALeaderThatIsHeardOfAgainStays(t *testing.T) {
	votersInBubble(t, 3, patient, func(t testing.TB, c *cluster) {
		leader := c.leader()
		publish(t, leader, 1)
		term := leader.raft.Load().CurrentTerm()
		usual := leader.raft.Load().ReloadableConfig()
		for i := range 5 {
			for _, n := range c.followers() {
				n.transport.Disconnect(leader.cfg.ID)
			}
			synctest.Wait() // all have noticed that the connections have ended
			publish(t, leader, 2+i)
		}
		time.Sleep(2*leader.cfg.Timing.Lease + 4*upstream.CandidateStagger) // whoever would campaign has begun
		for _, n := range c.all() {
			r := n.raft.Load()
			if r.CurrentTerm() != term || n != leader && r.State() != raft.Follower || r.ReloadableConfig() != usual {
				t.Errorf("%s: %s in term %d, it was %d; timeouts %+v", n.cfg.ID, r.State(), r.CurrentTerm(), term,
					r.ReloadableConfig())
			}
		}
	})
}
