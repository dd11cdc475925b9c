// Raft waits for its heartbeat timeout, and up to twice that, though the leader's process has ended.
// There is no issue. Delete this file when raft takes a hint that a leader is gone.

package upstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// CandidateStagger separates the candidacies of voters that lose the same leader: if two
// campaign at once, each votes for itself and the election is split.
const CandidateStagger = 40 * time.Millisecond

// Failover makes a follower campaign early when its leader's connections have all ended,
// as they do when the process is killed. A leader that has fallen silent may only be slow,
// so raft waits for the heartbeat timeout, and up to twice that until it looks again. One
// whose process has ended is given a lease, for which it might itself still take itself for
// the leader.
//
// It only shortens raft's timeouts. A leader that speaks to anybody stays: a voter that
// hears it gives no pre-vote.
type Failover struct {
	Self                       string
	Lease, Heartbeat, Election time.Duration // of raft
	Lost                       <-chan string // ids of nodes whose connections have all ended
	// lastIndexes asks voters how far their logs reach. Those that do not answer are left out.
	LastIndexes func(ctx context.Context, voters []string) map[string]uint64
	Logger      hclog.Logger
}

// Run campaigns whenever the leader's connections are lost, until ctx ends.
func (f *Failover) Run(ctx context.Context, r *raft.Raft) {
	for {
		select {
		case id := <-f.Lost:
			l := leaderLost{Failover: f, raft: r, leader: id, since: time.Now()}
			if err := l.campaign(ctx); err != nil && ctx.Err() == nil {
				f.Logger.Warn("an early election was not possible", "gone", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// leaderLost is the end of all connections of a node that may be the leader.
type leaderLost struct {
	*Failover
	raft   *raft.Raft
	leader string
	since  time.Time
}

// missed reports that the node is still followed, and has not been heard again. What it
// sent before may have taken a while to store.
func (l leaderLost) missed() bool {
	_, leader := l.raft.LeaderWithID()
	return string(leader) == l.leader && l.raft.State() == raft.Follower && !l.heard()
}

func (l leaderLost) heard() bool { return l.raft.LastContact().After(l.since.Add(l.Lease / 2)) }

// campaign waits for this node's turn and lets raft campaign, unless the leader is heard of
// again.
func (l leaderLost) campaign(ctx context.Context) error {
	// Half a lease decides whether the connections only had to be made again.
	if !l.missed() || !sleepUntil(ctx, l.since.Add(l.Lease/2)) || !l.missed() {
		return ctx.Err()
	}
	turn := l.turn(ctx)
	if turn < 0 {
		return ctx.Err()
	}
	// The leader keeps its lease from the last contact on; then the voters campaign one by one.
	stagger := time.Duration(turn) * CandidateStagger
	if !sleepUntil(ctx, l.since.Add(l.Lease+stagger)) ||
		!sleepUntil(ctx, l.raft.LastContact().Add(l.Lease)) || !l.missed() {
		return ctx.Err()
	}
	l.Logger.Info("the leader's connections have ended", "leader", l.leader,
		"silent", time.Since(l.raft.LastContact()).Round(time.Millisecond), "turn", turn)
	usual := l.raft.ReloadableConfig()
	short := usual
	short.HeartbeatTimeout, short.ElectionTimeout = l.Lease, l.Lease
	if err := l.raft.ReloadConfig(short); err != nil {
		return fmt.Errorf("raftnode: shorten raft's timeouts: %w", err)
	}
	// Raft looks at its timeouts now and then: they stay short until there is a leader.
	electing, cancel := context.WithTimeout(ctx, l.Heartbeat+l.Election)
	defer cancel()
	pollUntil(electing, func() bool {
		_, leader := l.raft.LeaderWithID()
		return leader != "" && (string(leader) != l.leader || l.heard())
	})
	if err := l.raft.ReloadConfig(usual); err != nil {
		return fmt.Errorf("raftnode: restore raft's timeouts: %w", err)
	}
	return nil
}

// turn is this node's place among the voters that are left, -1 if it has no vote. Those
// with a shorter log come first: nobody is given a vote by one that still counts on the
// old leader, and nobody gives one to a shorter log, so that the last to campaign wins.
func (l leaderLost) turn(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, l.Lease/4)
	defer cancel()
	last := map[string]uint64{}
	var others []string
	for _, s := range l.raft.GetConfiguration().Configuration().Servers {
		id := string(s.ID)
		if s.Suffrage != raft.Voter || id == l.leader {
			continue
		}
		last[id] = l.raft.LastIndex() // until it answers, as far as this node's
		if id != l.Self {
			others = append(others, id)
		}
	}
	maps.Copy(last, l.LastIndexes(ctx, others))
	return turnOf(l.Self, last)
}

// turnOf is the place of self among voters, by how far their logs reach; -1 if it is none
// of them.
func turnOf(self string, last map[string]uint64) int {
	order := slices.SortedFunc(maps.Keys(last), func(a, b string) int {
		return cmp.Or(cmp.Compare(last[a], last[b]), cmp.Compare(a, b))
	})
	return slices.Index(order, self)
}

// sleepUntil reports that the time came before ctx ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pollUntil polls a condition that raft gives no signal for, until it holds or ctx ends.
func pollUntil(ctx context.Context, ok func() bool) {
	const every = 10 * time.Millisecond
	for !ok() && sleepUntil(ctx, time.Now().Add(every)) {
	}
}
