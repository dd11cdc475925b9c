package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func (s *simulation) leads() *Node { return s.nodes[s.leaderID("")] }

// followers are the running nodes that do not lead.
func (s *simulation) followers() []*Node {
	leader := s.leads()
	return slices.DeleteFunc(s.running(), func(n *Node) bool { return n == leader })
}

// offlineReasons are the reasons of the VOTER_OFFLINE events of a voter, the oldest first.
func (s *simulation) offlineReasons(n *Node, voter string) (reasons []string) {
	chunk, err := n.machine.Log().Read(1, &event.Matcher{}, 1024)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range chunk.Events {
		var p struct {
			Voter  string `json:"voter_id"`
			Reason string `json:"reason"`
		}
		if e.Type == event.VoterOffline && json.Unmarshal(e.Payload, &p) == nil && p.Voter == voter {
			reasons = append(reasons, p.Reason)
		}
	}
	return reasons
}

// A voter counts as there for the leader while it answers pings and raft has contact with
// it, in both directions.
func TestAVoterIsThereIfItAnswersPingsAndRaft(t *testing.T) {
	for name, c := range map[string]struct {
		via     port
		in, out bool
		reason  string
	}{
		"raft both ways":     {raftPort, true, true, election.ReasonRaft},
		"raft to the voter":  {raftPort, true, false, election.ReasonRaft},
		"raft from it":       {raftPort, false, true, election.ReasonRaft},
		"http both ways":     {httpPort, true, true, election.ReasonHTTP},
		"http from it":       {httpPort, false, true, election.ReasonHTTP},
		"both, to the voter": {bothPorts, true, false, election.ReasonHTTP},
	} {
		for how := range loss(losses) {
			t.Run(name+" "+how.String(), func(t *testing.T) {
				inBubble(t, func(s *simulation) {
					t := s.t
					leader, followers := s.leads(), s.followers()
					cut, other := followers[0].cfg.ID, followers[1].cfg.ID
					links := s.around(cut, c.in, c.out)
					for i := range links {
						links[i].via = c.via
					}
					s.net.cut(how, links...)
					time.Sleep(10 * time.Second)

					if s.leads() != leader {
						t.Fatalf("%s does not lead any more", leader.cfg.ID)
					}
					st := leader.Status()
					if want := (Quorum{Voters: 3, Needed: 2, Healthy: 2, Margin: 0}); st.Quorum != want || !st.Voters.AtRisk {
						t.Errorf("quorum %+v, at risk: %v", st.Quorum, st.Voters.AtRisk)
					}
					for _, m := range st.Members {
						want := ""
						if m.ID == cut {
							want = c.reason
						}
						if m.Unreachable != want || m.Healthy != (want == "") {
							t.Errorf("%s: healthy %v, unreachable %q", m.ID, m.Healthy, m.Unreachable)
						}
					}
					if got := s.offlineReasons(leader, cut); !slices.Equal(got, []string{c.reason}) {
						t.Errorf("reported offline for %q", got)
					}
					if v, leads := leader.Autopilot(); !leads || v.FailureTolerance != 0 || v.Healthy {
						t.Errorf("autopilot: %+v", v)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					if _, err := leader.Remove(ctx, other); !errors.Is(err, ErrBreaksQuorum) {
						t.Errorf("removing the last follower that replicates: %v", err)
					}
					if _, err := leader.Demote(ctx, other); !errors.Is(err, ErrBreaksQuorum) {
						t.Errorf("demoting it: %v", err)
					}
					if err := leader.StepDown(ctx, cut); !errors.Is(err, ErrNoTarget) {
						t.Errorf("handing over to the one that is not there: %v", err)
					}
					if err := leader.StepDown(ctx, ""); err != nil {
						t.Errorf("handing over: %v", err)
					}
					time.Sleep(5 * time.Second)
					if got := s.leaderID(""); got != other {
						t.Errorf("%q leads after the hand-over, not %s", got, other)
					}
					s.net.heal()
					s.settle()
					time.Sleep(10 * time.Second)
					if q := s.leads().Status().Quorum; q.Margin != 1 {
						t.Errorf("once all is whole again: %+v", q)
					}
				})
			})
		}
	}
}

// A non-voter with which raft has no contact gets no vote: it could not take part.
func TestNobodyIsPromotedWithoutContactOfRaft(t *testing.T) {
	inBubble(t, func(s *simulation) {
		t := s.t
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leader, cut := s.leads(), s.followers()[0].cfg.ID
		if _, err := leader.Demote(ctx, cut); err != nil {
			t.Fatal(err)
		}
		s.settle()
		links := s.around(cut, true, true)
		for i := range links {
			links[i].via = raftPort
		}
		s.net.cut(drop, links...)
		time.Sleep(10 * time.Second)
		if _, err := leader.Promote(ctx, cut, false); !errors.Is(err, ErrNotCaughtUp) || ctx.Err() != nil {
			t.Errorf("promoting it, though it has all entries: %v", err)
		}
		s.net.heal()
		time.Sleep(10 * time.Second)
		if _, err := leader.Promote(ctx, cut, false); err != nil {
			t.Errorf("promoting it once raft reaches it: %v", err)
		}
	})
}

// A voter that accepts a question and does not answer keeps nobody from taking over.
func TestAHandOverDoesNotWaitForAVoterThatHangs(t *testing.T) {
	inBubble(t, func(s *simulation) {
		for i := range 2 {
			leader, followers := s.leads(), s.followers()
			hung, other := followers[i].cfg.ID, followers[1-i].cfg.ID
			s.net.cut(hold, link{hung, leader.cfg.ID, httpPort})
			ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
			began := time.Now()
			err := leader.StepDown(ctx, "")
			cancel()
			if took := time.Since(began); err != nil || took > time.Second {
				s.t.Errorf("%s hangs, %s is well: %v after %v", hung, other, err, took)
			}
			time.Sleep(2 * time.Second)
			if got := s.leaderID(""); got != other {
				s.t.Errorf("%q leads, not %s", got, other)
			}
			s.net.heal()
			s.settle()
		}
	})
}

// A leader of this moment has pinged nobody yet: it asks whom it may hand over to.
func TestALeaderHandsOverBeforeItsFirstPing(t *testing.T) {
	inBubble(t, func(s *simulation) {
		leader := s.leads()
		leader.watch.Forget(nil)
		if err := leader.StepDown(s.t.Context(), ""); err != nil {
			s.t.Error(err)
		}
	})
}

// One that is gone answers neither raft nor pings: whichever of the two it happened to answer
// last, the reason is not that raft alone has no contact with it.
func TestAVoterThatIsGoneIsNotOneThatOnlyRaftMisses(t *testing.T) {
	inBubble(t, func(s *simulation) {
		t := s.t
		leader, gone := s.leads(), s.followers()[0].cfg.ID
		set := frame.Request{Command: frame.SettingSet{Key: "health.hold_down", Value: "1s"}}
		if _, err := leader.Propose(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		const rounds = 40
		for i := range rounds {
			s.crash(gone)
			for range 500 {
				time.Sleep(10 * time.Millisecond)
				if reason, _ := leader.watch.Absence(gone); reason == election.ReasonRaft {
					t.Fatalf("round %d: raft alone has no contact with a node that is gone", i)
				}
			}
			s.start(gone)
			s.settle()
			time.Sleep(4*time.Second + time.Duration(i)*29*time.Millisecond) // another moment between two pings
		}
		want := slices.Repeat([]string{election.ReasonHTTP}, rounds)
		if got := s.offlineReasons(leader, gone); !slices.Equal(got, want) {
			t.Errorf("reported offline for %q", got)
		}
	})
}

// A member that has reported a moment ago lags by what was applied since. The leader does not: entries come from it.
func TestAFollowerDoesNotSayThatTheLeaderLags(t *testing.T) {
	inBubble(t, func(s *simulation) {
		leader, followers := s.leads(), s.followers()
		lagged := false
		for range 100 {
			s.client.publish(leader, time.Second)
			for _, m := range followers[0].Status().Members {
				if m.ID == leader.cfg.ID && m.TrailingEntries > 0 {
					t.Fatalf("the leader is said to lag by %d entries", m.TrailingEntries)
				}
				lagged = lagged || m.TrailingEntries > 0
			}
		}
		if !lagged {
			t.Error("nobody lagged: nothing was applied between two pings")
		}
	})
}
