package raftnode

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
	"time"
)

// A node whose state waits for its disk with an entry half applied still answers pings
// and watching the quorum.
func TestANodeWhoseStateDiskHangsAnswersPings(t *testing.T) {
	t.Parallel()
	disks := map[string]*hangingDisk{}
	c := voters(t, 3, func(cfg *Config) {
		disks[cfg.ID] = newHangingDisk()
		disks[cfg.ID].writes = true
		cfg.stateFS = disks[cfg.ID]
	})
	leader, hung := c.leader(), c.followers()[0]
	publish(t, leader, 1)
	c.settle()
	disk := disks[hung.cfg.ID]
	disk.hang()
	t.Cleanup(disk.thaw) // before the nodes are closed

	// Pebble takes half a megabyte into its buffers, then an entry waits.
	random := make([]byte, 256<<10)
	for i := range 8 {
		if _, err := rand.Read(random); err != nil {
			t.Fatal(err)
		}
		publishPayload(t, leader, fmt.Sprintf(`{"n": %d, "text": "%s"}`, i, hex.EncodeToString(random)))
	}
	silent := 4 * leader.cfg.Timing.Ping * time.Duration(leader.cfg.Timing.Misses)
	var waits chan struct{}
	eventually(t, "an entry waits for the disk", func() bool {
		waits = make(chan struct{})
		go func() {
			defer close(waits)
			hung.machine.Stats() // of the state itself
		}()
		select {
		case <-waits:
			return false
		case <-time.After(silent):
			return hung.machine.Applied() < leader.machine.Applied()
		}
	})

	answers := make(chan struct{})
	go func() {
		defer close(answers)
		hung.Report(Question{})
		hung.Status()
	}()
	within := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(raceFactor * 15 * time.Second):
			t.Errorf("%s did not happen", what)
		}
	}
	within("a report", answers)

	began := time.Now()
	eventually(t, "pings would be missed", func() bool { return time.Since(began) > silent })
	eventually(t, "it counts as there, and sees a quorum", func() bool {
		return leader.watch.Present(hung.cfg.ID) && hung.Status().Outage == nil
	})
	disk.thaw()
	within("the entry", waits)
	c.settle()
}
