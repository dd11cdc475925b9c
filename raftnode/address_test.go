package raftnode

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// A member that the cluster has at a wrong address, where nobody reaches it, makes the
// right one known by itself.
func TestAMemberKnownAtAWrongAddressMakesItsOwnKnown(t *testing.T) {
	for name, wrong := range map[string]struct{ raft, http string }{
		"both ports":    {"nowhere:1", "nowhere"},
		"raft's port":   {"nowhere:1", ""},
		"the HTTP port": {"", "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *simulation) {
				id := s.follower()
				m, _ := s.leads().machine.Member(id)
				right := m
				if wrong.raft != "" {
					m.RaftAddr = wrong.raft
				}
				if wrong.http != "" {
					m.HTTPAddr = wrong.http
				}
				s.crash(id)
				if _, err := s.leads().AddMember(s.t.Context(), m, MemberOptions{}); err != nil {
					s.t.Fatal(err)
				}
				s.start(id)
				s.settle()
				time.Sleep(2 * joinBackoff)
				if got, _ := s.leads().machine.Member(id); got != right {
					s.t.Errorf("the cluster has %+v, not %+v", got, right)
				}
				if q := s.leads().Status().Quorum; q.Margin != 1 {
					s.t.Errorf("%+v", q)
				}
			})
		})
	}
}

// A member that was removed while it was cut off does not let itself in again, and says
// why it serves nobody.
func TestARemovedMemberThatRunsSaysSo(t *testing.T) {
	inBubble(t, func(s *simulation) {
		id := s.follower()
		s.net.cut(reset, s.around(id, true, true)...)
		time.Sleep(5 * time.Second)
		if _, err := s.leads().Remove(s.t.Context(), id); err != nil {
			s.t.Fatal(err)
		}
		s.net.heal()
		time.Sleep(time.Minute)
		gone := s.nodes[id]
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if _, err := gone.Propose(ctx, numbered(1)); !errors.Is(err, ErrRemovedNode) || !errors.Is(err, ErrNoLeader) {
			s.t.Errorf("asked, it says: %v", err)
		}
		if got := gone.Status().JoinRefused; !strings.Contains(got, "removed") {
			s.t.Errorf("its status says %q", got)
		}
		if _, listed := s.leads().roster.Server(id); listed {
			s.t.Error("it has let itself in again")
		}
		m := gone.roster.Self()
		if _, err := s.leads().AddMember(s.t.Context(), m, MemberOptions{Voter: true}); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, err := gone.Propose(s.t.Context(), numbered(2)); err != nil || gone.Status().JoinRefused != "" {
			s.t.Errorf("let in again: %v, %q", err, gone.Status().JoinRefused)
		}
	})
}

// While one node catches up, which may take long, others are changed.
func TestAChangeOfMembersDoesNotWaitForAnotherToCatchUp(t *testing.T) {
	inBubble(t, func(s *simulation) {
		leader := s.leads()
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		joined := make(chan error)
		go func() {
			m := frame.Member{ID: "n9", RaftAddr: "n9:1", HTTPAddr: "n9", Incarnation: "i9",
				FeatureLevel: leader.roster.Self().FeatureLevel}
			_, err := leader.AddMember(ctx, m, MemberOptions{Voter: true})
			joined <- err
		}()
		time.Sleep(time.Second)
		if _, listed := leader.roster.Server("n9"); !listed {
			s.t.Fatal("n9 is not listed")
		}
		soon, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		if err := leader.StepDown(soon, ""); err != nil {
			s.t.Errorf("handing over meanwhile: %v", err)
		}
		if id, _ := leader.roster.Leader(); id == "" || id == leader.cfg.ID {
			s.t.Errorf("it does not know who leads: %q", id)
		}
		if err := <-joined; !errors.Is(err, ErrNotLeader) {
			s.t.Errorf("joining ended with %v", err)
		}
		cancel()
	})
}
