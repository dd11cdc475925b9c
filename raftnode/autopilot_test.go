package raftnode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/membership"
)

// set changes replicated settings: key, value, key, value, ….
func (c *cluster) set(pairs ...string) {
	c.t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		r := frame.Request{Command: frame.SettingSet{Key: pair[0], Value: pair[1]}}
		if _, err := c.leader().Propose(c.t.Context(), r); err != nil {
			c.t.Fatalf("set %v: %v", pair, err)
		}
	}
}

// mute has a node's HTTP side unreachable: it does not answer pings, and raft goes
// on.
func (c *cluster) mute(id string) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.nodes, id)
}

func (c *cluster) unmute(id string) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.nodes[id] = c.nodes[id]
}

// judged waits until the leader's verdict is as asked, and returns it with what it
// says of id.
func (c *cluster) judged(
	what, id string, ok func(AutopilotVerdict, ServerVerdict) bool,
) (v AutopilotVerdict, s ServerVerdict) {
	c.t.Helper()
	eventually(c.t, what, func() bool {
		var leads bool
		if v, leads = c.leader().Autopilot(); !leads {
			return false
		}
		i := slices.IndexFunc(v.Servers, func(s ServerVerdict) bool { return s.ID == id })
		if i < 0 {
			return false
		}
		s = v.Servers[i]
		return ok(v, s)
	})
	return v, s
}

func (c *cluster) levelTwo() {
	c.t.Helper()
	eventually(c.t, "feature level 2", func() bool { return c.leader().proposer.Reached(frame.KindVoterHealth) })
}

func hasVote(n *Node, id string) bool { return slices.Contains(n.roster.Voters(), id) }

func TestAnInterruptedJoinIsFinishedByTheNextLeaderOnceStable(t *testing.T) {
	votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
		const stable = 4 * raceFactor * time.Second
		c.levelTwo()
		c.set("autopilot.stabilization_time", stable.String())
		c.config["n4"] = c.member("n4")
		n4 := c.start("n4")
		c.mute("n4")
		old := c.leader()
		ctx, cancel := context.WithTimeout(t.Context(), raceFactor*500*time.Millisecond)
		defer cancel()
		if _, err := old.AddMember(ctx, n4.roster.Self(), MemberOptions{Voter: true}); !errors.Is(err, ErrNotCaughtUp) {
			t.Fatalf("a join that nobody finishes: %v", err)
		}
		c.judged("n4 waits for its vote", "n4", func(_ AutopilotVerdict, s ServerVerdict) bool {
			return !s.Voter && !s.Healthy && s.DesiredSuffrage == membership.DesiredVote && s.LastContactMs == -1 && s.Why != ""
		})

		c.unmute("n4")
		began := time.Now()
		c.crash(old.cfg.ID)
		if _, leads := old.Autopilot(); leads {
			t.Error("a node that does not lead gives a verdict")
		}
		c.judged("n4 is stable for a part of the time", "n4", func(_ AutopilotVerdict, s ServerVerdict) bool {
			return s.Healthy && !s.Voter && strings.HasPrefix(s.Why, "stable for")
		})
		next := c.leader()
		eventually(t, "n4 has its vote", func() bool { return hasVote(next, "n4") })
		if took := time.Since(began); took < stable {
			t.Errorf("it has its vote after %v, before it was stable for %v", took, stable)
		}
		c.settle()
	})
}

// A leader that has just been elected knows how everybody is: it has pinged them as a follower.
func TestTheFirstVerdictOfALeadershipIsRight(t *testing.T) {
	votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
		publish(t, c.leader(), 1)
		c.settle()
		next := c.followers()[0]
		if err := c.leader().StepDown(t.Context(), next.cfg.ID); err != nil {
			t.Fatal(err)
		}
		var first AutopilotVerdict
		eventually(t, "the next leader has a verdict", func() (judged bool) {
			first, judged = next.Autopilot()
			return judged
		})
		if !first.Healthy || first.FailureTolerance != 1 || len(first.Limiting) > 0 {
			t.Errorf("%+v", first)
		}
	})
}

func TestWhoIsNotToHaveAVoteGetsNone(t *testing.T) {
	votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
		c.levelTwo()
		c.set("autopilot.stabilization_time", "100ms")
		c.joins("n4", nil)
		c.joins("n5", func(cfg *Config) { cfg.NonVoter = true })
		eventually(t, "n4 has a vote", func() bool { return hasVote(c.leader(), "n4") })
		if _, err := c.leader().Demote(t.Context(), "n4"); err != nil {
			t.Fatal(err)
		}
		for _, leads := range []string{"one leader", "the next"} {
			for id, suffrage := range map[string]string{"n4": membership.DesiredNoVote, "n5": ""} {
				_, s := c.judged(id+" is stable for long", id, func(_ AutopilotVerdict, s ServerVerdict) bool {
					return s.Healthy && time.Since(s.Since) > raceFactor*time.Second
				})
				if s.Voter || s.DesiredSuffrage != suffrage || s.Why != "" {
					t.Errorf("%s: %+v", leads, s)
				}
			}
			if err := c.leader().StepDown(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		// One that comes back without asking for a vote does not lose what it wished for.
		leader := c.leader()
		if _, err := leader.Promote(t.Context(), "n5", false); err != nil {
			t.Fatal(err)
		}
		if _, err := leader.AddMember(t.Context(), c.nodes["n5"].roster.Self(), MemberOptions{}); err != nil {
			t.Fatal(err)
		}
		if wanted, known := leader.machine.VoteWanted("n5"); !wanted || !known {
			t.Error("n5 lost its desired suffrage")
		}
	})
}

// away waits until a server has been away for long enough that nothing happens to it
// any more.
func (c *cluster) away(id string) (AutopilotVerdict, ServerVerdict) {
	c.t.Helper()
	return c.judged(id+" is away for long", id, func(_ AutopilotVerdict, s ServerVerdict) bool {
		return s.LastContactMs > raceFactor*4000
	})
}

// rid reports whether a server is no member any more, in raft and in the state.
func (c *cluster) rid(id string) bool {
	_, listed := c.leader().roster.Server(id)
	_, known := c.leader().machine.Member(id)
	return !listed && !known
}

// requireDemoted requires that the log has once who lost its vote, and why.
func requireDemoted(t testing.TB, n *Node, id, reason string) {
	t.Helper()
	first, last := n.machine.Log().Bounds()
	var got []string
	for offset := first; offset <= last; offset++ {
		e, err := n.machine.Log().Get(offset)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "VOTER_DEMOTED" {
			got = append(got, string(e.Payload))
		}
	}
	if len(got) != 1 || !strings.Contains(got[0], `"voter_id": "`+id+`"`) ||
		!strings.Contains(got[0], `"reason": "`+reason+`"`) {
		t.Errorf("the log has of the votes taken: %q, want one, of %s for %s", got, id, reason)
	}
}

func TestADeadVoterIsRemovedWhereThatIsSwitchedOnAndEnoughAreLeft(t *testing.T) {
	votersInBubble(t, 4, nil, func(t testing.TB, c *cluster) {
		c.levelTwo()
		c.set("autopilot.dead_after", "1s", "autopilot.stabilization_time", "200ms", "autopilot.last_contact_threshold", "1s")
		first := c.followers()[0].cfg.ID
		c.crash(first)
		v, s := c.away(first)
		if !s.Voter || s.Healthy || v.FailureTolerance != 0 || len(v.Limiting) != 1 ||
			!strings.HasPrefix(v.Limiting[0], first+": no answer for") {
			t.Errorf("switched off: %+v", v)
		}
		c.set("autopilot.cleanup_dead_servers", "true")
		eventually(t, first+" is removed", func() bool { return c.rid(first) })
		requireDemoted(t, c.leader(), first, "dead_server")
		v, _ = c.judged("three healthy ones", c.leader().cfg.ID, func(v AutopilotVerdict, _ ServerVerdict) bool {
			return v.Healthy
		})
		if v.FailureTolerance != 1 || len(v.Limiting) != 0 || len(v.Servers) != 3 {
			t.Errorf("after the removal: %+v", v)
		}

		second := c.followers()[0].cfg.ID
		c.crash(second)
		if _, s = c.away(second); !s.Voter || !strings.Contains(s.Why, "dead, and kept") {
			t.Errorf("the third voter of at least three: %+v", s)
		}
		c.set("autopilot.min_voters", "2")
		eventually(t, second+" is removed", func() bool { return c.rid(second) })
		publish(t, c.leader(), 1)
		c.settle()
	})
}

func TestADeadVoterStaysWhileTheOthersMakeNoHealthyQuorum(t *testing.T) {
	votersInBubble(t, 5, nil, func(t testing.TB, c *cluster) {
		c.levelTwo()
		c.set("autopilot.dead_after", "1s", "autopilot.stabilization_time", "200ms", "autopilot.last_contact_threshold", "1s",
			"autopilot.cleanup_dead_servers", "true")
		f := c.followers()
		dead, mute, other := f[0].cfg.ID, f[1].cfg.ID, f[2].cfg.ID
		c.mute(mute)
		c.mute(other)
		c.judged("two are mute", mute, func(v AutopilotVerdict, _ ServerVerdict) bool { return len(v.Limiting) == 2 })
		c.crash(dead)
		if _, s := c.away(dead); !s.Voter || !strings.Contains(s.Why, "dead, and kept") {
			t.Errorf("removed, or not said why not: %+v", s)
		}
		c.unmute(mute)
		eventually(t, dead+" is removed", func() bool { return c.rid(dead) })
		_, before := c.away(other)
		_, s := c.judged("it stays mute", other, func(_ AutopilotVerdict, s ServerVerdict) bool {
			return s.LastContactMs > before.LastContactMs+raceFactor*1500
		})
		if !s.Voter || s.Healthy || strings.Contains(s.Why, "dead") {
			t.Errorf("one that answers raft alone is not dead: %+v", s)
		}
	})
}

func TestTheVerdictNamesAVoterThatLagsAndHowFar(t *testing.T) {
	var mu sync.Mutex
	held := map[string]chan struct{}{}
	gated := func(cfg *Config) {
		cfg.OnStore = func(int, int, time.Duration) {
			mu.Lock()
			gate := held[cfg.ID]
			mu.Unlock()
			if gate != nil {
				<-gate
			}
		}
	}
	votersInBubble(t, 3, gated, func(t testing.TB, c *cluster) {
		c.levelTwo()
		c.set("autopilot.max_trailing_entries", "10", "autopilot.stabilization_time", "100ms")
		all := func(v AutopilotVerdict, _ ServerVerdict) bool {
			return v.Healthy && v.FailureTolerance == 1 && len(v.Limiting) == 0
		}
		slow := c.followers()[0].cfg.ID
		c.judged("all are well", slow, all)

		gate := make(chan struct{})
		release := sync.OnceFunc(func() {
			mu.Lock()
			defer mu.Unlock()
			delete(held, slow)
			close(gate)
		})
		t.Cleanup(release)
		began := time.Now()
		mu.Lock()
		held[slow] = gate
		mu.Unlock()
		for i := range 30 {
			publish(t, c.leader(), i)
		}
		v, s := c.judged("it lags", slow, func(_ AutopilotVerdict, s ServerVerdict) bool {
			return !s.Healthy && s.TrailingSeconds > 1
		})
		if s.TrailingEntries < 20 || s.TrailingEntries > 60 || s.TrailingSeconds > 1.1*time.Since(began).Seconds()+0.2 ||
			v.FailureTolerance != 0 || len(v.Limiting) != 1 || !strings.HasPrefix(v.Limiting[0], slow+": trails by") {
			t.Errorf("with one that lags: %+v", v)
		}
		leader := c.leader()
		if err := leader.StepDown(t.Context(), slow); !errors.Is(err, ErrNotCaughtUp) || c.leader() != leader {
			t.Errorf("handing over to one that lags: %v", err)
		}
		release()
		// On its way it is well again before it has the last entries.
		c.judged("it has caught up", slow, func(v AutopilotVerdict, s ServerVerdict) bool {
			return all(v, s) && s.TrailingEntries <= 10 && s.TrailingSeconds <= 1
		})
	})
}
