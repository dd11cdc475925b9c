package raftnode

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// disks report to each node what a test wants its disk to have.
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

func (d *disks) of(id string) func() (free, size uint64, err error) {
	return func() (uint64, uint64, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if free, set := d.free[id]; set {
			return free, 1 << 40, nil
		}
		return 1 << 40, 1 << 40, nil
	}
}

func TestAFullDiskRefusesAppendsAndLetsCommitsAndTrimsPass(t *testing.T) {
	t.Parallel()
	d := &disks{free: map[string]uint64{}}
	c := voters(t, 1, func(cfg *Config) {
		cfg.Disk = Disk{MinFree: 1 << 30, Reserve: 1 << 20, Space: d.of(cfg.ID)}
	})
	leader := c.leader()
	publish(t, leader, 1)
	reserve := leader.dir.Path(datadir.ReserveFile)
	eventually(t, "a reserve", func() bool { _, err := os.Stat(reserve); return err == nil })

	appends := func() error {
		_, err := leader.Propose(t.Context(), numbered(2))
		return err
	}
	d.set(1<<20, leader.cfg.ID)
	eventually(t, "appends are refused", func() bool { return errors.Is(appends(), ErrDiskFull) })
	eventually(t, "the reserve is given back", func() bool {
		_, err := os.Stat(reserve)
		return errors.Is(err, os.ErrNotExist)
	})
	for _, test := range []struct {
		command frame.Command
		refused bool
	}{
		{frame.DeadLetter{Cursor: "x", Offset: 1}, true},
		{frame.GroupDead{Letter: frame.DeadLetter{Cursor: "x", Offset: 1}}, true},
		{frame.Redrive{}, true},
		{frame.LetterImport{}, true},
		{frame.LetterKeep{}, true},
		{frame.Register{Definitions: []byte("[]")}, true},
		{frame.Trim{Before: 2}, false},
		{frame.Purge{}, false},
		{frame.CursorCreate{Name: "x"}, false},
		{frame.CursorCommit{Name: "x", Offset: 1}, false},
		{frame.SettingSet{Key: "retention.age", Value: "1h"}, false},
	} {
		_, err := leader.Propose(t.Context(), frame.Request{Command: test.command})
		if errors.Is(err, ErrDiskFull) != test.refused {
			t.Errorf("%T: %v", test.command, err)
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
}

// One full disk of three stops nobody: a leader hands over to a voter with room, a
// follower sends what it is asked for to the leader.
func TestALeaderWhoseDiskIsFullHandsOver(t *testing.T) {
	t.Parallel()
	d := &disks{free: map[string]uint64{}}
	c := voters(t, 3, func(cfg *Config) {
		cfg.Disk = Disk{MinFree: 1 << 30, Reserve: 1 << 20, Space: d.of(cfg.ID)}
	})
	publish(t, c.leader(), 1)
	appends := func(n *Node) (err error) {
		eventually(t, "a leader to ask", func() bool {
			_, err = n.Propose(t.Context(), numbered(2))
			return !errors.Is(err, ErrNoLeader)
		})
		return err
	}

	// A busy machine may lose a leader before it hands over: then the disk of the next one is full.
	var full *Node
	handedOver := func() bool { return slices.Contains(leaderEvents(t, c.leader()), string(event.LeaderStepdown)) }
	for try := 0; !handedOver(); try++ {
		if try == 3 {
			t.Fatalf("the log reports %v", leaderEvents(t, c.leader()))
		}
		if full != nil {
			d.set(1<<40, full.cfg.ID)
		}
		full = c.leader()
		d.set(1<<20, full.cfg.ID)
		eventually(t, "another leads", func() bool { return c.leader() != full })
	}
	for _, n := range c.all() {
		if err := appends(n); err != nil {
			t.Errorf("one full voter of three, of whom no quorum needs it; asked at %s: %v", n.cfg.ID, err)
		}
	}
	eventually(t, "every member's disk is known", func() bool {
		return !slices.ContainsFunc(c.leader().Status().Members, func(m MemberStatus) bool {
			return m.Disk == nil || m.Disk.Full != (m.ID == full.cfg.ID) || m.Disk.MinFreeBytes != 1<<30
		})
	})
	d.set(1<<20, c.leader().cfg.ID)
	eventually(t, "with two full voters of three appends are refused", func() bool {
		return errors.Is(appends(c.leader()), ErrDiskFull)
	})
}

func TestTheBoundOfADiskIsAShareOfIt(t *testing.T) {
	for size, want := range map[uint64]Disk{
		320 << 20: {MinFree: 64 << 20, Reserve: 16 << 20},
		4 << 30:   {MinFree: 214748364, Reserve: 53687091},
		1 << 40:   {MinFree: 1 << 30, Reserve: 64 << 20},
	} {
		if got := (Disk{}).on(size); got.MinFree != want.MinFree || got.Reserve != want.Reserve {
			t.Errorf("of %d MiB: %d and %d, not %d and %d", size>>20, got.MinFree, got.Reserve, want.MinFree, want.Reserve)
		}
	}
	if got := (Disk{MinFree: 5 << 20, Reserve: -1}).on(1 << 40); got.MinFree != 5<<20 || got.Reserve != -1 {
		t.Errorf("what was set does not hold: %+v", got)
	}
}
