package raftnode

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test on three nodes whose time is free.
func inBubble(t *testing.T, test func(*simulation)) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) { test(newSimulation(t, dir, 3, 1)) })
}

// follower is a node that does not lead.
func (s *simulation) follower() string {
	leader := s.leaderID("")
	for _, id := range s.ids {
		if id != leader {
			return id
		}
	}
	return ""
}

// caughtUp is how long a node takes to apply what its leader has now.
func (s *simulation) caughtUp(id string) time.Duration {
	goal, began := s.nodes[s.leaderID("")].machine.Applied(), time.Now()
	for s.nodes[id].machine.Applied() < goal {
		if time.Since(began) > time.Minute {
			s.t.Fatalf("%s: %s has applied %d of %d after a minute", s.now, id, s.nodes[id].machine.Applied(), goal)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// Raft waits up to 10.24 s between requests that fail, and nothing ends that wait.
func TestAFollowerThatIsBackGetsEntriesAtOnce(t *testing.T) {
	inBubble(t, func(s *simulation) {
		const atOnce = time.Second
		for _, away := range []time.Duration{time.Second, 6 * time.Second, 12 * time.Second, 25 * time.Second, 5 * time.Minute} {
			for _, crash := range []bool{true, false} {
				id := s.follower()
				s.now = fmt.Sprintf("%s away for %v, crash %v", id, away, crash)
				if crash {
					s.crash(id)
				} else {
					s.net.cut(reset, s.around(id, true, true)...)
				}
				time.Sleep(away)
				s.client.publish(s.nodes[s.leaderID("")], 5*time.Second)
				if crash {
					s.start(id)
				} else {
					s.net.heal()
				}
				if took := s.caughtUp(id); took > atOnce {
					t.Errorf("%s: entries after %v", s.now, took)
				}
				s.settle()
			}
		}
	})
}
