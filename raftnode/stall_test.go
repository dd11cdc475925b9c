package raftnode

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/event"
)

// stalling is a cluster whose nodes' raft stands still in a disk write from a call of
// hold until one of release.
type stalling struct {
	*cluster
	gates map[string]chan struct{} // what each node passes after a write
}

func newStalling(t *testing.T, change func(*Config)) *stalling {
	s := &stalling{gates: map[string]chan struct{}{}}
	for _, id := range []string{"n1", "n2", "n3"} {
		s.gates[id] = make(chan struct{}, 1)
		s.gates[id] <- struct{}{}
	}
	s.cluster = voters(t, 3, func(cfg *Config) {
		change(cfg)
		gate := s.gates[cfg.ID]
		cfg.OnStore = func(int, int, time.Duration) {
			<-gate
			gate <- struct{}{}
		}
	})
	return s
}

func (s *stalling) hold(nodes ...*Node) {
	for _, n := range nodes {
		<-s.gates[n.cfg.ID]
	}
}

func (s *stalling) release(nodes ...*Node) {
	for _, n := range nodes {
		s.gates[n.cfg.ID] <- struct{}{}
	}
}

// A disk that all voters share may pause for longer than a lease and a heartbeat: an
// election would not help, and needs the same disk.
func TestAPauseOfAllDisksEndsNoLeadership(t *testing.T) {
	t.Parallel()
	s := newStalling(t, func(*Config) {})
	leader := s.leader()
	publish(t, leader, 1)
	term := leader.raft.Load().CurrentTerm()

	s.hold(s.all()...)
	published := make(chan struct{})
	go func() {
		defer close(published)
		publish(t, leader, 2)
	}()
	began := time.Now()
	eventually(t, "the pause is over", func() bool { return time.Since(began) > 3*leader.cfg.Timing.Heartbeat })
	select {
	case <-published:
		t.Error("acknowledged while no disk wrote")
	default:
	}
	s.release(s.all()...)
	<-published
	publish(t, leader, 3)
	for _, n := range s.all() {
		if got := n.raft.Load().CurrentTerm(); got != term {
			t.Errorf("%s is in term %d, it was %d", n.cfg.ID, got, term)
		}
	}
	if kinds := told(t, leader); slices.Contains(kinds, string(event.LeaderLost)) || slices.Contains(kinds, string(event.LeaderStepdown)) {
		t.Errorf("told: %v", kinds)
	}
}

// Followers whose raft does not move at all keep their leader for Timing.Sync only.
func TestFollowersThatHangKeepNoLeader(t *testing.T) {
	t.Parallel()
	s := newStalling(t, func(cfg *Config) { cfg.Timing.Sync = 3 * cfg.Timing.Heartbeat })
	leader := s.leader()
	publish(t, leader, 1)
	followers := s.followers()
	s.hold(followers...)
	defer s.release(followers...)
	go leader.Propose(t.Context(), publishing(`{"n": 2}`))
	began := time.Now()
	eventually(t, "the leader has given up", func() bool { return leader.raft.Load().State() != raft.Leader })
	if took := time.Since(began); took < leader.cfg.Timing.Sync {
		t.Errorf("it gave up after %s already", took)
	}
}
