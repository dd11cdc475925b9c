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
	diskEvery    = time.Second // between two measurements of the free space
	diskRecovery = 5           // a fifth above the bound ends the alarm, so it does not flap
)

// diskGuard watches free space. While it is low, the reserve is released, so commits and trims still have
// room, and appends are refused.
type diskGuard struct {
	dir    *datadir.Dir // of the reserve
	bounds Disk         // complete; a negative one turns off what it bounds
	logger hclog.Logger
	// voters returns how many voters there are, and how many of the others had a full disk by their last report.
	voters func() (all, full int)

	low   atomic.Bool   // fewer bytes than bounds.MinFree are free: the alarm
	free  atomic.Uint64 // bytes, by the last check
	stuck atomic.Bool   // the last hand-over to a voter with room failed

	mu      sync.Mutex // held during a check; guards reserve
	reserve bool       // whether it is on the disk
}

// newDiskGuard returns a guard with bounds for the size of the volume. It knows no other voters until voters is set.
func newDiskGuard(dir *datadir.Dir, bounds Disk, logger hclog.Logger) (*diskGuard, error) {
	if bounds.Space == nil {
		bounds.Space = dir.Space
	}
	// The defaults depend on how large the volume is.
	_, size, err := bounds.Space()
	if err != nil {
		return nil, err
	}
	return &diskGuard{dir: dir, bounds: bounds.on(size), logger: logger, voters: func() (int, int) { return 1, 0 }}, nil
}

// status is what this node reports of its disk, by the last check.
func (g *diskGuard) status() DiskStatus {
	return DiskStatus{FreeBytes: g.free.Load(), MinFreeBytes: uint64(max(g.bounds.MinFree, 0)), Full: g.low.Load()}
}

// run checks the disk every diskEvery until ctx ends.
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

// check measures the free space once, sets or ends the alarm, and releases or makes the reserve.
func (g *diskGuard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	free, _, err := g.bounds.Space()
	if err != nil {
		g.logger.Warn("the free space is not known", "error", err)
		return
	}
	g.free.Store(free)
	// The free space is reported, but nothing follows from it.
	if g.bounds.MinFree < 0 {
		return
	}
	bound := uint64(g.bounds.MinFree)
	switch low := g.low.Load(); {
	// The alarm is raised once, however long it lasts.
	case free < bound && !low:
		g.low.Store(true)
		g.logger.Error("disk is nearly full: appends are refused", "free", free, "bound", bound)
		g.releaseReserve()
	case free < bound:
		// Retried at each check: it may have failed.
		g.releaseReserve()
	// Making the reserve again takes space, too, and must not raise the alarm that has just ended.
	case low && free < bound+bound/diskRecovery+g.missing():
	default:
		if low {
			g.low.Store(false)
			g.logger.Info("disk has room again", "free", free)
		}
		// Without an alarm as well: the reserve may be missing since it could not be made, or since this node was
		// started.
		g.makeReserve()
	}
}

// missing is how many bytes it takes to make the reserve again. It is called with mu held.
func (g *diskGuard) missing() uint64 {
	if g.reserve || g.bounds.Reserve < 0 {
		return 0
	}
	return uint64(g.bounds.Reserve)
}

// releaseReserve releases the reserve. It is called with mu held.
func (g *diskGuard) releaseReserve() {
	if err := g.dir.ReleaseReserve(); err != nil {
		g.logger.Error("releasing the reserve", "error", err)
		return
	}
	g.reserve = false
}

// makeReserve makes the reserve if it is not on the disk. It is called with mu held.
func (g *diskGuard) makeReserve() {
	if g.reserve || g.bounds.Reserve < 0 {
		return
	}
	// A failure is tried again with the next check.
	if err := g.dir.Reserve(g.bounds.Reserve); err != nil {
		g.logger.Warn("making the reserve", "error", err)
		return
	}
	g.reserve = true
}

// admitsAppends is called on the leader for every append. While a majority has room without this node, the error is
// ErrNoLeader: this node is about to hand over, and clients should retry.
func (g *diskGuard) admitsAppends() error {
	// The voters by their last reports, this node by its own disk.
	all, full := g.voters()
	low := g.low.Load()
	if low {
		full++
	}
	switch {
	case full == 0:
		return nil
	// Whoever leads, no majority could store the append.
	case all-full <= all/2:
		return fmt.Errorf("append: %w: on %d of %d voters: trim the log or make room", ErrDiskFull, full, all)
	case low && g.stuck.Load():
		return fmt.Errorf("append: %w: fewer than %d bytes are free, and leadership could not be handed over: "+
			"trim the log or make room", ErrDiskFull, g.bounds.MinFree)
	case low:
		return fmt.Errorf("append: %w: this node's disk is nearly full and it hands over", ErrNoLeader)
	}
	return nil
}

// fullVoters counts the voters, and those of the others whose disk is full. A voter that never answered counts as one
// with room.
func (n *Node) fullVoters() (all, full int) {
	ids := n.roster.Voters()
	for _, id := range ids {
		if s, _ := n.watch.Last(id); s.Report.Disk.Full {
			full++
		}
	}
	return len(ids), full
}

// yieldAgain is how long a leader with a full disk waits after a hand-over that failed.
const yieldAgain = 10 * time.Second

// yieldFullDisk hands leadership over when this node's disk is nearly full and a majority
// of the voters has room, until ctx ends with this node's leadership.
func (n *Node) yieldFullDisk(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Timing.health().Urgent())
	defer tick.Stop()
	// What failed in an earlier leadership is no reason to refuse appends with ErrDiskFull in this one.
	n.disk.stuck.Store(false)
	// No hand-over is tried before this moment.
	var next time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		all, full := n.fullVoters()
		// Without a majority that has room, another leader would have to refuse appends as well.
		if !n.disk.low.Load() || all-full-1 <= all/2 || time.Now().Before(next) {
			continue
		}
		// The successor is one with room, as handover.successor prefers these.
		err := n.handover.stepDown(ctx, "", causeDiskFull)
		if err == nil || ctx.Err() != nil {
			continue
		}
		// Appends are refused with ErrDiskFull from here on, not with ErrNoLeader: nobody else takes them.
		n.disk.stuck.Store(true)
		next = time.Now().Add(yieldAgain)
		n.logger.Error("this node's disk is nearly full, and nobody takes over", "error", err)
	}
}
