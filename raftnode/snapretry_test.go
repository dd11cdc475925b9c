package raftnode

import (
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// crampedDisk is a file system on which no checkpoint fits while it is full.
type crampedDisk struct {
	vfs.FS
	full  atomic.Bool
	tries atomic.Int64
}

func (d *crampedDisk) MkdirAll(dir string, perm os.FileMode) error {
	if d.full.Load() && strings.Contains(dir, "out-") {
		d.tries.Add(1)
		return syscall.ENOSPC
	}
	return d.FS.MkdirAll(dir, perm)
}

// A follower that needs the state while the leader's disk has no room for a checkpoint
// gets it once there is room, and until then the leader tries once a second.
func TestACheckpointThatDoesNotFitIsTriedOnceASecond(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		disks := map[string]*crampedDisk{}
		s := newSimulationWith(t, dir, 3, 1, func(cfg *Config) {
			disks[cfg.ID] = &crampedDisk{FS: vfs.Default}
			cfg.stateFS = disks[cfg.ID]
			cfg.Timing.SnapshotThreshold, cfg.Timing.SnapshotInterval, cfg.Timing.TrailingLogs = 8, time.Second, 1
		})
		away, leader := s.follower(), s.leads()
		s.crash(away)
		for range 20 {
			publish(t, leader, 1)
		}
		time.Sleep(5 * time.Second) // the log is compacted
		disk := disks[leader.cfg.ID]
		disk.full.Store(true)
		s.start(away)
		const full = 20
		time.Sleep(full * time.Second)
		if tries := disk.tries.Load(); tries < full/2 || tries > full+1 {
			t.Errorf("in %d s a checkpoint was tried %d times", full, tries)
		}
		if s.leads() != leader {
			t.Error("the leader has changed")
		}
		disk.full.Store(false)
		if took := s.caughtUp(away); took > 5*time.Second {
			t.Errorf("with room again it took %v until the follower had the state", took)
		}
		s.settle()
	})
}
