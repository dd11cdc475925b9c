package raftnode

import (
	"errors"
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
	if kinds := leaderEvents(t, leader); slices.Contains(kinds, string(event.LeaderLost)) ||
		slices.Contains(kinds, string(event.LeaderStepdown)) {
		t.Errorf("reported: %v", kinds)
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

// A leader whose disk writes nothing for longer than an election leaves its leadership to
// voters whose disks do, and follows once its disk writes again.
func TestALeaderWhoseDiskHangsIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	s := newStalling(t, func(*Config) {})
	hung := s.leader()
	publish(t, hung, 1)
	s.hold(hung)
	released := false
	defer func() {
		if !released {
			s.release(hung)
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		hung.Propose(t.Context(), numbered(2)) // nobody knows what comes of it
	}()
	var next *Node
	eventually(t, "another leads", func() bool {
		for _, n := range s.all() {
			if n != hung && n.proposer.OpenTerm() != 0 {
				next = n
			}
		}
		return next != nil
	})
	publish(t, next, 3)
	if _, err := hung.Propose(t.Context(), numbered(4)); !errors.Is(err, ErrNoLeader) {
		t.Errorf("the one whose disk hangs took a request: %v", err)
	}
	s.release(hung)
	released = true
	<-done
	eventually(t, "it follows", func() bool { id, _ := hung.roster.Leader(); return id == next.cfg.ID })
	publish(t, hung, 5)
	s.settle()
}
