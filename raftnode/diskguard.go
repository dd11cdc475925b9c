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
	mu      sync.Mutex // held to look, and to touch the reserve
	reserve bool       // stands on the disk
}

func newDiskGuard(dir *datadir.Dir, bounds Disk, logger hclog.Logger) *diskGuard {
	if bounds.Free == nil {
		bounds.Free = dir.FreeBytes
	}
	return &diskGuard{dir: dir, bounds: bounds, logger: logger, voters: func() (int, int) { return 1, 0 }}
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
	if g.bounds.MinFree < 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	free, err := g.bounds.Free()
	if err != nil {
		g.logger.Warn("can not tell the free space", "error", err)
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

// admitsAppends is asked by the leader for every append.
func (g *diskGuard) admitsAppends() error {
	if g.low.Load() {
		return fmt.Errorf("raftnode: append: %w: less than %d bytes are free: trim the log or make room", ErrDiskFull, g.bounds.MinFree)
	}
	if all, full := g.voters(); full > 0 && all-full <= all/2 {
		return fmt.Errorf("raftnode: append: %w: on %d of %d voters: trim the log or make room", ErrDiskFull, full, all)
	}
	return nil
}

// fullVoters counts the voters, and those of the others whose disk is full.
func (n *Node) fullVoters() (all, full int) {
	ids := votersOf(n.servers())
	for _, id := range ids {
		if s, _ := n.watch.last(id); s.report.DiskFull {
			full++
		}
	}
	return len(ids), full
}
