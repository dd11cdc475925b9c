package integration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/longtest"
)

// healthLevel is the feature level from which the log reports voters and quorum.
const healthLevel = 2

// scenario is something that is done to a cluster, and the story that its log has to report, in the
// notation of type line. a is the first leader; b, c, d and e are the others.
type scenario struct {
	name   string
	voters int  // 3 unless it says more
	always bool // also without RINGLOG_LONG_TESTS
	do     func(*stage)
	want   string         // what follows the first LEADER_ELECTED
	most   map[string]int // by the beginning of a type: at most that many events, which want does not list
}

var scenarios = []scenario{
	{name: "a follower is killed and comes back", do: followerKilled, want: followerGone},
	{name: "a follower is cut off", do: followerCutOff, want: `
		^QUORUM_OUTAGE_VIEW voter_id=$b cluster_had_quorum=true cause=unreachable` + followerGone},
	{name: "one follower does not hear the leader", do: followerDeaf, want: `
		^?QUORUM_OUTAGE_VIEW voter_id=$b cluster_had_quorum=true cause=no_leader` + followerGone},
	{name: "the leader is killed and comes back", do: leaderKilled, want: leaderGone},
	{name: "the leader is paused", do: leaderPaused, want: `
		^LEADER_LEASE_EXPIRED leader_id=$a` + leaderGone},
	{name: "every voter is paused for a moment", do: allPaused, want: `
		?LEADER_HEARTBEAT_MISSING leader_id=$a
		?LEADER_LOST old_leader=$a
		?LEADER_ELECTED previous_leader=$a
		^?LEADER_LEASE_EXPIRED leader_id=$a`},
	{name: "the leader is cut off", always: true, do: leaderCutOff, want: leaderAlone + leaderGone},
	{name: "the leader hears nobody", do: leaderDeaf, want: leaderAlone + leaderGone},
	{name: "nobody hears the leader", do: leaderMute, want: leaderAlone + leaderGone},
	{name: "the leader is in a minority of five", voters: 5, do: leaderInMinority, want: `
		LEADER_HEARTBEAT_MISSING leader_id=$a seen_by=$c|$d|$e
		LEADER_LOST old_leader=$a cause=heartbeat_timeout
		LEADER_ELECTED leader_id=$c|$d|$e previous_leader=$a cause=heartbeat_timeout leaderless_ms>=0
		VOTER_OFFLINE voter_id=$a|$b active_voters=4
		VOTER_OFFLINE voter_id=$a|$b active_voters=3
		QUORUM_AT_RISK healthy=3 voters=5 quorum=3 limiting=$a,$b
		QUORUM_PRIORITY_RECONNECT voters=$a,$b
		^LEADER_LEASE_EXPIRED leader_id=$a
		^QUORUM_OUTAGE_VIEW voter_id=$a cluster_had_quorum=true cause=unreachable
		^QUORUM_OUTAGE_VIEW voter_id=$b cluster_had_quorum=true cause=unreachable
		VOTER_ONLINE voter_id=$a|$b active_voters=4
		QUORUM_RESTORED after=at_risk healthy=4 voters=5
		VOTER_ONLINE voter_id=$a|$b active_voters=5`},
	{name: "the leader steps down", always: true, do: stepDown, want: `
		LEADER_STEPDOWN leader_id=$a target=$b cause=operator
		LEADER_ELECTED leader_id=$b previous_leader=$a cause=stepdown leaderless_ms>=0`},
	{name: "a majority is killed", do: majorityKilled, want: quorumGone},
	{name: "everybody is alone", always: true, do: everybodyAlone, want: quorumGone},
	{name: "all are stopped", do: allStopped, want: `
		LEADER_STEPDOWN leader_id=$a target=$b|$c cause=shutdown
		LEADER_ELECTED leader_id=$b|$c previous_leader=$a cause=stepdown leaderless_ms>=0
		?LEADER_STEPDOWN leader_id=$b|$c cause=shutdown
		?LEADER_ELECTED leader_id=$b|$c cause=stepdown
		LEADER_LOST|LEADER_STEPDOWN cause=restart|shutdown
		LEADER_ELECTED cause=restart|stepdown leaderless_ms>=0
		^?LEADER_LEASE_EXPIRED leader_id=$b|$c
		^?QUORUM_LOST seen_by=$b|$c
		^?QUORUM_RECOVERY_STARTED
		^?QUORUM_RESTORED after=lost`},
	{name: "all are killed", do: allKilled, want: `
		LEADER_LOST old_leader=$a cause=restart
		LEADER_ELECTED previous_leader=$a cause=restart leaderless_ms>=0`},
	{name: "a follower comes and goes", do: followerFlaps, // cut off ten times, which it may see each time
		most: map[string]int{
			"VOTER_":                    6,
			"QUORUM_OUTAGE_VIEW":        10,
			"QUORUM_AT_RISK":            3,
			"QUORUM_PRIORITY_RECONNECT": 3,
			"QUORUM_RESTORED":           3,
		}},
	{name: "a follower's link is bad", do: followerBadLink, most: map[string]int{"VOTER_": 4, "QUORUM_": 8}},
}

// followerGone is reported when b leaves in any way and returns.
const followerGone = `
	VOTER_OFFLINE voter_id=$b active_voters=2 last_contact_ms>=1000
	QUORUM_AT_RISK healthy=2 voters=3 quorum=2 limiting=$b
	QUORUM_PRIORITY_RECONNECT voters=$b
	VOTER_ONLINE voter_id=$b active_voters=3
	QUORUM_RESTORED after=at_risk healthy=3 voters=3 quorum=2 outage_ms=0`

// leaderGone is reported when a leaves in any way, the others continue, and it returns.
const leaderGone = `
	LEADER_HEARTBEAT_MISSING leader_id=$a seen_by=$b|$c
	LEADER_LOST old_leader=$a cause=heartbeat_timeout
	LEADER_ELECTED leader_id=$b|$c previous_leader=$a cause=heartbeat_timeout leaderless_ms>=0
	VOTER_OFFLINE voter_id=$a active_voters=2 last_contact_ms>=1000
	QUORUM_AT_RISK healthy=2 voters=3 quorum=2 limiting=$a
	QUORUM_PRIORITY_RECONNECT voters=$a
	VOTER_ONLINE voter_id=$a active_voters=3
	QUORUM_RESTORED after=at_risk healthy=3 voters=3 quorum=2 outage_ms=0`

// leaderAlone is reported beside leaderGone when a kept running without the others.
const leaderAlone = `
	^LEADER_LEASE_EXPIRED leader_id=$a
	^QUORUM_OUTAGE_VIEW voter_id=$a cluster_had_quorum=true cause=unreachable`

// quorumGone is reported when no two voters reached each other for a while.
const quorumGone = `
	?LEADER_HEARTBEAT_MISSING leader_id=$a
	LEADER_LOST old_leader=$a cause=heartbeat_timeout|restart|reelected
	LEADER_ELECTED previous_leader=$a leaderless_ms>=500
	^LEADER_LEASE_EXPIRED leader_id=$a
	QUORUM_LOST began_at=* seen_by=* refused>=1 voters=3 quorum=2 last_leader=$a cause=unreachable
	QUORUM_RECOVERY_STARTED recovery_ms>=0
	QUORUM_RESTORED after=lost outage_ms>=4150 refused>=1
	^?QUORUM_OUTAGE_VIEW cluster_had_quorum=false`

// outageLasts is how long a test leaves the cluster without a quorum. A leader may be
// reported to have led for its lease (750 ms) longer, and comparing clocks costs a little.
const outageLasts = 5 * time.Second

// The log reports exactly what was done to the cluster, with equal events on every node, and nothing acknowledged is
// lost.
func TestTheLogReportsWhatWasDone(t *testing.T) {
	running := make(chan struct{}, 3)
	for _, s := range scenarios {
		if !longtest.Enabled() && !s.always {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			running <- struct{}{}
			t.Cleanup(func() { <-running })
			whileTheMachineRuns(t, func(t testing.TB) {
				on := newStage(t, max(3, s.voters))
				s.do(on)
				on.awaitWhole()
				on.compareStories(s)
			})
		})
	}
}

// compareStories compares the story of all nodes with the wanted one until it is complete,
// and requires that nothing more is reported after that. It compares every node's log with
// the ledger, too.
func (s *stage) compareStories(c scenario) {
	s.t.Helper()
	var story []storyEvent
	compareOnce := func() error {
		stories, err := s.stories(s.converged().LastOffset)
		if err != nil {
			return err
		}
		story, err = sameStory(stories)
		if err != nil {
			return err
		}
		return cmp.Or(checkSound(story), s.compare(c, story))
	}
	// It becomes complete, and nothing is added to it: that takes time in which nothing happens.
	s.eventually(20*time.Second, "story as wanted", compareOnce)
	const quiet = 2 * time.Second
	letPass(quiet)
	if err := compareOnce(); err != nil {
		s.t.Fatalf("%s later: %v", quiet, err)
	}
	for _, e := range story {
		s.t.Logf("%s %s", e.at.Format("15:04:05.000"), e)
	}
	compare(s.t, s.cluster, s.ledger)
}

// compare compares one reading of the story with the wanted one.
func (s *stage) compare(c scenario, story []storyEvent) error {
	want := "LEADER_ELECTED leader_id=$a cause=bootstrap\n" + c.want
	if s.level < healthLevel {
		want = onlyLeaders(want)
	}
	// Events that are only bounded in number are taken out first.
	count := map[string]int{}
	story = slices.DeleteFunc(slices.Clone(story), func(e storyEvent) bool {
		for prefix := range c.most {
			if strings.HasPrefix(e.kind, prefix) {
				count[prefix]++
				return true
			}
		}
		return false
	})
	for prefix, most := range c.most {
		if count[prefix] > most {
			return fmt.Errorf("%d events %s*, at most %d are wanted", count[prefix], prefix, most)
		}
	}
	return compareStory(want, story, s.names)
}

// onlyLeaders returns the story as a log reports it that knows nothing of health.
func onlyLeaders(want string) string {
	var lines []string
	for l := range strings.Lines(want) {
		if strings.HasPrefix(strings.TrimLeft(l, "\t ^?"), "LEADER_") {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, "")
}

// followerKilled kills b and starts it again.
func followerKilled(s *stage) {
	s.b.kill()
	s.awaitOffline(s.a, s.b)
	s.write(s.ledger, 20)
	s.b.start()
}

// followerCutOff cuts b off from all others.
func followerCutOff(s *stage) {
	s.isolate(s.b)
	s.awaitOffline(s.a, s.b)
	s.requireRefusal(s.b) // it has noticed too
	s.write(s.ledger, 20)
	s.heal()
}

// followerDeaf cuts the way from the leader to b, one way.
func followerDeaf(s *stage) {
	s.oneWay(s.a, s.b)
	s.awaitOffline(s.a, s.b)
	s.write(s.ledger, 20)
	s.heal()
}

// leaderKilled kills the leader and starts it again.
func leaderKilled(s *stage) {
	s.a.kill()
	s.awaitOffline(s.awaitLeader(s.b, s.c), s.a)
	s.write(s.ledger, 20)
	s.a.start()
}

// leaderPaused stops the leader's process, and lets it run again once another leads.
func leaderPaused(s *stage) {
	s.a.signal(syscall.SIGSTOP)
	s.awaitOffline(s.awaitLeader(s.b, s.c), s.a)
	s.write(s.ledger, 20)
	s.a.signal(syscall.SIGCONT)
}

// allPaused pauses all nodes, as a machine does that is migrated or starved: for longer than
// a lease, and for less than a voter may be silent. No voter was unreachable to another.
func allPaused(s *stage) {
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, p := range s.nodes {
			p.signal(sig)
		}
		letPass(1400 * time.Millisecond)
	}
}

// leaderCutOff cuts the leader off from both followers.
func leaderCutOff(s *stage) {
	s.isolate(s.a)
	next := s.awaitLeader(s.b, s.c)
	s.requireRefusal(s.a)
	s.write(s.ledger, 20)
	s.awaitOffline(next, s.a)
	s.requireDifferentStories()
	s.heal()
}

// leaderDeaf cuts the ways to the leader; what it sends arrives.
func leaderDeaf(s *stage) {
	s.oneWay(s.b, s.a)
	s.oneWay(s.c, s.a)
	s.awaitOffline(s.awaitLeader(s.b, s.c), s.a)
	s.write(s.ledger, 20)
	s.heal()
}

// leaderMute cuts the ways from the leader; what is sent to it arrives.
func leaderMute(s *stage) {
	s.oneWay(s.a, s.b)
	s.oneWay(s.a, s.c)
	s.awaitOffline(s.awaitLeader(s.b, s.c), s.a)
	s.write(s.ledger, 20)
	s.heal()
}

// leaderInMinority leaves the leader with one of four followers.
func leaderInMinority(s *stage) {
	s.partition([]*process{s.a, s.b})
	next := s.awaitLeader(s.c, s.d, s.e)
	s.requireRefusal(s.a)
	s.requireRefusal(s.b)
	s.awaitOffline(next, s.a, s.b)
	s.write(s.ledger, 20)
	s.requireDifferentStories()
	s.heal()
}

// stepDown hands leadership over to b.
func stepDown(s *stage) {
	s.mustRun("cluster", "step-down", "--to", s.b.id)
	s.awaitLeader(s.nodes...)
}

// majorityKilled kills two of three voters for the time of an outage.
func majorityKilled(s *stage) {
	for _, p := range []*process{s.b, s.c} {
		p.signal(syscall.SIGKILL)
	}
	s.b.wait()
	s.c.wait()
	s.refuseDuringOutage(s.a)
	s.b.start()
	s.c.start()
}

// everybodyAlone cuts every link for the time of an outage.
func everybodyAlone(s *stage) {
	s.partition([]*process{s.a}, []*process{s.b}, []*process{s.c})
	s.refuseDuringOutage(s.nodes...)
	s.heal()
}

// allStopped stops the leader and then the two others at once. Whichever of them ends
// last may see for a moment that it is alone.
func allStopped(s *stage) {
	s.a.stop()
	s.awaitLeader(s.b, s.c)
	for _, p := range []*process{s.b, s.c} {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range s.nodes {
		p.wait()
	}
	s.startAll()
}

// allKilled kills all voters at once and starts them again.
func allKilled(s *stage) {
	for _, p := range s.nodes {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range s.nodes {
		p.wait()
	}
	s.startAll()
}

// followerFlaps cuts b off every other second.
func followerFlaps(s *stage) {
	cut := false
	s.everySecond(20, func() {
		cut = !cut
		if cut {
			s.isolate(s.b)
		} else {
			s.heal()
		}
	})
	s.heal()
}

// followerBadLink drops every fifth packet from and to b, while there is work.
func followerBadLink(s *stage) {
	s.impair(s.b, impairment{loss: 20})
	s.everySecond(10, func() { s.write(s.ledger, 20) })
	s.heal()
}

// everySecond does something n times, once a second.
func (s *stage) everySecond(times int, do func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range times {
		do()
		<-tick.C
	}
}
