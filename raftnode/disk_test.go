package raftnode

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/frame"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// disks tell each node what a test wants its disk to have.
type disks struct {
	mu   sync.Mutex
	free map[string]uint64
}

func (d *disks) set(free uint64, ids ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		d.free[id] = free
	}
}

func (d *disks) of(id string) func() (uint64, error) {
	return func() (uint64, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if free, told := d.free[id]; told {
			return free, nil
		}
		return 1 << 40, nil
	}
}

func TestAFullDiskRefusesAppendsAndLetsCommitsAndTrimsPass(t *testing.T) {
	t.Parallel()
	d := &disks{free: map[string]uint64{}}
	c := voters(t, 3, func(cfg *Config) {
		cfg.Disk = Disk{MinFree: 1 << 30, Reserve: 1 << 20, Free: d.of(cfg.ID)}
	})
	leader := c.leader()
	publish(t, leader, 1)
	reserve := leader.dir.Path(datadir.ReserveFile)
	eventually(t, "a reserve", func() bool { _, err := os.Stat(reserve); return err == nil })

	appends := func() (err error) {
		eventually(t, "a leader to ask", func() bool {
			_, err = leader.Propose(t.Context(), numbered(2))
			return !errors.Is(err, ErrNoLeader)
		})
		return err
	}
	d.set(1<<20, leader.cfg.ID)
	eventually(t, "appends are refused", func() bool { return errors.Is(appends(), ErrDiskFull) })
	eventually(t, "the reserve is given back", func() bool { _, err := os.Stat(reserve); return errors.Is(err, os.ErrNotExist) })
	for _, command := range []frame.Command{frame.Trim{Before: 2}, frame.CursorCreate{Name: "x"}, frame.CursorCommit{Name: "x", Offset: 1}} {
		if _, err := leader.Propose(t.Context(), frame.Request{Command: command}); errors.Is(err, ErrDiskFull) {
			t.Errorf("%T: %v", command, err)
		}
	}
	d.set(1<<30+1, leader.cfg.ID)
	leader.disk.check()
	if !errors.Is(appends(), ErrDiskFull) {
		t.Error("just above the bound it takes appends again: it would flap")
	}
	d.set(1<<31, leader.cfg.ID)
	eventually(t, "appends are taken again", func() bool { return appends() == nil })
	eventually(t, "the reserve is back", func() bool { _, err := os.Stat(reserve); return err == nil })

	followers := c.followers()
	d.set(1<<20, followers[0].cfg.ID)
	eventually(t, "the follower reports it", func() bool { return followers[0].Report().DiskFull })
	if err := appends(); err != nil {
		t.Errorf("one full voter of three, of whom no quorum needs it: %v", err)
	}
	d.set(1<<20, followers[1].cfg.ID)
	eventually(t, "with two full voters of three appends are refused", func() bool { return errors.Is(appends(), ErrDiskFull) })
}
