package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/testaddr"
	"github.com/ringrift/ringlog/raftnode/quietlog"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

func TestNodesJoinArePromotedDemotedAndRemoved(t *testing.T) {
	votersInBubble(t, 3, nil, membersChange)
}

func membersChange(t testing.TB, c *cluster) {
	publish(t, c.leader(), 1)
	n4 := c.joins("n4", nil)
	eventually(t, "n4 has a vote", func() bool {
		s, ok := n4.roster.Server("n4")
		return ok && s.Suffrage == 0 && len(c.leader().roster.Voters()) == 4
	})
	n5 := c.joins("n5", func(cfg *Config) { cfg.NonVoter = true })
	eventually(t, "n5 follows", func() bool { return n5.roster.Role() == RoleNonVoter && n5.machine.Applied() > 0 })
	c.settle()

	leader := c.leader()
	if warning, err := leader.Promote(t.Context(), "n5", false); err != nil || warning != "" {
		t.Fatalf("promote: %q, %v", warning, err)
	}
	if warning, err := leader.Demote(t.Context(), "n5"); err != nil || warning == "" {
		t.Fatalf("demote to four voters: %q, %v", warning, err)
	}
	if _, err := leader.Remove(t.Context(), "n5"); err != nil {
		t.Fatal(err)
	}
	if _, known := leader.machine.Member("n5"); known || len(leader.roster.Servers()) != 4 {
		t.Errorf("n5 is still a member: %v", leader.roster.Servers())
	}
	c.crash("n5")
	if _, err := leader.Remove(t.Context(), "n4"); err != nil {
		t.Fatal(err)
	}
	c.crash("n4")
	publish(t, c.leader(), 2)
	c.settle()
}

func TestALeaderAskedToRemoveItselfHandsOverFirst(t *testing.T) {
	// In simulated time, so that the others answer pings in time on a busy machine.
	votersInBubble(t, 3, nil, leaderRemovesItself)
}

func leaderRemovesItself(t testing.TB, c *cluster) {
	old := c.leader()
	if _, err := old.Remove(t.Context(), old.cfg.ID); !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	eventually(t, "another leads", func() bool { return old.proposer.OpenTerm() == 0 && c.leader() != old })
	c.remove(old.cfg.ID)
	c.crash(old.cfg.ID)
	publish(t, c.leader(), 1)
	c.requireLeaderEvents(1, 0)
}

func TestWhatMembershipRefuses(t *testing.T) {
	// In simulated time, so that a slow disk uses none of the 300 ms.
	votersInBubble(t, 3, nil, membershipRefuses)
}

func membershipRefuses(t testing.TB, c *cluster) {
	leader := c.leader()
	follower := c.followers()[0].roster.Self()
	fresh := frame.Member{ID: "n9", RaftAddr: "127.0.0.1:1", HTTPAddr: "n9", Incarnation: "i9",
		FeatureLevel: fsm.FeatureLevel}
	with := func(change func(*frame.Member)) frame.Member {
		m := fresh
		change(&m)
		return m
	}
	for _, test := range []struct {
		name string
		m    frame.Member
		want error
	}{
		{"a known id with another folder", with(func(m *frame.Member) { m.ID = follower.ID }), ErrOtherIncarnation},
		{"a raft address in use", with(func(m *frame.Member) { m.RaftAddr = follower.RaftAddr }), ErrDuplicateAddress},
		{"an HTTP address in use", with(func(m *frame.Member) { m.HTTPAddr = follower.HTTPAddr }), ErrDuplicateAddress},
		{"no folder", with(func(m *frame.Member) { m.Incarnation = "" }), ErrUnknownMember},
		{"too old a program", with(func(m *frame.Member) { m.FeatureLevel = 0 }), ErrTooOld},
	} {
		if _, err := leader.AddMember(t.Context(), test.m, MemberOptions{}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	_, err := leader.AddMember(t.Context(), fresh, MemberOptions{ClusterID: "another"})
	if !errors.Is(err, ErrForeignFolder) {
		t.Errorf("a folder of another cluster: %v", err)
	}
	_, promote := leader.Promote(t.Context(), "nobody", false)
	_, demote := leader.Demote(t.Context(), "nobody")
	_, remove := leader.Remove(t.Context(), "nobody")
	_, here := c.followers()[0].AddMember(t.Context(), fresh, MemberOptions{})
	for err, want := range map[error]error{
		promote: ErrUnknownMember,
		demote:  ErrUnknownMember,
		remove:  ErrUnknownMember,
		here:    ErrNotLeader,
	} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := leader.AddMember(ctx, fresh, MemberOptions{Voter: true}); !errors.Is(err, ErrNotCaughtUp) {
		t.Errorf("a voter that never answers: %v", err)
	}
	if len(leader.roster.Voters()) != 3 {
		t.Error("it got a vote")
	}
}

func TestTheLastVoterStaysAndASixthNeedsForce(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	for name, act := range map[string]func(context.Context, string) (string, error){
		"demote": n.Demote,
		"remove": n.Remove,
	} {
		if _, err := act(t.Context(), "n1"); !errors.Is(err, ErrLastVoter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"n2", "n3", "n4", "n5"} {
		joined := c.joins(id, nil)
		eventually(t, id+" has a vote", func() bool { return slices.Contains(joined.roster.Voters(), id) })
	}
	six := c.joins("n6", func(cfg *Config) { cfg.NonVoter = true })
	eventually(t, "n6 follows", func() bool { return six.roster.Role() == RoleNonVoter })
	if _, err := c.leader().Promote(t.Context(), "n6", false); !errors.Is(err, ErrTooManyVoters) {
		t.Errorf("a sixth voter: %v", err)
	}
	if warning, err := c.leader().Promote(t.Context(), "n6", true); err != nil || warning == "" {
		t.Errorf("forced: %q, %v", warning, err)
	}
}

func TestAVoterThatLostItsFolderIsRefusedUntilItIsAddedAgain(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	publish(t, c.leader(), 1)
	lost := c.followers()[0].cfg.ID
	c.crash(lost)
	if err := os.RemoveAll(c.config[lost].Dir); err != nil {
		t.Fatal(err)
	}
	reborn := c.start(lost)
	eventually(t, "its handshake is refused", func() bool {
		return slices.ContainsFunc(c.leader().transport.Refusals(), func(r rafttransport.Refusal) bool {
			return r.Peer == lost && r.Reason == "other_incarnation"
		})
	})
	eventually(t, "the others say so too, and not that it is silent", func() bool {
		for _, m := range c.leader().Status().Members {
			if m.ID == lost {
				return m.OtherFolder
			}
		}
		return false
	})
	eventually(t, "it says why it is not in", func() bool {
		return reborn.Status().JoinRefused == ErrOtherIncarnation.Error()
	})
	if reborn.roster.MayVote() || reborn.machine.ClusterID() != "" {
		t.Fatal("it takes part under its old name")
	}
	c.remove(lost)
	eventually(t, "it is admitted again by its own request to join", func() bool {
		return slices.Contains(reborn.roster.Voters(), lost) && reborn.machine.ClusterID() != "" &&
			reborn.Status().JoinRefused == ""
	})
	eventually(t, "the folder is a member's", func() bool {
		return !slices.ContainsFunc(c.leader().Status().Members, func(m MemberStatus) bool { return m.OtherFolder })
	})
	publish(t, reborn, 2)
	c.settle()
}

// Raft's replication to a member that was away sleeps for long, and makes one more attempt after
// the member's removal: it must not reach the folder that comes in its place.
func TestAMemberIsAddedOnceTheReplicationBeforeHasEnded(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	publish(t, c.leader(), 1)
	replaced := c.followers()[0].cfg.ID
	c.crash(replaced)
	if err := os.RemoveAll(c.config[replaced].Dir); err != nil {
		t.Fatal(err)
	}
	c.remove(replaced)
	for waited := false; !waited; {
		leader := c.leader()
		leader.contacts.Begin(raft.ServerID(replaced)) // raft's call to the member that was removed
		ctx, cancel := context.WithTimeout(t.Context(), leader.cfg.Timing.Heartbeat)
		_, err := leader.AddMember(ctx,
			frame.Member{ID: replaced, RaftAddr: c.config[replaced].RaftBind, Incarnation: "another"}, MemberOptions{})
		cancel()
		if _, listed := leader.roster.Server(replaced); listed || err == nil {
			t.Fatalf("it was added while raft still spoke to the member that was removed: %v", err)
		}
		waited = errors.Is(err, context.DeadlineExceeded)
		leader.contacts.End(raft.ServerID(replaced))
		if leader.contacts.Quiet(raft.ServerID(replaced), leader.cfg.Timing.Heartbeat) {
			t.Error("a call that has just ended counts as long ago")
		}
	}
	c.start(replaced)
	eventually(t, "it is added by its own knocking", func() bool {
		return slices.Contains(c.leader().roster.Voters(), replaced)
	})
	publish(t, c.leader(), 2)
	c.settle()
}

func TestANodeWithAFolderOfAnotherClusterEnds(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	d := newCluster(t, nil)
	d.joins("x1", func(cfg *Config) { cfg.BootstrapExpect, cfg.Join = 1, []string{"http://x1"} })
	own := d.leader().machine.ClusterID()
	d.crash("x1")
	ended := make(chan error, 1)
	cfg := d.config["x1"]
	cfg.Peers, cfg.Join, cfg.RaftBind = c.net, []string{"http://n1"}, testaddr.Free(t)
	cfg.Fatal = func(err error) { ended <- err }
	d.config["x1"] = cfg
	d.start("x1")
	var err error
	select {
	case err = <-ended:
	case <-time.After(raceFactor * 15 * time.Second):
		t.Fatal("it serves on")
	}
	for _, part := range []string{own, c.leader().machine.ClusterID(), cfg.Dir, "http://n1", "--join"} {
		if !errors.Is(err, ErrForeignFolder) || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, which should name %s", err, part)
		}
	}
	if _, known := c.leader().machine.Member("x1"); known || len(c.leader().roster.Servers()) != 1 {
		t.Error("a node of another cluster became a member")
	}
}

func TestARefusalThatLastsIsLoggedOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	j := &joiner{logger: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})}
	now := time.Now()
	for _, step := range []struct {
		err  error
		wait time.Duration
		want string // how the line begins
	}{
		{errUnreachable, 0, "[INFO]"},
		{fmt.Errorf("add x: %w", ErrOtherIncarnation), 0, "[WARN]"},
		{fmt.Errorf("add x: %w", ErrOtherIncarnation), quietlog.RepeatAfter - 1, ""},
		{errUnreachable, 0, "[INFO]"},
		{ErrDuplicateAddress, 0, "[WARN]"},
		{fmt.Errorf("add x: %w", ErrOtherIncarnation), 1, "[WARN]"},
	} {
		out.Reset()
		now = now.Add(step.wait)
		j.joinRejected("http://n1", step.err, now)
		if got := out.String(); !strings.HasPrefix(got, step.want) || (got == "") != (step.want == "") {
			t.Errorf("%v after %v: %q, want %q", step.err, step.wait, got, step.want)
		}
	}
	if got := j.refused.text(); got != ErrOtherIncarnation.Error() {
		t.Errorf("the last refusal is %q", got)
	}
	j.refused.clear()
	if got := j.refused.text(); got != "" {
		t.Errorf("let in, and yet %q", got)
	}
}

func TestAVoterThatLostItsFolderMakesNoQuorum(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	publish(t, c.leader(), 1)
	gone, lost := c.followers()[0].cfg.ID, c.followers()[1].cfg.ID
	survivor := c.leader()
	c.crash(gone)
	c.crash(lost)
	if err := os.RemoveAll(c.config[lost].Dir); err != nil {
		t.Fatal(err)
	}
	reborn := c.start(lost)
	eventually(t, "the survivor steps down", func() bool { return survivor.proposer.OpenTerm() == 0 })
	term := survivor.raft.Load().CurrentTerm()
	eventually(t, "the wiped voter was asked and refused", func() bool {
		return len(reborn.transport.Refusals()) > 0 || len(survivor.transport.Refusals()) > 0
	})
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), quick().Election)
		if _, err := survivor.Propose(ctx, numbered(2)); err == nil {
			t.Fatal("acknowledged with one true voter of three")
		}
		<-ctx.Done()
		cancel()
	}
	if survivor.proposer.OpenTerm() != 0 || survivor.raft.Load().CurrentTerm() != term {
		t.Errorf("it leads again, or its term rose from %d to %d", term, survivor.raft.Load().CurrentTerm())
	}
}

func TestAMemberWhoseAddressChangedIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	id := c.followers()[0].cfg.ID
	c.stop(id)
	cfg := c.config[id]
	cfg.RaftBind = testaddr.Free(t)
	c.config[id] = cfg
	n := c.start(id)
	eventually(t, "its new address in the configuration", func() bool {
		s, _ := c.leader().roster.Server(id)
		return string(s.Address) == n.roster.Address()
	})
	c.leader()
	publish(t, n, 1)
	c.settle()
}
