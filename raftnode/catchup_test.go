package raftnode

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/statestore"
)

// inBubble runs a test on three nodes whose time is free.
func inBubble(t *testing.T, test func(*simulation)) { inBubbleWith(t, func(*Config) {}, test) }

func inBubbleWith(t *testing.T, change func(*Config), test func(*simulation)) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) { test(newSimulationWith(t, dir, 3, 1, change)) })
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
		absences := []int{1, 6, 12, 25, 300}
		if testing.Short() {
			absences = absences[2:3]
		}
		for _, seconds := range absences {
			away := time.Duration(seconds) * time.Second
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

// large publishes frames of a megabyte that does not compress.
func (s *simulation) large(frames, bytes int) {
	raw := make([]byte, bytes*3/4)
	for i := range frames {
		for j := range raw {
			raw[j] = byte(s.rng.Uint32())
		}
		publishPayload(s.t, s.nodes[s.leaderID("")],
			fmt.Sprintf(`{"n": %d, "x": "%s"}`, i, base64.StdEncoding.EncodeToString(raw)))
	}
}

// Raft sends up to 64 entries in a request, and after an error the same ones again.
func TestAFollowerCatchesUpOverALinkThatBreaks(t *testing.T) {
	inBubble(t, func(s *simulation) {
		id := s.follower()
		s.crash(id)
		s.large(12, 1<<20)
		s.net.thinOut(thin{carries: 6 << 20}, s.pick(func(link) bool { return true })...)
		s.start(id)
		if took := s.caughtUp(id); took > 10*time.Second {
			t.Errorf("12 MB over connections that carry 6 took %v", took)
		}
		s.settle()
	})
}

// A snapshot gets through over a link that needs longer for a piece of it than an RPC may take
// without a byte.
func TestASnapshotGoesOverAThinLink(t *testing.T) {
	inBubble(t, func(s *simulation) {
		id := s.follower()
		s.crash(id)
		s.large(2, 384<<10)
		for range 2 * s.config[id].Timing.TrailingLogs { // these stay when the log is compacted
			publish(s.t, s.leads(), 1)
		}
		if err := s.leads().Snapshot(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		s.net.thinOut(thin{rate: 40 << 10}, s.around(id, true, true)...)
		s.start(id)
		if took := s.caughtUp(id); took > time.Minute {
			t.Errorf("a megabyte at 40 KiB/s took %v", took)
		}
		if installed, _ := s.nodes[id].stores.Stable().GetUint64([]byte(statestore.KeyInstalled)); installed == 0 {
			t.Error("it needed no snapshot")
		}
	})
}

// A request takes as long as its link needs for it.
func TestALargeEntryGoesOverAThinLink(t *testing.T) {
	inBubble(t, func(s *simulation) {
		const megabyte = 1 << 20
		s.net.thinOut(thin{rate: megabyte}, s.pick(func(link) bool { return true })...)
		leader, began := s.leaderID(""), time.Now()
		s.large(1, 8*megabyte) // to two followers, each over its own link
		if took := time.Since(began); took < 6*time.Second || took > 20*time.Second {
			t.Errorf("8 MB at 1 MB/s took %v", took)
		}
		if now := s.leaderID(""); now != leader {
			t.Errorf("%s led, now %q does", leader, now)
		}
		s.settle()
	})
}

// Raft would have a commit wait for the next request, which on a quiet log is CommitTimeout
// and more away.
func TestFollowersHearOfACommitAtOnce(t *testing.T) {
	inBubble(t, func(s *simulation) {
		for range 20 {
			time.Sleep(s.config["n1"].Timing.CommitTimeout / 3)
			s.client.publish(s.nodes[s.leaderID("")], time.Second)
			for _, id := range s.ids {
				if took := s.caughtUp(id); took > 10*time.Millisecond {
					t.Errorf("%s has an event %v after it was acknowledged", id, took)
				}
			}
		}
		s.settle()
	})
}

// A promotion counts as soon as the leader and the new voter have it. Of the two voters that are
// left when the leader falls then, one knows the other as a non-voter, and its own log ends before
// the promotion: it has to give its vote all the same.
func TestAVoterIsElectedByOneThatHasNotHeardOfItsPromotion(t *testing.T) {
	inBubble(t, func(s *simulation) {
		leader, promoted := s.leads(), s.follower()
		var other string
		for _, id := range s.ids {
			if id != leader.cfg.ID && id != promoted {
				other = id
			}
		}
		demote := leader.raft.Load().DemoteVoter(raft.ServerID(promoted), 0, time.Second)
		if err := demote.Error(); err != nil {
			t.Fatal(err)
		}
		s.net.heal()
		time.Sleep(time.Second)
		s.net.cut(drop, link{from: leader.cfg.ID, to: other, via: raftPort})
		address := raft.ServerAddress(s.config[promoted].RaftBind)
		if err := leader.raft.Load().AddVoter(raft.ServerID(promoted), address, 0, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(s.nodes[other].roster.Voters(), promoted) {
			t.Fatalf("%s has heard of the promotion", other)
		}
		s.crash(leader.cfg.ID)
		time.Sleep(10 * time.Second)
		if id := s.leaderID(""); id != promoted {
			t.Errorf("%q leads, want %s", id, promoted)
		}
	})
}

// Whoever replaces one voter after the other goes by what status says: a promotion that would be
// lost with the leader makes no voter yet.
func TestAPromotionThatIsNotCommittedMakesNoVoter(t *testing.T) {
	inBubble(t, func(s *simulation) {
		leader, promoted := s.leads(), s.follower()
		r := leader.raft.Load()
		if err := r.DemoteVoter(raft.ServerID(promoted), 0, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
		s.net.heal()
		time.Sleep(time.Second)
		voter := func() bool {
			members := leader.Status().Members
			return members[slices.IndexFunc(members, func(m MemberStatus) bool { return m.ID == promoted })].Voter
		}
		s.net.cut(drop, s.around(leader.cfg.ID, true, true)...)
		done := r.AddVoter(raft.ServerID(promoted), raft.ServerAddress(s.config[promoted].RaftBind), 0, time.Second)
		for !slices.Contains(leader.roster.Voters(), promoted) {
			time.Sleep(10 * time.Millisecond)
		}
		if voter() {
			t.Error("a promotion that is not committed is shown as done")
		}
		s.net.heal()
		if err := done.Error(); err != nil {
			t.Fatal(err)
		}
		if !voter() {
			t.Error("a promotion that is committed is not shown")
		}
	})
}
