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
// so raft waits for the heartbeat timeout, and up to twice that until it checks again. If
// the leader's process has ended, a lease is enough: for that long the leader might still
// believe that it leads.
//
// Failover only shortens raft's timeouts. A leader that others still hear stays: a voter
// that hears it grants no pre-vote.
type Failover struct {
	Self                       string
	Lease, Heartbeat, Election time.Duration // raft's timeouts
	Lost                       <-chan string // ids of nodes whose connections have all ended
	// LastIndexes asks voters for the last index of their logs. Those that do not answer by the end of ctx are
	// left out.
	LastIndexes func(ctx context.Context, voters []string) map[string]uint64
	Logger      hclog.Logger
}

// Run campaigns whenever the leader's connections are lost, until ctx ends. It handles one loss at a time.
func (f *Failover) Run(ctx context.Context, r *raft.Raft) {
	for {
		select {
		case id := <-f.Lost:
			// A candidacy that fails is not a loss: raft's own timeout follows.
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
	leader string    // the node whose connections have ended
	since  time.Time // when that was reported
}

// missed reports whether this node still follows the lost one and has not heard it again.
func (l leaderLost) missed() bool {
	_, leader := l.raft.LeaderWithID()
	return string(leader) == l.leader && l.raft.State() == raft.Follower && !l.heard()
}

// heard reports whether raft heard the node after its connections were lost. A contact shortly after the loss does
// not count: it comes from a request that arrived before, and took a while to store.
func (l leaderLost) heard() bool { return l.raft.LastContact().After(l.since.Add(l.Lease / 2)) }

// campaign waits for this node's turn and makes raft campaign, unless the leader is heard
// again. It returns once there is a leader, or raft's usual timeouts have passed.
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
	// With shorter timeouts raft takes the leader for lost, and campaigns by itself.
	usual := l.raft.ReloadableConfig()
	short := usual
	short.HeartbeatTimeout, short.ElectionTimeout = l.Lease, l.Lease
	if err := l.raft.ReloadConfig(short); err != nil {
		return fmt.Errorf("upstream: shorten raft's timeouts: %w", err)
	}
	// Raft reads its timeouts only now and then: they stay short until there is a leader.
	electing, cancel := context.WithTimeout(ctx, l.Heartbeat+l.Election)
	defer cancel()
	pollUntil(electing, func() bool {
		_, leader := l.raft.LeaderWithID()
		return leader != "" && (string(leader) != l.leader || l.heard())
	})
	if err := l.raft.ReloadConfig(usual); err != nil {
		return fmt.Errorf("upstream: restore raft's timeouts: %w", err)
	}
	return nil
}

// turn is this node's place among the voters that are left, -1 if it has no vote. Those
// with a shorter log come first: a voter that still waits for the old leader grants no
// vote, and none grants its vote to a shorter log, so that the last to campaign wins.
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
		last[id] = l.raft.LastIndex() // the default, if it does not answer
		if id != l.Self {
			others = append(others, id)
		}
	}
	maps.Copy(last, l.LastIndexes(ctx, others))
	return turnOf(l.Self, last)
}

// turnOf is the place of self among voters, ordered by the last index of their logs and then by id; -1 if
// self is not among them.
func turnOf(self string, last map[string]uint64) int {
	order := slices.SortedFunc(maps.Keys(last), func(a, b string) int {
		return cmp.Or(cmp.Compare(last[a], last[b]), cmp.Compare(a, b))
	})
	return slices.Index(order, self)
}

// sleepUntil blocks until t or the end of ctx, and reports whether t was reached.
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
