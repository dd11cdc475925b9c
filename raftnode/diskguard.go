package raftnode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

const (
	diskEvery    = time.Second
	diskRecovery = 5 // a fifth above the bound ends the alarm, so that it does not flap
)

// diskGuard watches free space. While it is low the reserve is given back, for
// commits and trims to go on, and appends are refused.
type diskGuard struct {
	dir    *datadir.Dir
	bounds Disk
	logger hclog.Logger
	// voters tells how many voters there are and how many of them have a full
	// disk, or did when last heard of, this node not counted as full.
	voters func() (all, full int)

	low     atomic.Bool
	free    atomic.Uint64 // bytes, when last looked at
	stuck   atomic.Bool   // the last hand-over to a voter with room failed
	mu      sync.Mutex    // held to look, and to touch the reserve
	reserve bool          // is on the disk
}

func newDiskGuard(dir *datadir.Dir, bounds Disk, logger hclog.Logger) (*diskGuard, error) {
	if bounds.Space == nil {
		bounds.Space = dir.Space
	}
	_, size, err := bounds.Space()
	if err != nil {
		return nil, err
	}
	return &diskGuard{dir: dir, bounds: bounds.on(size), logger: logger, voters: func() (int, int) { return 1, 0 }}, nil
}

func (g *diskGuard) status() DiskStatus {
	return DiskStatus{FreeBytes: g.free.Load(), MinFreeBytes: uint64(max(g.bounds.MinFree, 0)), Full: g.low.Load()}
}

func (g *diskGuard) run(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		g.check()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check looks at the disk once.
func (g *diskGuard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	free, _, err := g.bounds.Space()
	if err != nil {
		g.logger.Warn("the free space is not known", "error", err)
		return
	}
	g.free.Store(free)
	if g.bounds.MinFree < 0 {
		return
	}
	bound := uint64(g.bounds.MinFree)
	switch low := g.low.Load(); {
	case free < bound && !low:
		g.low.Store(true)
		g.logger.Error("disk is nearly full: appends are refused", "free", free, "bound", bound)
		g.giveBack()
	case free < bound:
		g.giveBack()
	case low && free < bound+bound/diskRecovery+g.missing():
	default:
		if low {
			g.low.Store(false)
			g.logger.Info("disk has room again", "free", free)
		}
		g.keepBack()
	}
}

// missing is what making the reserve again will take.
func (g *diskGuard) missing() uint64 {
	if g.reserve || g.bounds.Reserve < 0 {
		return 0
	}
	return uint64(g.bounds.Reserve)
}

func (g *diskGuard) giveBack() {
	if err := g.dir.ReleaseReserve(); err != nil {
		g.logger.Error("giving the reserve back", "error", err)
		return
	}
	g.reserve = false
}

func (g *diskGuard) keepBack() {
	if g.reserve || g.bounds.Reserve < 0 {
		return
	}
	if err := g.dir.Reserve(g.bounds.Reserve); err != nil {
		g.logger.Warn("keeping a reserve", "error", err)
		return
	}
	g.reserve = true
}

// admitsAppends is asked by the leader for every append. While another voter has room,
// this node is about to hand over to it, and clients had better ask again.
func (g *diskGuard) admitsAppends() error {
	all, full := g.voters()
	low := g.low.Load()
	if low {
		full++
	}
	switch {
	case full == 0:
		return nil
	case all-full <= all/2:
		return fmt.Errorf("raftnode: append: %w: on %d of %d voters: trim the log or make room", ErrDiskFull, full, all)
	case low && g.stuck.Load():
		return fmt.Errorf("raftnode: append: %w: fewer than %d bytes are free, and leadership could not be handed over: trim the log or make room",
			ErrDiskFull, g.bounds.MinFree)
	case low:
		return fmt.Errorf("raftnode: append: %w: this node's disk is nearly full and it hands over", ErrNoLeader)
	}
	return nil
}

// fullVoters counts the voters, and those of the others whose disk is full.
func (n *Node) fullVoters() (all, full int) {
	ids := votersOf(n.servers())
	for _, id := range ids {
		if s, _ := n.watch.last(id); s.report.Disk.Full {
			full++
		}
	}
	return len(ids), full
}

// yieldAgain is how long a leader that cannot write waits after a hand-over that failed.
const yieldAgain = 10 * time.Second

// yieldFullDisk hands leadership over when this node's disk is nearly full and a majority
// of the voters has room, until ctx ends with this node's leadership.
func (n *Node) yieldFullDisk(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.Ping / urgentPingFactor)
	defer tick.Stop()
	n.disk.stuck.Store(false)
	var next time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		all, full := n.fullVoters()
		if !n.disk.low.Load() || all-full-1 <= all/2 || time.Now().Before(next) {
			continue
		}
		err := n.stepDown(ctx, "", causeDiskFull)
		if err == nil || ctx.Err() != nil {
			continue
		}
		n.disk.stuck.Store(true)
		next = time.Now().Add(yieldAgain)
		n.logger.Error("this node's disk is nearly full, and nobody takes over", "error", err)
	}
}
