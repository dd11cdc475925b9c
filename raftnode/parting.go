package raftnode

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
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
			p := parting{Node: n, r: n.raft.Load(), gone: id, since: time.Now()}
			if err := p.standSoon(ctx); err != nil && ctx.Err() == nil {
				n.logger.Warn("an early election was not possible", "gone", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// parting is the end of all connections of a node.
type parting struct {
	*Node
	r     *raft.Raft
	gone  string
	since time.Time
}

// missed reports that the node is still followed, and has not been heard again. What it
// sent before may have taken a while to store.
func (p parting) missed() bool {
	_, leader := p.r.LeaderWithID()
	return string(leader) == p.gone && p.r.State() == raft.Follower && !p.heard()
}

func (p parting) heard() bool { return p.r.LastContact().After(p.since.Add(p.cfg.Timing.Lease / 2)) }

// standSoon waits for its turn and lets raft stand, unless the leader is heard of again.
func (p parting) standSoon(ctx context.Context) error {
	lease := p.cfg.Timing.Lease
	if !p.missed() || !pauseUntil(ctx, p.since.Add(lease/2)) || !p.missed() {
		return ctx.Err()
	}
	turn := p.turn(ctx)
	if turn < 0 || !pauseUntil(ctx, p.since.Add(lease+time.Duration(turn)*turnEvery)) || !pauseUntil(ctx, p.r.LastContact().Add(lease)) || !p.missed() {
		return ctx.Err()
	}
	p.logger.Info("the leader's connections have ended", "leader", p.gone, "silent", time.Since(p.r.LastContact()).Round(time.Millisecond), "turn", turn)
	usual := p.r.ReloadableConfig()
	hasty := usual
	hasty.HeartbeatTimeout, hasty.ElectionTimeout = lease, lease
	if err := p.r.ReloadConfig(hasty); err != nil {
		return fmt.Errorf("raftnode: shorten raft's timeouts: %w", err)
	}
	electing, cancel := context.WithTimeout(ctx, p.cfg.Timing.Heartbeat+p.cfg.Timing.Election)
	defer cancel()
	_ = p.until(electing, func() bool {
		_, leader := p.r.LeaderWithID()
		return leader != "" && (string(leader) != p.gone || p.heard())
	})
	if err := p.r.ReloadConfig(usual); err != nil {
		return fmt.Errorf("raftnode: restore raft's timeouts: %w", err)
	}
	return nil
}

// turn is this node's place among the voters that are left, -1 if it has no vote. Those
// with a shorter log come first: nobody is given a vote by one that still counts on the
// old leader, and nobody gives one to a shorter log, so that the last to stand wins.
func (p parting) turn(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timing.Lease/4)
	defer cancel()
	left := map[string]uint64{}
	for _, id := range votersOf(p.servers()) {
		if id != p.gone {
			left[id] = p.r.LastIndex()
		}
	}
	others := slices.DeleteFunc(slices.Clone(p.knownPeers()), func(m datadir.Peer) bool {
		_, votes := left[m.ID]
		return !votes || m.ID == p.cfg.ID
	})
	for id, s := range p.watch.askAll(ctx, others) {
		left[id] = s.report.LastIndex
	}
	return turnOf(p.cfg.ID, left)
}

// turnOf is the place of self among voters, by how far their logs reach; -1 if it is none
// of them.
func turnOf(self string, last map[string]uint64) int {
	order := slices.SortedFunc(maps.Keys(last), func(a, b string) int {
		return cmp.Or(cmp.Compare(last[a], last[b]), cmp.Compare(a, b))
	})
	return slices.Index(order, self)
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
