package raftnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// turnEvery keeps voters apart that miss the same leader: of two that stand at once
// each votes for itself, and both wait for another election.
const turnEvery = 40 * time.Millisecond

// hasten makes a follower stand early when its leader's connections have all ended,
// as they do when the process is killed. Of a leader that fell silent nobody can tell
// whether it is slow, so raft waits for Timing.Heartbeat, and up to twice that for the
// next look. One that is gone is given Timing.Lease, for which it might itself still
// take itself for the leader.
//
// It only shortens raft's patience. A leader that speaks to anybody stays: a voter that
// hears it gives no pre-vote.
func (n *Node) hasten(ctx context.Context) {
	for {
		select {
		case id := <-n.transport.Parted():
			if err := n.standSoon(ctx, id, time.Now()); err != nil && ctx.Err() == nil {
				n.logger.Warn("an early election was not possible", "gone", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// standSoon waits for its turn and lets raft stand, unless the leader is heard of again.
func (n *Node) standSoon(ctx context.Context, gone string, since time.Time) error {
	r := n.raft.Load()
	turn := turnOf(n.cfg.ID, gone, votersOf(n.servers()))
	misses := func() bool {
		_, leader := r.LeaderWithID()
		return string(leader) == gone && r.State() == raft.Follower && !r.LastContact().After(since)
	}
	if turn < 0 || !misses() {
		return nil
	}
	due := r.LastContact().Add(n.cfg.Timing.Lease + time.Duration(turn)*turnEvery)
	if !pauseUntil(ctx, due) || !misses() {
		return ctx.Err()
	}
	n.logger.Info("the leader's connections have ended", "leader", gone, "silent", time.Since(r.LastContact()).Round(time.Millisecond))
	usual := r.ReloadableConfig()
	hasty := usual
	hasty.HeartbeatTimeout, hasty.ElectionTimeout = n.cfg.Timing.Lease, n.cfg.Timing.Lease
	if err := r.ReloadConfig(hasty); err != nil {
		return fmt.Errorf("raftnode: shorten raft's timeouts: %w", err)
	}
	electing, cancel := context.WithTimeout(ctx, n.cfg.Timing.Heartbeat+n.cfg.Timing.Election)
	defer cancel()
	_ = n.until(electing, func() bool {
		_, leader := r.LeaderWithID()
		return leader != "" && (string(leader) != gone || r.LastContact().After(since))
	})
	if err := r.ReloadConfig(usual); err != nil {
		return fmt.Errorf("raftnode: restore raft's timeouts: %w", err)
	}
	return nil
}

// turnOf is the place of self among the voters that are left without gone, -1 if it has
// no vote.
func turnOf(self, gone string, voters []string) int {
	left := slices.DeleteFunc(slices.Sorted(slices.Values(voters)), func(id string) bool { return id == gone })
	return slices.Index(left, self)
}

// pauseUntil reports that the time came before ctx ended.
func pauseUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
